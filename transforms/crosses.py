"""The kind of feature that is made of several columns: ``cross``."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lockstep.transforms.columns import MISSING_MARK, refuse_missing, tokens, with_num_values
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import crossed_outputs

__all__ = ["cross_outputs"]


def cross_outputs(
    inputs: Mapping[str, Any], features: Mapping[str, Feature], outputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns the outputs, int64 [batch, 1], of features of the kind ``cross``.

    Args:
      inputs: Raw columns by name.
      features: By name; those of other kinds are left alone.
      outputs: Of the other features.

    Raises:
      ValueError: A column has a type that cannot be crossed, or is not there.
    """
    known = crossed_outputs(features)
    crossed = {}
    for name, feature in features.items():
        if feature.kind != "cross":
            continue
        values, are_missing = [], []
        for column in feature.columns:
            if column in known:
                # An index of its own for missing values is the last.
                own, size = features[known[column].column].missing == "indicator", known[column].num_values
                values.append(tf.strings.as_string(outputs[column]))
                are_missing.append(outputs[column] == (size if size and own else 0) - 1)
            else:
                raw = tokens({f"features.{name}.columns": column}, inputs, otherwise=_remedy(column))
                values.append(raw)
                are_missing.append(raw == MISSING_MARK)
        crossed[name] = _cross(name, feature, values, are_missing)
    return crossed


def _cross(name: str, feature: Feature, values: list[tf.Tensor], are_missing: list[tf.Tensor]) -> tf.Tensor:
    is_missing = tf.reduce_any(tf.concat(are_missing, axis=1), axis=1, keepdims=True)
    if feature.default is not None:
        default = tf.constant(str(feature.default))
        values = [tf.where(mask, default, value) for value, mask in zip(values, are_missing, strict=True)]
    # With the length before each value no two rows of different values are written alike, whatever is in them.
    written = [part for value in values for part in (tf.strings.as_string(tf.strings.length(value)), ":", value)]
    joined = tf.strings.join(written)
    if feature.missing == "error":
        joined = refuse_missing(name, joined, is_missing)
    num_buckets = feature.num_buckets or 0
    index = tf.strings.to_hash_bucket_fast(joined, num_buckets)
    if feature.missing == "indicator":
        index = tf.where(is_missing, tf.constant(num_buckets, tf.int64), index)
    return with_num_values(index, feature.num_indices or 0)


def _remedy(column: str) -> str:
    return f"declare features.{column}: {{kind: buckets}}, whose index is then crossed"
