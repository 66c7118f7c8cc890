"""Raw columns as tf.Transform gives them, made dense side by side: numbers as float64, tokens as text."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

__all__ = [
    "MISSING_MARK",
    "NumberUse",
    "dense_column",
    "numbers",
    "raw_column",
    "refuse_missing",
    "side_by_side",
    "tokens",
    "with_num_values",
]

# Stands for a missing value among tokens: it has line breaks, as no token of a vocabulary has.
MISSING_MARK = "\nlockstep: missing\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberUse:
    """A column of which numbers are needed, the key of the configuration that names it, and what to say of text."""

    key: str
    column: str
    text: str


def numbers(uses: Sequence[NumberUse], inputs: Mapping[str, Any]) -> tf.Tensor:
    """Returns columns as float64 [batch, columns]; NaN where missing or infinite.

    Raises:
      ValueError: A column is of text, or not there.
    """
    raw = {}
    for use in uses:
        raw[use.column] = raw_column(inputs, use.key, use.column)
        if raw[use.column].dtype == tf.string:
            raise ValueError(f"{use.key}: {use.text}")
    values = side_by_side(raw, lambda values: tf.cast(values, tf.float64), tf.constant(float("nan"), tf.float64))
    return tf.where(tf.math.is_finite(values), values, tf.constant(float("nan"), tf.float64))


def tokens(columns: Mapping[str, str], inputs: Mapping[str, Any], *, otherwise: str) -> tf.Tensor:
    """Returns raw columns as strings [batch, columns], whole numbers written out; `MISSING_MARK` where missing.

    Args:
      columns: The key of the configuration that names the column -> the column.
      inputs: Raw columns by name.
      otherwise: What to do with numbers with a decimal point.

    Raises:
      ValueError: A column is of numbers with a decimal point, or not there.
    """
    raw = {name: raw_column(inputs, key, name) for key, name in columns.items()}
    for key, name in columns.items():
        if raw[name].dtype.is_floating:
            raise ValueError(
                f"{key}: text or whole numbers are needed, but column {name!r} holds numbers with a decimal point;"
                f" {otherwise}"
            )
    return side_by_side(
        raw, lambda values: values if values.dtype == tf.string else tf.strings.as_string(values), MISSING_MARK
    )


def raw_column(inputs: Mapping[str, Any], key: str, name: str) -> Any:
    """Returns a column, sparse instead of ragged; raises ValueError, with the key that asks for it, where it is not."""
    if name not in inputs:
        # The schema is made from the training split, and leaves out what is empty there.
        raise ValueError(
            f"{key}: column {name!r} has no value in any row of the training split; use one that has:"
            f" {', '.join(sorted(inputs))}"
        )
    column = inputs[name]
    return column.to_sparse() if isinstance(column, tf.RaggedTensor) else column


def side_by_side(columns: Mapping[str, Any], convert: Callable[[tf.Tensor], tf.Tensor], missing: Any) -> tf.Tensor:
    """Returns columns, sparse or dense, as one dense matrix [batch, columns]; fails on a row with several values."""
    dense = []
    shape = None
    for column in columns.values():
        if isinstance(column, tf.SparseTensor):
            # A batch without any value is 0 wide, any other 1 wide; a second value in a row does not fit: it raises.
            shape = tf.stack([column.dense_shape[0], 1]) if shape is None else shape
            one_wide = tf.SparseTensor(column.indices, convert(column.values), shape)
            dense.append(tf.sparse.to_dense(one_wide, default_value=missing))
        else:
            dense.append(tf.reshape(convert(column), [-1, 1]))
    matrix = tf.concat(dense, axis=1)
    return tf.ensure_shape(matrix, [None, len(dense)])


def dense_column(column: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a column's values and which are missing, both [batch, 1]; a value is anything where it is missing."""
    empty = "" if column.dtype == tf.string else tf.constant(0, column.dtype)
    values = side_by_side({"": column}, lambda values: values, empty)
    is_missing = tf.logical_not(side_by_side({"": column}, lambda values: tf.ones_like(values, tf.bool), False))
    if column.dtype.is_floating:
        is_missing |= tf.logical_not(tf.math.is_finite(values))
    return values, is_missing


def with_num_values(index: tf.Tensor, num_values: int) -> tf.Tensor:
    """Lets tf.Transform record how many indices there are, by the one public function that records what it is told."""
    size = tf.constant(num_values, tf.int64)
    return tft.apply_vocabulary(
        index, tf.constant("no file"), lookup_fn=lambda index, _: (index, size), num_oov_buckets=1
    )


def refuse_missing(column: str, values: tf.Tensor, is_missing: tf.Tensor) -> tf.Tensor:
    """Returns the values, but fails when it is run where one is missing, naming the column."""
    # Without quotes: TensorFlow puts backslashes before those in the text of an assertion.
    message = (
        f"features.{column}: a value of column {column} is missing, and the feature has missing: error; complete the"
        " data, or declare what stands for it"
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(tf.reduce_any(is_missing)), [message])]):
        return tf.identity(values)
