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


_NOT_INT_BYTES = ~_table(b"0123456789-")
_AFTER_ZERO = _table(b"0123456789xX")


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
    ``inf`` or NaN, else ``string``. A leading zero (``00501``) or plus makes a ``string``: it would not survive. Blanks
    around numbers are ignored, and alone are a missing number. ``kind`` is "empty" as long as there was no value.
    """

    kind: Literal["empty", "int", "float", "string"] = "empty"
    over_int64: tuple[str, int, str] | None = None
    """File, position and problem of the first whole number over int64; an error if the column is int in the end."""

    def add(self, values: pa.Array, path: str, positions: npt.NDArray[np.int64]) -> None:
        """Takes in the strings of ``values``, which are at these positions of a file."""
        if self.kind == "string" or values.null_count == len(values):
            return
        kind = self._kind_of(values)
        if kind is None:
            values = _trimmed(values)
            if values.null_count == len(values):
                return
            kind = self._kind_of(values) or "string"
        self.kind = "int" if kind == "over int64" else kind
        if kind == "over int64" and self.over_int64 is None:
            row, text = _first_failing(values, pa.int64())
            problem = f"{text} is over int64 (-9223372036854775808 to 9223372036854775807)"
            self.over_int64 = path, int(positions[row]), problem

    def merge(self, later: "TypeInference") -> None:
        """Takes in what another one has seen of the values that come after those of this one."""
        order = ("empty", "int", "float", "string")
        self.kind = max(self.kind, later.kind, key=order.index)
        self.over_int64 = self.over_int64 or later.over_int64

    def _kind_of(self, values: pa.Array) -> Literal["int", "over int64", "float", "string"] | None:
        """Returns the type of all values up to these; None where one is no number as it stands."""
        whole = self.kind != "float" and _try_cast(values, pa.int64()) is not None
        if not whole and _try_cast(values, pa.float64()) is None:
            return None
        if _is_written_as_text(values):
            return "string"
        if whole:
            return "int"
        if self.kind != "float" and not _NOT_INT_BYTES[binary_buffers(values)[0]].any():
            return "over int64"
        return "float"


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
        bare = pc.replace_substring_regex(_without_plus(_trimmed(values)), r"\.0*$", "")
        numbers = _try_cast(bare, pa.int64())
        if numbers is None:
            row, _ = _first_failing(bare, pa.int64())
            raise CellError(row, f"{values[row].as_py()!r} is not an int (of 64 bits)")
    return numbers


def _to_float64(values: pa.Array) -> pa.Array:
    numbers = _try_cast(values, pa.float64())
    if numbers is None:
        bare = _without_plus(_trimmed(values))
        numbers = _try_cast(bare, pa.float64())
        if numbers is None:
            row, _ = _first_failing(bare, pa.float64())
            raise CellError(row, f"{values[row].as_py()!r} is not a float")
    return numbers


def _trimmed(values: pa.Array) -> pa.Array:
    bare = pc.ascii_trim_whitespace(values)
    return pc.if_else(pc.equal(bare, ""), pa.scalar(None, bare.type), bare)


def _without_plus(values: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(values, r"^\+", "")


def _first_failing(values: pa.Array, kind: pa.DataType) -> tuple[int, str]:
    for row, text in enumerate(values.to_pylist()):
        if text is not None and text.strip() and _try_cast(pa.array([text.strip()]), kind) is None:
            return row, text
    raise AssertionError("a cast failed as a whole and for no cell")


def _try_cast(values: pa.Array, kind: pa.DataType) -> Any:
    try:
        return pc.cast(values, kind)
    except pa.ArrowInvalid:
        return None


def _is_written_as_text(values: pa.Array) -> bool:
    """Tells whether one of these numbers would be lost as a number: 007, -007, +49 and (Arrow reads it) 0x1F."""
    data, offsets = binary_buffers(values)
    if not len(data):
        return False
    starts, lengths = offsets[:-1], np.diff(offsets)
    first = data[np.minimum(starts, len(data) - 1)]
    if ((first == ord("+")) & (lengths >= 1)).any():  # some releases of Arrow read it as a number, some do not
        return True
    zeros = np.flatnonzero((first == ord("0")) & (lengths >= 2))
    minus = np.flatnonzero((first == ord("-")) & (lengths >= 3))
    signed = starts[minus] + 1
    second = np.concatenate([starts[zeros] + 1, signed[data[signed] == ord("0")] + 1])
    return bool(_AFTER_ZERO[data[second]].any())
