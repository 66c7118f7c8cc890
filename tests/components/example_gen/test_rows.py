"""Rows outside a pipeline."""

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.options import ColumnType, CsvOptions, DataOptions
from lockstep.components.example_gen.rows import read_examples, write_examples
from lockstep.components.record_manifest import Manifest
from tests.components.example_gen.conftest import read_rows


def _parsed(record: bytes) -> dict[str, object]:
    import tensorflow as tf

    features = tf.train.Example.FromString(record).features.feature
    return {name: getattr(value, value.WhichOneof("kind")).value[0] for name, value in features.items()}


def test_rows_are_read_in_order_with_the_types_wanted(tmp_path: Path) -> None:
    """A column that looks like another type in these rows has the type that the model knows."""
    (tmp_path / "rows.csv").write_text("zip;n;other\n10115;1;x\n;2.0;y\n")
    data = DataOptions(path=str(tmp_path), options=CsvOptions(delimiter=";"))
    batches = read_examples(data, {"zip": "string", "n": "int"})
    assert [_parsed(record) for batch in batches for record in batch] == [{"zip": b"10115", "n": 1}, {"n": 2}]


def test_a_column_that_the_rows_do_not_have_is_missing_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The model decides what a missing value is worth."""
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with caplog.at_level(logging.WARNING):
        batches = list(read_examples(DataOptions(path=str(tmp_path / "rows.csv")), {"a": "float", "b": "int"}))
    assert [_parsed(record) for batch in batches for record in batch] == [{"a": 1.0}]
    assert "has no column b: missing in every row" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nx\n", r"rows\.csv:2: column 'a': 'x' is not a float"),
        ("a\n1\n2,3\n", r"rows\.csv:3: 2 cells, but the header has 1 columns"),
        ("a\n", r"rows\.csv: no rows"),
        ("c\n1\n", r"has none of the columns a \(columns: c\)"),
    ],
)
def test_rows_that_cannot_be_read_are_named(tmp_path: Path, text: str, message: str) -> None:
    """As in the pipeline."""
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        list(read_examples(DataOptions(path=str(tmp_path / "rows.csv")), {"a": "float"}))


def test_a_row_longer_than_a_block_is_read(tmp_path: Path) -> None:
    """As in the pipeline."""
    (tmp_path / "rows.csv").write_text("a\n1\n" + "x" * (5 << 20) + "\n")
    batches = list(read_examples(DataOptions(path=str(tmp_path / "rows.csv")), {"a": "string"}))
    assert sum(len(batch) for batch in batches) == 2


def test_values_are_written_as_an_artifact_folder(tmp_path: Path) -> None:
    """Ints, floats, texts, bytes, lists; None is missing."""
    rows = [{"i": 1, "f": 0.5, "s": "x", "b": b"\xff", "l": [1, 2], "n": None}, {"i": 2}]
    manifest = write_examples({"train": rows, "eval": [{"f": [0.5, 1]}]}, tmp_path / "examples")
    assert Manifest.load(str(tmp_path / "examples")) == manifest
    assert manifest.rows == {"train": 2, "eval": 1}
    (train,), (evaluation,) = manifest.shards["train"], manifest.shards["eval"]
    assert read_rows(tmp_path / "examples" / train.path) == [
        {"i": [1], "f": [0.5], "s": [b"x"], "b": [b"\xff"], "l": [1, 2]},
        {"i": [2]},
    ]
    assert read_rows(tmp_path / "examples" / evaluation.path) == [{"f": [0.5, 1.0]}]


def test_a_value_that_no_feature_holds_is_named(tmp_path: Path) -> None:
    """And nothing is written."""
    with pytest.raises(TypeError, match=r"a: \{\} is not an int, float, str or bytes"):
        write_examples({"train": [{"a": {}}]}, tmp_path / "examples")
    assert list((tmp_path / "examples").iterdir()) == []


def test_times_truths_and_lists_are_read_as_in_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As their declared types, zone and formats say; of what the rows do not have, only a warning is said."""
    data = DataOptions(
        path=str(tmp_path / "rows.csv"),
        types={
            "at": "timestamp",
            "day": "date",
            "paid": "bool",
            "tags": "list<string>",
            "ms": "timestamp",
            "gone": "date",
        },
        time_zone="America/Chicago",
        time_formats={"day": "%m/%d/%Y", "ms": "unix_ms"},
        list_separator="|",
    )
    wanted: dict[str, ColumnType] = {
        "at": "int",
        "day": "int",
        "paid": "int",
        "tags": "string",
        "ms": "int",
        "gone": "int",
    }
    (tmp_path / "rows.csv").write_text(
        "label,paid,at,day,tags,ms\n?,yes,1970-01-01 00:00,01/02/1970,a|b,5000\n?,,,,,\n?,0,1970-01-01T00:00Z,,c,1\n"
    )
    with caplog.at_level(logging.WARNING):
        records = [record for batch in read_examples(data, wanted) for record in batch]
    assert [_all_values(record) for record in records] == [
        {"paid": [1], "at": [21600], "day": [86400], "tags": [b"a", b"b"], "ms": [5]},
        {},
        {"paid": [0], "at": [0], "tags": [b"c"], "ms": [0]},
    ]
    assert "has no column gone: missing in every row" in caplog.text
    (tmp_path / "rows.csv").write_text("paid\nperhaps\n")
    with pytest.raises(DataError, match=r"rows\.csv:2: column 'paid': 'perhaps' is not a bool"):
        list(read_examples(data, wanted))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_times_and_truths_of_formats_with_types_are_read_too(tmp_path: Path, name: str) -> None:
    """Texts as times; whole numbers are seconds already."""
    columns = {"at": ["1970-01-01T00:01", "1970-01-01"], "day": [86400, 0], "paid": [True, False]}
    if name == "rows.parquet":
        pq.write_table(pa.table(columns), tmp_path / name)
    else:
        rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = DataOptions(path=str(tmp_path / name), types={"at": "timestamp", "day": "date", "paid": "bool"})
    batches = read_examples(data, {"at": "int", "day": "int", "paid": "int"})
    assert [_parsed(record) for batch in batches for record in batch] == [
        {"at": 60, "day": 86400, "paid": 1},
        {"at": 0, "day": 0, "paid": 0},
    ]


def _all_values(record: bytes) -> dict[str, list[object]]:
    import tensorflow as tf

    features = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in features.items()}
