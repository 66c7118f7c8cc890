"""Which split a row goes to."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.row_hash import hash_rows
from lockstep.components.example_gen.splits import assign_splits
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]


def _ids(result: Ingested, split: str) -> set[int]:
    return {row["id"][0] for row in result.rows(split)}


def _text(ids: range, last: str = "") -> str:
    return "id,t\n" + "".join(f"{i},row {i % 7}\n" for i in ids) + last


def test_hashes_are_those_of_every_version() -> None:
    """Stored data sets are split by these numbers: a change would move rows between training and evaluation."""
    columns = [
        ("id", pa.array(["1", "22", None, "x" * 300])),
        ("n", pa.array([1, None, -5, 2**62])),
        ("f", pa.array([0.5, 2.0, None, float("inf")])),
    ]
    assert [f"{value:016x}" for value in hash_rows(columns, 4)] == [
        "65ca089d0f66f278",
        "9b67ca4e3cb92699",
        "9db0eb61fedf7970",
        "64ead0b455e0b060",
    ]


def test_a_row_stays_in_its_split_when_rows_are_added(ingest_text: Ingest) -> None:
    """Also when an added row turns a column of whole numbers into floats."""
    before = ingest_text(_text(range(600)), splits={"train": 2, "eval": 1})
    after = ingest_text("id,t\n" + "0.5,new\n" + _text(range(600))[5:], splits={"train": 2, "eval": 1})
    assert _ids(after, "train") - {0.5} == _ids(before, "train")
    assert _ids(after, "eval") - {0.5} == _ids(before, "eval")


def test_a_row_stays_in_its_split_whatever_the_order_of_files_rows_and_columns(
    tmp_path: Path, ingest_text: Ingest, ingest_path: Ingest
) -> None:
    """The hash is of the row's own values by name of column."""
    whole = ingest_text(_text(range(600)), splits={"train": 2, "eval": 1})
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.csv").write_text("t,id\n" + "".join(f"row {i % 7},{i}\n" for i in range(599, 299, -1)))
    (tmp_path / "parts" / "b.csv").write_text(_text(range(300)))
    parts = ingest_path(tmp_path / "parts", splits={"train": 2, "eval": 1})
    assert _ids(parts, "train") == _ids(whole, "train")
    assert _ids(parts, "eval") == _ids(whole, "eval")


def test_a_row_does_not_move_for_a_new_column_without_values(ingest_text: Ingest) -> None:
    """A missing cell adds nothing to the hash."""
    before = ingest_text(_text(range(300)), splits={"train": 2, "eval": 1})
    text = "id,t,new\n" + "".join(f"{i},row {i % 7},\n" for i in range(300))
    assert _ids(ingest_text(text, splits={"train": 2, "eval": 1}), "train") == _ids(before, "train")


def test_splits_share_rows_as_their_weights_say(ingest_text: Ingest) -> None:
    """Of 6,000 rows each of three splits gets its share within four standard deviations."""
    result = ingest_text(_text(range(6000)), splits={"train": 7, "eval": 2, "test": 1})
    for split, share in {"train": 0.7, "eval": 0.2, "test": 0.1}.items():
        assert abs(result.manifest.rows[split] - 6000 * share) < 4 * (6000 * share * (1 - share)) ** 0.5
    assert sorted(_ids(result, "train") | _ids(result, "eval") | _ids(result, "test")) == list(range(6000))


def test_weights_are_laid_along_the_remainders() -> None:
    """Remainder 0 and 1 of 3 are the first split's with weights 2 and 1."""
    assert assign_splits(np.array([0, 1, 2, 3, 5], np.uint64), (2, 1)).tolist() == [0, 0, 1, 0, 1]


def test_cells_that_differ_by_length_or_padding_hash_apart() -> None:
    """Words are padded with zeros, so lengths are part of the hash."""
    cells = [b"a" * n for n in range(1, 300)] + [b"\0" * n for n in range(1, 300)] + [b"a\0", b"\0a"]
    assert len(set(hash_rows([("c", pa.array(cells))], len(cells)).tolist())) == len(cells)


def test_a_slice_of_an_array_hashes_as_its_values() -> None:
    """Arrow's arrays share memory with an offset."""
    values = pa.array(["x", None, "long enough for two words", "y", ""])
    whole = hash_rows([("c", values)], 5)
    assert hash_rows([("c", values.slice(1, 3))], 3).tolist() == whole[1:4].tolist()


def test_an_empty_split_is_an_error(ingest_text: Ingest) -> None:
    """A later step would fail on it with less to say."""
    with pytest.raises(DataError, match=r"the split '(train|eval)' is empty: none of 1 rows came to it"):
        ingest_text("a\n1\n", splits={"train": 1, "eval": 1})
