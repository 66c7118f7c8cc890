"""Flat JSON lines parsed by Arrow, many times as quick as line by line, where it reads exactly what stands there.

Arrow takes duplicate keys, several objects in a line, large numbers and dates its own way. So it is told the columns
and types that the first lines have, which it may not deviate from, and asked only where nothing else can differ.
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from lockstep.components.example_gen.columns import Kind
from lockstep.components.example_gen.json_values import NESTED, LineError, parse_row
from lockstep.components.example_gen.options import StoredType

_SAMPLE_LINES = 50
_EXACT_IN_FLOAT64 = 2**53
_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string(), type(None): pa.null()}
_KINDS: dict[pa.DataType, Kind] = {
    pa.int64(): "int",
    pa.float64(): "float",
    pa.bool_(): "bool",
    pa.string(): "string",
    pa.null(): "empty",
}
_SURROGATE = re.compile(rb"\\u[dD]")  # of which half a pair may stand alone
_LF, _OPEN, _CLOSE = b"\n{}"


@dataclasses.dataclass(frozen=True)
class JsonBlock:
    """Lines that all are rows.

    Args:
      texts: The lines (binary), without their ends.
      columns: Column -> its values: int64, float64, bool, string, or null where all are missing.
    """

    texts: pa.Array
    columns: Mapping[str, pa.Array]

    def kind(self, name: str) -> Kind:
        """Returns the type of a column."""
        return _KINDS[self.columns[name].type]

    def holds(self, name: str, stored: StoredType) -> bool:
        """Tells whether a column's values are what is wanted: numbers as text are as they are written, not as read."""
        return stored != "string" or name not in self.columns or self.kind(name) in ("string", "empty")


def quick_block(data: bytes) -> JsonBlock | None:
    """Returns whole lines parsed; None where they are to be parsed one by one.

    Args:
      data: Lines, the last one with its end.
    """
    data = data.replace(b"\r\n", b"\n")
    lines = _lines(data)
    if lines is None or _SURROGATE.search(data):
        return None
    starts, ends = lines
    schema = _schema([data[begin:end] for begin, end in zip(starts[:_SAMPLE_LINES], ends[:_SAMPLE_LINES], strict=True)])
    if schema is None:
        return None
    try:
        data.decode()
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if table.num_rows != len(starts) or table.schema != schema:
        return None
    columns = {name: _whole(table.column(name)) for name in schema.names}
    if not all(_is_exact(values) for values in columns.values()):
        return None
    return JsonBlock(texts=_texts(data, starts, ends), columns=columns)


def _lines(data: bytes) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None":
    """Returns where lines begin and end, if each begins with a brace and ends with one.

    Then none begins within an object of the line before: behind a closing brace there, no opening one may follow.
    """
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == _LF)
    if not len(ends) or ends[-1] != len(data) - 1:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts < 2).any() or (characters[starts] != _OPEN).any() or (characters[ends - 1] != _CLOSE).any():
        return None
    return starts, ends


def _schema(lines: list[bytes]) -> pa.Schema | None:
    types: dict[str, pa.DataType] = {}
    try:
        for line in lines:
            for name, value in parse_row(line).items():
                kind = None if value is NESTED else _TYPES.get(type(value))
                known = types.get(name, pa.null())
                if kind is None or (known not in (kind, pa.null()) and kind != pa.null()):
                    return None
                types[name] = kind if known == pa.null() else known
    except LineError:
        return None
    # A name with a dot may be that of an object's value.
    return None if not types or any("." in name for name in types) else pa.schema(list(types.items()))


def _whole(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _is_exact(values: pa.Array) -> bool:
    """Tells whether values are sure to be what is written: a whole number may have been read into float64."""
    if not pa.types.is_floating(values.type):
        return True
    largest = pc.max(pc.abs(values)).as_py()
    return largest is None or largest < _EXACT_IN_FLOAT64


def _texts(data: bytes, starts: "npt.NDArray[np.int64]", ends: "npt.NDArray[np.int64]") -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data.replace(b"\n", b""))]
    )
