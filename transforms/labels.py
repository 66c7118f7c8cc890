"""The label and the weights of records, made of their own columns only: serving has all features without them."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms.columns import MISSING_MARK, NumberUse, numbers, tokens
from lockstep.transforms.features import Label, vocabulary_name
from lockstep.transforms.vocabularies import VocabularyOptions, analyze_tokens, vocabulary_table

__all__ = ["label_output", "weight_output"]

_ALL = 1 << 62


def label_output(inputs: Mapping[str, Any], label: Label) -> tf.Tensor:
    """Returns the transformed label, [batch, 1]: float32, NaN where missing; of ``multiclass`` int64, -1 there.

    Raises:
      ValueError: A column has a type that this label cannot be made of, or is not there.
    """
    if label.kind == "multiclass":
        return _class_index(inputs, label.column)
    if label.positive is not None:
        return _is_positive(inputs, label.column, label.positive)
    return _number(inputs, label)


def weight_output(inputs: Mapping[str, Any], column: str) -> tf.Tensor:
    """Returns the weights of records, float32 [batch, 1]; NaN where missing.

    Raises:
      ValueError: The column holds text, or is not there.
    """
    text = f"column {column!r} holds text; a weight is a number: convert it first"
    return tf.cast(numbers([NumberUse(key="train.weight_column", column=column, text=text)], inputs), tf.float32)


def _number(inputs: Mapping[str, Any], label: Label) -> tf.Tensor:
    columns = {"label.column": label.column}
    if label.relative_to is not None:
        columns["label.relative_to"] = label.relative_to
    text = "column {!r} holds text; a label needs numbers{}: convert it first"
    asked = " (0 and 1 for binary, or give positive)" if label.kind == "binary" and label.threshold is None else ""
    uses = [NumberUse(key=key, column=name, text=text.format(name, asked)) for key, name in columns.items()]
    values = numbers(uses, inputs)
    # Not a number is loud: a loss that is NaN cannot be overlooked, a label that became 0 can.
    missing = tf.reduce_any(tf.math.is_nan(values), axis=1, keepdims=True)
    result = values[:, :1]
    if label.threshold is not None:
        bound = label.threshold * (values[:, 1:] if label.relative_to is not None else 1.0)
        result = tf.cast(result > bound, tf.float64)
    elif label.kind == "binary":
        # Without quotes: TensorFlow puts backslashes before those in the text of an assertion.
        message = (
            f"label.column: column {label.column} holds other values than 0 and 1; give a threshold or kind: regression"
        )
        allowed = missing | (result == 0) | (result == 1)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(allowed), [message, result])]):
            result = tf.identity(result)
    return tf.cast(tf.where(missing, tf.constant(float("nan"), tf.float64), result), tf.float32)


def _is_positive(inputs: Mapping[str, Any], column: str, positive: str) -> tf.Tensor:
    found = tokens({"label.column": column}, inputs, otherwise="give threshold instead of positive")
    # Not a number is loud, as above.
    return tf.where(found == MISSING_MARK, tf.constant(float("nan")), tf.cast(found == positive, tf.float32))


def _class_index(inputs: Mapping[str, Any], column: str) -> tf.Tensor:
    classes = tokens({"label.column": column}, inputs, otherwise="give kind: regression")
    # Apart from the vocabularies of features: serving, which has no label, has all of those.
    (vocabulary,) = analyze_tokens(classes, [VocabularyOptions(name=vocabulary_name(column), top_k=_ALL)])
    return tft.apply_vocabulary(classes, vocabulary, lookup_fn=_look_up_class, num_oov_buckets=1)


def _look_up_class(classes: tf.Tensor, vocabulary_file: Any) -> tuple[tf.Tensor, tf.Tensor]:
    table, size = vocabulary_table(vocabulary_file, lambda lines: tf.lookup.StaticHashTable(lines, default_value=-1))
    return table.lookup(classes), size
