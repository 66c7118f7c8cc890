"""The kinds of features that are made of numbers: ``numeric`` and ``buckets``."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms.columns import NumberUse, numbers, raw_column, refuse_missing
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import MISSING_SUFFIX
from lockstep.transforms.statistics import NumberColumn, Statistics, analyze_numbers

__all__ = ["number_outputs"]

_NAN, _INFINITY = float("nan"), float("inf")
# Up to where every whole number has a floating-point number of its own: of all below 2 ** 53, rounded ones reach it.
_LARGEST_EXACT_FLOAT64 = math.nextafter(2.0**53, 0)
_LARGEST_EXACT_FLOAT32 = 2.0**24


# tf.Transform traces the function about ten times, which takes longer than to run it on 15,000 rows: columns are worked
# on side by side in one matrix wherever that saves operations.


def number_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Returns the outputs, [batch, 1], of features of the kinds ``numeric`` and ``buckets``.

    Args:
      inputs: Raw columns by name.
      features: By raw column; those of other kinds are left alone.

    Raises:
      ValueError: A column holds text, or is not there.
    """
    scaled = {name: feature for name, feature in features.items() if feature.kind == "numeric"}
    bucketized = {name: feature for name, feature in features.items() if feature.kind == "buckets"}
    used = scaled | bucketized
    if not used:
        return {}
    raw = numbers([_use(name, feature) for name, feature in used.items()], inputs)
    declared = list(used.values())
    values = _transform(_replace(raw, list(used), declared), declared)
    columns = [
        _request(name, feature, is_whole=raw_column(inputs, f"features.{name}", name).dtype.is_integer)
        for name, feature in used.items()
    ]
    statistics = analyze_numbers(values, columns)
    is_filled = [feature.missing in ("mean", "median") or feature.kind == "numeric" for feature in declared]
    fill = tf.where(np.array(is_filled), statistics.fill, tf.constant(_NAN, tf.float64))
    filled = tf.where(tf.math.is_nan(values), fill, values)
    outputs = _scale(filled, statistics, scaled)
    outputs |= _indicators(raw, scaled)
    for i, (name, feature) in enumerate(bucketized.items(), start=len(scaled)):
        edges = tf.constant(feature.edges, tf.float64) if feature.edges else statistics.edges[i]
        outputs[name] = _bucketize(filled[:, i : i + 1], edges, has_index_of_missing=feature.missing == "indicator")
    return outputs


def _use(name: str, feature: Feature) -> NumberUse:
    text = f"kind {feature.kind} needs numbers, but column {name!r} holds text; give kind: vocabulary"
    return NumberUse(key=f"features.{name}", column=name, text=text)


def _scale_of(feature: Feature) -> Literal["z_score", "min_max", "robust", "none"]:
    if feature.kind != "numeric" or feature.scale not in ("z_score", "min_max", "robust"):
        return "none"
    return feature.scale


def _request(name: str, feature: Feature, *, is_whole: bool) -> NumberColumn:
    limit = _INFINITY
    if is_whole and feature.inexact == "error":
        is_kept = feature.kind == "numeric" and feature.scale == "none" and not feature.log
        limit = _LARGEST_EXACT_FLOAT32 if is_kept else _LARGEST_EXACT_FLOAT64
    return NumberColumn(
        key=f"features.{name}",
        scale=_scale_of(feature),
        fill="median" if feature.missing == "median" else "mean",
        num_buckets=feature.num_buckets or 0,
        # What is analysed is the logarithm: it ascends, so its limit is that of the number.
        limit=math.log1p(limit) if feature.log else limit,
        is_constant_refused=feature.constant == "error",
    )


def _replace(values: tf.Tensor, names: Sequence[str], features: Sequence[Feature]) -> tf.Tensor:
    """Puts the declared constant where a value is missing, and lets those fail that may have no missing value."""
    for i, (name, feature) in enumerate(zip(names, features, strict=True)):
        if feature.missing == "error":
            values = refuse_missing(name, values, tf.math.is_nan(values[:, i]))
    constants = np.array([_constant(feature) for feature in features])
    if np.isnan(constants).all():
        return values
    return tf.where(tf.math.is_nan(values), tf.constant(constants), values)


def _constant(feature: Feature) -> float:
    if feature.missing == "constant" and feature.default is not None:
        return float(feature.default)
    return 0.0 if feature.missing == "zero" else _NAN


def _transform(values: tf.Tensor, features: Sequence[Feature]) -> tf.Tensor:
    """Cuts numbers at their bounds and takes logarithms; NaN stays."""
    if any(feature.clip for feature in features):
        low = np.array([-_INFINITY if not f.clip or f.clip[0] is None else f.clip[0] for f in features])
        high = np.array([_INFINITY if not f.clip or f.clip[1] is None else f.clip[1] for f in features])
        values = tf.where(tf.math.is_nan(values), values, tf.minimum(tf.maximum(values, low), high))
    if any(feature.log for feature in features):
        logarithms = tf.sign(values) * tf.math.log1p(tf.abs(values))
        values = tf.where(np.array([feature.log for feature in features]), logarithms, values)
    return values


def _scale(values: tf.Tensor, statistics: Statistics, features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    if not features:
        return {}
    num = len(features)
    # A width of 0 is exact (see `Moments`): it means a constant column, whose score is 0.
    scores = tf.math.divide_no_nan(values[:, :num] - statistics.center[:num], statistics.width[:num])
    scores = tf.clip_by_value(scores, tf.float32.min, tf.float32.max)
    return dict(zip(features, tf.split(tf.cast(scores, tf.float32), num, axis=1), strict=True))


def _indicators(raw: tf.Tensor, features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    if not features:
        return {}
    is_missing = tf.split(tf.cast(tf.math.is_nan(raw[:, : len(features)]), tf.float32), len(features), axis=1)
    return {
        name + MISSING_SUFFIX: indicator
        for (name, feature), indicator in zip(features.items(), is_missing, strict=True)
        if feature.has_indicator
    }


def _bucketize(values: tf.Tensor, edges: tf.Tensor, *, has_index_of_missing: bool) -> tf.Tensor:
    if has_index_of_missing:
        # With infinity as the last edge, the index of a missing value is in the range that tf.Transform records.
        infinity = tf.constant(_INFINITY, tf.float64)
        values = tf.where(tf.math.is_nan(values), infinity, values)
        edges = tf.concat([edges, [infinity]], axis=0)
    return tft.apply_buckets(values, edges[tf.newaxis])
