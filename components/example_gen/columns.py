"""What type the text of a column has, and its conversion."""

import dataclasses
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.arrow_buffers import binary_buffers
from lockstep.components.example_gen.options import ColumnType

ARROW_TYPES: dict[ColumnType, pa.DataType] = {"int": pa.int64(), "float": pa.float32(), "string": pa.binary()}

_EXACT_IN_FLOAT32 = 2.0**24
_EXACT_IN_FLOAT64 = 2.0**53


def _table(characters: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_DIGITS = _table(b"0123456789")
_INT_BYTES = _table(b"0123456789-")
_FLOAT_BYTES = _table(b"0123456789-+.eEinfatyINFATY")
_SPACES = _table(b" \t")


class CellError(Exception):
    """A cell does not hold what it should; ``row`` counts from 0 within the array, ``problem`` is for the message."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row
        self.problem = problem


@dataclasses.dataclass
class TypeInference:
    """Narrows down, array by array, the type that holds every value of one column.

    A column is ``int`` if each value is digits with at most a minus in front, ``float`` if each is a decimal number,
    ``inf`` or NaN, else ``string``. A leading zero (``00501``) makes a ``string``: it would not survive. ``kind`` is
    "empty" as long as there was no value. Blanks around numbers are ignored.
    """

    kind: Literal["empty", "int", "float", "string"] = "empty"

    def add(self, values: pa.Array) -> CellError | None:
        """Takes in the strings of ``values``.

        Returns:
          The first whole number over int64, while the column counts as int; it is an error only if it still does when
          all arrays are in.
        """
        if self.kind == "string" or values.null_count == len(values):
            return None
        texts = values.drop_null()
        data, offsets = binary_buffers(texts)
        if _SPACES[data].any():
            texts = pc.ascii_trim_whitespace(texts)
            data, offsets = binary_buffers(texts)
        if not _FLOAT_BYTES[data].all() or _has_leading_zero(data, offsets):
            self.kind = "string"
        elif self.kind == "float" or not _INT_BYTES[data].all():
            self.kind = "string" if _try_cast(texts, pa.float64()) is None else "float"
        elif _try_cast(texts, pa.int64()) is not None:
            self.kind = "int"
        elif _try_cast(texts, pa.float64()) is not None:
            self.kind = "int"
            row, text = _first_failing(values, pa.int64())
            return CellError(row, f"{text} is over int64 (-9223372036854775808 to 9223372036854775807)")
        else:
            self.kind = "string"
        return None


def convert(values: pa.Array, kind: ColumnType) -> pa.Array:
    """Returns strings as int64, float32 or binary; NaN becomes missing.

    Raises:
      CellError: The first value that is not of that type.
    """
    if kind == "string":
        return values.cast(pa.binary())
    if values.null_count == len(values):
        return pa.nulls(len(values), ARROW_TYPES[kind])
    if kind == "int":
        return _to_int(values)
    return to_float32(_to_float64(values))


def to_float32(numbers: pa.Array) -> pa.Array:
    """Returns float64 as float32, NaN as missing; beyond float32's range lies infinity."""
    wide = numbers.fill_null(np.nan).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        return pa.array(wide.astype(np.float32), from_pandas=True)


def precision_loss(text: pa.Array, narrow: pa.Array) -> int | None:
    """Returns the first row whose whole number float32 does not hold (or whose value is beyond it), else None.

    Args:
      text: The values as strings or numbers.
      narrow: The same as float32.
    """
    held = narrow.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    large = np.flatnonzero(np.abs(held) >= _EXACT_IN_FLOAT32)
    if not len(large):
        return None
    some = text.take(pa.array(large))
    if pa.types.is_string(some.type):
        some = _to_float64(some)
    wide = some.to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(wide) & (np.floor(wide) == wide)
        lossy = whole & ((wide != held[large]) | (np.abs(wide) >= _EXACT_IN_FLOAT64))
    return int(large[lossy][0]) if lossy.any() else None


def _to_int(values: pa.Array) -> pa.Array:
    numbers = _try_cast(values, pa.int64())
    if numbers is None:
        # Blanks around, or 3.0: what pandas makes of an integer column that has missing values.
        bare = pc.replace_substring_regex(pc.ascii_trim_whitespace(values), r"\.0*$", "")
        numbers = _try_cast(bare, pa.int64())
        if numbers is None:
            row, _ = _first_failing(bare, pa.int64())
            raise CellError(row, f"{values[row].as_py()!r} is not an int (of 64 bits)")
    return numbers


def _to_float64(values: pa.Array) -> pa.Array:
    numbers = _try_cast(values, pa.float64())
    if numbers is None:
        bare = pc.ascii_trim_whitespace(values)
        numbers = _try_cast(bare, pa.float64())
        if numbers is None:
            row, _ = _first_failing(bare, pa.float64())
            raise CellError(row, f"{values[row].as_py()!r} is not a float")
    return numbers


def _first_failing(values: pa.Array, kind: pa.DataType) -> tuple[int, str]:
    for row, text in enumerate(values.to_pylist()):
        if text is not None and _try_cast(pa.array([text.strip()]), kind) is None:
            return row, text
    raise AssertionError("a cast failed as a whole and for no cell")


def _try_cast(values: pa.Array, kind: pa.DataType) -> Any:
    try:
        return pc.cast(values, kind)
    except pa.ArrowInvalid:
        return None


def _has_leading_zero(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> bool:
    starts, lengths = offsets[:-1], np.diff(offsets)
    signed = np.zeros(len(starts), np.bool_)
    if (some := np.flatnonzero(lengths > 0)).size:
        signed[some] = data[starts[some]] == ord("-")
    firsts = (starts + signed)[lengths - signed >= 2]
    return bool(((data[firsts] == ord("0")) & _DIGITS[data[firsts + 1]]).any()) if len(firsts) else False
