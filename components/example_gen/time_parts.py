"""Years to seconds and zones, as the parts of text that matched a pattern, to seconds since 1970 in UTC."""

import datetime as dt
import functools
import zoneinfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.time_formats import month_of_name

Seconds = npt.NDArray[np.int64]

_DAY_S = 86_400
_QUARTER_S = 900  # zones change their offset at quarters of an hour, all but in the days of local mean time


class TimeParts:
    """Years to nanoseconds of rows that match a pattern."""

    def __init__(self, parts: pa.Array) -> None:
        self._parts = {field.name: parts.field(i) for i, field in enumerate(parts.type)}
        self._rows = len(parts)
        self.faults: dict[int, str] = {}
        digits = pc.utf8_rpad(self._text("fraction"), 9, "0")
        self.nanoseconds = np.array(digits.cast(pa.int64()).to_numpy(zero_copy_only=False))

    def seconds(self, zone: str) -> Seconds:
        """Returns the seconds since 1970 in UTC; 0 where a number is out of its range, which is then a fault."""
        year, month, day = self._year(), self._month(), self._number("day", 1)
        hour, minute, second = self._hour(), self._number("minute"), self._number("second")
        bounds = [("month", month, 1, 12), ("hour", hour, 0, 23), ("minute", minute, 0, 59), ("second", second, 0, 59)]
        for name, numbers, least, most in bounds:
            for row in np.flatnonzero((numbers < least) | (numbers > most)):
                self.faults.setdefault(int(row), f"is no time: there is no {name} {numbers[row]}")
        months = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
        first_day = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        length = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) - first_day
        for row in np.flatnonzero((day < 1) | (day > length)):
            self.faults.setdefault(int(row), f"is no date: the month has {length[row]} days")
        local = (first_day + day - 1) * _DAY_S + hour * 3600 + minute * 60 + second
        offsets, has_zone = self._offsets()
        utc, gaps = to_utc(local, zone)
        for row in gaps:
            if not has_zone[row]:
                self.faults.setdefault(int(row), f"is no time in {zone}: clocks go forward")
        return np.where(has_zone, local - offsets, utc)

    def _year(self) -> Seconds:
        if "short_year" not in self._parts:
            return self._number("year")
        short = self._number("short_year")
        return np.where(short < 69, 2000 + short, 1900 + short)  # as POSIX has it

    def _month(self) -> Seconds:
        if "month_name" not in self._parts:
            return self._number("month")
        return np.array([month_of_name(name) for name in self._parts["month_name"].to_pylist()], np.int64)

    def _hour(self) -> Seconds:
        if "half_day_hour" not in self._parts:
            return self._number("hour")
        hour = self._number("half_day_hour")
        afternoon = pc.equal(pc.ascii_lower(self._parts["half"]), "pm").to_numpy(zero_copy_only=False)
        wrong = (hour < 1) | (hour > 12)
        return np.where(wrong, np.maximum(hour, 24), hour % 12 + 12 * afternoon)

    def _offsets(self) -> tuple[Seconds, npt.NDArray[np.bool_]]:
        zones = self._text("zone").dictionary_encode()
        known = zones.dictionary.to_pylist()
        offsets = np.array([_seconds_of_offset(text) for text in known], np.int64)
        index = zones.indices.to_numpy(zero_copy_only=False)
        for i in np.flatnonzero(np.abs(offsets) > _DAY_S):
            for row in np.flatnonzero(index == i):
                self.faults.setdefault(int(row), f"is no time: there is no offset {known[i]}")
        return offsets[index], np.array([text != "" for text in known], np.bool_)[index]

    def _number(self, name: str, absent: int = 0) -> Seconds:
        if name not in self._parts:
            return np.full(self._rows, absent, np.int64)
        text = pc.if_else(pc.equal(self._text(name), ""), str(absent), self._text(name))
        return np.array(text.cast(pa.int64()).to_numpy(zero_copy_only=False))

    def _text(self, name: str) -> pa.Array:
        return self._parts[name] if name in self._parts else pa.array([""] * self._rows, pa.string())


def _seconds_of_offset(text: str) -> int:
    """Returns the seconds of ``+01:00``, ``-0730``, ``+01``, ``Z`` or nothing; more than a day where it is none."""
    if text in ("", "z", "Z"):
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        return 2 * _DAY_S
    return (-1 if text[0] == "-" else 1) * (hours * 3600 + minutes * 60)


def to_utc(local: Seconds, zone: str) -> tuple[Seconds, npt.NDArray[np.int64]]:
    """Returns seconds of local clocks as seconds in UTC, and which of them no clock shows.

    Of a time that occurs twice, when clocks are set back, the first is taken.
    """
    if zone == "UTC":
        return local, np.zeros(0, np.int64)
    quarters, place = np.unique(local // _QUARTER_S, return_inverse=True)
    first = [_offset(zone, int(quarter) * _QUARTER_S) for quarter in quarters]
    last = [_offset(zone, int(quarter) * _QUARTER_S + _QUARTER_S - 1) for quarter in quarters]
    offsets = np.array([offset for offset, _ in first], np.int64)[place]
    in_gap = np.array([gap for _, gap in first], np.bool_)[place]
    changing = np.array([a != b for a, b in zip(first, last, strict=True)], np.bool_)[place]
    for row in np.flatnonzero(changing):
        offsets[row], in_gap[row] = _offset(zone, int(local[row]))
    return local - offsets, np.flatnonzero(in_gap)


@functools.lru_cache(maxsize=1 << 16)
def _offset(zone: str, local_s: int) -> tuple[int, bool]:
    """Returns the offset of a zone's clocks in seconds, and whether they skip this time."""
    info = zoneinfo.ZoneInfo(zone)
    try:
        local = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=local_s)
        before = (local.replace(tzinfo=info).utcoffset() or dt.timedelta()).total_seconds()
        after = (local.replace(tzinfo=info, fold=1).utcoffset() or dt.timedelta()).total_seconds()
    except OverflowError:  # beyond the years 1 to 9999, which have no rules
        return 0, False
    return int(before), before < after
