"""What type the values of a column have, as their text or their file tells."""

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.example_gen.arrow_buffers import binary_buffers
from lockstep.components.example_gen.arrow_casts import failing_rows, over_int64, trimmed, try_cast
from lockstep.components.example_gen.booleans import are_booleans
from lockstep.components.example_gen.options import ColumnType

Kind = Literal["empty", "int", "float", "bool", "string"]

_LISTS: dict[Kind, ColumnType] = {
    "empty": "list<float>",
    "int": "list<int>",
    "bool": "list<int>",
    "float": "list<float>",
    "string": "list<string>",
}


def _table(characters: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_NOT_INT_BYTES = ~_table(b"0123456789-")
_AFTER_ZERO = _table(b"0123456789xX")


@dataclasses.dataclass
class TypeInference:
    """Narrows down, array by array, the type that holds every value of one column.

    A column is ``int`` if each value is digits with at most a minus in front, ``float`` if each is a decimal number,
    ``inf`` or NaN, ``bool`` if each is true or false, else ``string``. A leading zero (``00501``) or plus makes a
    ``string``: it would not survive. Blanks around numbers are ignored, and alone are a missing number.

    Args:
      kind: Of the values so far; ``empty`` as long as there was none.
      is_list: Whether a row had a list of values.
      over_int64: File, position and problem of the first whole number over int64; an error if the column is int in
        the end.
      nested: File and position of the first value that no feature can hold.
      places: Kind -> file and position of the first value of it, where kinds must not be mixed.
    """

    kind: Kind = "empty"
    is_list: bool = False
    over_int64: tuple[str, int, str] | None = None
    nested: tuple[str, int] | None = None
    places: dict[Kind, tuple[str, int]] = dataclasses.field(default_factory=dict)

    def add(self, values: pa.Array, path: str, positions: npt.NDArray[np.int64]) -> None:
        """Takes in the strings of ``values``, which are at these positions of a file."""
        if self.kind == "string" or values.null_count == len(values):
            return
        kind = _kind_of_numbers(values)
        if kind is None:
            values = trimmed(values)
            if values.null_count == len(values):
                return
            kind = _kind_of_numbers(values)
        if kind != "over int64":
            self.see(kind or ("bool" if are_booleans(values) else "string"))
            return
        if self.over_int64 is None:
            row = failing_rows(values, pa.int64())[0]
            self.over_int64 = path, int(positions[row]), over_int64(values[row].as_py())
        self.see("int")

    def see(self, kind: Kind, *, in_list: bool = False) -> None:
        """Takes in that there was a value of a kind."""
        self.is_list |= in_list
        if kind == self.kind or kind == "empty":
            return
        if self.kind == "empty":
            self.kind = kind
        else:
            self.kind = "float" if {self.kind, kind} == {"int", "float"} else "string"

    def merge(self, later: "TypeInference") -> None:
        """Takes in what another one has seen of the values that come after those of this one."""
        self.see(later.kind, in_list=later.is_list)
        self.over_int64 = self.over_int64 or later.over_int64
        self.nested = self.nested or later.nested
        self.places = {**later.places, **self.places}

    def resolved(self) -> ColumnType:
        """Returns the type of the column: ``float`` where there was no value at all."""
        if self.is_list:
            return _LISTS[self.kind]
        return "float" if self.kind == "empty" else self.kind


def _kind_of_numbers(values: pa.Array) -> Literal["int", "over int64", "float", "string"] | None:
    """Returns the type of all values; None where one is no number as it stands."""
    whole = try_cast(values, pa.int64()) is not None
    if not whole and try_cast(values, pa.float64()) is None:
        return None
    if _is_written_as_text(values):
        return "string"
    if whole:
        return "int"
    return "float" if _NOT_INT_BYTES[binary_buffers(values)[0]].any() else "over int64"


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
