"""The source of raw examples: batches with keys, whole files."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio import tf_example_record

from lockstep.components.errors import DataError
from lockstep.components.example_gen.rows import write_examples
from lockstep.components.examples_source.arrow_examples import ExampleParser
from lockstep.components.examples_source.source import BATCH_KEY, ExampleFiles, batch_position, read_batches
from tests.components.transform import preprocessing
from tests.components.transform.conftest import BEAM_ARGUMENTS, rows

_SCHEMA = text_format.Parse(preprocessing.SCHEMA, schema_pb2.Schema())
_COLUMNS = tf_example_record.TFExampleRecord("none", schema=_SCHEMA).ArrowSchema()


def _file(folder: Path, num_rows: int = 100) -> Path:
    write_examples({"train": rows(num_rows)}, folder)
    (path,) = (folder / "Split-train").iterdir()
    return path


def _read(path: Path, batch_size: int | None = None) -> list[pa.RecordBatch]:
    return list(read_batches(str(path), 5, ExampleParser(_COLUMNS), _COLUMNS, batch_size))


def test_batches_are_keyed_by_file_and_row(tmp_path: Path) -> None:
    """So that the order in which they are written depends on nothing else."""
    batches = _read(_file(tmp_path), batch_size=40)
    assert [batch.num_rows for batch in batches] == [40, 40, 20]
    keys = [set(batch.column(batch.num_columns - 1).flatten().to_pylist()) for batch in batches]
    assert [[batch_position(key) for key in found] for found in keys] == [[(5, 0)], [(5, 40)], [(5, 80)]]


def test_large_records_come_in_small_batches(tmp_path: Path) -> None:
    """A batch has some MB, whatever a record has."""
    write_examples({"train": [{"word": b"x" * 1_000_000, "count": i} for i in range(9)]}, tmp_path)
    (path,) = (tmp_path / "Split-train").iterdir()
    assert max(batch.num_rows for batch in _read(path)) <= 4


@pytest.mark.parametrize("projected", [["count", "words"], ["number"]])
def test_the_source_gives_the_rows_and_tensors_of_tfx_bsl(tmp_path: Path, projected: list[str]) -> None:
    """Of several files, and of some columns only, which is what tf.Transform asks for."""
    write_examples({"train": rows(50)}, tmp_path, num_shards=3)
    pattern = str(tmp_path / "Split-train" / "*")
    theirs = tf_example_record.TFExampleRecord(pattern, schema=_SCHEMA, telemetry_descriptors=["t"]).Project(projected)
    ours = ExampleFiles(pattern, schema=_SCHEMA, telemetry_descriptors=["t"]).Project(projected)
    assert ours.TensorAdapter().TypeSpecs() == theirs.TensorAdapter().TypeSpecs()
    assert ours.ArrowSchema().names == [*theirs.ArrowSchema().names, BATCH_KEY]
    names = theirs.ArrowSchema().names

    def same(found: Iterable[tuple[Any, Iterable[Any]]]) -> None:
        tables = [
            sorted(map(str, pa.Table.from_batches(list(batches)).select(names).to_pylist()))
            for _, batches in sorted(found, key=lambda item: item[0])
        ]
        assert len(tables[0]) == 50
        assert tables[0] == tables[1]

    with beam.Pipeline(argv=BEAM_ARGUMENTS) as pipeline:
        found = [
            pipeline | f"Read{side}" >> source.BeamSource() | f"Key{side}" >> beam.Map(lambda batch, s=side: (s, batch))
            for side, source in {"ours": ours, "theirs": theirs}.items()
        ]
        assert_that(found | beam.Flatten() | beam.GroupByKey(), same)


@pytest.mark.parametrize("cut", [1, 8, 200])
def test_a_file_that_was_cut_is_named(tmp_path: Path, cut: int) -> None:
    """TensorFlow alone takes it for a shorter one."""
    path = _file(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DataError, match=f"{path.name}: not a whole gzip TFRecord"):
        _read(path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A changed byte in the middle."""
    path = _file(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=path.name):
        _read(path)


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    """A text that was put there."""
    path = tmp_path / "notes.gz"
    path.write_text("not a record " * 100)
    with pytest.raises(DataError, match=r"notes\.gz: not a whole gzip TFRecord"):
        _read(path)


def test_a_record_of_another_type_is_told_with_its_feature(tmp_path: Path) -> None:
    """The schema says float."""
    write_examples({"train": [{"number": b"four"}]}, tmp_path)
    (path,) = (tmp_path / "Split-train").iterdir()
    with pytest.raises(DataError, match=rf"{path.name}: a record is not a tf\.Example.*number.*float.*string"):
        _read(path)


def test_a_file_of_several_gzip_streams_is_whole(tmp_path: Path) -> None:
    """As Transform writes them."""
    path = _file(tmp_path, 100)
    data = gzip.decompress(path.read_bytes())
    path.write_bytes(path.read_bytes() + gzip.compress(data))
    assert sum(batch.num_rows for batch in _read(path)) == 200


def test_an_empty_file_has_no_batches(tmp_path: Path) -> None:
    """A shard may have got no row."""
    write_examples({"train": []}, tmp_path)
    (path,) = (tmp_path / "Split-train").iterdir()
    assert _read(path) == []


def test_reading_twice_gives_the_same_batches(tmp_path: Path) -> None:
    """Their sizes too: what is written depends on them."""
    path = _file(tmp_path, 1000)
    first, second = _read(path), _read(path)
    assert [a.equals(b) for a, b in zip(first, second, strict=True)] == [True] * len(first)
    assert np.sum([batch.num_rows for batch in first]) == 1000
