"""What a model must give."""

from collections.abc import Callable
from typing import Any, Literal

import keras
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.outputs import check_output


class Giving(keras.Model):
    """A subclassed model that makes of its feature what it is told to."""

    def __init__(self, make: Callable[[tf.Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> Any:
        """Returns it."""
        return self.make(inputs["x"])


def check(
    make: Callable[[tf.Tensor], Any], *values: float, label_kind: Literal["binary", "regression"] = "binary"
) -> None:
    """Checks the model on a batch of these values, the last of which is a row of padding."""
    weights = tf.constant([[1.0]] * (len(values) - 1) + [[0.0]])
    check_output(Giving(make), {"x": tf.constant(values)[:, None]}, weights, "my_model:build", label_kind)


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda x: tf.concat([x, x], axis=1), r"float32 \[batch, 2\]"),
        (lambda x: x[:, 0], r"float32 \[batch\]"),
        (lambda x: x[:, :, None], r"float32 \[batch, 1, 1\]"),
        (lambda x: tf.cast(x, tf.int32), r"int32 \[batch, 1\]"),
        (lambda x: {"p": x}, "dict"),
    ],
)
@pytest.mark.parametrize("label_kind", ["binary", "regression"])
def test_another_shape_than_a_float_a_record_is_refused(make: Any, got: str, label_kind: Any) -> None:
    """The message says what the model gives and what it must give."""
    expected = rf"model\.build: 'my_model:build' gives {got}; it must give one float for a row, \[batch, 1\]"
    with pytest.raises(ConfigurationError, match=expected):
        check(make, 0.5, 0.5, label_kind=label_kind)


@pytest.mark.parametrize(("value", "shown"), [(-3.2, "-3.2"), (1.0000001, "1.0000001"), (-1e-30, "-1e-30")])
def test_a_value_that_is_no_probability_is_refused_for_a_binary_label(value: float, shown: str) -> None:
    """Without any tolerance; a regression may give any value."""
    expected = f"'my_model:build' gives {shown}; a binary label needs a probability: .* activation='sigmoid'"
    with pytest.raises(ConfigurationError, match=expected):
        check(lambda x: x, 0.5, value, 0.0)
    check(lambda x: x, 0.5, value, 0.0, label_kind="regression")


def test_what_a_model_gives_for_padding_does_not_matter() -> None:
    """0 and 1 are probabilities; the row of weight 0 is nobody's record."""
    check(lambda x: x, 0.0, 1.0, -3.0)
