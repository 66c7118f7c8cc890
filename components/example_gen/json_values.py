"""Lines of JSON to rows, and the values of a column, of whatever types they are, to an Arrow array."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.components.example_gen.columns import Kind
from lockstep.components.example_gen.conversion import large_lists

Row = dict[str, Any]

NESTED = object()
"""Stands for a list that holds objects or lists, which no feature can."""

_KINDS: dict[type, Kind] = {int: "int", float: "float", bool: "bool", str: "string"}
_ARROW_KINDS = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
_EXACT_IN_FLOAT64 = 2**53
_INT64 = range(-(2**63), 2**63)
# An object becomes a tuple of pairs, so that a key that stands twice is seen, and an object told from a list.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple)


class LineError(Exception):
    """A line is no row; the text says why."""


def parse_row(line: bytes) -> Row:
    """Returns the values of one line by key; what is in an object within it has the key ``outer.inner``.

    Values are None, bool, int, float, str, lists of them, or NESTED.

    Raises:
      LineError: The line is not UTF-8, no JSON or no object, or a key stands twice or is empty.
    """
    try:
        pairs = _DECODER.decode(line.decode())
    except UnicodeDecodeError as e:
        raise LineError(f"byte 0x{e.object[e.start]:02x} is not utf-8; JSON lines are") from e
    except json.JSONDecodeError as e:
        raise LineError(f"not JSON: {e.msg} at character {e.pos + 1}") from e
    except (ValueError, RecursionError) as e:  # a number of more digits than Python reads, lists within lists
        raise LineError(f"not JSON that can be read: {e}") from e
    if not isinstance(pairs, tuple):
        hint = "; of one JSON array, make a line of each element" if isinstance(pairs, list) else ""
        raise LineError(f'{_shown(pairs)} is no object, and each line must be one, such as {{"a": 1}}{hint}')
    row = dict(pairs)
    if len(row) < len(pairs) or "" in row or any(type(value) in (tuple, list) for value in row.values()):
        row = {}
        _flatten(pairs, "", row)
    return row


def _flatten(pairs: Iterable[tuple[str, Any]], prefix: str, row: Row) -> None:
    for key, value in pairs:
        name = prefix + key
        if not key:
            raise LineError("a key is empty; give it a name")
        if isinstance(value, tuple):
            _flatten(value, f"{name}.", row)
            continue
        if name in row:
            raise LineError(f"the key {name!r} stands twice; remove one")
        is_nested = isinstance(value, list) and any(isinstance(item, tuple | list) for item in value)
        row[name] = NESTED if is_nested else value


def kinds_of(values: Sequence[Any]) -> tuple[set[Kind], bool]:
    """Returns the kinds of a column's values, and whether one is a list; nested ones and None do not count."""
    types = set(map(type, values))
    has_lists = list in types
    if has_lists:
        types |= {type(item) for value in values if type(value) is list for item in value}
    return {_KINDS[kind] for kind in types if kind in _KINDS}, has_lists


def first_over_int64(values: Sequence[Any]) -> tuple[int, int] | None:
    """Returns the first row with a whole number that int64 does not hold, and the number."""
    if _of_one_type(values) is not None:
        return None
    for row, value in enumerate(values):
        for item in value if type(value) is list else (value,):
            if type(item) is int and item not in _INT64:
                return row, item
    return None


@dataclasses.dataclass(frozen=True)
class JsonColumn:
    """The values of a column as an array that ``convert`` takes, and the rows whose value none can hold."""

    values: pa.Array
    faults: dict[int, str]


def to_array(values: Sequence[Any], *, as_text: bool) -> JsonColumn:
    """Returns values of one kind as they are, and of several as text.

    Args:
      values: As ``parse_row`` returns them.
      as_text: Whether numbers and booleans shall be text as JSON writes them.
    """
    whole = _of_one_type(values)
    if whole is not None and not (as_text and not pa.types.is_string(whole.type)):
        return JsonColumn(whole, {})
    faults: dict[int, str] = {}
    cleaned = list(values)
    for row, value in enumerate(values):
        if value is NESTED:
            faults[row], cleaned[row] = "a list of objects or lists cannot be a feature", None
        elif not _is_unicode(value):
            faults[row], cleaned[row] = "half of a surrogate pair is no text", None
    if any(type(value) is list for value in cleaned):
        lists = [value if type(value) is list or value is None else [value] for value in cleaned]
        counts = np.array([len(value or ()) for value in lists], np.int64)
        valid = np.array([value is not None for value in lists], np.bool_)
        flat = [item for value in lists if value is not None for item in value]
        return JsonColumn(large_lists(_flat(flat, as_text=as_text), counts, valid), faults)
    return JsonColumn(_flat(cleaned, as_text=as_text), faults)


def _of_one_type(values: Sequence[Any]) -> pa.Array | None:
    """Returns values that are all of one plain type, quickly; None where they are not, or one cannot be held."""
    types = set(map(type, values)) - {type(None)}
    kind = _ARROW_KINDS.get(next(iter(types))) if len(types) == 1 else None
    if kind is None:
        return None
    try:
        return pa.array(values, kind)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return None


def _flat(values: list[Any], *, as_text: bool) -> pa.Array:
    types = set(map(type, values)) - {type(None)}
    if types <= {str}:
        return pa.array(values, pa.string())
    if not as_text:
        if types == {bool}:
            return pa.array(values, pa.bool_())
        if types == {int} and all(value is None or value in _INT64 for value in values):
            return pa.array(values, pa.int64())
        exact = all(type(value) is not int or abs(value) <= _EXACT_IN_FLOAT64 for value in values)
        if types <= {int, float} and exact:
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _is_unicode(value: Any) -> bool:
    texts = value if type(value) is list else (value,)
    try:
        for text in texts:
            if type(text) is str and not text.isascii():
                text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    text = json.dumps(value, default=dict)
    return text if len(text) <= 40 else f"{text[:40]}..."
