"""Parts and the shards made of them."""

import random
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
import tensorflow as tf
from apache_beam.testing.util import assert_that, equal_to
from tensorflow_metadata.proto.v0 import schema_pb2

from lockstep.components.examples_source.source import BATCH_KEY
from lockstep.components.record_manifest import Shard
from lockstep.components.tfrecord_files import count_records
from lockstep.components.transform.writer import Batch, WriteParts, join_parts
from tests.components.transform.conftest import BEAM_ARGUMENTS

_LIST = pa.large_list(pa.int64())


def _batches(sizes: list[int]) -> list[Batch]:
    """Batches of one file; the values count on from one to the next."""
    made: list[Batch] = []
    first = 0
    for size in sizes:
        values = pa.array([[first + i] for i in range(size)], _LIST)
        key = pa.array([[first]] * size, _LIST)
        made.append((pa.RecordBatch.from_arrays([values, key], ["v", BATCH_KEY]), {}))
        first += size
    return made


def _write(root: Path, batches: list[Batch], num_shards: int) -> tuple[Path, tuple[Shard, ...]]:
    parts = root / "parts"
    parts.mkdir(parents=True)
    with beam.Pipeline(argv=BEAM_ARGUMENTS) as pipeline:
        pipeline | beam.Create(batches, reshuffle=False) | WriteParts(str(parts), schema_pb2.Schema(), num_shards)
    target = root / "Split-train"
    shards = join_parts(parts, target, "examples", num_shards, range(1 << 20))
    assert list(parts.iterdir()) == []
    return target, shards


def _values(path: Path) -> list[int]:
    records = tf.data.TFRecordDataset(str(path), compression_type="GZIP").as_numpy_iterator()
    return [tf.train.Example.FromString(record).features.feature["v"].int64_list.value[0] for record in records]


def test_records_are_dealt_in_turn_and_counted(tmp_path: Path) -> None:
    """Batch after batch, so that a shard is in the order of the input."""
    target, shards = _write(tmp_path, _batches([10, 10, 4]), 4)
    found = [_values(target.parent / shard.path) for shard in shards]
    assert sorted(value for values in found for value in values) == list(range(24))
    assert all(values == sorted(values) for values in found)
    assert [shard.records for shard in shards] == [6, 6, 6, 6]
    assert [count_records(str(target.parent / shard.path)) for shard in shards] == [6, 6, 6, 6]


def test_short_batches_fill_all_shards(tmp_path: Path) -> None:
    """Of many small files too."""
    _, shards = _write(tmp_path, _batches([1] * 12), 4)
    assert [shard.records for shard in shards] == [3, 3, 3, 3]


def test_the_order_in_which_batches_come_does_not_matter(tmp_path: Path) -> None:
    """Workers end in any order; the bytes are the same."""
    batches = _batches([7, 9, 8, 30])
    shuffled = random.Random(1).sample(batches, len(batches))
    first, shards = _write(tmp_path / "a", batches, 3)
    second, _ = _write(tmp_path / "b", shuffled, 3)
    for shard in shards:
        assert (first.parent / shard.path).read_bytes() == (second.parent / shard.path).read_bytes()


def test_more_shards_than_records_are_whole_files_without_any(tmp_path: Path) -> None:
    """TensorFlow and Beam read them; the number of files is what was asked for."""
    target, shards = _write(tmp_path, _batches([2]), 5)
    assert [shard.records for shard in shards] == [1, 1, 0, 0, 0]
    assert [_values(target.parent / shard.path) for shard in shards] == [[0], [1], [], [], []]
    with beam.Pipeline(argv=BEAM_ARGUMENTS) as pipeline:
        count = pipeline | beam.io.ReadFromTFRecord(f"{target}/*") | beam.combiners.Count.Globally()
        assert_that(count, equal_to([2]))


def test_pieces_of_one_batch_are_all_written(tmp_path: Path) -> None:
    """tf.Transform cuts a batch that came out large; equal pieces are no copies."""
    batch = pa.RecordBatch.from_arrays([pa.array([[5], [5]], _LIST), pa.array([[0], [0]], _LIST)], ["v", BATCH_KEY])
    _, shards = _write(tmp_path, [(batch, {}), (batch, {})], 1)
    assert [shard.records for shard in shards] == [4]


def test_a_batch_whose_rows_were_made_more_has_its_number_beside_it(tmp_path: Path) -> None:
    """As tf.Transform gives it."""
    batch = pa.RecordBatch.from_arrays([pa.array([[1], [2], [3]], _LIST)], ["v"])
    target, shards = _write(tmp_path, [(batch, {BATCH_KEY: pa.array([[0]], _LIST)})], 1)
    assert _values(target.parent / shards[0].path) == [1, 2, 3]


def test_a_part_that_cannot_be_written_fails_the_pipeline(tmp_path: Path) -> None:
    """Though it is written by another thread."""
    with pytest.raises(Exception, match="No such file or directory"), beam.Pipeline(argv=BEAM_ARGUMENTS) as pipeline:
        pipeline | beam.Create(_batches([3])) | WriteParts(str(tmp_path / "gone"), schema_pb2.Schema(), 1)
