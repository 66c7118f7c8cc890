"""Parquet files as input."""

import datetime as dt
import decimal
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.options import Requirements
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]

_NOON = dt.datetime(2024, 1, 2, 12, tzinfo=dt.timezone.utc)
_STRINGS = pa.array(["x", "y", "x"])


def _write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([1, 2, None], pa.int8()), "int", [1, 2, None]),
        (pa.array([1, 2, 3], pa.uint64()), "int", [1, 2, 3]),
        (pa.array([True, False, None]), "bool", [0, 1, None]),
        (pa.array([1.5, None, float("nan")]), "float", [1.5, None, None]),
        (pa.array([1.5, 2.5, 3.5], pa.float32()), "float", [1.5, 2.5, 3.5]),
        (pa.array([decimal.Decimal("1.25"), None, None]), "float", [1.25, None, None]),
        (pa.array(["a", "", None]), "string", [b"", b"a", None]),
        (pa.array([b"\xff", b"", None]), "string", [b"", b"\xff", None]),
        (pa.array([b"ab", b"cd", None], pa.binary(2)), "string", [b"ab", b"cd", None]),
        (_STRINGS.dictionary_encode(), "string", [b"x", b"x", b"y"]),
        (_STRINGS.cast(pa.large_string()), "string", [b"x", b"x", b"y"]),
        (pa.array([_NOON, None, None], pa.timestamp("us", "UTC")), "timestamp", [1704196800, None, None]),
        (pa.array([_NOON.date(), None, None]), "date", [1704153600, None, None]),
        (pa.nulls(3), "float", [None, None, None]),
    ],
)
def test_a_type_becomes_that_of_a_feature(
    tmp_path: Path, ingest_path: Ingest, array: pa.Array, kind: str, values: list[object]
) -> None:
    """Numbers, booleans, times, texts; null and NaN are missing."""
    result = ingest_path(_write(tmp_path / "rows.parquet", c=array, n=pa.array([1, 2, 3])))
    assert result.manifest.types == {"c": kind, "n": "int"}
    assert result.column("c") == values


def test_a_declared_type_converts(tmp_path: Path, ingest_path: Ingest) -> None:
    """Text to numbers, numbers to text, whole floats to int."""
    path = _write(tmp_path / "rows.parquet", a=pa.array(["1", "2"]), b=pa.array([7, 8]), c=pa.array([1.0, None]))
    result = ingest_path(path, types={"a": "int", "b": "string", "c": "int"})
    assert [result.column(name) for name in "abc"] == [[1, 2], [b"7", b"8"], [1, None]]


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (pa.array([1.0, 1.5]), "1.5 is not an int"),
        (pa.array([1, 2**64 - 1], pa.uint64()), "18446744073709551615 is over int64"),
        (pa.array(["1", "x"]), "'x' is not an int"),
    ],
)
def test_a_value_that_is_not_of_the_declared_type_names_its_row(
    tmp_path: Path, ingest_path: Ingest, array: pa.Array, problem: str
) -> None:
    """Rows count from 1."""
    with pytest.raises(DataError) as failure:
        ingest_path(_write(tmp_path / "rows.parquet", c=array), types={"c": "int"})
    assert f"rows.parquet, row 2: column 'c': {problem}" in str(failure.value)


def test_files_agree_on_float_where_one_has_fractions(tmp_path: Path, ingest_path: Ingest) -> None:
    """And a whole number goes to the same split as int and as float."""
    splits = {"train": 1, "eval": 1}
    (tmp_path / "in").mkdir()
    path = _write(tmp_path / "in" / "a.parquet", x=pa.array(list(range(50))))
    ints = ingest_path(path, splits=splits)
    _write(tmp_path / "in" / "b.parquet", x=pa.array([0.5]))
    floats = ingest_path(tmp_path / "in", splits=splits)
    assert {row["x"][0] for row in floats.rows("eval")} - {0.5} == {row["x"][0] for row in ints.rows("eval")}
    assert floats.manifest.types == {"x": "float"}


@pytest.mark.parametrize(
    ("array", "kind"),
    [(pa.array([[[1]], [[2]]]), "list"), (pa.array([{"a": 1}, None]), "struct")],
)
def test_a_column_of_a_type_that_no_feature_has_is_left_out(
    tmp_path: Path, ingest_path: Ingest, caplog: pytest.LogCaptureFixture, array: pa.Array, kind: str
) -> None:
    """With a warning, where nothing needs it."""
    path = _write(tmp_path / "rows.parquet", c=array, n=pa.array([1, 2]))
    with caplog.at_level(logging.WARNING):
        result = ingest_path(path, Requirements(columns=("n",), complete_if_present=("y",)))
    assert sorted(row["n"][0] for row in result.rows()) == [1, 2]
    assert result.manifest.types == {"n": "int"}
    [warning] = [record.getMessage() for record in caplog.records]
    # Arrow's releases differ in the name of a list's element.
    assert warning.startswith(f"{path}: column 'c' is of type {kind}<")
    assert warning.endswith(
        "; only numbers, strings and times, and lists of numbers or strings, can be read; it is left out"
    )


@pytest.mark.parametrize(
    ("requirements", "types"),
    [
        (Requirements(columns=("c",)), {}),
        (Requirements(complete_columns=("c",)), {}),
        (Requirements(complete_if_present=("c",)), {}),
        (Requirements(), {"c": "string"}),
    ],
)
def test_a_column_that_is_needed_must_be_of_a_type_that_a_feature_has(
    tmp_path: Path, ingest_path: Ingest, requirements: Requirements, types: dict[str, str]
) -> None:
    """The message names file, column and type."""
    path = _write(tmp_path / "rows.parquet", c=pa.array([[[1]]]), n=pa.array([1]))
    with pytest.raises(DataError, match=r"rows\.parquet: column 'c' is of type list"):
        ingest_path(path, requirements, types=types)


def test_a_file_without_any_column_that_can_be_read_is_an_error(tmp_path: Path, ingest_path: Ingest) -> None:
    """Its first column is named."""
    with pytest.raises(DataError, match="column 'c' is of type struct"):
        ingest_path(_write(tmp_path / "rows.parquet", c=pa.array([{"a": 1}]), d=pa.array([[[1]]])))


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """A CSV file with the wrong name, say."""
    (tmp_path / "rows.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"rows\.parquet: not a Parquet file"):
        ingest_path(tmp_path / "rows.parquet")


def test_a_file_without_rows_is_an_error(tmp_path: Path, ingest_path: Ingest) -> None:
    """As for CSV."""
    with pytest.raises(DataError, match=r"rows\.parquet: no rows"):
        ingest_path(_write(tmp_path / "rows.parquet", c=pa.array([], pa.int64())))


def test_rows_with_long_values_are_read_in_small_batches(tmp_path: Path, ingest_path: Ingest) -> None:
    """100 values of 1 MB, none lost."""
    values = [bytes([i]) * (1 << 20) for i in range(100)]
    result = ingest_path(_write(tmp_path / "rows.parquet", c=pa.array(values)))
    assert [value[:1] for value in result.column("c")] == [value[:1] for value in values]


def test_a_row_without_label_is_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """By its number in the file."""
    path = _write(tmp_path / "rows.parquet", y=pa.array([1.0, float("nan")]))
    with pytest.raises(DataError, match=r"rows\.parquet, row 2: column 'y' has no value"):
        ingest_path(path, Requirements(complete_columns=("y",)))


def test_the_index_that_pandas_writes_is_left_out(tmp_path: Path, ingest_path: Ingest) -> None:
    """It numbers the rows."""
    path = _write(tmp_path / "rows.parquet", x=pa.array([1]), __index_level_0__=pa.array([0]))
    assert ingest_path(path).rows() == [{"x": [1]}]


def test_whole_numbers_that_float32_does_not_hold_are_reported(
    tmp_path: Path, ingest_path: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    """As for CSV, where an int column is declared float."""
    with caplog.at_level(logging.WARNING):
        ingest_path(_write(tmp_path / "rows.parquet", x=pa.array([1, 16777217])), types={"x": "float"})
    assert "rows.parquet, row 2: column 'x': 16777217 becomes 16777216.0 as float32" in caplog.text


def test_lists_become_features_of_several_values(tmp_path: Path, ingest_path: Ingest) -> None:
    """A missing list's feature is absent, an empty one has no value; elements of other types are converted."""
    path = _write(
        tmp_path / "rows.parquet",
        i=pa.array([[1, 2], [], None]),
        f=pa.array([[1.5, None], None, [2.5]], pa.large_list(pa.float64())),
        s=pa.array([["a", ""], ["b"], None]),
        n=pa.array([0, 1, 2]),
    )
    result = ingest_path(path, num_shards=1)
    rows = sorted(result.rows(), key=lambda row: row["n"])
    assert [row.get("i") for row in rows] == [[1, 2], [], None]
    assert [row.get("s") for row in rows] == [[b"a", b""], [b"b"], None]
    assert repr([row.get("f") for row in rows]) == "[[1.5, nan], None, [2.5]]"
    assert result.manifest.types == {"i": "list<int>", "f": "list<float>", "s": "list<string>", "n": "int"}


def test_a_column_that_is_a_list_in_one_file_is_one_in_all(tmp_path: Path, ingest_path: Ingest) -> None:
    """And of floats, where one has fractions."""
    (tmp_path / "in").mkdir()
    _write(tmp_path / "in" / "a.parquet", x=pa.array([1, None]))
    _write(tmp_path / "in" / "b.parquet", x=pa.array([[1.5, 2.0]]))
    result = ingest_path(tmp_path / "in")
    assert result.manifest.types == {"x": "list<float>"}
    assert sorted(row.get("x", []) for row in result.rows()) == [[], [1.0], [1.5, 2.0]]


def test_a_list_with_a_missing_whole_number_names_its_row(tmp_path: Path, ingest_path: Ingest) -> None:
    """There is no value that could stand for it."""
    path = _write(tmp_path / "rows.parquet", x=pa.array([[1], [2, None]]))
    with pytest.raises(DataError, match=r"rows\.parquet, row 2: column 'x': a value of the list is missing"):
        ingest_path(path)
    assert sorted(row["x"] for row in ingest_path(path, types={"x": "list<string>"}, on_error="quarantine").rows()) == [
        [b"1"]
    ]


def test_folders_of_keys_and_values_become_columns(tmp_path: Path, ingest_path: Ingest) -> None:
    """Of the type that holds all values; ``_SUCCESS``, hidden files and folders are left out."""
    for year, city, x in ((2023, "S%C3%A3o Paulo", 1), (2024, "__HIVE_DEFAULT_PARTITION__", 2)):
        folder = tmp_path / "in" / f"year={year}" / f"city={city}"
        folder.mkdir(parents=True)
        _write(folder / "part-0.parquet", x=pa.array([x]))
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "in" / "_temporary").mkdir()
    (tmp_path / "in" / "_temporary" / "x.parquet").write_text("not ready")
    result = ingest_path(tmp_path / "in")
    rows = sorted(result.rows(), key=lambda row: row["x"])
    assert rows == [{"x": [1], "year": [2023], "city": ["S\u00e3o Paulo".encode()]}, {"x": [2], "year": [2024]}]
    assert result.manifest.types == {"x": "int", "year": "int", "city": "string"}
    declared = ingest_path(tmp_path / "in" / "year=*" / "*" / "*.parquet", types={"year": "string"})
    assert declared.column("year") == [b"2023", b"2024"]


def test_folders_that_do_not_agree_in_their_keys_are_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """A key that is in the files too is left to them."""
    for folder in ("year=2023", "year=2024", "month=1"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        _write(tmp_path / "in" / folder / "part-0.parquet", x=pa.array([1]), year=pa.array([7]))
    with pytest.raises(DataError, match=r"year=2023.*only in one: month"):
        ingest_path(tmp_path / "in")
    assert ingest_path(tmp_path / "in" / "year=*").column("year") == [7, 7]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_before_1970_are_read_in_any_unit(
    tmp_path: Path, ingest_path: Ingest, caplog: pytest.LogCaptureFixture, unit: str
) -> None:
    """Without a zone they are in that of ``time_zone``; a fraction of a second that is cut off is told."""
    times = pa.array([dt.datetime(1969, 12, 31, 23, 59, 58), None], pa.timestamp(unit))
    path = _write(tmp_path / "rows.parquet", t=times, n=pa.array([1, 2]))
    assert ingest_path(path).column("t") == [-2, None]
    assert ingest_path(path, time_zone="America/New_York").column("t") == [5 * 3600 - 2, None]
    assert not caplog.records
    if unit != "s":
        _write(path, t=pa.array([dt.datetime(1969, 12, 31, 23, 59, 58, 500_000)], pa.timestamp(unit)))
        with caplog.at_level(logging.WARNING):
            assert ingest_path(path).column("t") == [-2]
        assert "rows.parquet, row 1: column 't': a fraction of a second is cut off" in caplog.text


def test_row_groups_are_read_by_themselves(tmp_path: Path, ingest_path: Ingest) -> None:
    """Rows count through the file, whatever the group."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": pa.array([*["1"] * 2500, "y"])}), path, row_group_size=1000)
    with pytest.raises(DataError, match=r"rows\.parquet, row 2501: column 'x': 'y' is not an int"):
        ingest_path(path, types={"x": "int"})
    assert len(ingest_path(path).rows()) == 2501
