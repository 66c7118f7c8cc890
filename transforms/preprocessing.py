"""Declared features as a tf.Transform ``preprocessing_fn``, named to Transform by its import path."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
from lockstep.transforms.statistics import Statistics, analyze_numbers
from lockstep.transforms.vocabularies import VocabularyOptions, analyze_tokens

# Stands for a missing value among tokens: it has line breaks, as no token of a vocabulary has.
_MISSING = "\nlockstep: missing\n"


def preprocessing_fn(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Transforms the declared features and the label, as `lockstep.transforms.features` defines them.

    The same graph serves: without the label's raw columns the label is left out of what the exported layer returns.

    Args:
      inputs: Raw columns by name: sparse (at most one value a row), ragged or dense; float32, int64 or string.
      custom_config: What `lockstep.transforms.features.to_config` returns.

    Returns:
      Dense tensors of shape [batch, 1]: the outputs of `lockstep.transforms.features.transformed_features`, and the
      label (float32) under the name of its column; the weights of records, if there are any, likewise, NaN where
      missing.

    Raises:
      ValueError: An invalid configuration, a column without a value in any row of the training split, or one of a type
        that its kind cannot use.
    """
    features, label, weight = from_config(custom_config)
    transformed_features(features, label, weight)
    outputs = {label.column: _label(inputs, label)}
    if weight is not None:
        outputs[weight] = _weight(inputs, weight)
    outputs |= _numeric_outputs(inputs, features)
    outputs |= _vocabulary_outputs(inputs, features)
    return outputs


# tf.Transform traces the function about ten times, which takes longer than to run it on 15,000 rows: columns are worked
# on side by side in one matrix wherever that saves operations.


def _numeric_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    scaled, bucketized = _of_kind(features, "numeric"), _of_kind(features, "buckets")
    if not scaled + bucketized:
        return {}
    uses = [
        _NumberUse(
            key=f"features.{name}",
            column=name,
            text=f"kind {features[name].kind} needs numbers, but column {name!r} holds text; give kind: vocabulary",
        )
        for name in scaled + bucketized
    ]
    values = _numbers(uses, inputs)
    statistics = analyze_numbers(values, len(scaled), [features[name].num_buckets for name in bucketized])
    to_scale, *to_bucketize = tf.split(values, [len(scaled)] + [1] * len(bucketized), axis=1)
    outputs = _scale(to_scale, statistics, scaled)
    indicators = tf.split(tf.cast(tf.math.is_nan(to_scale), tf.float32), len(scaled), axis=1) if scaled else []
    for name, indicator in zip(scaled, indicators, strict=True):
        if features[name].missing == "indicator":
            outputs[name + MISSING_SUFFIX] = indicator
    for name, column, edges in zip(bucketized, to_bucketize, statistics.edges, strict=True):
        outputs[name] = _bucketize(column, edges)
    return outputs


def _scale(values: tf.Tensor, statistics: Statistics, names: list[str]) -> dict[str, tf.Tensor]:
    if not names:
        return {}
    # A deviation of 0 is exact (see `Moments`): it means a constant column, whose score is 0, as is a missing value's.
    scores = tf.math.divide_no_nan(values - statistics.mean, statistics.deviation)
    scores = tf.clip_by_value(scores, tf.float32.min, tf.float32.max)
    scores = tf.where(tf.math.is_nan(scores), tf.constant(0, tf.float64), scores)
    return dict(zip(names, tf.split(tf.cast(scores, tf.float32), len(names), axis=1), strict=True))


def _bucketize(values: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    # With infinity as the last edge, the index of a missing value is in the range that tf.Transform records.
    infinity = tf.constant(float("inf"), tf.float64)
    values = tf.where(tf.math.is_nan(values), infinity, values)
    return tft.apply_buckets(values, tf.concat([edges, [infinity]], axis=0)[tf.newaxis])


def _vocabulary_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    names = _of_kind(features, "vocabulary")
    if not names:
        return {}
    tokens = _tokens(names, inputs)
    options = [VocabularyOptions(name=vocabulary_name(name), top_k=features[name].top_k) for name in names]
    vocabularies = analyze_tokens(tokens, options)
    columns = tf.split(tokens, len(names), axis=1)
    return {
        name: _look_up(column, vocabulary, features[name].num_oov)
        for name, column, vocabulary in zip(names, columns, vocabularies, strict=True)
    }


def _look_up(tokens: tf.Tensor, vocabulary: tf.Tensor, num_oov: int) -> tf.Tensor:
    def look_up(tokens: tf.Tensor, vocabulary_file: Any) -> tuple[tf.Tensor, tf.Tensor]:
        # Outside of a function's graph, or the table would be made again at every call of the exported one.
        known = isinstance(vocabulary_file, str) or hasattr(vocabulary_file, "numpy")
        with tf.init_scope() if known and tf.inside_function() else contextlib.nullcontext():
            whole_line, line_number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
            lines = tf.lookup.TextFileInitializer(vocabulary_file, tf.string, whole_line, tf.int64, line_number)
            table = tf.lookup.StaticVocabularyTable(lines, num_oov)
            size = table.size()
        # One index more than the table has, so that a missing value's is in the range that tf.Transform records.
        return tf.where(tokens == _MISSING, size, table.lookup(tokens)), size + 1

    return tft.apply_vocabulary(tokens, vocabulary, num_oov_buckets=num_oov, lookup_fn=look_up)


def _label(inputs: Mapping[str, Any], label: Label) -> tf.Tensor:
    columns = {"label.column": label.column}
    if label.relative_to is not None:
        columns["label.relative_to"] = label.relative_to
    text = "column {!r} holds text; a label needs numbers{}: convert it first"
    asked = " (0 and 1 for binary)" if label.kind == "binary" and label.threshold is None else ""
    uses = [_NumberUse(key=key, column=name, text=text.format(name, asked)) for key, name in columns.items()]
    values = _numbers(uses, inputs)
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


def _weight(inputs: Mapping[str, Any], column: str) -> tf.Tensor:
    text = f"column {column!r} holds text; a weight is a number: convert it first"
    return tf.cast(_numbers([_NumberUse(key="train.weight_column", column=column, text=text)], inputs), tf.float32)


def _of_kind(features: Mapping[str, Feature], kind: str) -> list[str]:
    return [name for name, feature in features.items() if feature.kind == kind]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _NumberUse:
    """A column of which numbers are needed, the key of the configuration that names it, and what to say of text."""

    key: str
    column: str
    text: str


def _numbers(uses: Sequence[_NumberUse], inputs: Mapping[str, Any]) -> tf.Tensor:
    """Returns columns as float64 [batch, columns]; NaN where missing or infinite."""
    raw = {}
    for use in uses:
        raw[use.column] = _raw(inputs, use.key, use.column)
        if raw[use.column].dtype == tf.string:
            raise ValueError(f"{use.key}: {use.text}")
    values = _side_by_side(raw, lambda values: tf.cast(values, tf.float64), tf.constant(float("nan"), tf.float64))
    return tf.where(tf.math.is_finite(values), values, tf.constant(float("nan"), tf.float64))


def _tokens(names: list[str], inputs: Mapping[str, Any]) -> tf.Tensor:
    """Returns raw columns as strings [batch, columns], whole numbers written out; `_MISSING` where missing."""
    raw = {name: _raw(inputs, f"features.{name}", name) for name in names}
    for name, column in raw.items():
        if column.dtype.is_floating:
            raise ValueError(
                f"features.{name}: a vocabulary needs text or whole numbers, but column {name!r} holds numbers with a"
                " decimal point; use kind numeric or buckets"
            )
    return _side_by_side(
        raw, lambda values: values if values.dtype == tf.string else tf.strings.as_string(values), _MISSING
    )


def _raw(inputs: Mapping[str, Any], key: str, name: str) -> Any:
    if name not in inputs:
        # The schema is made from the training split, and leaves out what is empty there.
        raise ValueError(
            f"{key}: column {name!r} has no value in any row of the training split; use one that has:"
            f" {', '.join(sorted(inputs))}"
        )
    column = inputs[name]
    return column.to_sparse() if isinstance(column, tf.RaggedTensor) else column


def _side_by_side(columns: Mapping[str, Any], convert: Callable[[tf.Tensor], tf.Tensor], missing: Any) -> tf.Tensor:
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
