"""Files of records: even, repeatable, whole or not at all."""

import contextlib
import gzip
import io
import itertools
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.components.errors import DataError, StepFailed
from lockstep.components.example_gen import csv_text, record_parts
from lockstep.components.example_gen import ingest as ingest_module
from lockstep.components.example_gen.gzip_parts import GzipWriter, compress_part
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_gen.process_pool import ProcessPool, ThisProcess
from lockstep.components.example_gen.record_origins import iterate_origins, read_origins
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


def test_a_sorted_file_of_many_units_is_mixed_throughout(ingest_text: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no unit, bucket or run holds more than a small part of it."""
    monkeypatch.setattr(csv_text, "UNIT_BYTES", 4000)
    monkeypatch.setattr(csv_text, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(record_parts, "_RUN_BYTES", 10_000)
    monkeypatch.setattr(ingest_module, "_BUCKET_BYTES", 10_000)
    result = ingest_text(_text(6000), num_shards=2)
    ids = [row["id"][0] for row in result.rows()]
    assert sorted(ids) == list(range(6000))
    for begin in range(0, 6000, 300):
        part = ids[begin : begin + 300]
        assert 2000 < sum(part) / len(part) < 4000
        assert min(part) < 1500
        assert max(part) > 4500


def test_equal_rows_do_not_come_side_by_side(ingest_text: Ingest) -> None:
    """A shuffle by the hash of the values would put them there."""
    result = ingest_text("label\n" + "0\n" * 1000 + "1\n" * 1000)
    labels = [row["label"][0] for row in result.rows()]
    assert 900 < sum(a != b for a, b in itertools.pairwise(labels)) < 1100


def test_without_shuffle_the_order_of_the_files_is_kept(ingest_text: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From shard to shard, and over units."""
    monkeypatch.setattr(csv_text, "UNIT_BYTES", 4000)
    monkeypatch.setattr(csv_text, "_PIECE_BYTES", 1000)
    result = ingest_text(_text(3000), num_shards=3, shuffle=False, keep_origin=True)
    assert [row["id"][0] for row in result.rows()] == list(range(3000))
    assert [origin.position for origin in iterate_origins(str(result.folder), "all")] == list(range(2, 3002))


def test_the_number_of_processes_does_not_show_in_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One, two, or this one alone: byte for byte."""
    monkeypatch.setattr(ingest_module, "_SMALL_INPUT_BYTES", 0)
    (tmp_path / "a.csv").write_text(_text(3000))
    (tmp_path / "b.csv").write_text(_text(100))
    data = DataOptions(path=str(tmp_path), keep_origin=True)
    contents = []
    for number, workers in enumerate((ThisProcess(), ProcessPool(1), ProcessPool(2))):
        folder = tmp_path / f"out-{number}"
        with contextlib.closing(workers):
            files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
            ingest(files, data, folder, Requirements(), workers=workers)
        contents.append({str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert contents[0] == contents[1] == contents[2]


def test_origins_are_those_of_the_records(ingest_text: Ingest) -> None:
    """Record by record; a line is that of the file, and the row of it can be named."""
    result = ingest_text("id,t\n" + "".join(f'{i},"a\nb"\n' for i in range(200)), num_shards=2, keep_origin=True)
    for shard in result.manifest.shards["all"]:
        ids = [row["id"][0] for row in read_rows(result.folder / shard.path)]
        origins = read_origins(str(result.folder), shard.path)
        assert [origin.position for origin in origins] == [2 + 2 * i for i in ids]
        assert str(origins[0]).endswith(f"rows.csv:{2 + 2 * ids[0]}")
        assert read_origins(str(result.folder), shard.path, [3, 1]) == [origins[3], origins[1]]
    with pytest.raises(DataError, match="no record 100; it holds 100"):
        read_origins(str(result.folder), result.manifest.shards["all"][0].path, [100])
    with pytest.raises(DataError, match=r"set data\.keep_origin: true"):
        read_origins(str(ingest_text("a\n1\n").folder), "Split-all/data_tfrecord-00000-of-00001.gz")


def test_shards_are_of_about_the_size_asked_for(ingest_text: Ingest) -> None:
    """Compressed, within a quarter; a small split has one."""
    generator = random.Random(1)
    text = "id,t\n" + "".join(f"{i},{generator.randbytes(300).hex()}\n" for i in range(20_000))
    result = ingest_text(text, splits={"train": 999, "eval": 1}, target_shard_mb=1)
    sizes = [shard.size for shard in result.manifest.shards["train"]]
    assert len(sizes) > 3
    assert all(0.75 * 2**20 < size < 1.25 * 2**20 for size in sizes)
    assert len(result.manifest.shards["eval"]) == 1


def test_a_shard_is_one_gzip_member(ingest_text: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many parts: its last bytes are the length of all, which readers check."""
    monkeypatch.setattr(record_parts, "_RUN_BYTES", 1000)
    result = ingest_text(_text(1000))
    content = (result.folder / result.manifest.shards["all"][0].path).read_bytes()
    decompressor = zlib.decompressobj(31)
    records = decompressor.decompress(content)
    assert decompressor.eof
    assert not decompressor.unused_data
    assert int.from_bytes(content[-4:], "little") == len(records)


@given(st.lists(st.binary(max_size=50), max_size=6))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_parts_are_one_stream(contents: list[bytes]) -> None:
    """Also of empty ones; gzip checks sum and length."""
    file = io.BytesIO()
    writer = GzipWriter(file)
    for content in contents:
        writer.write(compress_part(content))
    writer.finish()
    assert gzip.decompress(file.getvalue()) == b"".join(contents)


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
