"""Values to the types of a feature: what each kind takes, what is a fault of its row, and what is lost."""

import datetime as dt
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.components.example_gen.arrow_casts import arrow_type
from lockstep.components.example_gen.conversion import convert
from lockstep.components.example_gen.options import CellOptions, ColumnType
from lockstep.components.example_gen.time_formats import TimeOptions

_DAY = dt.date(2023, 1, 31)
_DAY_S = 1675123200
_INTS = st.integers(-(2**63), 2**63 - 1)


def _converted(values: list[Any] | pa.Array, kind: ColumnType, **cells: Any) -> tuple[list[Any], dict[int, str]]:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    conversion = convert(array, kind, CellOptions(**cells), "c")
    assert conversion.values.type == arrow_type(kind)
    assert len(conversion.values) == len(array)
    conversion.values.validate(full=True)
    return conversion.values.to_pylist(), dict(conversion.faults)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1", " 2 ", "+3", "4.0", "", None], "int", [1, 2, 3, 4, None, None]),
        (["1", " 2.5", "+3", "nan", "inf", None], "float", [1.0, 2.5, 3.0, None, math.inf, None]),
        (["a", "", None], "string", [b"a", b"", None]),
        ([b"\xff", None], "string", [b"\xff", None]),
        ([b"1", None], "int", [1, None]),
        (["true", "False", " YES ", "n", "1", "off", "", None], "bool", [1, 0, 1, 0, 1, 0, None, None]),
        (["2023-01-31", None], "date", [_DAY_S, None]),
        (["2023-01-31 00:00:01", None], "timestamp", [_DAY_S + 1, None]),
        ([1, None], "int", [1, None]),
        ([1.0, math.nan, None], "int", [1, None, None]),
        ([1, None], "float", [1.0, None]),
        ([1, None], "string", [b"1", None]),
        ([1, 0, None], "bool", [1, 0, None]),
        ([True, False, None], "int", [1, 0, None]),
        ([True, False, None], "bool", [1, 0, None]),
        ([True, None], "float", [1.0, None]),
        ([True, None], "string", [b"true", None]),
        ([_DAY, None], "date", [_DAY_S, None]),
        ([_DAY, None], "int", [_DAY_S, None]),
        ([_DAY, None], "string", [b"2023-01-31", None]),
        ([decimal.Decimal("1.50"), None], "float", [1.5, None]),
        ([decimal.Decimal("1.50"), None], "string", [b"1.50", None]),
        ([decimal.Decimal("9007199254740993"), None], "int", [9007199254740993, None]),
        ([None, None], "int", [None, None]),
        ([None, None], "list<int>", [None, None]),
        ([[1, 2], [], None, [3]], "list<int>", [[1, 2], [], None, [3]]),
        ([[1.5, None], [], None], "list<float>", [[1.5, math.nan], [], None]),
        ([["a"], ["b", ""]], "list<string>", [[b"a"], [b"b", b""]]),
        ([[1], [], None], "int", [1, None, None]),
        ([["7"], ["8", "9"]], "list<int>", [[7], [8, 9]]),
        ([[1], [2, 3]], "list<string>", [[b"1"], [b"2", b"3"]]),
        ([1, None], "list<int>", [[1], None]),
        (["a|b", None], "list<string>", [[b"a|b"], None]),
    ],
)
def test_a_value_becomes_what_its_kind_says(values: list[Any], kind: ColumnType, expected: list[Any]) -> None:
    """Text, numbers, times and lists; NaN is a missing value, but within a list."""
    found, faults = _converted(values, kind)
    assert repr(found) == repr(expected)  # NaN is not equal to itself
    assert faults == {}


@pytest.mark.parametrize(
    ("values", "kind", "problem"),
    [
        (["1", "x", "2"], "int", "'x' is not an int (of 64 bits)"),
        (["1", "1.5", "2"], "int", "'1.5' is not an int (of 64 bits)"),
        (["1", "9223372036854775808", "2"], "int", "'9223372036854775808' is not an int (of 64 bits)"),
        (["1", "1,5", "2"], "float", "'1,5' is not a float"),
        (["1", "2", "0"], "bool", "'2' is not a bool (true/t/yes/y/on/1 or false/f/no/n/off/0)"),
        (["2023-01-01", "2023-02-30", "2023-01-02"], "date", "'2023-02-30' is no date: the month has 28 days"),
        ([b"1", b"\xff", b"2"], "int", "b'\\xff' is not an int"),
        ([1.0, 1.5, 2.0], "int", "1.5 is not an int (of 64 bits)"),
        ([1.0, 1e30, 2.0], "int", "1e+30 is not an int (of 64 bits)"),
        ([1, 2**63, 2], "int", "9223372036854775808 is over int64 (-9223372036854775808 to 9223372036854775807)"),
        ([1, 2, 0], "bool", "2 is not a bool (0 or 1)"),
        ([1, 2, 0], "timestamp", "1 is a number, and no timestamp"),
        ([[1], [1, 2], [3]], "int", "a list of 2 values is not an int"),
        ([["1"], ["1", "x"], []], "list<int>", "'x' is not an int (of 64 bits)"),
        ([[1], [1, None], []], "list<int>", "a value of the list is missing, which only a list of floats can have"),
        ([["a"], ["a", None], []], "list<string>", "a value of the list is missing"),
    ],
)
def test_a_value_that_is_of_another_kind_is_a_fault_of_its_row(
    values: list[Any], kind: ColumnType, problem: str
) -> None:
    """And missing in what comes out; the rows around are converted."""
    array = pa.array(values, pa.uint64()) if 2**63 in values else pa.array(values)
    found, faults = _converted(array, kind)
    row = 0 if kind == "timestamp" else 1
    assert problem in faults[row]
    assert found[row] is None


def test_lists_are_cut_at_a_separator() -> None:
    """Which is declared; a cell that cannot be converted is a fault of its row."""
    found, faults = _converted(["1|2", "3", None, "4||5", "x"], "list<int>", list_separator="|")
    assert found == [[1, 2], [3], None, None, None]
    assert "missing" in faults[3]
    assert "'x'" in faults[4]
    assert _converted(["a||b"], "list<string>", list_separator="|") == ([[b"a", b"", b"b"]], {})


def test_a_zone_and_a_format_reach_the_times() -> None:
    """Of the column that they are declared for."""
    times = TimeOptions(zone="Europe/Berlin", formats={"c": "%d.%m.%Y %H:%M"})
    assert _converted(["31.01.2023 01:00"], "timestamp", times=times) == ([_DAY_S], {})


@pytest.mark.parametrize(
    ("values", "kind", "loss"),
    [
        (["1", "16777217"], "float", (1, "16777217 becomes 16777216.0 as float32")),
        ([1, 16777217], "float", (1, "16777217 becomes 16777216.0 as float32")),
        ([1.0, 16777217.0], "float", (1, "16777217 becomes 16777216.0 as float32")),
        (["1", "1e39"], "float", (1, "becomes inf as float32")),
        (["2023-01-01", "2023-01-01 00:00:00.5"], "timestamp", (1, "a fraction of a second is cut off")),
        ([[1.0], [2.0, 16777217.0]], "list<float>", (1, "16777217 becomes 16777216.0 as float32")),
        ([16777218, 0.1], "float", None),
        (["9007199254740993"], "float", (0, "9007199254740993 becomes 9007199254740992.0")),
    ],
)
def test_the_first_loss_of_precision_is_told(values: list[Any], kind: ColumnType, loss: tuple[int, str] | None) -> None:
    """With its row; digits of a fraction are what a float is about."""
    found = convert(pa.array(values), kind, CellOptions(), "c").loss
    assert (found is None) == (loss is None)
    if found is not None and loss is not None:
        assert found[0] == loss[0]
        assert loss[1] in found[1]


@given(
    lists=st.lists(st.none() | st.lists(_INTS, max_size=4), max_size=30),
    begin=st.integers(0, 5),
)
def test_lists_survive_whatever_part_of_an_array_they_are(lists: list[Any], begin: int) -> None:
    """Arrays may begin within their buffers."""
    array = pa.array(lists, pa.list_(pa.int64())).slice(min(begin, len(lists)))
    assert _converted(array, "list<int>") == (lists[begin:], {})


@given(values=st.lists(st.none() | _INTS | st.text(max_size=3), max_size=30))
def test_exactly_what_python_takes_for_no_int_is_a_fault(values: list[Any]) -> None:
    """However many there are, and wherever."""
    texts = [None if value is None else str(value) for value in values]
    found, faults = _converted(pa.array(texts, pa.string()), "int")
    for row, value in enumerate(values):
        if isinstance(value, int):
            assert (found[row], row in faults) == (value, False)
        elif value is None or not value.strip(" \t\n\r\v\f"):
            assert (found[row], row in faults) == (None, False)
        elif not any(character.isdigit() for character in value):
            assert (found[row], row in faults) == (None, True)
