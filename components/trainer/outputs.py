"""What a model must give: one float for a record, a probability where the label is binary."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from lockstep.components.errors import ConfigurationError

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


def check_output(
    model: "keras.Model",
    features: Mapping[str, Any],
    weights: "tf.Tensor",
    build: str,
    label_kind: Literal["binary", "regression"],
) -> None:
    """Calls a model and checks what it gives; a subclassed model gets its weights by it.

    Args:
      model: What ``models.build_model`` returned.
      features: A batch: name -> tensor, as the model takes them.
      weights: Of the batch's rows, [batch, 1]; a row of weight 0 is padding, whose output does not matter.
      build: ``model.build``, for the message.
      label_kind: What is predicted.

    Raises:
      ConfigurationError: It is not one tensor of floats [batch, 1]; the label is binary and a value is no probability.
    """
    import tensorflow as tf

    output = model(features, training=False)
    shape, dtype = getattr(output, "shape", None), getattr(output, "dtype", None)
    if shape is None or dtype is None:
        got = type(output).__name__
    elif list(shape[1:]) != [1] or not dtype.is_floating:
        got = f"{dtype.name} [{', '.join(['batch', *map(str, shape[1:])])}]"
    else:
        if label_kind == "binary":
            real = tf.boolean_mask(output, tf.reshape(weights, [-1]) > 0)
            check_probabilities(improbable(real), f"model.build: {build!r}")
        return
    raise ConfigurationError(
        f"model.build: {build!r} gives {got}; it must give one float for a row, [batch, 1]: a probability for a binary"
        " label, else the value"
    )


def improbable(predictions: "tf.Tensor") -> "tf.Tensor":
    """Returns the first prediction under 0 or above 1, float32 [1], or [0] if there is none; works in a graph too."""
    import tensorflow as tf

    values = tf.cast(tf.reshape(predictions, [-1]), tf.float32)
    return tf.boolean_mask(values, (values < 0) | (values > 1))[:1]


def check_probabilities(wrong: "tf.Tensor", what: str) -> None:
    """Raises `ConfigurationError` about ``what`` if `improbable` returned a value."""
    for value in wrong.numpy():
        raise ConfigurationError(
            f"{what} gives {value!s}; a binary label needs a probability: end the model with activation='sigmoid'"
        )
