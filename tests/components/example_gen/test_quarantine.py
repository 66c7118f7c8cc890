"""Rows that cannot be used: kept beside the examples with their place and reason, and counted."""

import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_gen.quarantine import QUARANTINE_NAME
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]


def quarantined(result: Ingested) -> list[dict[str, Any]]:
    """Returns the rows in quarantine, the folder cut off their places."""
    path = result.folder / QUARANTINE_NAME
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    assert len(rows) == result.manifest.quarantined
    return [row | {"place": Path(row["place"]).name, "path": Path(row["path"]).name} for row in rows]


@pytest.mark.parametrize(
    ("text", "kept", "place", "reason", "row"),
    [
        (
            b"id,t\n1,x\n2\n3,y\n",
            [1, 3],
            "rows.csv:3",
            "1 cells, but the header has 2 columns; mend or remove it",
            "2\n",
        ),
        (b'id,t\n1,x\n2,5" pipe\n3,y\n', [1, 3], "rows.csv:3", "a quote within an unquoted cell", '2,5" pipe\n'),
        (b'id,t\n1,x\n2,"abc\n3,y\n4,z\n', [1, 3, 4], "rows.csv:3", "never closed", '2,"abc\n'),
        (b'id,t\n1,x\n2,"abc\n3,"y"\n4,z\n', [1, 3, 4], "rows.csv:3", "text after a closing quote", '2,"abc\n'),
        (b'id,t\n"1","x"y\r\n3,"a\nb"\r\n', [3], "rows.csv:2", "text after a closing quote", '"1","x"y\r\n'),
        (b"id,t\n1,x\n2,caf\xe9\n3,y\n", [1, 3], "rows.csv:3", "byte 0xe9 is not utf-8", None),
    ],
)
def test_a_malformed_row_is_kept_with_line_and_reason(
    ingest_text: Ingest, text: bytes, kept: list[int], place: str, reason: str, row: str | None
) -> None:
    """All others are examples, also those after it."""
    result = ingest_text(text, on_error="quarantine")
    assert result.column("id") == kept
    [bad] = quarantined(result)
    assert bad["place"] == place
    assert reason in bad["reason"]
    assert bad.get("row") == row
    if row is None:
        assert bad["row_base64"] == "MixjYWbpCg=="


def test_the_error_of_a_row_says_that_such_rows_can_be_left_out(ingest_text: Ingest) -> None:
    """One that a header or a column is at fault for does not."""
    for text in ("id,t\n1\n", "id,t\n9223372036854775808,x\n1,x\n"):
        with pytest.raises(DataError, match=r"rows\.csv:2: .*; or leave such rows out .*data\.on_error: quarantine"):
            ingest_text(text)
    with pytest.raises(DataError) as told:
        ingest_text("id,id\n1,2\n")
    assert "quarantine" not in str(told.value)


def test_a_value_that_has_not_its_declared_type_is_kept_with_its_column(ingest_text: Ingest) -> None:
    """One line a row, though two of its cells are wrong; lines count those within cells."""
    text = 'id,v,w\n1,5,5\n"a\nb",x7,y8\n3,6,z\n'
    result = ingest_text(text, types={"v": "int", "w": "int"}, on_error="quarantine")
    assert result.column("id") == [b"1"]
    bad = quarantined(result)
    assert [row["place"] for row in bad] == ["rows.csv:3", "rows.csv:5"]
    assert "column 'v': 'x7' is not an int" in bad[0]["reason"]
    assert "column 'w': 'z' is not an int" in bad[1]["reason"]


def test_a_whole_number_over_int64_costs_its_row(ingest_text: Ingest) -> None:
    """The column stays one of whole numbers."""
    result = ingest_text("id,v\n1,1\n9223372036854775808,2\n", on_error="quarantine")
    assert result.column("id") == [1]
    assert "9223372036854775808" in quarantined(result)[0]["reason"]


def test_a_row_without_label_is_kept(ingest_text: Ingest) -> None:
    """Unless the label says that such rows are dropped."""
    complete = Requirements(complete_columns=("y",))
    with pytest.raises(DataError, match=r"rows\.csv:3: column 'y' has no value"):
        ingest_text("x,y\n1,2\n3,\n", complete)
    result = ingest_text("x,y\n1,2\n3,\n", complete, on_error="quarantine")
    assert result.column("x") == [1]
    assert quarantined(result)[0]["place"] == "rows.csv:3"
    dropping = Requirements(complete_columns=("y",), on_missing="drop")
    assert ingest_text("x,y\n1,2\n3,\n", dropping, on_error="quarantine").manifest.quarantined == 0


def test_a_gzip_that_was_cut_keeps_its_whole_rows(tmp_path: Path, ingest_path: Ingest) -> None:
    """With ``fail`` the file is named; with ``quarantine`` what is before the cut is there."""
    text = b"id,t\n" + b"".join(b"%d,row %d\n" % (i, i * i) for i in range(5000))
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(text)[:-4000])
    with pytest.raises(DataError, match=r"rows\.csv\.gz"):
        ingest_path(path)
    result = ingest_path(path, on_error="quarantine")
    rows = result.column("id")
    assert len(rows) > 1000
    assert rows == list(range(len(rows)))
    assert "rows.csv.gz" in quarantined(result)[-1]["place"]


def test_a_parquet_value_that_has_not_its_type_is_kept_with_its_row(tmp_path: Path, ingest_path: Ingest) -> None:
    """Rows count from 1, over row groups."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"v": ["1", "2", "x", "4"], "w": [1, 2, 3, 4]}), path, row_group_size=2)
    result = ingest_path(path, types={"v": "int"}, on_error="quarantine")
    assert result.column("w") == [1, 2, 4]
    assert quarantined(result)[0]["place"] == "rows.parquet, row 3"


def test_rows_are_counted_and_told(ingest_text: Ingest, caplog: pytest.LogCaptureFixture) -> None:
    """The console and the manifest have the number."""
    with caplog.at_level(logging.WARNING):
        result = ingest_text("a,b\n1,2\n3\n4,5,6\n", on_error="quarantine")
    assert result.manifest.quarantined == 2
    assert "2 rows cannot be used; they are kept in quarantine beside the examples" in caplog.messages


@pytest.mark.parametrize(("limit", "fails"), [(1, True), (2, False), (0.3, True), (0.5, False), (0, True)])
def test_more_bad_rows_than_allowed_are_an_error(ingest_text: Ingest, limit: float, fails: bool) -> None:
    """Two of four rows are bad; the first is named."""
    text = "a,b\n1,2\n3\n4,5,6\n7,8\n"
    if not fails:
        assert ingest_text(text, on_error="quarantine", max_bad_rows=limit).manifest.quarantined == 2
        return
    with pytest.raises(DataError, match=r"2 of 4 rows cannot be used, .*max_bad_rows.*rows\.csv:3: 1 cells"):
        ingest_text(text, on_error="quarantine", max_bad_rows=limit)


@pytest.mark.parametrize("limit", [-1, 1.5, float("nan"), float("inf")])
def test_a_limit_is_a_number_of_rows_or_a_share(limit: float) -> None:
    """And it belongs to quarantine."""
    with pytest.raises(ValueError, match="max_bad_rows"):
        DataOptions(path="x", on_error="quarantine", max_bad_rows=limit)
    with pytest.raises(ValueError, match="needs on_error: quarantine"):
        DataOptions(path="x", max_bad_rows=1)


def test_many_bad_rows_do_not_take_long(ingest_text: Ingest) -> None:
    """Every second row of 20,000 has a stray quote."""
    result = ingest_text("id,t\n" + '1,x\n2,5" pipe\n' * 10_000, on_error="quarantine")
    assert result.manifest.rows == {"all": 10_000}
    assert result.manifest.quarantined == 10_000
    assert quarantined(result)[-1]["place"] == "rows.csv:20001"


def test_nothing_but_bad_rows_is_an_error(ingest_text: Ingest) -> None:
    """With their number."""
    with pytest.raises(DataError, match=r"no rows are left \(2 that cannot be used\)"):
        ingest_text("a,b\n1\n2\n", on_error="quarantine")
