"""Values of parameters, and how KFP turns them into text and back.

A value is what JSON gives: text, number, boolean, list, mapping with text keys, or None. KFP holds every number as a
double. After ``metadata/converter.go``.
"""

import decimal
import json
import math
import sys
from typing import Any, NoReturn

NUMBER_TYPES = ("NUMBER_INTEGER", "NUMBER_DOUBLE")
_MAX_DEPTH = 100  # of lists and mappings in each other: protobuf, in which KFP has values, takes no more
_MAX_SHOWN = 60
_TOO_DEEP = f"is nested deeper than {_MAX_DEPTH}, which Kubeflow takes at most"
_KINDS = {
    "STRING": "string",
    "NUMBER_INTEGER": "number",
    "NUMBER_DOUBLE": "number",
    "BOOLEAN": "bool",
    "LIST": "list",
    "STRUCT": "struct",
}


def kind(value: Any) -> str:
    """Returns the name that KFP gives a value's kind: string, number, bool, list, struct or null."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list) else "struct"


def expected_kind(parameter_type: str) -> str | None:
    """Returns the kind that values of a parameter's type have; None for a type that KFP does not know."""
    return _KINDS.get(parameter_type)


def to_json(value: Any) -> str:
    """Returns compact JSON with sorted keys, numbers as Go writes doubles: without a fraction where there is none."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def to_text(value: Any) -> str:
    """Returns a value as text, as a STRING parameter gets it and as a placeholder is replaced."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if kind(value) == "number":
        return _number_text(float(value))
    return to_json(value)


def _number_text(number: float) -> str:
    # Go's FormatFloat(v, 'f', -1, 64): the shortest digits that read back as the same double, never an exponent.
    return f"{number:.0f}" if number.is_integer() else f"{decimal.Decimal(repr(number)):f}"


def from_text(text: str, parameter_type: str) -> Any:
    """Returns the value of a text that a step wrote into a parameter's output file.

    Raises:
      ValueError: The text is not of the type.
    """
    if parameter_type == "STRING":
        return text
    stripped = text.strip()
    if parameter_type == "NUMBER_INTEGER":
        return _whole_number(stripped)
    if parameter_type == "NUMBER_DOUBLE":
        return _number(stripped)
    if parameter_type == "BOOLEAN":
        if stripped in ("1", "t", "T", "true", "TRUE", "True"):
            return True
        if stripped in ("0", "f", "F", "false", "FALSE", "False"):
            return False
        raise ValueError(f"{shown(stripped)} is not a boolean")
    wanted = expected_kind(parameter_type)
    if wanted is None:
        raise ValueError(f"unknown type {parameter_type}; KFP knows {', '.join(_KINDS)}")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as e:
        raise ValueError(_TOO_DEEP) from e
    _check_json(value, _MAX_DEPTH)
    if kind(value) != wanted:
        raise ValueError(f"a {kind(value)} where a {wanted} is expected")
    return value


def _whole_number(text: str) -> float:
    digits = text[1:] if text[:1] in "+-" else text
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{shown(text)} is not a whole number")
    return _finite(_number(text), text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as e:
        raise ValueError(f"{shown(text)} is not a number") from e


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is no finite number; the largest is near 1.8e308")
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")  # Python alone takes NaN and Infinity


def _check_json(value: Any, depth: int) -> None:
    """Raises ValueError for a value that KFP's messages cannot hold."""
    if isinstance(value, dict | list):
        if not depth:
            raise ValueError(_TOO_DEEP)
        for item in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            _check_json(item, depth - 1)
    elif kind(value) == "number":
        if not abs(value) <= sys.float_info.max:
            raise ValueError("a number in it is not finite; the largest is near 1.8e308")
    elif isinstance(value, str):
        _check_text(value)


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise ValueError("holds what is no text: bytes that are not UTF-8, or half a character") from e


def shown(text: str) -> str:
    """Returns a text for a message: in quotes, the beginning of a long one."""
    return repr(text) if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]!r}..."


def brief(text: str) -> str:
    """Returns a text as it was given, but for a long one's end, and for what no terminal takes."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= _MAX_SHOWN else f"{clean[:_MAX_SHOWN]}..."


def parse_argument(text: str, parameter_type: str) -> Any:
    """Returns the value of a run-time parameter as a person gives it: ``--set train_steps=300``.

    Raises:
      ValueError: The text is not of the type.
    """
    _check_text(text)
    value = from_text(text, parameter_type)
    return _finite(value, text) if kind(value) == "number" else value


def to_metadata(value: Any) -> Any:
    """Returns a metadata value as ML Metadata gives it back.

    Numbers are doubles, booleans 0 or 1, lists and structs wrapped.

    Raises:
      ValueError: The value is null, which KFP refuses.
    """
    found = kind(value)
    if found == "null":
        raise ValueError("unknown/unsupported value type null")
    if found == "bool":
        return 1.0 if value else 0.0
    if found == "number":
        return float(value)
    return value if found == "string" else {found: value}
