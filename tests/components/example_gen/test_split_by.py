"""Splits by key columns, by time and by files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.errors import DataError
from lockstep.components.example_gen.files import matched_files
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.inputs import fingerprint, opened_splits
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_gen.split_options import SplitBy
from tests.components.example_gen.conftest import Ingested, read_rows

Ingest = Callable[..., Ingested]

SPLITS = {"train": 3, "eval": 1}


def values(result: Ingested, split: str, column: str) -> set[Any]:
    """Returns a column's values in a split; None for a missing one."""
    return {row[column][0] if column in row else None for row in result.rows(split)}


def test_rows_of_one_customer_are_in_one_split(ingest_text: Ingest) -> None:
    """Whatever their other values, also when rows are added and the columns change places."""
    text = "customer,v\n" + "".join(f"c{i % 50},{i}\n" for i in range(2000))
    first = ingest_text(text, splits=SPLITS, split_by=SplitBy(columns=("customer",)))
    assert not values(first, "train", "customer") & values(first, "eval", "customer")
    assert values(first, "train", "customer") | values(first, "eval", "customer") == {b"c%d" % i for i in range(50)}
    more = "v,customer\n" + "".join(f"{i},c{i % 60}\n" for i in range(3000))
    second = ingest_text(more, splits=SPLITS, split_by=SplitBy(columns=("customer",)))
    assert values(first, "eval", "customer") <= values(second, "eval", "customer")


def test_rows_without_a_key_are_not_one_customer(ingest_text: Ingest) -> None:
    """They go by their other values, to all splits."""
    text = "customer,v\n" + "".join(f",{i}\n" for i in range(200))
    result = ingest_text(text, splits=SPLITS, split_by=SplitBy(columns=("customer",)))
    assert 10 < result.manifest.rows["eval"] < 100


def test_splits_follow_in_time_by_cut_points(ingest_text: Ingest) -> None:
    """A split begins with the time at which the one before ends; a time without zone is UTC."""
    text = "t,v\n2024-01-31 23:59:59,1\n2024-02-01 00:00:00,2\n2024-03-01T00:00:00Z,3\n2024-01-01,4\n"
    by = SplitBy(time="t", until={"train": "2024-02-01", "eval": "2024-03-01"})
    result = ingest_text(text, splits={"train": 1, "eval": 1, "test": 1}, split_by=by, types={"t": "timestamp"})
    assert [values(result, split, "v") for split in ("train", "eval", "test")] == [{1, 4}, {2}, {3}]


def test_splits_follow_in_time_by_their_weights(ingest_text: Ingest) -> None:
    """Of 1,000 rows in any order the first three quarters are the first split; equal times stay together."""
    text = "t,v\n" + "".join(f"{i * 7 % 1000},{i}\n" for i in range(1000))
    result = ingest_text(text, splits=SPLITS, split_by=SplitBy(time="t"))
    assert values(result, "train", "t") == set(range(750))
    assert values(result, "eval", "t") == set(range(750, 1000))
    same = "t,v\n" + "1,x\n" * 5 + "2,y\n" * 5
    assert values(ingest_text(same, splits=SPLITS, split_by=SplitBy(time="t")), "train", "t") == {1}


def test_a_row_without_time_is_a_fault(ingest_text: Ingest) -> None:
    """Its line is named, or it goes to quarantine."""
    text, options = "t,v\n1,1\n,2\n3,3\n4,4\n5,5\n", {"splits": SPLITS, "split_by": SplitBy(time="t")}
    with pytest.raises(DataError, match=r"rows\.csv:3: column 't' has no value, and splits are by it"):
        ingest_text(text, **options)
    assert ingest_text(text, on_error="quarantine", **options).manifest.quarantined == 1


def test_text_is_no_time(ingest_text: Ingest) -> None:
    """The message says what to declare; and of a column that is not there, which there are."""
    with pytest.raises(DataError, match=r"split_by\.time: column 't' is of type string.*data\.types\.t: timestamp"):
        ingest_text("t\n2024-01-01\n", splits=SPLITS, split_by=SplitBy(time="t"))
    with pytest.raises(DataError, match=r"split_by\.columns: .*no column 'custumer'; did you mean 'customer'"):
        ingest_text("customer\n1\n", split_by=SplitBy(columns=("custumer",)))
    with pytest.raises(DataError, match=r"split_by\.until\.train: 'soon' is neither a number nor a time"):
        ingest_text("t\n1\n", splits=SPLITS, split_by=SplitBy(time="t", until={"train": "soon"}))


@pytest.mark.parametrize("paths", [{"train": "train", "eval": "eval"}, {"train": "train/*.csv", "eval": "eval/b.csv"}])
def test_splits_are_as_the_folders_say(tmp_path: Path, paths: dict[str, str]) -> None:
    """One type for both; the fingerprint has a line for each."""
    for split, text in {"train": "x\n1\n2\n", "eval": "x\n1.5\n"}.items():
        (tmp_path / "data" / split).mkdir(parents=True)
        (tmp_path / "data" / split / "b.csv").write_text(text)
    folder = str(tmp_path / "data")
    data = DataOptions(path=folder, num_shards=1, split_by=SplitBy(paths=paths))
    expected = fingerprint(folder, paths)
    with opened_splits(folder, paths, expected) as found:
        manifest = ingest(
            found.files, data, tmp_path / "out", Requirements(), found.check, found.root, split_of=found.split_of
        )
    rows = {
        split: sorted(row["x"][0] for shard in shards for row in read_rows(tmp_path / "out" / shard.path))
        for split, shards in manifest.shards.items()
    }
    assert rows == {"train": [1.0, 2.0], "eval": [1.5]}


def test_a_file_of_two_splits_is_an_error(tmp_path: Path) -> None:
    """It would be trained on and evaluated with."""
    (tmp_path / "a.csv").write_text("x\n1\n")
    patterns = {"train": "*.csv", "eval": "a.csv"}
    expected = fingerprint(str(tmp_path), patterns)
    with (
        pytest.raises(DataError, match=r"a\.csv: in the splits 'train' and 'eval'"),
        opened_splits(str(tmp_path), patterns, expected),
    ):
        pass
    assert matched_files(str(tmp_path), "a.csv")


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        ({"columns": ("a",), "time": "t"}, "time: not allowed beside columns"),
        ({"until": {"train": "1"}}, "until: needs time"),
    ],
)
def test_rules_that_contradict_each_other_are_refused(by: dict[str, Any], problem: str) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match=problem):
        SplitBy(**by)


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        ({"time": "t", "until": {"eval": "1"}}, r"split_by\.until: .*give a time for each .* but the last.*: train"),
        ({"paths": {"train": "a"}}, r"split_by\.paths: .*give a path for each of splits: train, eval"),
        ({"paths": {"train": "a", "eval": "../b"}}, r"split_by\.paths\.eval: '\.\./b' is not allowed"),
    ],
)
def test_rules_are_of_the_splits_that_there_are(by: dict[str, Any], problem: str) -> None:
    """The message names the splits."""
    with pytest.raises(ValueError, match=problem):
        DataOptions(path="x", splits=SPLITS, split_by=SplitBy(**by))
