"""Declared features as a tf.Transform ``preprocessing_fn``, named to Transform by its import path."""

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms.features import (
    MISSING_SUFFIX,
    Feature,
    Label,
    from_config,
    transformed_features,
    vocabulary_name,
)
from lockstep.transforms.statistics import analyze_numbers
from lockstep.transforms.vocabularies import VocabularyOptions, analyze_tokens


class _Column(NamedTuple):
    """A raw column, dense: both of shape [batch, 1]; ``values`` mean something only where ``present``."""

    values: tf.Tensor
    present: tf.Tensor


def preprocessing_fn(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Transforms the declared features and the label, as `lockstep.transforms.features` defines them.

    The same graph serves: without the label's raw columns the label is left out of what the exported layer returns.

    Args:
      inputs: Raw columns by name: sparse (at most one value a row), ragged or dense; float32, int64 or string.
      custom_config: What `lockstep.transforms.features.to_config` returns.

    Returns:
      Dense tensors of shape [batch, 1]: the outputs of `lockstep.transforms.features.transformed_features`, and the label
      (float32) under the name of its column.

    Raises:
      ValueError: An invalid configuration, a column that the data do not have, or one of a type that its kind cannot use.
    """
    features, label = from_config(custom_config)
    transformed_features(features, label)
    scaled = {name: _numbers(inputs, name, "numeric") for name in _of_kind(features, "numeric")}
    bucketized = {name: _numbers(inputs, name, "buckets") for name in _of_kind(features, "buckets")}
    tokens = {name: _tokens(inputs, name) for name in _of_kind(features, "vocabulary")}
    outputs = {label.column: _label(inputs, label)}
    if scaled or bucketized:
        values = tf.concat([_fill(column, float("nan")) for column in (scaled | bucketized).values()], axis=1)
        statistics = analyze_numbers(values, len(scaled), [features[name].num_buckets for name in bucketized])
        for i, (name, column) in enumerate(scaled.items()):
            outputs[name] = _scale(column, statistics.mean[i], statistics.deviation[i])
            if features[name].missing == "indicator":
                outputs[name + MISSING_SUFFIX] = tf.cast(~column.present, tf.float32)
        for (name, column), edges in zip(bucketized.items(), statistics.edges, strict=True):
            outputs[name] = _bucketize(column, edges)
    if tokens:
        options = [VocabularyOptions(name=vocabulary_name(name), top_k=features[name].top_k) for name in tokens]
        vocabularies = analyze_tokens(tf.concat([column.values for column in tokens.values()], axis=1), options)
        for (name, column), vocabulary in zip(tokens.items(), vocabularies, strict=True):
            outputs[name] = _look_up(column, vocabulary, features[name].num_oov)
    return outputs


def _of_kind(features: Mapping[str, Feature], kind: str) -> list[str]:
    return [name for name, feature in features.items() if feature.kind == kind]


def _scale(column: _Column, mean: tf.Tensor, deviation: tf.Tensor) -> tf.Tensor:
    # A deviation of 0 is exact (see `Moments`), so it means a constant column: its score is 0, as is a missing value's.
    score = tf.math.divide_no_nan(column.values - mean, deviation)
    score = tf.clip_by_value(score, tf.float32.min, tf.float32.max)
    return tf.cast(tf.where(column.present, score, tf.zeros_like(score)), tf.float32)


def _bucketize(column: _Column, edges: tf.Tensor) -> tf.Tensor:
    # With infinity as the last edge, the index of a missing value is in the range that tf.Transform records.
    infinity = tf.constant([float("inf")], tf.float64)
    return tft.apply_buckets(_fill(column, float("inf")), tf.concat([edges, infinity], axis=0)[tf.newaxis])


def _look_up(column: _Column, vocabulary: tf.Tensor, num_oov: int) -> tf.Tensor:
    def look_up(tokens: tf.Tensor, vocabulary_file: Any) -> tuple[tf.Tensor, tf.Tensor]:
        # Outside of a function's graph, or the table would be made again at every call of the exported one.
        known = isinstance(vocabulary_file, str) or hasattr(vocabulary_file, "numpy")
        with tf.init_scope() if known and tf.inside_function() else contextlib.nullcontext():
            whole_line, line_number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
            lines = tf.lookup.TextFileInitializer(vocabulary_file, tf.string, whole_line, tf.int64, line_number)
            table = tf.lookup.StaticVocabularyTable(lines, num_oov)
            size = table.size()
        # One index more than the table has, so that a missing value's is in the range that tf.Transform records.
        return tf.where(column.present, table.lookup(tokens), size), size + 1

    return tft.apply_vocabulary(column.values, vocabulary, num_oov_buckets=num_oov, lookup_fn=look_up)


def _label(inputs: Mapping[str, Any], label: Label) -> tf.Tensor:
    column = _numbers(inputs, label.column, "label")
    values, present = column
    if label.threshold is not None:
        bound = tf.constant(label.threshold, tf.float64)
        if label.relative_to is not None:
            base = _numbers(inputs, label.relative_to, "label")
            bound, present = bound * base.values, present & base.present
        values = tf.cast(values > bound, tf.float64)
    # Not a number is loud: a loss that is NaN cannot be overlooked, a label that became 0 can.
    return tf.cast(tf.where(present, values, tf.constant(float("nan"), tf.float64)), tf.float32)


def _fill(column: _Column, value: float) -> tf.Tensor:
    return tf.where(column.present, column.values, tf.constant(value, tf.float64))


def _numbers(inputs: Mapping[str, Any], name: str, kind: str) -> _Column:
    """Returns a column in float64; not finite values are missing."""
    values, present = _dense(inputs, name)
    if values.dtype == tf.string:
        raise ValueError(_type_message(name, kind, "numbers", "text"))
    values = tf.cast(values, tf.float64)
    finite = tf.math.is_finite(values)
    return _Column(tf.where(finite, values, tf.zeros_like(values)), present & finite)


def _tokens(inputs: Mapping[str, Any], name: str) -> _Column:
    """Returns a column in strings: whole numbers are written out, missing values are empty."""
    values, present = _dense(inputs, name)
    if values.dtype.is_floating:
        raise ValueError(_type_message(name, "vocabulary", "text or whole numbers", "numbers with a decimal point"))
    tokens = values if values.dtype == tf.string else tf.strings.as_string(values)
    return _Column(tf.where(present, tokens, ""), present)


def _type_message(name: str, kind: str, needed: str, got: str) -> str:
    what = f"label.{name}" if kind == "label" else f"features.{name}: kind {kind!r}"
    return f"{what} needs a column of {needed}, but {name!r} holds {got}"


def _dense(inputs: Mapping[str, Any], name: str) -> _Column:
    if name not in inputs:
        raise ValueError(f"the data have no column {name!r}; they have {', '.join(sorted(inputs))}")
    raw = inputs[name]
    if isinstance(raw, tf.RaggedTensor):
        raw = raw.to_sparse()
    if not isinstance(raw, tf.SparseTensor):
        values = tf.reshape(raw, [-1, 1])
        return _Column(values, tf.ones_like(values, dtype=tf.bool))
    # A batch without any value has width 0, any other one width 1.
    num_rows = raw.dense_shape[0]
    first = tf.SparseTensor(raw.indices, raw.values, tf.stack([num_rows, tf.maximum(raw.dense_shape[1], 1)]))
    default = "" if raw.dtype == tf.string else 0
    values = tf.sparse.to_dense(first, default_value=default)[:, :1]
    present = tf.sparse.to_dense(tf.SparseTensor(first.indices, tf.ones_like(raw.values, tf.bool), first.dense_shape))[
        :, :1
    ]
    return _Column(tf.reshape(values, [-1, 1]), tf.reshape(present, [-1, 1]))
