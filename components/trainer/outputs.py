"""What a model must give: one float for a record, a probability where the label is binary; of classes one for each."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lockstep.components.class_labels import LabelKind
from lockstep.components.errors import ConfigurationError

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# How far from 1 the probabilities of all classes may add up: half precision has three digits.
_SUM_TOLERANCE = 1e-2


def check_output(
    model: "keras.Model",
    features: Mapping[str, Any],
    weights: "tf.Tensor",
    build: str,
    label_kind: LabelKind,
    num_classes: int | None = None,
) -> None:
    """Calls a model and checks what it gives; a subclassed model gets its weights by it.

    Args:
      model: What ``models.build_model`` returned.
      features: A batch: name -> tensor, as the model takes them.
      weights: Of the batch's rows, [batch, 1]; a row of weight 0 is padding, whose output does not matter.
      build: ``model.build``, for the message.
      label_kind: What is predicted.
      num_classes: Of a multiclass label.

    Raises:
      ConfigurationError: It is not one tensor of floats [batch, 1], or [batch, num_classes]; a value is no probability
        where there must be some.
    """
    import tensorflow as tf

    wanted_shape: list[int | None] = (
        [num_classes or 1] if label_kind != "boxes" else [None, None, (num_classes or 1) + 4]
    )
    output = model(features, training=False)
    shape, dtype = getattr(output, "shape", None), getattr(output, "dtype", None)
    if shape is None or dtype is None:
        got = type(output).__name__
    elif not _fits(list(shape[1:]), wanted_shape) or not dtype.is_floating:
        got = f"{dtype.name} [{', '.join(['batch', *map(str, shape[1:])])}]"
    else:
        if label_kind != "regression":
            real = tf.boolean_mask(output, tf.reshape(weights, [-1]) > 0)
            check_probabilities(improbable(real, label_kind), f"model.build: {build!r}", label_kind)
        return
    if label_kind == "boxes":
        raise ConfigurationError(
            f"model.build: {build!r} gives {got}; it must give a grid, float32 [batch, rows, columns,"
            f" {wanted_shape[2]}]: the probability of each class (inputs.num_classes), and four distances"
        )
    wanted = (
        "one float for a row, [batch, 1]: a probability for a binary label, else the value"
        if num_classes is None
        else f"the probability of each class, float32 [batch, {num_classes}] (inputs.num_classes)"
    )
    raise ConfigurationError(f"model.build: {build!r} gives {got}; it must give {wanted}")


def _fits(shape: list[int | None], wanted: list[int | None]) -> bool:
    """Returns whether a shape is the wanted one, in which None is any known number."""
    return len(shape) == len(wanted) and all(
        a is not None and b in (None, a) for a, b in zip(shape, wanted, strict=True)
    )


def improbable(predictions: "tf.Tensor", label_kind: LabelKind) -> "tf.Tensor":
    """Returns what is no probability, float32 [1], or [0] if there is nothing; works in a graph too.

    Of [batch, 1] the first value under 0 or above 1; of classes, [batch, classes], such a value or the first sum of a
    row that is not 1; of boxes, [batch, rows, columns, classes + 4], such a value among those of the classes.
    """
    import tensorflow as tf

    values = tf.cast(predictions, tf.float32)
    if label_kind == "boxes":
        values = values[..., :-4]
    outside = tf.boolean_mask(values, (values < 0) | (values > 1))
    if label_kind == "multiclass":
        sums = tf.reduce_sum(values, axis=-1)
        outside = tf.concat([outside, tf.boolean_mask(sums, tf.abs(sums - 1) > _SUM_TOLERANCE)], axis=0)
    return outside[:1]


def check_probabilities(wrong: "tf.Tensor", what: str, label_kind: LabelKind) -> None:
    """Raises `ConfigurationError` about ``what`` if `improbable` returned a value."""
    for value in wrong.numpy():
        if label_kind == "multiclass":
            raise ConfigurationError(
                f"{what} gives values that are not from 0 to 1 with sum 1 in each row, such as {value!s}; a multiclass "
                "label needs probabilities: end the model with activation='softmax'"
            )
        if label_kind == "boxes":
            raise ConfigurationError(
                f"{what} gives {value!s} as a probability; end the scores of the grid with activation='sigmoid'"
            )
        raise ConfigurationError(
            f"{what} gives {value!s}; a binary label needs a probability: end the model with activation='sigmoid'"
        )
