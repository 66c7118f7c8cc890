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

# Share of all rows by which a bucket may miss its quantile; tf.Transform's own default for 10 buckets.
_QUANTILE_ERROR = 0.01


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
    outputs = _scale(
        {column: _numbers(inputs, column, "numeric") for column in _of_kind(features, "numeric")}, features
    )
    outputs |= _bucketize(
        {column: _numbers(inputs, column, "buckets") for column in _of_kind(features, "buckets")}, features
    )
    for column in _of_kind(features, "vocabulary"):
        outputs[column] = _look_up(_tokens(inputs, column), column, features[column])
    outputs[label.column] = _label(inputs, label)
    return outputs


def _of_kind(features: Mapping[str, Feature], kind: str) -> list[str]:
    return [column for column, feature in features.items() if feature.kind == kind]


def _scale(columns: Mapping[str, _Column], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    if not columns:
        return {}
    # One analyzer for all columns: tf.Transform's time on small data is that of Beam's stages, not of the values.
    stacked = tf.concat([_fill(column, float("nan")) for column in columns.values()], axis=1)
    mean, variance = tft.mean(stacked, reduce_instance_dims=False), tft.var(stacked, reduce_instance_dims=False)
    lowest, highest = _range(columns)
    outputs = {}
    for i, (name, column) in enumerate(columns.items()):
        # A sum of equal values, divided by their number, can miss them by a rounding error, which a division by the
        # standard deviation of the same size would blow up to 1: so the range decides what is constant, not the variance.
        useful = column.present & (highest[i] > lowest[i]) & (variance[i] > 0)
        score = tf.math.divide_no_nan(column.values - mean[i], tf.sqrt(variance[i]))
        score = tf.clip_by_value(score, tf.float32.min, tf.float32.max)
        outputs[name] = tf.cast(tf.where(useful, score, tf.zeros_like(score)), tf.float32)
        if features[name].missing == "indicator":
            outputs[name + MISSING_SUFFIX] = tf.cast(~column.present, tf.float32)
    return outputs


def _range(columns: Mapping[str, _Column]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the least and the greatest present value of each column, both [columns]; inf and -inf if there is none."""
    num_columns = len(columns)
    highest = [_fill(column, float("-inf")) for column in columns.values()]
    negated = [_fill(_Column(-column.values, column.present), float("-inf")) for column in columns.values()]
    extremes = tft.max(tf.concat(highest + negated, axis=1), reduce_instance_dims=False)
    return -extremes[num_columns:], extremes[:num_columns]


def _bucketize(columns: Mapping[str, _Column], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    outputs = {}
    for num_buckets in sorted({features[name].num_buckets for name in columns}):
        alike = {name: column for name, column in columns.items() if features[name].num_buckets == num_buckets}
        stacked = tf.concat([_fill(column, float("nan")) for column in alike.values()], axis=1)
        boundaries = tft.quantiles(stacked, num_buckets, epsilon=_QUANTILE_ERROR, reduce_instance_dims=False)
        boundaries = tf.where(tf.math.is_finite(boundaries), boundaries, tf.zeros_like(boundaries))
        for i, (name, column) in enumerate(alike.items()):
            # Infinity as the last boundary makes the index of a missing value part of what tf.Transform records as range.
            edges = tf.concat([boundaries[i], [float("inf")]], axis=0)[tf.newaxis]
            outputs[name] = tft.apply_buckets(_fill(column, float("inf")), edges)
    return outputs


def _look_up(column: _Column, name: str, feature: Feature) -> tf.Tensor:
    present_tokens = tf.boolean_mask(column.values, column.present)
    vocabulary = tft.vocabulary(present_tokens, top_k=feature.top_k, vocab_filename=vocabulary_name(name))

    def look_up(tokens: tf.Tensor, vocabulary_file: Any) -> tuple[tf.Tensor, tf.Tensor]:
        # Outside of a function's graph, or the table would be made again at every call of the exported one.
        lift = isinstance(vocabulary_file, str) or tf.is_tensor(vocabulary_file) and hasattr(vocabulary_file, "numpy")
        with tf.init_scope() if tf.inside_function() and lift else contextlib.nullcontext():
            initializer = tf.lookup.TextFileInitializer(
                vocabulary_file,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            )
            table = tf.lookup.StaticVocabularyTable(initializer, feature.num_oov)
            size = table.size()
        return tf.where(column.present, table.lookup(tokens), size), size + 1

    return tft.apply_vocabulary(column.values, vocabulary, num_oov_buckets=feature.num_oov, lookup_fn=look_up)


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
    return tf.where(column.present, column.values, tf.constant(value, column.values.dtype))


def _numbers(inputs: Mapping[str, Any], name: str, kind: str) -> _Column:
    """Returns a column in float64; not finite values are missing."""
    values, present = _dense(inputs, name)
    if values.dtype == tf.string:
        raise ValueError(_type_message(name, kind, "numbers", "text"))
    values = tf.cast(values, tf.float64)
    finite = tf.math.is_finite(values)
    return _Column(tf.where(finite, values, tf.zeros_like(values)), present & finite)


def _tokens(inputs: Mapping[str, Any], name: str) -> _Column:
    """Returns a column in strings; whole numbers are written out."""
    values, present = _dense(inputs, name)
    if values.dtype.is_floating:
        raise ValueError(_type_message(name, "vocabulary", "text or whole numbers", "numbers with a decimal point"))
    return _Column(values if values.dtype == tf.string else tf.strings.as_string(values), present)


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
