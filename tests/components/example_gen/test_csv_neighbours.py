"""What stands next to the faults of real CSV: line ends, marks, blanks, and numbers and dates of odd forms."""

import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.options import CsvOptions
from tests.components.example_gen.conftest import Ingested
from tests.components.example_gen.test_quarantine import quarantined

Ingest = Callable[..., Ingested]


@pytest.mark.parametrize(
    ("text", "types", "column", "values"),
    [
        ("id,x\r1,2\r3,4\r", {}, "x", [2, 4]),
        ("id,x\r1,2\r3,4", {}, "x", [2, 4]),
        ("id,x\n1,2\r\n3,4\r5,6", {}, "x", [2, 4, 6]),
        ("id,x\r\n\r\n1,2\r\n\n3,4\r\n\r\n", {}, "x", [2, 4]),
        ('id,t\r\n1,"a\r\nb"\r\n2,"c\rd"\r\n3,"e\nf"\r\n', {}, "t", [b"a\r\nb", b"c\rd", b"e\nf"]),
        ('id,t\n1,"a""b"\n2,""""\n3,"x,y"\n', {}, "t", [b'"', b'a"b', b"x,y"]),
        ('id,t\n1,""\n2,\n3,x\n', {}, "t", [b"x", None, None]),  # an empty cell in quotes is missing as well
        ('id,t\n1," "\n2,x\n', {}, "t", [b" ", b"x"]),
        ("t,x\na\0b,1\n\0,2\n", {}, "t", [b"\0", b"a\0b"]),
        ("t,x\na\ufeffb,1\n\ufeff,2\n", {}, "t", ["a\ufeffb".encode(), "\ufeff".encode()]),  # a mark at the start only
        ("x,t\n 5 ,a\n6,b\n", {}, "x", [5, 6]),
        ("x,t\n\t5,a\n6,b\n", {}, "x", [5, 6]),
        ("x\n1_000\n5\n", {}, "x", [b"1_000", b"5"]),
        ("x\n1,000\n", {}, "x", None),
        ('x\n"1,000"\n5\n', {}, "x", [b"1,000", b"5"]),
        ("x\n+5\n6\n", {}, "x", [b"+5", b"6"]),
        ("x\n-0\n7\n", {}, "x", [0, 7]),
        ("x\n-0.0\n7\n", {}, "x", [-0.0, 7.0]),
        ("x\n1.\n2\n", {}, "x", [1.0, 2.0]),
        ("x\ninf\n-inf\n1.5\n", {}, "x", [-math.inf, 1.5, math.inf]),
        ("x\nInfinity\n1.5\n", {}, "x", [1.5, math.inf]),
        ("x\n1e400\n1.5\n", {}, "x", [1.5, math.inf]),
        ("x\n1e-400\n1.5\n", {}, "x", [0.0, 1.5]),
        ("x\n1E5\n2\n", {}, "x", [2.0, 100000.0]),
        ("x\n0x1F\n1\n", {}, "x", [b"0x1F", b"1"]),
        ("x\n0x1F\n1\n", {"x": "int"}, "x", [1, 31]),
        ("x\n0b1\n1\n", {}, "x", [b"0b1", b"1"]),
        ("x\n1e5\n00501\n", {}, "x", [b"00501", b"1e5"]),
        ("x\n0\n00\n", {}, "x", [b"0", b"00"]),
        ("x\n0.50\n00.5\n", {}, "x", [b"0.50", b"00.5"]),
        ("x\n\u0663\n1\n", {}, "x", [b"1", "\u0663".encode()]),  # a digit of another script is text
        ("x\n1\u00a0\n1\n", {}, "x", [b"1", "1\u00a0".encode()]),  # and so is a blank that does not break
        ("x\n$5\n5%\n", {}, "x", [b"$5", b"5%"]),
        ("x\nTRUE\nfalse\nNA\n", {}, "x", [0, 1, None]),
        ("x\n2024-01-02\n02/01/2024\n", {}, "x", [b"02/01/2024", b"2024-01-02"]),
        ("x\n2024-01-02\n20240102\n2024-01-02T00:00\n", {}, "x", [b"2024-01-02", b"2024-01-02T00:00", b"20240102"]),
        ("x\n" + "9" * 400 + "\n1\n", {"x": "string"}, "x", [b"1", b"9" * 400]),
        ("x\n" + "0" * 3 + "\n", {}, "x", [b"000"]),
        ("x,x2,x\u0301\n1,2,3\n", {}, "x\u0301", [3]),
        (" id , x\n1,2\n", {}, " x", [2]),  # a name is kept as it is, blanks included
    ],
)  # fmt: skip
def test_a_cell_becomes_the_value_that_it_means(
    ingest_text: Ingest, text: str, types: dict[str, str], column: str, values: list[object] | None
) -> None:
    """Or its row is a fault that names its line."""
    if values is None:
        with pytest.raises(DataError, match=r"rows\.csv:2: 2 cells, but the header has 1 columns"):
            ingest_text(text)
        return
    found = ingest_text(text, types=types).column(column)
    assert found == values
    assert [math.copysign(1, value) for value in found if isinstance(value, float)] == [
        math.copysign(1, value) for value in values if isinstance(value, float)
    ]


@pytest.mark.parametrize(
    ("kind", "cells", "line"),
    [
        ("date", ["2024-01-02", "02/01/2024"], 3),
        ("date", ["2024-01-02", "2024-02-30"], 3),
        ("date", ["2024-01-02T00:00"], 2),
        ("timestamp", ["2024-01-02T00:00Z", "Jan 2 2024"], 3),
        ("int", ["1", "1_000"], 3),
        ("int", ["1", "1e2"], 3),
        ("int", ["1", "inf"], 3),
        ("float", ["1", "1_000"], 3),
        ("float", ["1", "$5"], 3),
        ("bool", ["true", "2"], 3),
    ],
)
def test_forms_that_a_declared_type_does_not_take_are_named(
    ingest_text: Ingest, kind: str, cells: list[str], line: int
) -> None:
    """With column, value, file and line; in quarantine the others are kept."""
    text = "v,i\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells))
    with pytest.raises(DataError, match=rf"rows\.csv:{line}: column 'v': "):
        ingest_text(text, types={"v": kind})
    if len(cells) > 1:
        result = ingest_text(text, types={"v": kind}, on_error="quarantine")
        assert result.column("i") == [0]
        assert [row["place"] for row in quarantined(result)] == [f"rows.csv:{line}"]


def test_a_number_beyond_all_floats_is_told(ingest_text: Ingest, caplog: pytest.LogCaptureFixture) -> None:
    """It becomes infinity, which as such needs no word; the first place is in the warning."""
    with caplog.at_level(logging.WARNING):
        ingest_text("x\ninf\n1.5\n-1e400\n1e39\n")
    message = "rows.csv:4: column 'x': -1e400 becomes -inf as float32, which ends at 3.4e38; declare"
    assert [record.getMessage() for record in caplog.records if message in record.getMessage()]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        ingest_text("x\ninf\n1.5\n-Infinity\n")
    assert not caplog.records


def test_marks_and_line_ends_are_each_file_s_own(tmp_path: Path, ingest_path: Ingest) -> None:
    """A mark in the second file, other line ends, an empty file and one without a last line end among them."""
    for name, content in {
        "a.csv": b"id,x\n1,2\n",
        "b.csv": b"\xef\xbb\xbfid,x\r\n3,4\r\n",
        "c.csv": b"",
        "d.csv": b'\xef\xbb\xbf"x","id"\r6,5',
        "e.csv": b"id,x\n",
        "f.csv": b"\xef\xbb\xbf",
    }.items():
        (tmp_path / name).write_bytes(content)
    result = ingest_path(tmp_path / "*.csv")
    assert result.column("id") == [1, 3, 5]
    assert result.column("x") == [2, 4, 6]


def test_a_blank_line_is_no_row_and_a_line_of_blanks_is_one(ingest_text: Ingest) -> None:
    """Of one column it is a missing value; of several, a fault."""
    assert ingest_text("x\n1\n\n  \n2\n").column("x") == [1, 2, None]
    with pytest.raises(DataError, match=r"rows\.csv:4: 1 cells, but the header has 2 columns"):
        ingest_text("x,y\n1,2\n\n  \n3,4\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "shift_jis", "gb18030", "cp1252"])
def test_other_encodings_are_read_value_for_value(ingest_text: Ingest, encoding: str) -> None:
    """Those in which a delimiter's or line end's byte may be a part of another character, too."""
    character = {"shift_jis": "\u30bd\u8868", "gb18030": "\u4e00\u9fa5", "cp1252": "\u20ac\u00e9"}.get(
        encoding, "\u0a0a\u2c22"
    )
    text = f'id,t\r\n1,"{character},\r\n{character}"\r\n2,{character}\r\n'
    result = ingest_text(text.encode(encoding), options=CsvOptions(encoding=encoding))
    assert result.column("t") == sorted([f"{character},\r\n{character}".encode(), character.encode()])


def test_very_many_columns_and_a_very_long_cell_are_rows_as_any(ingest_text: Ingest) -> None:
    """5,000 columns; a cell of 20 MB in quotes, with line breaks."""
    names = [f"c{i}" for i in range(5000)]
    wide = ingest_text(f"{','.join(names)}\n{','.join(map(str, range(5000)))}\n")
    assert wide.rows() == [{name: [i] for i, name in enumerate(names)}]
    cell = "line\n" * (4 << 20)
    assert ingest_text(f'id,t\n1,"{cell}"\n2,x\n').column("t") == [cell.encode(), b"x"]
