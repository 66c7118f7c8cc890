"""Parsed records that are kept for later epochs: the same records, whatever was left there by whom."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer import rounds
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.components.trainer.record_cache import DiskCache
from lockstep.components.trainer.records import Records
from tests.components.trainer.conftest import example, write_split
from tests.components.trainer.test_input_pipeline import flat, read_ids, records, training_input


@pytest.fixture(autouse=True)
def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rounds an epoch: else all of these few records are one."""
    monkeypatch.setattr(rounds, "READ_BATCH", 6)


def on_disk(split: Records, cache_dir: Path, worker: int = 0, num_workers: int = 1) -> TrainingInput:
    """An input that keeps its records on the disk."""
    return training_input(
        split, worker=worker, num_workers=num_workers, cache="disk", cache_dir=cache_dir, shuffle_buffer=5
    )


def cached_files(cache_dir: Path) -> list[Path]:
    """The whole files of a cache."""
    return sorted(path for path in cache_dir.rglob("0*") if path.is_file())


@pytest.mark.parametrize("num_files", [1, 8])
def test_every_cache_gives_the_batches_of_the_files(tmp_path: Path, num_files: int) -> None:
    """In the epoch that fills it, begun in the middle, and in those that read it."""
    split = records(tmp_path / "split", num_files=num_files)
    plain = training_input(split, cache="none", shuffle_buffer=5)
    steps = plain.steps_per_epoch
    whole = read_ids(plain, 4 * steps)
    assert sorted(flat(whole[:steps])) == list(range(103))
    for cache in ("memory", "disk"):
        data = training_input(split, cache=cache, cache_dir=tmp_path / "cache", shuffle_buffer=5)
        assert read_ids(data, 4 * steps - 4, start_step=4) == whole[4:]
        assert read_ids(data, steps, start_step=steps + 1) == whole[steps + 1 : 2 * steps + 1]


def test_a_whole_cache_needs_no_file(tmp_path: Path) -> None:
    """Later epochs, of this process or of one started after it, neither read nor parse."""
    split = records(tmp_path / "split", num_files=8)
    first = on_disk(split, tmp_path / "cache")
    whole = read_ids(first, 2 * first.steps_per_epoch)
    deal = first.deal
    for file in split.files:
        Path(file).write_bytes(b"")
    again = training_input(split, cache="disk", cache_dir=tmp_path / "cache", shuffle_buffer=5, deal=deal)
    assert read_ids(again, 2 * first.steps_per_epoch) == whole


def test_another_number_of_workers_finds_what_all_left(tmp_path: Path) -> None:
    """Two workers write each their own shards' files; one worker that goes on reads all of them."""
    split, cache_dir = records(tmp_path / "split"), tmp_path / "cache"
    inputs = [on_disk(split, cache_dir, worker, 2) for worker in range(2)]
    steps = inputs[0].steps_per_epoch
    both = [read_ids(data, steps) for data in inputs]
    written = cached_files(cache_dir)
    one = on_disk(split, cache_dir)
    assert one._cache is not None
    assert one._cache.first_missing(0) == one._rounds.num_rounds
    assert [sorted(step) for step in read_ids(one, steps)] == [sorted(a + b) for a, b in zip(*both, strict=True)]
    assert cached_files(cache_dir) == written


def test_what_a_killed_worker_left_does_not_count(tmp_path: Path) -> None:
    """A file under its temporary name goes; one that lost its end is written anew; a missing one is read again."""
    split, cache_dir = records(tmp_path / "split"), tmp_path / "cache"
    data = on_disk(split, cache_dir)
    whole = read_ids(data, data.steps_per_epoch)
    files = cached_files(cache_dir)
    content = [file.read_bytes() for file in files]
    half = files[0].with_name(".writing-1-" + files[0].name)
    half.write_bytes(b"half")
    files[1].write_bytes(content[1][:-1])
    files[-1].unlink()
    assert read_ids(on_disk(split, cache_dir), data.steps_per_epoch) == whole
    assert not half.exists()
    assert [file.read_bytes() for file in files] == content


def test_a_damaged_file_is_told_and_read_anew(tmp_path: Path) -> None:
    """The attempt fails, since a batch may be under way; the next one is right."""
    split, cache_dir = records(tmp_path / "split"), tmp_path / "cache"
    data = on_disk(split, cache_dir)
    whole = read_ids(data, data.steps_per_epoch)
    file = cached_files(cache_dir)[0]
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(tf.errors.OpError, match=r"train\.cache: .* was damaged"):
        read_ids(on_disk(split, cache_dir), data.steps_per_epoch)
    assert read_ids(on_disk(split, cache_dir), data.steps_per_epoch) == whole


def test_a_worker_killed_while_it_fills_the_cache_leaves_whole_files_only(tmp_path: Path) -> None:
    """A real process, killed by a signal in its first epoch; another one goes on with what is there."""
    split, cache_dir = records(tmp_path / "split", num_records=2000, num_files=8), tmp_path / "cache"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from lockstep.components.trainer import rounds\n"
        "rounds.READ_BATCH = 6\n"
        "from lockstep.components.trainer.records import Records\n"
        "from tests.components.trainer.test_input_pipeline import SPEC\n"
        "from tests.components.trainer.test_record_cache import on_disk\n"
        "data = on_disk(Records(sys.argv[2:], SPEC, 'tips'), Path(sys.argv[1]))\n"
        "for _ in data.batches().take(60): pass\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(cache_dir), *split.files], check=False)
    assert done.returncode == -9
    data = on_disk(split, cache_dir)
    assert data._cache is not None
    assert 0 < data._cache.first_missing(0) < data._rounds.num_rounds
    ids = read_ids(data, data.steps_per_epoch)
    assert sorted(flat(ids)) == list(range(2000))
    assert ids == read_ids(training_input(split, cache="none", shuffle_buffer=5), data.steps_per_epoch)


def test_texts_are_kept(tmp_path: Path) -> None:
    """Of any length, empty ones too."""
    spec = {"name": tf.io.FixedLenFeature([2], tf.string), "y": tf.io.FixedLenFeature([], tf.float32)}

    def row(i: int) -> bytes:
        names = [b"x" * (i % 5), f"n{i}".encode()]
        features = {
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=names)),
            "y": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    split = Records(write_split(tmp_path / "split", [row(i) for i in range(50)], 1), spec, "y")

    def names(cache: str) -> list[list[list[bytes]]]:
        data = training_input(split, cache=cache, cache_dir=tmp_path / "cache")
        return [columns["name"].numpy().tolist() for columns, _, _ in data.batches().take(12)]

    assert names("disk") == names("memory") == names("none")


def test_a_disk_without_room_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a worker has written what fits, with the key to change and the words that the supervisor knows."""
    split = records(tmp_path / "split")
    state = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*state[:4], 0, *state[5:])))
    with pytest.raises(OSError, match=r"No space left on device: train\.cache: disk: .*give train\.cache: none"):
        on_disk(split, tmp_path / "cache")


def test_a_disk_that_runs_full_is_told_and_keeps_nothing_half(tmp_path: Path) -> None:
    """A real file system of 64 KiB, where the machine lets us mount one; its free room is not known beforehand."""
    small_dir = tmp_path / "small"
    small_dir.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small_dir)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount a file system")
    try:
        spec = {"name": tf.io.FixedLenFeature([1], tf.string), "tips": tf.io.FixedLenFeature([], tf.float32)}
        rows = [example({"name": "x" * 2000, "tips": 1.0})] * 200
        split = Records(write_split(tmp_path / "split", rows, 1), spec, "tips")
        data = on_disk(split, small_dir / "cache")
        with pytest.raises(tf.errors.OpError, match=r"No space left on device: train\.cache: disk"):
            for _ in data.batches().take(data.steps_per_epoch):
                pass
        assert not list(small_dir.rglob(".writing-*"))
    finally:
        subprocess.run(["umount", "-l", str(small_dir)], check=True)


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path: Path) -> None:
    """A file in the place of the folder is not a full disk."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(NotADirectoryError):
        on_disk(records(tmp_path / "split"), tmp_path / "cache")


def test_more_than_the_machine_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``memory`` by the user's wish, and not enough of it."""
    monkeypatch.setattr(os, "sysconf", lambda _: 10)
    with pytest.raises(ConfigurationError, match=r"train\.cache: memory is not allowed: .* give disk or none"):
        training_input(records(tmp_path / "split"), cache="memory")


def test_rounds_of_many_large_records_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer for which there is no room is smaller, and the same for any number of workers."""
    split = records(tmp_path / "split", num_records=1000)
    monkeypatch.setattr(rounds, "_ROUND_BYTES", 40 * split.bytes_per_record)
    inputs = [training_input(split, worker=w, num_workers=2, shuffle_buffer=200, cache="none") for w in range(2)]
    assert [data._rounds.window for data in inputs] == [12, 12]  # 10 of each of 4 shards, in whole steps of 3
    ids = [flat(read_ids(data, data.steps_per_epoch)) for data in inputs]
    assert sorted(ids[0] + ids[1]) == list(range(1000))


def test_a_file_that_became_shorter_is_not_padded(tmp_path: Path) -> None:
    """After its records were counted: rows of zeros in their place would be trained on."""
    split = records(tmp_path / "split", num_files=8)
    data = training_input(split, cache="none")
    path = Path(split.files[3])
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        writer.write(example({"record_id": 1, "fare": 1.0, "tips": 0.0}))
    with pytest.raises(tf.errors.InvalidArgumentError, match="shorter than when its records were counted"):
        read_ids(data, data.steps_per_epoch)


def test_a_cache_is_another_one_for_other_records(tmp_path: Path) -> None:
    """Files with other counts are never looked up in the cache of the first."""
    first, second = records(tmp_path / "a", num_records=50), records(tmp_path / "b", num_records=60)
    for split, count in ((first, 50), (second, 60)):
        data = on_disk(split, tmp_path / "cache")
        assert sorted(flat(read_ids(data, data.steps_per_epoch))) == list(range(count))


def test_kinds_of_columns_come_back(tmp_path: Path) -> None:
    """Numbers of any type and shape, and an empty shard's too."""
    data = training_input(records(tmp_path / "split", num_records=5), cache="none")
    kinds = [(np.dtype(np.int64), (1,)), (np.dtype(np.float32), (2, 3))]
    cache = DiskCache(tmp_path / "cache", data._rounds, identity=[], kinds=kinds)
    columns = [np.zeros((data._rounds.num_rows, *shape), dtype) for dtype, shape in kinds]
    for shard in data._rounds.shards:
        count = data._rounds.num_records(shard, 0)
        columns[0][data._rounds.rows_of(shard)][:count] = shard + 1
        columns[1][data._rounds.rows_of(shard)][:count] = np.arange(6).reshape(2, 3) + shard
    cache.put(0, columns)
    for got, expected in zip(cache.get(0), columns, strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
