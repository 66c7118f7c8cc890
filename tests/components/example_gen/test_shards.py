"""Files of records: even, repeatable, whole or not at all."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.components.errors import DataError, StepFailed
from lockstep.components.record_manifest import Manifest, published_folder
from tests.components.example_gen.conftest import Ingested, read_rows

Ingest = Callable[..., Ingested]


def _text(num_rows: int) -> str:
    return "id,t\n" + "".join(f"{i},some text {i}\n" for i in range(num_rows))


def test_the_manifest_counts_the_records_of_every_file(ingest_text: Ingest) -> None:
    """And the files of a split differ by one record at most."""
    result = ingest_text(_text(1000), splits={"train": 2, "eval": 1}, num_shards=3)
    assert Manifest.load(str(result.folder)) == result.manifest
    for shards in result.manifest.shards.values():
        counts = [len(read_rows(result.folder / shard.path)) for shard in shards]
        assert counts == [shard.records for shard in shards]
        assert max(counts) - min(counts) <= 1


def test_a_split_folder_holds_nothing_but_its_shards(ingest_text: Ingest) -> None:
    """TFX's components read every file in it."""
    result = ingest_text(_text(100), splits={"train": 2, "eval": 1}, num_shards=2)
    assert sorted(str(path.relative_to(result.folder)) for path in result.folder.rglob("*") if path.is_file()) == [
        "Split-eval/data_tfrecord-00000-of-00002.gz",
        "Split-eval/data_tfrecord-00001-of-00002.gz",
        "Split-train/data_tfrecord-00000-of-00002.gz",
        "Split-train/data_tfrecord-00001-of-00002.gz",
        "manifest.json",
    ]


def test_the_same_input_gives_the_same_bytes(ingest_text: Ingest) -> None:
    """Neither time nor the order of threads is in the files."""
    first, second = (ingest_text(_text(2000), splits={"train": 2, "eval": 1}, num_shards=4) for _ in range(2))
    for path in sorted(first.folder.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (second.folder / path.relative_to(first.folder)).read_bytes()


def test_a_sorted_file_is_shuffled(ingest_text: Ingest) -> None:
    """The beginning of a shard is not the beginning of the file."""
    result = ingest_text(_text(4000), num_shards=2)
    first = [row["id"][0] for row in read_rows(result.folder / result.manifest.shards["all"][0].path)][:100]
    assert max(first) > 3500
    assert min(first) < 500


def test_a_failure_on_the_last_row_leaves_nothing(ingest_text: Ingest, tmp_path: Path) -> None:
    """Files appear only when all rows are written, here more than one block of them."""
    with pytest.raises(DataError):
        ingest_text("id,t\n" + f"1,{'long ' * 400}\n" * 3000 + "x,y\n", types={"id": "int"})
    assert list((tmp_path / "examples-1").iterdir()) == []


_FULL_DISK = """
import resource, sys
from pathlib import Path
from lockstep.components.errors import StepFailed
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    ingest([sys.argv[1]], DataOptions(path=sys.argv[1]), Path(sys.argv[2]), Requirements())
except StepFailed as e:
    print(e)
"""


def test_no_space_fails_the_step_with_the_folder_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    (tmp_path / "rows.csv").write_text(_text(50_000))
    out = tmp_path / "out"
    command = [sys.executable, "-c", _FULL_DISK, str(tmp_path / "rows.csv"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"no space left to write the examples in {out}: File too large" in done.stdout
    assert list(out.iterdir()) == []


def test_a_folder_that_cannot_be_made_fails_the_step(tmp_path: Path) -> None:
    """Here a file is in its place."""
    (tmp_path / "out").write_text("")
    with pytest.raises(StepFailed, match=r"cannot write the examples in .*out"), published_folder(tmp_path / "out"):
        pass


def test_many_columns_with_long_names_are_written_in_parts(ingest_text: Ingest) -> None:
    """Of 500 columns with names of 1,000 letters each row takes half a megabyte; no row is lost between parts."""
    names = [f"{i:03d}{'x' * 997}" for i in range(500)]
    rows = [[str(i)] + ["1"] * 499 for i in range(150)]
    result = ingest_text("\n".join(",".join(row) for row in [names, *rows]) + "\n", num_shards=2)
    assert result.manifest.rows == {"all": 150}
    assert result.column(names[0]) == list(range(150))
