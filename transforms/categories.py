"""The kinds of features that are indices of tokens or whole numbers, and what passes through."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms.columns import (
    MISSING_MARK,
    dense_column,
    raw_column,
    refuse_missing,
    tokens,
    with_num_values,
)
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import MISSING_SUFFIX, vocabulary_name
from lockstep.transforms.vocabularies import VocabularyOptions, analyze_tokens, oov_table

__all__ = ["category_outputs"]


def category_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Returns the outputs, [batch, 1], of features of the kinds vocabulary, hash, integer and pass_through.

    Args:
      inputs: Raw columns by name.
      features: By raw column; those of other kinds are left alone.

    Raises:
      ValueError: A column has a type that its kind cannot use, or is not there.
    """
    outputs = _of_tokens(inputs, features)
    for name, feature in features.items():
        if feature.kind == "integer":
            outputs[name] = _integer(inputs, name, feature)
        elif feature.kind == "pass_through":
            outputs |= _pass_through(inputs, name, feature)
    return outputs


def _of_tokens(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    looked_up = {name: feature for name, feature in features.items() if feature.kind == "vocabulary"}
    hashed = {name: feature for name, feature in features.items() if feature.kind == "hash"}
    used = looked_up | hashed
    if not used:
        return {}
    raw = tokens({f"features.{name}": name for name in used}, inputs, otherwise="use kind numeric or buckets")
    columns = []
    for (name, feature), column in zip(used.items(), tf.split(raw, len(used), axis=1), strict=True):
        default = None if feature.default is None else str(feature.default)
        columns.append(_replace(name, feature, column, column == MISSING_MARK, default))
    outputs = {}
    if looked_up:
        options = [
            VocabularyOptions(name=vocabulary_name(name), top_k=feature.top_k, min_frequency=feature.min_frequency)
            for name, feature in looked_up.items()
        ]
        vocabularies = analyze_tokens(tf.concat(columns[: len(looked_up)], axis=1), options)
        for (name, feature), column, vocabulary in zip(looked_up.items(), columns, vocabularies, strict=False):
            outputs[name] = _look_up(column, vocabulary, feature)
    for (name, feature), column in zip(hashed.items(), columns[len(looked_up) :], strict=True):
        outputs[name] = _hash(column, feature)
    return outputs


def _replace(name: str, feature: Feature, values: tf.Tensor, is_missing: tf.Tensor, default: Any) -> tf.Tensor:
    if feature.missing == "error":
        return refuse_missing(name, values, is_missing)
    return values if default is None else tf.where(is_missing, tf.constant(default, values.dtype), values)


def _look_up(column: tf.Tensor, vocabulary: tf.Tensor, feature: Feature) -> tf.Tensor:
    def look_up(column: tf.Tensor, vocabulary_file: Any) -> tuple[tf.Tensor, tf.Tensor]:
        table, size = oov_table(vocabulary_file, feature.num_oov)
        if feature.missing != "indicator":
            return table.lookup(column), size
        # One index more than the table has, so that a missing value's is in the range that tf.Transform records.
        return tf.where(column == MISSING_MARK, size, table.lookup(column)), size + 1

    return tft.apply_vocabulary(column, vocabulary, num_oov_buckets=feature.num_oov, lookup_fn=look_up)


def _hash(column: tf.Tensor, feature: Feature) -> tf.Tensor:
    num_buckets = feature.num_buckets or 0
    # FarmHash's fingerprint, which its authors keep the same on every platform and in every release.
    index = tf.strings.to_hash_bucket_fast(column, num_buckets)
    if feature.missing == "indicator":
        index = tf.where(column == MISSING_MARK, tf.constant(num_buckets, tf.int64), index)
    return with_num_values(index, feature.num_indices or 0)


def _integer(inputs: Mapping[str, Any], name: str, feature: Feature) -> tf.Tensor:
    raw = raw_column(inputs, f"features.{name}", name)
    if not raw.dtype.is_integer:
        found = "text" if raw.dtype == tf.string else "numbers with a decimal point"
        raise ValueError(
            f"features.{name}: kind integer needs whole numbers, but column {name!r} holds {found}; give kind:"
            f" {'vocabulary or hash' if raw.dtype == tf.string else 'buckets or numeric'}"
        )
    values, is_missing = dense_column(raw)
    values = _replace(name, feature, values, is_missing, feature.default)
    size = tf.constant(feature.num_values or 0, tf.int64)
    index = tf.where((values >= 0) & (values < size), values, size)
    if feature.missing == "indicator":
        index = tf.where(is_missing, size + 1, index)
    return with_num_values(index, feature.num_indices or 0)


def _pass_through(inputs: Mapping[str, Any], name: str, feature: Feature) -> dict[str, tf.Tensor]:
    values, is_missing = dense_column(raw_column(inputs, f"features.{name}", name))
    default = feature.default if feature.default is not None else "" if values.dtype == tf.string else 0
    is_text = isinstance(default, str)
    if is_text != (values.dtype == tf.string) or (values.dtype.is_integer and isinstance(default, float)):
        kind = "text" if values.dtype == tf.string else "whole numbers" if values.dtype.is_integer else "numbers"
        raise ValueError(f"features.{name}.default: {default!r} cannot stand for a value of column {name!r}, of {kind}")
    outputs = {name: _replace(name, feature, values, is_missing, default)}
    if feature.has_indicator:
        outputs[name + MISSING_SUFFIX] = tf.cast(is_missing, tf.float32)
    return outputs
