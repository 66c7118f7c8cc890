"""Values of parameters, and how KFP turns them into text and back.

A value is what JSON gives: text, number, boolean, list, mapping with text keys, or None. KFP holds every number as a
double. After ``metadata/converter.go``.
"""

import decimal
import json
import math
from typing import Any

NUMBER_TYPES = ("NUMBER_INTEGER", "NUMBER_DOUBLE")
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
        return float(stripped)
    if parameter_type == "BOOLEAN":
        if stripped in ("1", "t", "T", "true", "TRUE", "True"):
            return True
        if stripped in ("0", "f", "F", "false", "FALSE", "False"):
            return False
        raise ValueError(f"{stripped!r} is not a boolean")
    wanted = expected_kind(parameter_type)
    if wanted is None:
        raise ValueError(f"unknown type {parameter_type}; KFP knows {', '.join(_KINDS)}")
    value = json.loads(text)
    if kind(value) != wanted:
        raise ValueError(f"a {kind(value)} where a {wanted} is expected")
    return value


def _whole_number(text: str) -> float:
    digits = text[1:] if text[:1] in "+-" else text
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{text!r} is not a whole number")
    return float(int(text))


def parse_argument(text: str, parameter_type: str) -> Any:
    """Returns the value of a run-time parameter as a person gives it: ``--set train_steps=300``.

    Raises:
      ValueError: The text is not of the type.
    """
    value = from_text(text, parameter_type)
    if kind(value) == "number" and not math.isfinite(value):
        raise ValueError(f"{text!r} is no finite number")
    return value


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
