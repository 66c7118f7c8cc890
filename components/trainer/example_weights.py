"""How much each record counts: `train.weight_column`, and what is no weight."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.components.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import numpy.typing as npt
    import tensorflow as tf

KEY = "train.weight_column"

# As TensorFlow prints what an assertion within a graph was given.
_REFUSED = re.compile(re.escape(KEY) + r": (?P<name>[^\]]*) holds\] \[(?P<value>[^\]]*)\]")


def check_feature(name: str, spec: Any) -> None:
    """Checks that a transformed feature can hold weights.

    Args:
      name: Of the feature.
      spec: A ``tf.io.FixedLenFeature``; None where the preprocessing function does not return it.

    Raises:
      ConfigurationError: There is no such feature, or it is not one number a record.
    """
    import tensorflow as tf

    if spec is None:
        raise ConfigurationError(
            f"{KEY}: {name!r} is not among the outputs of the preprocessing function; return it there, or leave the "
            "key out"
        )
    is_number = isinstance(spec, tf.io.FixedLenFeature) and spec.dtype != tf.string
    if not is_number or tuple(spec.shape) not in ((), (1,)):
        raise ConfigurationError(f"{KEY}: feature {name!r} is not one number a record; give a column that is")


def check(name: str, values: "npt.NDArray[Any]") -> None:
    """Raises `DataError`, with the first wrong value, unless all are finite numbers of 0 or more."""
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        raise _refused(name, str(values[wrong][0]))


def checked(name: str, weights: "tf.Tensor") -> "tf.Tensor":
    """Returns weights, of any shape, and fails within the graph where one is wrong; see ``as_data_error``."""
    import tensorflow as tf

    allowed = tf.math.is_finite(weights) & (weights >= 0)
    wrong = tf.boolean_mask(weights, ~allowed)[:1]
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(allowed), [f"{KEY}: {name} holds", wrong])]):
        return tf.identity(weights)


def as_data_error(error: Exception) -> DataError | None:
    """Returns what ``checked`` found, if that is what an error of TensorFlow's is about."""
    found = _REFUSED.search(str(error))
    return _refused(found["name"], found["value"]) if found else None


def _refused(name: str, value: str) -> DataError:
    return DataError(f"{KEY}: {name} holds {value}; a weight is a finite number of 0 or more")
