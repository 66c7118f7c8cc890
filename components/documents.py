"""Dataclasses as JSON documents: what one step, process or run tells the next. Standard library only.

Reading is strict: what was written comes back equal, and anything else is refused with the place where it stands.
"""

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

_T = TypeVar("_T")


def to_json(value: object) -> str:
    """Returns a dataclass as JSON; equal values give equal text."""
    return json.dumps(dataclasses.asdict(typing.cast(Any, value)), sort_keys=True)


def from_json(kind: type[_T], text: str, where: str) -> _T:
    """Returns the dataclass of a document that ``to_json`` wrote.

    Args:
      kind: A dataclass of texts, numbers, booleans, literals, tuples and mappings of one kind, dataclasses, and unions.
      text: The document.
      where: What the document is called in an error.

    Raises:
      ValueError: Not JSON, a key is unknown or absent, or a value has the wrong type or is not allowed.
    """
    return from_document(kind, json.loads(text), where)


def from_document(kind: type[_T], data: object, where: str) -> _T:
    """Returns the dataclass of a parsed document; see ``from_json``."""
    if not isinstance(data, dict):
        raise ValueError(f"{where}: {data!r} is not allowed; give a JSON object")
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind))}
    for key in data:
        if key not in fields:
            nearest = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(fields)}"
            raise ValueError(f"{where}: unknown key {key!r}; {hint}")
    hints = typing.get_type_hints(kind)
    values = {key: _value(hints[key], value, f"{where}.{key}") for key, value in data.items()}
    try:
        return kind(**values)
    except TypeError as e:  # A key without default is absent.
        raise ValueError(f"{where}: {e}") from e


def _value(hint: Any, value: object, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return from_document(typing.cast(type, hint), value, where)
    if origin is Literal and value in arguments:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_value(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
        return {key: _value(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin in (types.UnionType, typing.Union):
        return _of_union(arguments, value, where)
    if origin is None and _is_plain(value, hint):
        return float(typing.cast(float, value)) if hint is float else value
    raise ValueError(f"{where}: {value!r} is not allowed; give {hint}")


def _of_union(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    """Returns a value of one of several kinds: None, a plain kind, and a dataclass at most, told apart by the value."""
    if value is None and types.NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not types.NoneType]
    blocks = [kind for kind in rest if dataclasses.is_dataclass(kind)]
    chosen = blocks if len(rest) > 1 and isinstance(value, dict) else [kind for kind in rest if kind not in blocks]
    return _value((chosen or rest)[0], value, where)


def _is_plain(value: object, kind: type) -> bool:
    if isinstance(value, bool):  # A bool is an int to Python, not to a reader of the document.
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)
