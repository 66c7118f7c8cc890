"""What real CSV looks like, and what becomes of it."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.options import CsvOptions, Requirements
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]


@pytest.mark.parametrize(
    ("text", "types", "column", "values"),
    [
        ("zip,label\n00501,1\n02134,0\n", {}, "zip", [b"00501", b"02134"]),
        ("zip,label\n-01,1\n", {}, "zip", [b"-01"]),
        ("zip,label\n00501,1\n02134,0\n", {"zip": "int"}, "zip", [501, 2134]),
        ("x\n0\n-0\n10\n", {}, "x", [0, 0, 10]),
        ("x\n0.5\n-0.25\n.5\n", {}, "x", [-0.25, 0.5, 0.5]),
        ("age,v\n31,1\nNA,2\n", {}, "age", [31, None]),
        ("age,v\n31,1\nN/A,2\nnull,3\nNone,4\n-,5\n", {}, "age", [31, None, None, None, None]),
        ("age,v\n31,1\nnan,2\nNaN,3\n", {}, "age", [31, None, None]),
        ('age,v\n31,1\n"NA",2\n"",3\n', {}, "age", [31, None, None]),
        ("age,v\n31.5,1\nNAN,2\n", {}, "age", [31.5, None]),
        ("\ufeffid,x\n1,2\n", {}, "id", [1]),
        ('\ufeff"id",x\n1,2\n', {}, "id", [1]),
        ('"id","price"\n1,2\n', {}, "price", [2]),
        ('"id","price, usd"\n1,2\n', {}, "price, usd", [2]),
        ('id,"two\nlines"\n1,2\n', {}, "two\nlines", [2]),
        ('id,t\n1,"a\nb"\n2,"c, d"\n', {}, "t", [b"a\nb", b"c, d"]),
        ('id,t\n1,"5"" pipe"\n', {}, "t", [b'5" pipe']),
        ("id,x\r\n1,2\r\n3,4\r\n", {}, "x", [2, 4]),
        ("id,x\n1,2\n\n3,4\n\n", {}, "x", [2, 4]),
        ("\n\nid,x\n1,2\n", {}, "x", [2]),
        ("id,x\n1,2\n3,4", {}, "x", [2, 4]),
        ("id,x\n1, 2\n3,4 \n", {}, "x", [2, 4]),
        ("x\n9223372036854775807\n-9223372036854775808\n", {}, "x", [-(2**63), 2**63 - 1]),
        ("x\n9223372036854775808\n1\n", {"x": "string"}, "x", [b"1", b"9223372036854775808"]),
        ("x,y\n9223372036854775808,1\nabc,2\n", {}, "x", [b"9223372036854775808", b"abc"]),
        ("x\n3.0\n4\n \n", {"x": "int"}, "x", [3, 4, None]),
        ("x\n1e3\n2\n", {}, "x", [2.0, 1000.0]),
        ("x\n0x1F\n1_0\n", {}, "x", [b"0x1F", b"1_0"]),
        ("x\n2024-01-02\n1-2\n", {}, "x", [b"1-2", b"2024-01-02"]),
        ("x\n+49123\n1\n", {}, "x", [b"+49123", b"1"]),
        ("x\n+5\n-6\n", {"x": "int"}, "x", [-6, 5]),
        ("x\n+5\n1e+2\n", {"x": "float"}, "x", [5.0, 100.0]),
        ("x\ntrue\nFalse\n\n", {}, "x", [0, 1]),
        ("x\ntrue\nfalse\n", {"x": "string"}, "x", [b"false", b"true"]),
        ("x\ntrue\nyes\n", {}, "x", [b"true", b"yes"]),
        ("x,y\ntrue,1\nYes,2\nNA,3\n0,4\n", {"x": "bool"}, "x", [0, 1, 1, None]),
        ("x\n2023-01-31\n1969-12-31\n", {"x": "date"}, "x", [-86400, 1675123200]),
        ("x\n2023-01-31T01:00+01:00\n", {"x": "timestamp"}, "x", [1675123200]),
        ("x,y\nk\u00e4se,1\n\u65e5\u672c,2\n", {}, "x", ["k\u00e4se".encode(), "\u65e5\u672c".encode()]),
    ],
)
def test_a_cell_becomes_the_value_that_it_means(
    ingest_text: Ingest, text: str, types: dict[str, str], column: str, values: list[object]
) -> None:
    """Types, null tokens, quotes, byte order marks, line ends and blanks."""
    assert ingest_text(text, types=types).column(column) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id,v\n9223372036854775807,1\n9223372036854775808,2\n",
            "rows.csv:3: column 'id': 9223372036854775808 is over",
        ),
        ('id,t\n1,x\n2,5" pipe\n3,y\n', "rows.csv:3: a quote within an unquoted cell"),
        ('id,t\n1,"x"y\n', "rows.csv:2: text after a closing quote"),
        ('id,t\n1,x\n2,"abc\n3,y\n4,z\n', "rows.csv:3: a quote is opened here and never closed"),
        ("a,b\n1,2\n3\n", "rows.csv:3: 1 cells, but the header has 2 columns"),
        ('a,b\n"1\n1",2\n3,4,5\n', "rows.csv:4: 3 cells, but the header has 2 columns"),
        ("a,a\n1,2\n", "rows.csv:1: the column name 'a' occurs more than once"),
        ("id;t\n1;x\n", "the delimiter seems to be ';', not ',': give data.options.delimiter"),
        ("id\tt\n1\tx\n", "the delimiter seems to be '\\t'"),
        ("a,b\n", "rows.csv: no rows"),
        ("a,b", "rows.csv: no rows"),
        ("a,b\n\n\n", "rows.csv: no rows"),
        ('a,"b\n1,2\n', "rows.csv:1: a quote is opened here and never closed"),
        ('a,"b\n' + "1,2\n" * 500_000, "rows.csv:1: a quote is opened here and never closed"),
        ("", "rows.csv: no rows, not even a header"),
        ("\n\n", "rows.csv: no rows, not even a header"),
        (",a\n0,1\n", "rows.csv:2: column 1 has the value '0' but no name"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_line(ingest_text: Ingest, text: str, message: str) -> None:
    """Each fault is a DataError with file, line and what to do, and leaves nothing behind."""
    with pytest.raises(DataError) as failure:
        ingest_text(text)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("kind", "cell", "message"),
    [
        ("int", "x7", "rows.csv:4: column 'v': 'x7' is not an int"),
        ("int", "1.5", "rows.csv:4: column 'v': '1.5' is not an int"),
        ("int", "9223372036854775808", "rows.csv:4: column 'v': '9223372036854775808' is not an int"),
        ("float", "1,5", "rows.csv:4: column 'v': '1,5' is not a float"),
        ("bool", "2", "rows.csv:4: column 'v': '2' is not a bool"),
    ],
)
def test_a_declared_type_that_does_not_hold_names_file_line_column_and_value(
    ingest_text: Ingest, kind: str, cell: str, message: str
) -> None:
    """The line counts the lines of the file, an earlier cell with a newline included."""
    with pytest.raises(DataError) as failure:
        ingest_text(f'id,v\n"a\nb",1\n2,"{cell}"\n', types={"v": kind})
    assert message in str(failure.value)


def test_a_time_that_cannot_be_names_file_and_line(ingest_text: Ingest) -> None:
    """And the others are read as the format and the zone say."""
    options = {"types": {"t": "timestamp"}, "time_formats": {"t": "%d.%m.%Y"}, "time_zone": "Europe/Berlin"}
    with pytest.raises(DataError, match=r"rows\.csv:3: column 't': '30\.02\.2023' is no date: the month has 28 days"):
        ingest_text("t\n01.01.1970\n30.02.2023\n", **options)
    assert ingest_text("t\n01.01.1970\n", **options).column("t") == [-3600]


def test_a_cell_of_several_values_is_a_list_where_that_is_declared(ingest_text: Ingest) -> None:
    """As genres of films; a missing cell's feature is absent."""
    result = ingest_text("id,g\n1,a|b\n2,\n3,c\n", types={"g": "list<string>"}, list_separator="|")
    assert sorted(tuple(row.get("g", ())) for row in result.rows()) == [(), (b"a", b"b"), (b"c",)]


def test_text_in_another_encoding_names_line_and_option(ingest_text: Ingest) -> None:
    """Latin-1 read as UTF-8 fails with the byte; with the option it is read."""
    text = b"id,t\n1,x\n2,caf\xe9\n"
    with pytest.raises(DataError, match=r"rows\.csv:3: byte 0xe9 is not utf-8; give data\.options\.encoding"):
        ingest_text(text)
    assert ingest_text(text, options=CsvOptions(encoding="latin-1")).column("t") == [b"caf\xc3\xa9", b"x"]


def test_utf_16_is_suggested_and_read(ingest_text: Ingest) -> None:
    """Spreadsheets save UTF-16 as "Unicode text"."""
    text = "id,t\n1,käse\n".encode("utf-16")
    with pytest.raises(DataError, match="'utf-16'"):
        ingest_text(text)
    assert ingest_text(text, options=CsvOptions(encoding="utf-16")).column("t") == ["käse".encode()]


def test_a_header_in_another_encoding_names_line_and_option(ingest_text: Ingest) -> None:
    """The header is decoded before the rows are."""
    with pytest.raises(DataError, match=r"rows\.csv:1: byte 0xe4 is not utf-8"):
        ingest_text(b"k\xe4se,t\n1,x\n")


def test_whole_numbers_that_float32_does_not_hold_are_reported(
    ingest_text: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    """Column, line and value are in the warning, once a column."""
    with caplog.at_level(logging.WARNING):
        result = ingest_text("id,v\n16777217,1\n1.5,2\n16777219,3\n")
    assert result.column("id") == [1.5, 16777216.0, 16777220.0]
    assert [record.getMessage() for record in caplog.records if "float32" in record.message] == [
        next(
            record.getMessage()
            for record in caplog.records
            if "rows.csv:2: column 'id': 16777217 becomes" in record.message
        )
    ]


def test_whole_numbers_that_float32_holds_are_not_reported(
    ingest_text: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    """2**24, larger even numbers, and fractions are as exact as float32 promises."""
    with caplog.at_level(logging.WARNING):
        ingest_text("id\n16777216\n16777218\n0.1\n")
    assert not caplog.records


def test_a_column_without_values_has_a_type_and_is_reported(
    ingest_text: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    """It is missing in every row, and the log says so."""
    with caplog.at_level(logging.WARNING):
        result = ingest_text("a,b\n1,\n2,\n")
    assert result.manifest.types == {"a": "int", "b": "float"}
    assert result.manifest.missing == {"a": 0, "b": 2}
    assert "column 'b' has no value in any row" in caplog.text


def test_an_empty_trailing_column_is_dropped_with_a_warning(
    ingest_text: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    """Spreadsheets end every line with a delimiter."""
    with caplog.at_level(logging.WARNING):
        result = ingest_text("a,b,,\n1,2,,\n")
    assert result.rows() == [{"a": [1], "b": [2]}]
    assert "2 column(s) without name and values are dropped" in caplog.text


def test_all_files_give_a_column_one_type(tmp_path: Path, ingest_path: Ingest) -> None:
    """A fraction in the last file makes the column float in the first."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x,y\n1,a\n2,b\n")
    (tmp_path / "in" / "b.csv").write_text("y,x\nc,1.5\n")
    (tmp_path / "in" / "c.csv").write_text("y,x\n")
    (tmp_path / "in" / "_SUCCESS").write_text("")
    (tmp_path / "in" / ".hidden.csv").write_text("other\n1\n")
    result = ingest_path(tmp_path / "in")
    assert result.column("x") == [1.0, 1.5, 2.0]
    assert result.column("y") == [b"a", b"b", b"c"]


def test_files_with_other_columns_are_refused(tmp_path: Path, ingest_path: Ingest) -> None:
    """Both files and the differing columns are named."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    with pytest.raises(DataError, match=r"b\.csv: its columns are not those of .*a\.csv; only in one: y, z"):
        ingest_path(tmp_path / "*.csv")


def test_a_row_longer_than_a_block_is_read(ingest_text: Ingest) -> None:
    """A cell may be longer than the reader's blocks of 4 MB."""
    cell = "x" * (9 << 20)
    assert ingest_text(f"a,b\n1,2\n3,{cell}\n5,6\n", splits={"all": 1}).column("b") == [b"2", b"6", cell.encode()]


def test_a_required_column_that_is_absent_is_named_with_the_nearest(ingest_text: Ingest) -> None:
    """The message lists all columns."""
    with pytest.raises(
        DataError, match=r"rows\.csv has no column 'Fare'; did you mean 'fare'\? \(columns: fare, tips\)"
    ):
        ingest_text("fare,tips\n1,2\n", Requirements(columns=("Fare",)))


def test_a_declared_type_of_an_absent_column_is_refused(ingest_text: Ingest) -> None:
    """A misspelt declaration would otherwise be ignored."""
    with pytest.raises(DataError, match=r"data\.types\.fair: .*did you mean 'fare'"):
        ingest_text("fare,tips\n1,2\n", types={"fair": "float"})


def test_a_row_without_label_stops_with_its_line(ingest_text: Ingest) -> None:
    """The first such row is named."""
    with pytest.raises(DataError, match=r"rows\.csv:3: column 'tips' has no value, and every row needs one"):
        ingest_text("fare,tips\n1,2\n3,\n4,NA\n", Requirements(complete_columns=("tips",)))


def test_rows_without_label_are_dropped_and_counted(ingest_text: Ingest, caplog: pytest.LogCaptureFixture) -> None:
    """With ``drop`` they are left out, and manifest and log say how many."""
    with caplog.at_level(logging.WARNING):
        result = ingest_text("fare,tips\n1,2\n3,\n4,NA\n", Requirements(complete_columns=("tips",), on_missing="drop"))
    assert result.rows() == [{"fare": [1], "tips": [2]}]
    assert result.manifest.dropped == {"without tips": 2}
    assert "2 rows dropped: without tips" in caplog.text


def test_no_row_left_after_dropping_is_an_error(ingest_text: Ingest) -> None:
    """The message says where the rows went."""
    with pytest.raises(DataError, match=r"no rows are left \(1 without tips\)"):
        ingest_text("fare,tips\n1,\n", Requirements(complete_columns=("tips",), on_missing="drop"))


def test_a_column_that_must_be_complete_if_there_may_be_absent(ingest_text: Ingest) -> None:
    """A user's function may make the label of other columns."""
    assert ingest_text("fare\n1\n", Requirements(complete_if_present=("tips",))).rows() == [{"fare": [1]}]


def test_a_column_that_must_be_complete_if_there_is_complete_or_stops_the_run(ingest_text: Ingest) -> None:
    """As the label of declared features; with ``drop`` its rows are left out."""
    text = "fare,tips\n1,2\n3,\n"
    with pytest.raises(DataError, match=r"rows\.csv:3: column 'tips' has no value, and every row needs one"):
        ingest_text(text, Requirements(complete_if_present=("tips",)))
    result = ingest_text(text, Requirements(complete_if_present=("tips",), on_missing="drop"))
    assert result.rows() == [{"fare": [1], "tips": [2]}]
    assert result.manifest.dropped == {"without tips": 1}


def test_a_required_column_without_any_value_is_an_error(ingest_text: Ingest) -> None:
    """Transform could not learn from it; one that nobody asks for is only reported."""
    text = "a,b\n1,\n2,\n"
    with pytest.raises(
        DataError, match=r"^column 'b' has no value in any row; leave it out of features \(and evaluate\.slices\)$"
    ):
        ingest_text(text, Requirements(columns=("a", "b")))
    assert ingest_text(text, Requirements(columns=("a",))).manifest.missing == {"a": 0, "b": 2}


def test_a_required_column_needs_a_value_in_the_split_that_is_trained_on(ingest_text: Ingest) -> None:
    """The schema is made of that split alone."""
    splits = {"train": 1, "eval": 1}
    requirements = Requirements(columns=("a", "b"))
    lines = [f"{i},{i}\n" for i in range(40)]
    trained = {row["a"][0] for row in ingest_text("a,b\n" + "".join(lines), splits=splits).rows("train")}
    empty = "".join(f"{i},\n" for i in range(40, 80))  # of these some come to each split
    in_train = "".join(line for i, line in enumerate(lines) if i in trained)
    in_eval = "".join(line for i, line in enumerate(lines) if i not in trained)
    assert ingest_text("a,b\n" + empty + in_train, requirements, splits=splits).manifest.missing["b"] == 40
    with pytest.raises(DataError, match="column 'b' has no value in any row of the split 'train'; leave it out"):
        ingest_text("a,b\n" + empty + in_eval, requirements, splits=splits)


@pytest.mark.parametrize(("text", "message"), [("", "not even a header"), ("a,b\n", "no rows")])
def test_a_file_without_rows_is_told_once(
    ingest_text: Ingest, caplog: pytest.LogCaptureFixture, text: str, message: str
) -> None:
    """As the error; a warning before it would say the same."""
    with caplog.at_level(logging.WARNING), pytest.raises(DataError, match=message):
        ingest_text(text)
    assert not caplog.records


def test_a_file_without_rows_among_others_is_reported_once(
    tmp_path: Path, ingest_path: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    """Though files are read twice."""
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n")
    (tmp_path / "c.csv").write_text("")
    with caplog.at_level(logging.WARNING):
        assert ingest_path(tmp_path / "*.csv").rows() == [{"x": [1]}]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/c.csv: the file is empty",
        f"{tmp_path}/b.csv: no rows under the header",
    ]


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        ("1,x\n2,y\n", CsvOptions(header=False), {"column_1": [1, 2], "column_2": [b"x", b"y"]}),
        ("\n1,x\n", CsvOptions(header=False), {"column_1": [1], "column_2": [b"x"]}),
        ("\ufeff1,x\n2,y", CsvOptions(header=False, column_names=("n", "t")), {"n": [1, 2], "t": [b"x", b"y"]}),
        ('"a\nb",1\n', CsvOptions(header=False, column_names=("t", "n")), {"t": [b"a\nb"], "n": [1]}),
        ("t,n\n'a,''b',1\n", CsvOptions(quote="'"), {"t": [b"a,'b"], "n": [1]}),
        ('t,n\n5" pipe,1\n', CsvOptions(quote="'"), {"t": [b'5" pipe'], "n": [1]}),
        ('t,n\n5" pipe,1\n"x",2\n', CsvOptions(quote=""), {"t": [b'5" pipe', b'"x"'], "n": [1, 2]}),
        ("a;b\n|x;y|;2\n", CsvOptions(delimiter=";", quote="|"), {"a": [b"x;y"], "b": [2]}),
    ],
)
def test_files_without_a_header_and_with_other_quotes(
    ingest_text: Ingest, text: str, options: CsvOptions, columns: dict[str, list[object]]
) -> None:
    """No row is lost to names that are not there, and no quote is one that was not declared as such."""
    ingested = ingest_text(text, options=options)
    for column, values in columns.items():
        assert ingested.column(column) == sorted(values)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("1,x\n", CsvOptions(header=False, column_names=("n",)), r":1: 2 cells, but .*column_names gives 1 names"),
        ("1,x\n2\n", CsvOptions(header=False), r":2: 1 cells, but there are 2 columns"),
        ("t,n\n'a' b,1\n", CsvOptions(quote="'"), r":2: text after a closing quote; write .* '5'' pipe'"),
    ],
)
def test_faults_of_such_files_have_their_line(
    ingest_text: Ingest, text: str, options: CsvOptions, message: str
) -> None:
    """As those of any other CSV."""
    with pytest.raises(DataError, match=message):
        ingest_text(text, options=options)
