"""Random changes of training records: a function of the user's, and the seeds that make it the same for any layout.

A record's seed comes from (seed of the training, epoch, number of the record) alone. So an augmentation that draws all
its numbers from it, as TensorFlow's ``stateless_*`` functions do, gives the same record the same change in the same
epoch, on any worker, in any batch, before and after a resume; and another one in the next epoch.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.user_functions import user_function

if TYPE_CHECKING:
    import tensorflow as tf

Augmentation = Callable[[Mapping[str, Any], Any], Mapping[str, Any]]
"""(columns, seeds) -> columns, as ``TrainOptions.augment`` says."""


def record_seeds(seed: int, epoch: int, records: "npt.NDArray[np.int64]") -> "npt.NDArray[np.int32]":
    """Returns a seed for each record, int32 [..., 2].

    Args:
      seed: Of the training.
      epoch: From 0.
      records: int64 [...]: number of each record.

    By the finaliser of Steele, Lea and Flood's SplitMix64 (2014), over seed, epoch and record in turn.
    """
    mixed = _mix(np.uint64(_mix(np.array([seed], np.uint64))[0]) ^ np.array([epoch], np.uint64))
    words = _mix(mixed ^ records.astype(np.uint64).reshape(-1))
    return words.view(np.int32).reshape(*records.shape, 2)


def _mix(words: "npt.NDArray[np.uint64]") -> "npt.NDArray[np.uint64]":
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def load_augmentation(name: str, parameters: Mapping[str, Any] | None = None) -> Augmentation:
    """Returns the function ``module:function``, or what it returns where it is a class with parameters.

    Args:
      name: Import path.
      parameters: Keyword arguments of the class; None or empty calls nothing. Lists come as tuples.

    Raises:
      ConfigurationError: There is none, or it refuses the parameters.
    """
    made = user_function("train.augment", name)
    if not parameters:
        return made  # type: ignore[no-any-return]
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
    try:
        return made(**values)  # type: ignore[no-any-return]
    except (TypeError, ValueError) as e:
        raise ConfigurationError(f"train.augment_parameters: {name!r} refuses them: {e}") from e


def augmented(
    augmentation: Augmentation, columns: "Mapping[str, tf.Tensor]", seeds: "tf.Tensor", weights: "tf.Tensor"
) -> "dict[str, tf.Tensor]":
    """Returns a batch as the function changes it; rows of weight 0 stay rows of zeros.

    Args:
      augmentation: The user's function.
      columns: Name -> [batch, ...].
      seeds: int32 [batch, 2].
      weights: float32 [batch, 1].

    Raises:
      ConfigurationError: It gives other columns than it takes, or of other types or shapes.
    """
    import tensorflow as tf

    changed = augmentation(dict(columns), seeds)
    if not isinstance(changed, Mapping) or set(changed) != set(columns):
        got = sorted(changed) if isinstance(changed, Mapping) else type(changed).__name__
        raise ConfigurationError(
            f"train.augment: the function gives {got}; it must give the columns that it takes: {sorted(columns)}"
        )
    result = {}
    for name, before in columns.items():
        after = tf.convert_to_tensor(changed[name])
        if after.dtype != before.dtype or not after.shape.is_compatible_with(before.shape):
            raise ConfigurationError(
                f"train.augment: the function gives {name!r} as {after.dtype.name} {after.shape}; it must stay "
                f"{before.dtype.name} {before.shape}"
            )
        if before.dtype != tf.string:
            is_real = tf.reshape(weights > 0, [-1, *[1] * (before.shape.rank - 1)])
            after = tf.where(is_real, after, tf.zeros([], before.dtype))
        result[name] = tf.ensure_shape(after, before.shape)
    return result
