"""Times against Python's and NumPy's calendars, and what the kind timestamp gives and refuses."""

import datetime as dt
import math
import re
from typing import Any

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label, TransformedFeature, to_config, transformed_features
from lockstep.transforms.preprocessing import preprocessing_fn
from lockstep.transforms.time_options import NUM_VALUES_OF_PART, parse_time, parse_utc_offset
from lockstep.transforms.times import split_time
from tests.transforms.conftest import VALUES

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
LABEL = Label(column="y", kind="regression")

_WHOLE_SECONDS = st.datetimes().map(lambda time: time.replace(microsecond=0, tzinfo=UTC))
_OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)


def _since_1970(time: dt.datetime) -> int:
    since = time - EPOCH
    return since.days * 86_400 + since.seconds


@hypothesis.given(st.lists(_WHOLE_SECONDS, min_size=1), _OFFSETS)
@hypothesis.example([dt.datetime(1900, 2, 28, 23, 59, 59, tzinfo=UTC)], 1)
@hypothesis.example([dt.datetime(2000, 2, 29, tzinfo=UTC), dt.datetime(2024, 12, 31, tzinfo=UTC)], 0)
@hypothesis.example([dt.datetime(1, 1, 2, tzinfo=UTC), dt.datetime(9999, 12, 30, tzinfo=UTC)], 0)
def test_parts_are_those_of_pythons_calendar(times: list[dt.datetime], offset_minutes: int) -> None:
    """From the year 1 to 9999, before 1970 and after, at any fixed offset."""
    offset = dt.timedelta(minutes=offset_minutes)
    times = [time for time in times if 1 < time.year < 9999]
    local = [time + offset for time in times]
    parts = split_time(tf.constant([*map(_since_1970, times)], tf.int64), utc_offset_s=offset_minutes * 60)
    assert {name: part.numpy().tolist() for name, part in parts.items()} == {
        "second": [time.second for time in local],
        "minute": [time.minute for time in local],
        "hour": [time.hour for time in local],
        "hour_of_week": [time.weekday() * 24 + time.hour for time in local],
        "weekday": [time.weekday() for time in local],
        "day": [time.day - 1 for time in local],
        "day_of_year": [time.timetuple().tm_yday - 1 for time in local],
        "month": [time.month - 1 for time in local],
        "quarter": [(time.month - 1) // 3 for time in local],
        "year": [time.year for time in local],
    }


@hypothesis.given(st.lists(st.integers(-(2**62), 2**62), min_size=1))
@hypothesis.example([-(2**62), -1, 0, 1, 2**62])
def test_far_times_are_those_of_numpys_calendar(seconds: list[int]) -> None:
    """Over 100 billion years to either side; NumPy's own arithmetic runs over further out."""
    parts = {name: part.numpy() for name, part in split_time(tf.constant(seconds, tf.int64)).items()}
    times = np.array(seconds, "datetime64[s]")
    days, months, years = (times.astype(f"datetime64[{unit}]") for unit in "DMY")
    np.testing.assert_array_equal(parts["year"], years.astype(np.int64) + 1970)
    np.testing.assert_array_equal(parts["month"], (months - years).astype(np.int64))
    np.testing.assert_array_equal(parts["day"], (days - months).astype(np.int64))
    np.testing.assert_array_equal(parts["day_of_year"], (days - years).astype(np.int64))
    np.testing.assert_array_equal(parts["hour"], (times - days).astype(np.int64) // 3600)


@hypothesis.given(_WHOLE_SECONDS, st.integers(-720_000_000, 720_000_000))
def test_the_calendar_repeats_itself_after_400_years(time: dt.datetime, eras: int) -> None:
    """To the ends of int64, where no other calendar at hand can be asked."""
    near = _since_1970(time)
    far = min(max(near + eras * 146_097 * 86_400, -(2**63)), 2**63 - 1)
    hypothesis.assume((far - near) % (146_097 * 86_400) == 0)
    found = {name: part.numpy().tolist() for name, part in split_time(tf.constant([near, far], tf.int64)).items()}
    years = found.pop("year")
    assert years[1] - years[0] == 400 * eras
    assert all(one == other for one, other in found.values())


@hypothesis.given(st.integers(-(2**63), 2**63 - 1), _OFFSETS)
@hypothesis.example(-(2**63), -23 * 60 - 59)
@hypothesis.example(2**63 - 1, 23 * 60 + 59)
def test_every_index_is_in_its_range(seconds: int, offset_minutes: int) -> None:
    """Or an embedding would have no row for it."""
    parts = split_time(tf.constant([seconds], tf.int64), utc_offset_s=offset_minutes * 60)
    for name, num_values in NUM_VALUES_OF_PART.items():
        assert 0 <= parts[name].numpy().item() < num_values, name


def test_the_greatest_int64_with_an_offset_does_not_run_over() -> None:
    """It is 292277026596-12-04, a Sunday, 15:30:07 in UTC."""
    parts = split_time(tf.constant([2**63 - 1], tf.int64), utc_offset_s=14 * 3600)
    assert (parts["hour"].numpy().item(), parts["weekday"].numpy().item()) == (5, 0)


@hypothesis.given(_WHOLE_SECONDS)
def test_times_in_the_configuration_are_read_as_python_writes_them(time: dt.datetime) -> None:
    """With the offset that they say, in UTC where they say none."""
    assert parse_time(time.isoformat()) == _since_1970(time)
    assert parse_time(time.replace(tzinfo=None).isoformat()) == _since_1970(time)
    assert parse_time(f"{time:%Y}".zfill(4) + f"{time:-%m-%dT%H:%M:%S}Z") == _since_1970(time)


@pytest.mark.parametrize(
    ("text", "seconds"), [("+00:00", 0), ("+05:30", 19_800), ("-03:30", -12_600), ("-23:59", -86_340)]
)
def test_offsets_are_hours_and_minutes_ahead_of_utc(text: str, seconds: int) -> None:
    """Both with their sign."""
    assert parse_utc_offset(text) == seconds


def test_parts_are_indices_with_one_of_their_own_for_missing_times(preprocessed: testing.Preprocessed) -> None:
    """Before and after 1970; the schema has the number of indices."""
    rows = len(VALUES["when"])
    found = {name: preprocessed.features[f"when_{name}"][:rows, 0].tolist() for name in ("hour", "weekday", "month")}
    # At +01:00: Thursday 1970-01-01 01:00, Thursday 00:59:59, missing, Tuesday 2024-02-29 24:00 (Friday).
    assert found == {"hour": [1, 0, 24, 0], "weekday": [3, 3, 7, 4], "month": [0, 0, 12, 2]}
    domains = preprocessed.transform_output.transformed_domains()
    assert [domains[f"when_{name}"].max for name in ("hour", "weekday", "month")] == [24, 7, 12]


def test_years_and_days_are_scaled_as_numbers(preprocessed: testing.Preprocessed) -> None:
    """By the times that are present; a missing one is their mean, and is told beside."""
    rows = len(VALUES["when"])
    days = np.array([0, -1 / 86_400, 19_782 + 23 / 24])
    expected = (days - days.min()) / (days.max() - days.min())
    found = preprocessed.features["when_days"][:rows, 0]
    np.testing.assert_array_equal(found[[0, 1, 3]], expected.astype(np.float32))
    assert 0 < found[2] < 1
    assert preprocessed.features["when_year"][:rows, 0].tolist() == [0, 0, found[2].item() and _third(), 1]
    assert preprocessed.features["when_missing"][:rows, 0].tolist() == [0, 0, 1, 0]


def _third() -> float:
    return float(np.float32(1 / 3))


def test_cyclic_parts_are_places_on_a_circle(preprocessed: testing.Preprocessed) -> None:
    """A missing time is in its middle, or stands at its default."""
    rows = len(VALUES["turning"])
    sine, cosine = (preprocessed.features[f"turning_hour_{name}"][:rows, 0] for name in ("sin", "cos"))
    hours = [0, 23, 6]
    np.testing.assert_array_equal(sine[[0, 1, 3]], np.float32([math.sin(2 * math.pi * hour / 24) for hour in hours]))
    np.testing.assert_array_equal(cosine[[0, 1, 3]], np.float32([math.cos(2 * math.pi * hour / 24) for hour in hours]))
    assert (sine[2], cosine[2]) == (0, 0)
    assert preprocessed.features["turning_missing"][:rows, 0].tolist() == [0, 0, 1, 0]
    assert preprocessed.features["dated_day"][:2, 0].tolist() == [0, 30]
    assert "dated_missing" not in preprocessed.features


def test_a_time_declares_its_outputs() -> None:
    """Names, types and numbers of values."""
    number, column = TransformedFeature(column="t", dtype="float32"), {"column": "t"}
    assert transformed_features({"t": Feature(kind="timestamp", parts=("hour", "year"), since="2020-01-01")}) == {
        "t_hour": TransformedFeature(dtype="int64", num_values=25, **column),  # type: ignore[arg-type]
        "t_year": number,
        "t_days": number,
        "t_missing": number,
    }
    assert transformed_features({"t": Feature(kind="timestamp", parts=("hour",), cyclic=True, missing="error")}) == {
        "t_hour_sin": number,
        "t_hour_cos": number,
    }
    assert list(transformed_features({"t": Feature(kind="timestamp", parts=("hour",))})) == ["t_hour"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "parts: required for kind 'timestamp' without `since`; give some of second, minute, hour"),
        ({"parts": ["century"]}, "parts: 'century' is not allowed; give some of second"),
        ({"parts": ["hour", "hour"]}, "parts: ['hour', 'hour'] is not allowed; give each part once"),
        ({"parts": ["year"], "cyclic": True}, "cyclic: has no effect without parts that come round again"),
        ({"parts": ["hour"], "scale": "none"}, "scale: 'none' has no effect on a timestamp without `since`"),
        ({"parts": ["hour"], "utc_offset": "+1"}, "utc_offset: '+1' is not allowed; give +HH:MM or -HH:MM"),
        ({"since": "yesterday"}, "since: 'yesterday' is not allowed; give a date or time such as 2020-01-31"),
        ({"since": "2020-01-01T00:00:00.500"}, "since: '2020-01-01T00:00:00.500' is not allowed; give whole seconds"),
        ({"parts": ["hour"], "missing": "constant", "default": "noon"}, "default: 'noon' is not allowed; give a date"),
        ({"parts": ["hour"], "missing": "constant", "default": 1.5}, "default: 1.5 is not allowed for kind 'times"),
        ({"parts": ["hour"], "missing": "mean"}, "missing: 'mean' is not allowed for kind 'timestamp'; give one of"),
    ],
)
def test_what_a_time_cannot_be_is_refused_by_its_key(options: dict[str, Any], message: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Feature(kind="timestamp", **options)


@pytest.mark.parametrize(("raw", "found"), [(["a"], "text"), ([1.5], "numbers with a decimal point")])
def test_a_column_that_holds_no_times_is_refused(raw: list[Any], found: str) -> None:
    """The message says how to declare it."""
    config = to_config({"x": Feature(kind="timestamp", parts=("hour",))}, LABEL)
    message = f"features.x: kind timestamp needs times, .* column 'x' holds {found}; declare data.types.x: timestamp"
    with pytest.raises(ValueError, match=message):
        preprocessing_fn({"x": tf.constant(raw), "y": tf.constant([1.0])}, config)


def test_a_missing_time_is_refused_where_that_is_declared() -> None:
    """The message names the column."""
    config = to_config({"x": Feature(kind="timestamp", since="2020-01-01", missing="error")}, LABEL)
    column = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [2, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"features\.x: a value of column x is missing"):
        preprocessing_fn({"x": column, "y": tf.constant([1.0, 1.0])}, config)
