"""Which records each worker reads, at which step."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.example_gen.rows import write_examples
from lockstep.components.trainer import rounds
from lockstep.components.trainer.input_pipeline import ReplicaInputs, TrainingInput, with_steps, worker_input
from lockstep.components.trainer.records import Deal, Records
from lockstep.components.trainer.schedule_options import ScheduleOptions
from lockstep.components.trainer.spec import TrainOptions
from tests.components.trainer.conftest import example, write_split

SPEC = {
    "record_id": tf.io.FixedLenFeature([1], tf.int64),
    "fare": tf.io.FixedLenFeature([], tf.float32),
    "tips": tf.io.FixedLenFeature([], tf.float32),
}
NUM_SHARDS = 4
BATCH_SIZE = 12


def records(folder: Path, *, num_records: int = 103, num_files: int = 1) -> Records:
    """A split whose records know their number."""
    rows = [{"record_id": i, "fare": i / 2, "tips": float(i % 2)} for i in range(num_records)]
    return Records(write_split(folder, [example(row) for row in rows], num_files), SPEC, "tips")


def training_input(split: Records, *, worker: int = 0, num_workers: int = 1, **options: Any) -> TrainingInput:
    """The input of one of several workers."""
    defaults = {"batch_size": BATCH_SIZE, "num_shards": NUM_SHARDS, "seed": 5, "shuffle_buffer": 10}
    return TrainingInput(split, worker=worker, num_workers=num_workers, **{**defaults, **options})


def read_ids(data: TrainingInput, num_steps: int, start_step: int = 0) -> list[list[int]]:
    """The ids of the records with weight 1, step by step, in order."""
    steps = []
    for columns, weights, _ in data.batches(start_step).take(num_steps):
        assert columns["record_id"].shape == weights.shape
        steps.append(columns["record_id"].numpy()[weights.numpy() == 1].tolist())
    return steps


def flat(lists: Iterable[Iterable[int]]) -> list[int]:
    """The numbers of all lists."""
    return list(itertools.chain.from_iterable(lists))


# One file: records are dealt singly. Eight even files: whole files are dealt. Both from memory and from the files.
LAYOUTS = pytest.mark.parametrize(("num_files", "cache_bytes"), [(1, 2**20), (1, 0), (8, 2**20), (8, 0)])


@LAYOUTS
def test_two_workers_records_partition_the_epoch(tmp_path: Path, num_files: int, cache_bytes: int) -> None:
    """Each record of an epoch is read once, by one worker, also in the second epoch."""
    split = records(tmp_path / "split", num_files=num_files)
    inputs = [training_input(split, worker=w, num_workers=2, cache_bytes=cache_bytes) for w in range(2)]
    steps = inputs[0].steps_per_epoch
    for epoch in range(2):
        ids = [flat(read_ids(data, steps, start_step=epoch * steps)) for data in inputs]
        assert not set(ids[0]) & set(ids[1])
        assert sorted(ids[0] + ids[1]) == list(range(103))
        assert abs(len(ids[0]) - len(ids[1])) <= 4


@LAYOUTS
def test_any_number_of_workers_trains_on_the_same_batches(tmp_path: Path, num_files: int, cache_bytes: int) -> None:
    """At every step the records of 1 and of 4 workers are the same set, with the same sum of weights."""
    split = records(tmp_path / "split", num_files=num_files)
    batches = {}
    for num_workers in (1, 4):
        inputs = [
            training_input(split, worker=w, num_workers=num_workers, cache_bytes=cache_bytes)
            for w in range(num_workers)
        ]
        by_worker = [read_ids(data, 20) for data in inputs]
        batches[num_workers] = [sorted(flat(step)) for step in zip(*by_worker, strict=True)]
        for data in inputs:
            totals = [float(total) for _, _, total in data.batches().take(20)]
            assert totals == [len(ids) for ids in batches[num_workers]]
    assert batches[1] == batches[4]


def test_devices_of_a_worker_are_dealt_shards_like_workers(tmp_path: Path) -> None:
    """Two workers with two devices each read what four workers do, and count it."""
    split = records(tmp_path / "split")
    options = {"num_virtual_shards": NUM_SHARDS, "batch_size": BATCH_SIZE, "seed": 5, "shuffle_buffer": 10}
    for worker in range(2):
        data = worker_input(split, TrainOptions(devices_per_worker=2, **options), worker=worker, num_workers=2)
        singles = [training_input(split, worker=2 * worker + device, num_workers=4) for device in range(2)]
        assert isinstance(data, ReplicaInputs)
        assert data.steps_per_epoch == singles[0].steps_per_epoch
        for device, single in enumerate(singles):
            steps = [step[device] for step in data.batches(3).take(8)]
            ids = [columns["record_id"].numpy()[weights.numpy() == 1].tolist() for columns, weights, _ in steps]
            assert ids == read_ids(single, 8, start_step=3)
        assert data.records_until(12) == sum(single.records_until(12) for single in singles)
        assert data.total_records_until(12) == singles[0].total_records_until(12)


@LAYOUTS
def test_a_resumed_worker_reads_exactly_the_rest(tmp_path: Path, num_files: int, cache_bytes: int) -> None:
    """From any step on, in the first epoch and later ones, the batches are those of the uninterrupted run."""
    split = records(tmp_path / "split", num_files=num_files)
    data = training_input(split, worker=1, num_workers=2, cache_bytes=cache_bytes)
    whole = read_ids(data, 25)
    # Within an epoch of 9 or 10 steps, where one ends, and in the third.
    for step in (1, 9, 23):
        assert read_ids(data, 25 - step, start_step=step) == whole[step:]


@pytest.mark.parametrize(("num_files", "shuffle_buffer"), [(1, 7), (5, 0), (24, 7)])
def test_resuming_from_any_step_reads_each_record_of_the_epoch_once(
    tmp_path: Path, num_files: int, shuffle_buffer: int
) -> None:
    """By record ids: what was read before a stop and what is read after it are the epoch, in the same order."""
    split = records(tmp_path / "split", num_files=num_files)
    data = training_input(split, worker=1, num_workers=2, cache_bytes=0, shuffle_buffer=shuffle_buffer)
    steps = data.steps_per_epoch
    whole = read_ids(data, steps)
    assert len(set(flat(whole))) == len(flat(whole)) == data.records_until(steps)
    for step in range(1, steps, 2):
        assert read_ids(data, steps - step, start_step=step) == whole[step:]


def test_resuming_opens_no_file_before_the_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files whose records were all read may be gone; here each of four shards has three files."""
    monkeypatch.setattr(rounds, "READ_BATCH", 6)  # else all of it is one round
    split = records(tmp_path / "split", num_files=12)
    data = training_input(split, cache_bytes=0, shuffle_buffer=5)
    late = data.steps_per_epoch - 1
    whole = read_ids(data, late + 1)
    for owned in data.deal.files_of or ():
        for index in owned[:-1]:
            Path(data.deal.files[index]).unlink()
    assert read_ids(data, 1, start_step=late) == whole[late:]


def test_a_manifest_saves_reading_the_files_to_count_them(tmp_path: Path) -> None:
    """The files are garbage of the right size, and the counts are still those of the manifest."""
    manifest = write_examples({"train": [{"record_id": i, "fare": 1.0, "tips": 0.0} for i in range(50)]}, tmp_path, 3)
    files = [tmp_path / shard.path for shard in manifest.shards["train"]]
    split = Records([str(file) for file in files], SPEC, "tips")
    for file in files:
        file.write_bytes(b"x" * file.stat().st_size)
    assert split.count() == (17, 17, 16)
    files[1].write_bytes(b"cut")
    with pytest.raises(DataError, match=rf"{files[1].name}: 3 bytes, and \d+ were written; run the step"):
        split.count()


def test_memory_and_files_give_the_same_order(tmp_path: Path) -> None:
    """What is small enough for memory is only a matter of speed."""
    for num_files in (1, 8):
        split = records(tmp_path / f"split-{num_files}", num_files=num_files)
        from_memory, from_files = (training_input(split, cache_bytes=size) for size in (2**20, 0))
        assert (from_memory.cache_kind, from_files.cache_kind) == ("memory", "none")
        assert read_ids(from_memory, 25) == read_ids(from_files, 25)


def test_padding_rows_are_zero_and_weigh_nothing(tmp_path: Path) -> None:
    """The last batch of an epoch keeps its shape; what is missing is rows of zeros."""
    data = training_input(records(tmp_path / "split", num_records=13))
    (first, weights, total), (last, last_weights, last_total) = data.batches().take(2)
    assert (float(total), float(last_total)) == (12.0, 1.0)
    assert weights.numpy().sum() == 12
    assert last_weights.numpy().ravel().tolist() == [1] + [0] * 11
    assert first["fare"].shape == last["fare"].shape == (12, 1)
    assert last["fare"].numpy()[1:].tolist() == [[0.0]] * 11


def test_records_read_are_counted(tmp_path: Path) -> None:
    """The count of a worker's records up to a step is what it really read."""
    data = training_input(records(tmp_path / "split"), worker=1, num_workers=2)
    ids = read_ids(data, 25)
    other = training_input(records(tmp_path / "same"), worker=0, num_workers=2)
    for step in (0, 1, 7, 25):
        assert data.total_records_until(step) == data.records_until(step) + other.records_until(step)
    assert [data.records_until(step) for step in range(26)] == np.cumsum([0] + [len(step) for step in ids]).tolist()


def test_the_shuffle_follows_seed_and_epoch(tmp_path: Path) -> None:
    """Another seed, and another epoch, give another order; the same seed the same, whatever TensorFlow's own seed."""
    split = records(tmp_path / "split")
    data = training_input(split)
    first = read_ids(data, 9)
    tf.random.set_seed(99)
    assert read_ids(training_input(split), 9) == first
    assert read_ids(training_input(split, seed=6), 9) != first
    assert read_ids(data, 9, start_step=9) != first


def test_no_shuffle_keeps_the_order_of_the_files(tmp_path: Path) -> None:
    """With ``shuffle_buffer: 0`` a single shard is the file itself."""
    data = training_input(records(tmp_path / "split"), num_shards=1, shuffle_buffer=0)
    assert flat(read_ids(data, 9)) == list(range(103))


def test_fewer_records_than_shards_are_read_once(tmp_path: Path) -> None:
    """A worker without records takes part with weight 0."""
    split = records(tmp_path / "split", num_records=2)
    ids = [read_ids(training_input(split, worker=w, num_workers=4), 1) for w in range(4)]
    assert sorted(flat(step[0] for step in ids)) == [0, 1]


def test_no_records_is_the_user_s_error(tmp_path: Path) -> None:
    """An empty split cannot be trained on."""
    with pytest.raises(DataError, match="no training records"):
        training_input(records(tmp_path / "split", num_records=0))


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    """Half a file does not pass for a short one."""
    split = records(tmp_path / "split")
    path = Path(split.files[0])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=path.name):
        training_input(split)


def test_sparse_features_and_an_absent_label_are_refused(tmp_path: Path) -> None:
    """The message names the feature."""
    partitioned = tf.io.RaggedFeature(tf.float32, "fare", [tf.io.RaggedFeature.UniformRowLength(2)])
    with pytest.raises(ConfigurationError, match="'fare': RaggedFeature of this form"):
        Records((), {**SPEC, "fare": partitioned}, "tips")
    with pytest.raises(ConfigurationError, match="label 'tips': not dense"):
        Records((), {**SPEC, "tips": tf.io.VarLenFeature(tf.float32)}, "tips")
    with pytest.raises(ConfigurationError, match="label 'tip': not among the transformed features"):
        Records((), SPEC, "tip")


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=20), num_shards=st.integers(1, 8))
def test_every_deal_is_a_partition(counts: list[int], num_shards: int) -> None:
    """Whole files go to one shard each and come out even, or records are dealt singly to sizes that differ by one."""
    files = [f"file-{i}" for i in range(len(counts))]
    deal = Deal.of(files, counts, num_shards)
    assert sum(deal.sizes) == sum(counts)
    if deal.files_of is None:
        assert max(deal.sizes) - min(deal.sizes) <= 1
    else:
        assert sorted(flat(deal.files_of)) == list(range(len(files)))
        assert [sum(counts[i] for i in owned) for owned in deal.files_of] == list(deal.sizes)


@pytest.mark.parametrize("num_files", [1, 8])
def test_epochs_become_the_steps_that_read_all_records(tmp_path: Path, num_files: int) -> None:
    """As often as wanted, each record once, however files are dealt; options with steps stay."""
    split = records(tmp_path / "split", num_files=num_files)
    given = TrainOptions(epochs=3, batch_size=BATCH_SIZE, num_virtual_shards=NUM_SHARDS, workers=1)
    options = with_steps(given, split.files)
    ids = read_ids(training_input(split), options.num_steps)
    assert sorted(flat(ids)) == sorted([*range(103)] * 3)
    assert options.epochs is None
    assert with_steps(options, ()) is options


def test_a_warm_up_longer_than_the_epochs_is_told(tmp_path: Path) -> None:
    """Known only once the records are counted."""
    split = records(tmp_path / "split")
    schedule = ScheduleOptions(warmup_steps=100)
    options = TrainOptions(epochs=1, batch_size=BATCH_SIZE, num_virtual_shards=NUM_SHARDS, schedule=schedule)
    with pytest.raises(ConfigurationError, match=r"train\.schedule\.warmup_steps: 100 is not allowed"):
        with_steps(options, split.files)
