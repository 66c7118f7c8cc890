"""Dates and times, as text, numbers or Arrow's own types, to int64 seconds since 1970 in UTC.

What is no time is a fault of its row and not of the batch. Fractions of a second are cut off towards the past, also
before 1970, and the first row where that loses something is told.
"""

import dataclasses
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.arrow_buffers import is_valid
from lockstep.components.example_gen.arrow_casts import failing_rows, trimmed, try_cast
from lockstep.components.example_gen.time_formats import (
    ISO_DATES,
    ISO_TIMES,
    UNIX_FORMATS,
    TimeOptions,
    pattern_of_format,
)
from lockstep.components.example_gen.time_parts import TimeParts, to_utc

TimeKind = Literal["timestamp", "date"]
Seconds = npt.NDArray[np.int64]

_DAY_S = 86_400
_UNITS: Mapping[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXAMPLES: Mapping[str, str] = {"timestamp": "2023-01-31 08:15:00 or 2023-01-31T08:15:00+01:00", "date": "2023-01-31"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of some rows.

    Args:
      seconds: int64; null where the row has no value, or no time.
      faults: Row -> what is wrong with its value.
      cut: The first row of which a fraction of a second was cut off.
    """

    seconds: pa.Array
    faults: Mapping[int, str]
    cut: int | None = None


def times_of_text(values: pa.Array, kind: TimeKind, options: TimeOptions, column: str) -> Times:
    """Returns the times that strings say.

    Args:
      values: Strings; blanks around do not matter, and alone are a missing value.
      kind: ``date`` takes no time of day, and is midnight UTC whatever the zone.
      options: The zone, and the column's format if it has one.
      column: Whose values they are.
    """
    values = trimmed(values.cast(pa.string()))
    wanted = options.formats.get(column)
    if wanted in UNIX_FORMATS:
        return _of_numeric_text(values, kind, options, column)
    if wanted is not None:
        patterns: Sequence[str] = (pattern_of_format(wanted),)
    else:
        patterns = ISO_TIMES if kind == "timestamp" else ISO_DATES
    rows = np.flatnonzero(is_valid(values))
    seconds = np.zeros(len(values), np.int64)
    faults: dict[int, str] = {}
    cut: list[int] = []
    for pattern in patterns:
        parts = pc.extract_regex(values.take(pa.array(rows)), f"^{pattern}$")
        matched = is_valid(parts)
        if matched.any():
            found = rows[matched]
            numbers = TimeParts(parts.filter(pa.array(matched)))
            seconds[found] = numbers.seconds(options.zone if kind == "timestamp" else "UTC")
            faults |= {int(found[i]): problem for i, problem in numbers.faults.items()}
            cut += [int(found[i]) for i in np.flatnonzero(numbers.nanoseconds)[:1]]
        rows = rows[~matched]
        if not len(rows):
            break
    allowed = f"give it as {wanted!r} says" if wanted else f"give ISO 8601, such as {_EXAMPLES[kind]}, or a format"
    faults |= {int(row): f"is not a {kind}; {allowed}" for row in rows}
    faults = {row: f"{values[row].as_py()!r} {faults[row]}" for row in sorted(faults)}
    return _times(seconds, is_valid(values), faults, min(cut, default=None))


def times_of_numbers(values: pa.Array, kind: TimeKind, options: TimeOptions, column: str) -> Times:
    """Returns the times that whole numbers say, which needs one of ``UNIX_FORMATS`` for the column.

    Args:
      values: Integers or floats.
      kind: Of ``date``, the time of day must be midnight.
      options: As of ``times_of_text``.
      column: Whose values they are.
    """
    wanted = options.formats.get(column, "")
    valid = is_valid(values)
    if wanted not in UNIX_FORMATS:
        problem = f"is a number, and no {kind}; give data.time_formats.{column}: {', '.join(UNIX_FORMATS)}"
        return _times(
            np.zeros(len(values), np.int64), valid, {int(i): f"{values[i].as_py()!r} {problem}" for i in _where(valid)}
        )
    faults: dict[int, str] = {}
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        valid &= ~np.isnan(numbers)
        fits = np.abs(numbers) < 2.0**63
        faults = {int(i): f"{values[i].as_py()!r} is not a time" for i in np.flatnonzero(valid & ~fits)}
        numbers = np.where(valid & fits, numbers, 0)
        # The fraction of a second is all that may be lost, and it is told.
        seconds = np.floor(numbers / UNIX_FORMATS[wanted]).astype(np.int64)
        lost = seconds * float(UNIX_FORMATS[wanted]) != numbers
    else:
        if numbers.dtype == np.uint64:
            faults = {int(i): f"{values[i].as_py()!r} is not a time" for i in np.flatnonzero(numbers >> np.uint64(63))}
        numbers = numbers.astype(np.int64)
        seconds = numbers // UNIX_FORMATS[wanted]
        lost = numbers % UNIX_FORMATS[wanted] != 0
    if kind == "date":
        faults |= {
            int(i): f"{values[i].as_py()!r} is not midnight" for i in np.flatnonzero(valid & (seconds % _DAY_S != 0))
        }
    return _times(seconds, valid, faults, _first(lost & valid))


def times_of_arrow(values: pa.Array, kind: TimeKind, options: TimeOptions) -> Times:
    """Returns the times of Arrow's timestamps and dates.

    Args:
      values: Timestamps of any unit, with a zone (then they count in UTC) or without (then in ``options.zone``), or
        dates.
      kind: ``date`` keeps the day and refuses a time of day.
      options: The zone.
    """
    valid = is_valid(values)
    if pa.types.is_date32(values.type):
        days = values.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return _times(days * _DAY_S, valid, {})
    unit = 10**3 if pa.types.is_date64(values.type) else _UNITS[values.type.unit]
    ticks = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    seconds = ticks // unit
    lost = _first((ticks % unit != 0) & valid)
    faults: dict[int, str] = {}
    if pa.types.is_timestamp(values.type) and values.type.tz is None and kind == "timestamp":
        seconds, gaps = to_utc(seconds, options.zone)
        faults = {
            int(i): f"{_written(int(ticks[i] // unit))} is no time in {options.zone}: clocks go forward"
            for i in gaps
            if valid[i]
        }
    if kind == "date":
        faults |= {
            int(i): f"{_written(int(seconds[i]))} is not midnight"
            for i in np.flatnonzero(valid & (seconds % _DAY_S != 0))
        }
    return _times(seconds, valid, faults, lost)


def _of_numeric_text(values: pa.Array, kind: TimeKind, options: TimeOptions, column: str) -> Times:
    bare = pc.replace_substring_regex(pc.replace_substring_regex(values, r"^\+", ""), r"\.0*$", "")
    numbers = try_cast(bare, pa.int64())
    if numbers is not None:
        return times_of_numbers(numbers, kind, options, column)
    texts = bare.to_pylist()
    faults: dict[int, str] = {}
    cuts: list[int] = []
    for row in failing_rows(bare, pa.int64()):
        floor, is_whole = _floor(texts[row])
        texts[row] = None if floor is None else str(floor)
        if floor is None:
            faults[row] = f"{values[row].as_py()!r} is not a number of 64 bits"
        elif not is_whole:
            cuts.append(row)
    times = times_of_numbers(pa.array(texts, pa.string()).cast(pa.int64()), kind, options, column)
    cuts += [] if times.cut is None else [times.cut]
    return dataclasses.replace(times, faults={**times.faults, **faults}, cut=min(cuts, default=None))


def _floor(text: str) -> tuple[int | None, bool]:
    """Returns the whole number below a decimal one, None where int64 holds none, and whether it is the very one."""
    try:
        number = decimal.Decimal(text)
        floor = math.floor(number)
    except (decimal.InvalidOperation, ValueError, OverflowError):
        return None, False
    return (floor if -(2**63) <= floor < 2**63 else None), floor == number


def _times(seconds: Seconds, valid: npt.NDArray[np.bool_], faults: Mapping[int, str], cut: int | None = None) -> Times:
    missing = ~valid
    missing[list(faults)] = True
    if cut in faults:
        cut = None
    return Times(seconds=pa.array(seconds, pa.int64(), mask=missing), faults=faults, cut=cut)


def _first(rows: npt.NDArray[np.bool_]) -> int | None:
    found = np.flatnonzero(rows)
    return int(found[0]) if len(found) else None


def _where(rows: npt.NDArray[np.bool_]) -> list[int]:
    return [int(row) for row in np.flatnonzero(rows)]


def _written(seconds: int) -> str:
    return str(np.datetime64(seconds, "s"))
