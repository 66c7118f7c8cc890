"""Dates and times to seconds: what is written, what cannot be, and what is lost."""

import datetime as dt
import zoneinfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.components.example_gen.time_formats import TimeOptions, pattern_of_format
from lockstep.components.example_gen.times import Times, times_of_arrow, times_of_numbers, times_of_text

UTC = dt.timezone.utc
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")


def _of_text(*values: str | None, kind: str = "timestamp", zone: str = "UTC", written: str | None = None) -> Times:
    options = TimeOptions(zone=zone, formats={} if written is None else {"t": written})
    return times_of_text(pa.array(values, pa.string()), kind, options, "t")  # type: ignore[arg-type]


def _seconds(*fields: int) -> int:
    return int(dt.datetime(*fields, tzinfo=UTC).timestamp())  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1),
        ("1970-01-01 00:01", 60),
        ("1969-12-31 23:59:59", -1),
        ("1969-12-31T23:59:59.5Z", -1),
        ("2023-06-01T12:00:00+02:00", _seconds(2023, 6, 1, 10)),
        ("2023-06-01T12:00:00 -0730", _seconds(2023, 6, 1, 19, 30)),
        ("2023-06-01t12:00:00+02", _seconds(2023, 6, 1, 10)),
        ("2023-06-01T12:00:00.123456789Z", _seconds(2023, 6, 1, 12)),
        ("2023-06-01T12:00:00,5", _seconds(2023, 6, 1, 12)),
        ("20230601T120000Z", _seconds(2023, 6, 1, 12)),
        ("20230601", _seconds(2023, 6, 1)),
        (" 2024-02-29 ", _seconds(2024, 2, 29)),
        ("1582-10-04", _seconds(1582, 10, 4)),
        ("0001-01-01", _seconds(1, 1, 1)),
        ("9999-12-31T23:59:59", _seconds(9999, 12, 31, 23, 59, 59)),
    ],
)
def test_iso_8601_is_read(text: str, expected: int) -> None:
    """Zones, fractions (cut off towards the past), basic forms, before 1970."""
    assert _of_text(text).seconds.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2023-02-30", "'2023-02-30' is no date: the month has 28 days"),
        ("1900-02-29", "the month has 28 days"),
        ("2023-13-01", "there is no month 13"),
        ("2023-00-01", "there is no month 0"),
        ("2023-01-00", "the month has 31 days"),
        ("2023-01-01 24:00", "there is no hour 24"),
        ("2023-01-01 23:59:60", "there is no second 60"),
        ("2023-01-01T10:00+25:00", "there is no offset +25:00"),
        ("01/02/2023", "is not a timestamp; give ISO 8601, such as 2023-01-31 08:15:00"),
        ("1685613600", "is not a timestamp"),
        ("tomorrow", "is not a timestamp"),
        ("2023-01-01T", "is not a timestamp"),
        ("\uff12\uff10\uff12\uff13-01-01", "is not a timestamp"),
    ],
)
def test_what_is_no_time_is_a_fault_of_its_row(text: str, problem: str) -> None:
    """The others of the batch are read."""
    times = _of_text("2023-01-01", None, text)
    assert times.seconds.to_pylist() == [_seconds(2023, 1, 1), None, None]
    assert list(times.faults) == [2]
    assert problem in times.faults[2]


def test_a_date_has_no_time_of_day() -> None:
    """It would be lost; and a date is midnight UTC, whatever the zone."""
    times = _of_text("2023-06-01", "2023-06-01 10:00", kind="date", zone="Europe/Berlin")
    assert times.seconds.to_pylist() == [_seconds(2023, 6, 1), None]
    assert "is not a date" in times.faults[1]


@pytest.mark.parametrize(
    ("written", "text", "expected"),
    [
        ("%m/%d/%Y %I:%M:%S %p", "09/27/2013 12:05:00 AM", _seconds(2013, 9, 27, 0, 5)),
        ("%m/%d/%Y %I:%M %p", "9/7/2013 12:05 pm", _seconds(2013, 9, 7, 12, 5)),
        ("%d.%m.%y", "31.12.99", _seconds(1999, 12, 31)),
        ("%d.%m.%y", "31.12.68", _seconds(2068, 12, 31)),
        ("%d %b %Y", "1 Mar 2023", _seconds(2023, 3, 1)),
        ("%B %d, %Y", "march 1, 2023", _seconds(2023, 3, 1)),
        ("%d/%b/%Y:%T %z", "10/Oct/2000:13:55:36 -0700", _seconds(2000, 10, 10, 20, 55, 36)),
        ("%F %H:%M:%S.%f", "2023-01-01 00:00:00.25", _seconds(2023, 1, 1)),
        ("unix", "1685613600", 1685613600),
        ("unix", "-1.5", -2),
        ("unix_ms", "-1", -1),
        ("unix_ms", "1685613600999", 1685613600),
        ("unix_ms", "1685613600000.0", 1685613600),
        ("unix_ns", "-9223372036854775808", -9223372037),
    ],
)
def test_a_format_of_the_users_is_read(written: str, text: str, expected: int) -> None:
    """As ``datetime.strptime`` has it, or numbers of a unit since 1970."""
    times = _of_text(text, written=written)
    assert (times.seconds.to_pylist(), dict(times.faults)) == ([expected], {})


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("%Y-%m", "gives no whole date"),
        ("%Y-%m-%d %Q", "%Q in '%Y-%m-%d %Q' is not known"),
        ("%Y-%m-%d %Y", "stands twice"),
        ("%Y-%m-%d %I:%M", "%I goes with %p"),
        ("%Y-%m-%d %", "% in"),
    ],
)
def test_a_format_that_cannot_work_is_refused(written: str, problem: str) -> None:
    """Before any data are read."""
    with pytest.raises(ValueError, match=problem):
        pattern_of_format(written)


def test_clocks_that_go_forward_and_back() -> None:
    """A time that no clock shows is a fault; of one that occurs twice, the first is taken."""
    times = _of_text("2023-03-26 02:30", "2023-10-29 02:30", "2023-03-26T02:30+01:00", zone="Europe/Berlin")
    assert times.seconds.to_pylist() == [None, _seconds(2023, 10, 29, 0, 30), _seconds(2023, 3, 26, 1, 30)]
    assert times.faults == {0: "'2023-03-26 02:30' is no time in Europe/Berlin: clocks go forward"}


def test_the_first_fraction_that_is_cut_off_is_told() -> None:
    """Fractions of zero are not."""
    assert _of_text("2023-01-01 00:00:00.000", "2023-01-01", "2023-01-01 00:00:00.001").cut == 2
    assert _of_text("2023-01-01 00:00:00.000").cut is None
    assert times_of_arrow(pa.array([0, 1500], pa.timestamp("ms")), "timestamp", TimeOptions()).cut == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrows_own_timestamps_are_read(unit: str) -> None:
    """Of any unit, before 1970 too, and with a zone that changes nothing."""
    moment = dt.datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC)
    for zone in (None, "Europe/Berlin"):
        values = pa.array([moment.replace(tzinfo=None if zone is None else UTC), None], pa.timestamp(unit, zone))
        assert times_of_arrow(values, "timestamp", TimeOptions()).seconds.to_pylist() == [-2, None]


def test_arrows_dates_are_read() -> None:
    """Both kinds."""
    day = dt.date(1969, 12, 31)
    for kind in (pa.date32(), pa.date64()):
        assert times_of_arrow(pa.array([day]), "date", TimeOptions()).seconds.to_pylist() == [-86400], kind


def test_numbers_as_text_that_are_none_are_faults() -> None:
    """Those of the other rows are read."""
    times = _of_text("1", "1e3", "x", "9223372036854775808", None, "2.5", written="unix")
    assert times.seconds.to_pylist() == [1, 1000, None, None, None, 2]
    assert times.faults[2] == "'x' is not a number of 64 bits"
    assert (list(times.faults), times.cut) == ([2, 3], 5)


def test_numbers_need_a_unit() -> None:
    """Nobody can tell seconds from milliseconds."""
    times = times_of_numbers(pa.array([1, None]), "timestamp", TimeOptions(), "t")
    assert times.seconds.to_pylist() == [None, None]
    assert "1 is a number, and no timestamp; give data.time_formats.t: unix, unix_ms" in times.faults[0]
    options = TimeOptions(formats={"t": "unix_ms"})
    assert times_of_numbers(pa.array([1500.0, float("nan")]), "timestamp", options, "t").seconds.to_pylist() == [
        1,
        None,
    ]


@given(
    moments=st.lists(st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2500, 1, 1)), max_size=20),
    zone=st.sampled_from(_ZONES),
)
def test_what_python_writes_is_read_as_python_reads_it(moments: list[dt.datetime], zone: str) -> None:
    """Local times of any zone, but for those that no clock shows."""
    info = zoneinfo.ZoneInfo(zone)
    times = _of_text(*[moment.isoformat() for moment in moments], zone=zone)
    for row, moment in enumerate(moments):
        local = moment.replace(microsecond=0, tzinfo=info)
        expected = int((local - dt.datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
        shown = dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=expected)
        exists = shown.astimezone(info).replace(tzinfo=None) == local.replace(tzinfo=None)
        assert times.seconds[row].as_py() == (expected if exists else None)
