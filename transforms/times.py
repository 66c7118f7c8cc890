"""The kind of feature that is made of times: ``timestamp``."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.transforms.columns import dense_column, raw_column, refuse_missing, with_num_values
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import DAYS, MISSING_SUFFIX
from lockstep.transforms.time_options import NUM_VALUES_OF_PART, YEAR, parse_time, parse_utc_offset

__all__ = ["split_time", "time_numbers", "time_outputs"]

_SECONDS_PER_DAY = 86_400
# The Gregorian calendar repeats itself after 400 years.
_DAYS_PER_ERA, _YEARS_PER_ERA = 146_097, 400
# From the first of March of the year 0 to 1970.
_DAYS_TO_1970 = 719_468


def time_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Returns the outputs, [batch, 1], of features of the kind ``timestamp``, but for those that are numbers to scale.

    Args:
      inputs: Raw columns by name.
      features: By raw column; those of other kinds are left alone.

    Raises:
      ValueError: A column holds no whole numbers, or is not there.
    """
    outputs: dict[str, tf.Tensor] = {}
    for name, feature in features.items():
        if feature.kind != "timestamp":
            continue
        seconds, is_missing = _seconds(inputs, name, feature)
        parts = split_time(seconds, utc_offset_s=parse_utc_offset(feature.utc_offset))
        for part in feature.parts:
            if part == YEAR:
                continue
            index = tf.where(is_missing, tf.constant(NUM_VALUES_OF_PART[part], tf.int64), parts[part])
            if feature.cyclic:
                sine, cosine = _circle(NUM_VALUES_OF_PART[part])
                outputs[f"{name}_{part}_sin"], outputs[f"{name}_{part}_cos"] = (
                    tf.gather(sine, index),
                    tf.gather(cosine, index),
                )
            else:
                own = int(feature.missing == "indicator")
                outputs[f"{name}_{part}"] = with_num_values(index, NUM_VALUES_OF_PART[part] + own)
        if feature.has_indicator:
            outputs[name + MISSING_SUFFIX] = tf.cast(is_missing, tf.float32)
    return outputs


def time_numbers(
    inputs: Mapping[str, Any], features: Mapping[str, Feature]
) -> tuple[dict[str, tf.Tensor], dict[str, Feature]]:
    """Returns what of times is scaled like a column of numbers: columns, float64 [batch, 1], and features of them.

    NaN is where a time is missing.

    Args:
      inputs: Raw columns by name.
      features: By raw column; those of other kinds are left alone.

    Raises:
      ValueError: A column holds no whole numbers, or is not there.
    """
    columns: dict[str, tf.Tensor] = {}
    for name, feature in features.items():
        if feature.kind != "timestamp" or not (YEAR in feature.parts or feature.since is not None):
            continue
        seconds, is_missing = _seconds(inputs, name, feature)
        nothing = tf.constant(math.nan, tf.float64)
        if YEAR in feature.parts:
            year = split_time(seconds, utc_offset_s=parse_utc_offset(feature.utc_offset))[YEAR]
            columns[f"{name}_{YEAR}"] = tf.where(is_missing, nothing, tf.cast(year, tf.float64))
        if feature.since is not None:
            since = tf.cast(seconds, tf.float64) - float(parse_time(feature.since))
            columns[f"{name}_{DAYS}"] = tf.where(is_missing, nothing, since / float(_SECONDS_PER_DAY))
    # Missing ones are told by the indicator of the time, if at all.
    numbers = {
        name: Feature(kind="numeric", scale=features[name.rpartition("_")[0]].scale, missing="mean") for name in columns
    }
    return columns, numbers


def split_time(seconds: tf.Tensor, *, utc_offset_s: int = 0) -> dict[str, tf.Tensor]:
    """Returns the parts of times in the Gregorian calendar, for every int64.

    The days are counted as by Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2013: years begin in
    March, so that a leap day is the last of its year.

    Args:
      seconds: Seconds since 1970 in UTC, int64 of any shape.
      utc_offset_s: How many seconds local time is ahead of UTC.

    Returns:
      Each of the parts of `time_options` -> int64 in the shape of ``seconds``, all but the year from 0 on: Monday,
      the first day of month and year, and January are 0.
    """
    # Days first: the offset added to the greatest int64 would run over.
    days, second = seconds // _SECONDS_PER_DAY, seconds % _SECONDS_PER_DAY + utc_offset_s
    days, second = days + second // _SECONDS_PER_DAY, second % _SECONDS_PER_DAY
    hour, weekday = second // 3600, (days + 3) % 7
    shifted = days + _DAYS_TO_1970
    era, day_of_era = shifted // _DAYS_PER_ERA, shifted % _DAYS_PER_ERA
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    from_march = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * from_march + 2) // 153
    month = (month_from_march + 2) % 12
    year = year_of_era + era * _YEARS_PER_ERA + tf.cast(month < 2, tf.int64)
    is_leap = tf.cast((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)), tf.int64)
    # January and February, 59 or 60 days, come last in a year from March on.
    day_of_year = tf.where(month < 2, from_march - 306, from_march + 59 + is_leap)
    return {
        "second": second % 60,
        "minute": second // 60 % 60,
        "hour": hour,
        "hour_of_week": weekday * 24 + hour,
        "weekday": weekday,
        "day": from_march - (153 * month_from_march + 2) // 5,
        "day_of_year": day_of_year,
        "month": month,
        "quarter": month // 3,
        YEAR: year,
    }


def _seconds(inputs: Mapping[str, Any], name: str, feature: Feature) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns times and which are missing, both [batch, 1], after what the feature declares for missing ones."""
    raw = raw_column(inputs, f"features.{name}", name)
    if not raw.dtype.is_integer:
        found = "text" if raw.dtype == tf.string else "numbers with a decimal point"
        raise ValueError(
            f"features.{name}: kind timestamp needs times, in whole seconds since 1970, but column {name!r} holds"
            f" {found}; declare data.types.{name}: timestamp"
        )
    seconds, is_missing = dense_column(raw)
    if feature.missing == "error":
        return refuse_missing(name, seconds, is_missing), tf.zeros_like(is_missing)
    if feature.default is not None:
        default = tf.constant(parse_time(feature.default), tf.int64)  # type: ignore[arg-type]
        return tf.where(is_missing, default, seconds), tf.zeros_like(is_missing)
    return seconds, is_missing


def _circle(num_values: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns sine and cosine of each index's place on a circle, and 0 behind them for a missing one.

    As tables, since a vectorised kernel may give a sine another last bit in a batch than alone.
    """
    angles = 2 * np.pi * np.arange(num_values) / num_values
    sine, cosine = (np.append(function(angles), 0).astype(np.float32) for function in (np.sin, np.cos))
    return tf.constant(sine), tf.constant(cosine)
