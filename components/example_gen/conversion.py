"""Values as their file has them to the three types of a feature, with what cannot be converted named by row."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.arrow_buffers import is_valid
from lockstep.components.example_gen.arrow_casts import (
    arrow_type,
    as_large_lists,
    failing_rows,
    is_any_list,
    is_list,
    is_text,
    over_int64,
    trimmed,
    try_cast,
)
from lockstep.components.example_gen.booleans import booleans_of_text
from lockstep.components.example_gen.options import STORED, CellOptions, ColumnType
from lockstep.components.example_gen.times import Times, times_of_arrow, times_of_numbers, times_of_text

_EXACT_IN_FLOAT32 = 2.0**24
_EXACT_IN_FLOAT64 = 2.0**53


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion:
    """A column's values in the type of its feature.

    Args:
      values: Of ``arrow_type`` of the kind; null where a value is missing or cannot be converted.
      faults: Row -> what is wrong with its value, without place and remedy.
      loss: The first row that loses precision, and what it loses.
    """

    values: pa.Array
    faults: Mapping[int, str] = dataclasses.field(default_factory=dict)
    loss: tuple[int, str] | None = None


def convert(values: pa.Array, kind: ColumnType, cells: CellOptions, column: str) -> Conversion:
    """Returns values in the type that a kind of column has.

    NaN is a missing value, but for a list of floats, where a missing element becomes NaN, so that the others keep their
    places. A list of one value is that value where the kind is none of lists, and a value a list of one where it is.

    Args:
      values: Strings, binaries, integers, floats, decimals, booleans, dates or timestamps, or lists of such.
      kind: Of the column.
      cells: How times and lists are written.
      column: Its name, which tells the format of its times.
    """
    if is_any_list(values.type):
        return _of_lists(as_large_lists(values), kind, cells, column)
    if is_list(kind):
        return _of_lists(_as_lists(values, cells.list_separator), kind, cells, column)
    if pa.types.is_null(values.type) or values.null_count == len(values):
        return Conversion(values=pa.nulls(len(values), arrow_type(kind)))
    if is_text(values.type):
        return _of_text(values, kind, cells, column)
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return _of_times(values, kind, cells)
    return _of_numbers(values, kind, cells, column)


def _of_text(values: pa.Array, kind: ColumnType, cells: CellOptions, column: str) -> Conversion:
    if kind == "string":
        return Conversion(values=values.cast(pa.binary()))
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        texts = try_cast(values, pa.string())
        if texts is None:
            faults = {row: f"{values[row].as_py()!r} is not {_a(kind)}" for row in _not_utf8(values)}
            rest = _of_text(_without(values, faults).cast(pa.string()), kind, cells, column)
            return dataclasses.replace(rest, faults={**faults, **rest.faults})
        values = texts
    if kind in ("timestamp", "date"):
        return _told(times_of_text(values, kind, cells.times, column))
    if kind == "bool":
        numbers, faults = booleans_of_text(values)
        return Conversion(values=numbers, faults=faults)
    wanted = pa.int64() if kind == "int" else pa.float64()
    numbers, faults = _parsed(values, wanted, kind)
    return Conversion(values=numbers, faults=faults) if kind == "int" else _to_float32(numbers, faults, values)


def _parsed(values: pa.Array, wanted: pa.DataType, kind: ColumnType) -> tuple[pa.Array, dict[int, str]]:
    numbers = try_cast(values, wanted)
    if numbers is not None:
        return numbers, {}
    bare = pc.replace_substring_regex(trimmed(values), r"^\+", "")
    if kind == "int":  # 3.0 is what pandas makes of an integer column that has missing values
        bare = pc.replace_substring_regex(bare, r"\.0*$", "")
    numbers = try_cast(bare, wanted)
    if numbers is not None:
        return numbers, {}
    bits = " (of 64 bits)" if kind == "int" else ""
    faults = {row: f"{values[row].as_py()!r} is not {_a(kind)}{bits}" for row in failing_rows(bare, wanted)}
    return _without(bare, faults).cast(wanted), faults


def _of_times(values: pa.Array, kind: ColumnType, cells: CellOptions) -> Conversion:
    if kind == "string":
        return Conversion(values=values.cast(pa.string()).cast(pa.binary()))
    times = times_of_arrow(values, "date" if kind == "date" else "timestamp", cells.times)
    told = _told(times)
    if kind == "bool":
        return _of_numbers(told.values, kind, cells, "")
    return _to_float32(told.values, told.faults) if kind == "float" else told


def _of_numbers(values: pa.Array, kind: ColumnType, cells: CellOptions, column: str) -> Conversion:
    if pa.types.is_decimal(values.type):
        return _of_decimals(values, kind, cells, column)
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    if kind == "string":
        return Conversion(values=values.cast(pa.string()).cast(pa.binary()))
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int64())
    if kind in ("timestamp", "date"):
        return _told(times_of_numbers(values, kind, cells.times, column))
    if kind == "float":
        return _to_float32(values, {})
    if kind == "bool":
        wrong = np.flatnonzero(_of_any(pc.and_(pc.not_equal(values, 0), pc.not_equal(values, 1))))
        faults = {int(row): f"{values[int(row)].as_py()!r} is not a bool (0 or 1)" for row in wrong}
        return Conversion(values=_without(values, faults).cast(pa.int64()), faults=faults)
    numbers = try_cast(values, pa.int64())
    if numbers is not None:
        return Conversion(values=numbers)
    faults = {row: _no_int(values[row].as_py()) for row in failing_rows(values, pa.int64())}
    return Conversion(values=_without(values, faults).cast(pa.int64()), faults=faults)


def _no_int(number: float) -> str:
    return over_int64(number) if isinstance(number, int) else f"{number!r} is not an int (of 64 bits)"


def _of_decimals(values: pa.Array, kind: ColumnType, cells: CellOptions, column: str) -> Conversion:
    if kind == "float":
        return _to_float32(values.cast(pa.float64()), {}, values)
    text = pa.array([None if value is None else format(value, "f") for value in values.to_pylist()], pa.string())
    return _of_text(text, kind, cells, column)


def _of_lists(lists: pa.Array, kind: ColumnType, cells: CellOptions, column: str) -> Conversion:
    valid = is_valid(lists)
    counts = np.where(valid, _of_any(pc.list_value_length(lists)), 0)
    rows = np.repeat(np.arange(len(lists)), counts)
    flat = lists.flatten()
    if not is_list(kind):
        return _single_values(flat, rows, counts, kind, cells, column)
    element: ColumnType = STORED[kind]
    inner = convert(flat, element, cells, column)
    faults = {int(rows[place]): problem for place, problem in sorted(inner.faults.items(), reverse=True)}
    values = inner.values
    if element == "float":
        values = values.fill_null(float("nan"))
    else:
        for place in np.flatnonzero(~is_valid(values))[::-1]:
            if int(place) not in inner.faults:
                faults[int(rows[place])] = "a value of the list is missing, which only a list of floats can have"
    if faults:
        kept = np.ones(len(lists), np.bool_)
        kept[list(faults)] = False
        values, counts, valid = values.filter(pa.array(kept[rows])), np.where(kept, counts, 0), valid & kept
    loss = None if inner.loss is None else (int(rows[inner.loss[0]]), inner.loss[1])
    return Conversion(values=large_lists(values, counts, valid), faults=dict(sorted(faults.items())), loss=loss)


def _single_values(
    flat: pa.Array, rows: "npt.NDArray[np.intp]", counts: "npt.NDArray[np.int64]", kind: ColumnType,
    cells: CellOptions, column: str,
) -> Conversion:  # fmt: skip
    """Returns the values of lists that should have at most one."""
    first = np.cumsum(counts) - counts
    single = counts == 1
    picked = flat.take(pa.array(np.where(single, first, 0), mask=~single)) if len(flat) else None
    inner = convert(pa.nulls(len(counts), flat.type) if picked is None else picked, kind, cells, column)
    several = {int(row): f"a list of {counts[row]} values is not {_a(kind)}" for row in np.flatnonzero(counts > 1)}
    return dataclasses.replace(inner, faults=dict(sorted({**inner.faults, **several}.items())))


def _as_lists(values: pa.Array, separator: str) -> pa.Array:
    if pa.types.is_null(values.type):
        values = values.cast(pa.string())
    if separator and is_text(values.type):
        texts = try_cast(values, pa.string())
        if texts is not None:
            return pc.cast(pc.split_pattern(texts, separator), pa.large_list(pa.string()))
    valid = is_valid(values)
    return large_lists(values.drop_null(), valid.astype(np.int64), valid)


def large_lists(
    values: pa.Array, counts: "npt.NDArray[np.int64]", valid: "npt.NDArray[np.bool_] | None" = None
) -> pa.Array:
    """Returns lists of so many values each; of a row that is not valid, whose count is 0, the list is missing."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    kind = pa.large_list(values.type)
    return pa.Array.from_buffers(kind, len(counts), [bitmap, pa.py_buffer(offsets)], children=[values])


def _to_float32(values: pa.Array, faults: Mapping[int, str], exact: pa.Array | None = None) -> Conversion:
    """Returns numbers as float32, NaN as missing; beyond float32's range lies infinity."""
    exact = values if exact is None else exact
    wide = np.asarray(values.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False))
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    beyond = _beyond_float64(exact, np.flatnonzero(np.isinf(wide)))
    large = np.flatnonzero(np.abs(wide) >= _EXACT_IN_FLOAT32)
    held, wide = narrow[large].astype(np.float64), wide[large]
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(wide) & (np.floor(wide) == wide)
        lossy = whole & ((wide != held) | (np.abs(wide) >= _EXACT_IN_FLOAT64))
    loss = None
    if lossy.any():
        row = int(large[lossy][0])
        written = exact[row].as_py()
        written = int(written) if isinstance(written, float) and math.isfinite(written) else str(written).strip()
        loss = row, f"{written} becomes {narrow[row]:.1f} as float32, which holds whole numbers up to 16777216 exactly"
    if beyond is not None and (loss is None or beyond < loss[0]):
        loss = beyond, f"{str(exact[beyond].as_py()).strip()} becomes {narrow[beyond]} as float32, which ends at 3.4e38"
    return Conversion(values=pa.array(narrow, from_pandas=True), faults=faults, loss=loss)


def _beyond_float64(texts: pa.Array, infinite: "npt.NDArray[np.intp]") -> int | None:
    """Returns the first row whose text is a number, not infinity, that float64 does not hold."""
    if not is_text(texts.type):
        return None
    return next((int(row) for row in infinite if "inf" not in str(texts[int(row)].as_py()).lower()), None)


def _told(times: Times) -> Conversion:
    loss = None if times.cut is None else (times.cut, "a fraction of a second is cut off: times are whole seconds")
    return Conversion(values=times.seconds, faults=times.faults, loss=loss)


def _without(values: pa.Array, faults: Mapping[int, str]) -> pa.Array:
    if not faults:
        return values
    wrong = np.zeros(len(values), np.bool_)
    wrong[list(faults)] = True
    return pc.if_else(pa.array(wrong), pa.scalar(None, values.type), values)


def _not_utf8(values: pa.Array) -> Sequence[int]:
    return [row for row, cell in enumerate(values.to_pylist()) if cell is not None and not _is_utf8(cell)]


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


def _a(kind: ColumnType) -> str:
    return "an int" if kind == "int" else f"a {kind}"


def _of_any(values: pa.Array) -> "npt.NDArray[np.int64]":
    absent = False if pa.types.is_boolean(values.type) else 0
    return np.asarray(values.fill_null(absent).to_numpy(zero_copy_only=False))
