"""Which Arrow type a kind of column has, and which rows of an array cannot be cast to it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.arrow_buffers import is_valid
from lockstep.components.example_gen.options import STORED, ColumnType

_ARROW_TYPES = {"int": pa.int64(), "float": pa.float32(), "string": pa.binary()}


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Returns the type of a column's arrays: int64, float32, binary, or a large list of one of them."""
    value = _ARROW_TYPES[STORED[kind]]
    return pa.large_list(value) if is_list(kind) else value


def is_list(kind: ColumnType) -> bool:
    """Tells whether a row may have several values."""
    return kind.startswith("list<")


def over_int64(number: object) -> str:
    """Returns what is wrong with a whole number that int64 does not hold."""
    return f"{number} is over int64 (-9223372036854775808 to 9223372036854775807)"


def try_cast(values: pa.Array, kind: pa.DataType) -> Any:
    """Returns the array cast to a type; None where one value cannot be."""
    try:
        return pc.cast(values, kind)
    except pa.ArrowInvalid:
        return None


def failing_rows(values: pa.Array, kind: pa.DataType) -> list[int]:
    """Returns the rows of strings or numbers that Arrow does not cast to a type."""
    failing: list[int] = []
    pending = [(0, len(values))]
    while pending:
        begin, end = pending.pop()
        if begin == end or try_cast(values.slice(begin, end - begin), kind) is not None:
            continue
        if end - begin == 1:
            failing.append(begin)
            continue
        middle = (begin + end) // 2
        pending += [(middle, end), (begin, middle)]
    return failing


def trimmed(values: pa.Array) -> pa.Array:
    """Returns strings without blanks around them; one of nothing else is missing."""
    bare = pc.ascii_trim_whitespace(values)
    return pc.if_else(pc.equal(bare, ""), pa.scalar(None, bare.type), bare)


def is_text(kind: pa.DataType) -> bool:
    """Tells whether values are strings or binaries."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(check(kind) for check in checks)


def is_any_list(kind: pa.DataType) -> bool:
    """Tells whether values are lists of any of Arrow's kinds."""
    return any(check(kind) for check in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def as_large_lists(values: pa.Array) -> pa.Array:
    """Returns lists of any kind as large lists; Arrow has no such cast for those of a fixed size."""
    if not pa.types.is_fixed_size_list(values.type):
        return values.cast(pa.large_list(values.type.value_type))
    valid = is_valid(values)
    offsets = np.concatenate([[0], np.cumsum(valid * values.type.list_size)]).astype(np.int64)
    missing = np.append(~valid, False)  # an offset that is missing is a list that is
    return pa.LargeListArray.from_arrays(pa.array(offsets, mask=missing), values.drop_null().flatten())
