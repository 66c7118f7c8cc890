"""TFRecord files of tf.Examples as input."""

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.components.errors import DataError
from lockstep.components.example_gen import record_stream
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_gen.record_stream import masked_crc
from lockstep.components.example_gen.rows import write_examples
from lockstep.components.example_gen.tfrecord_source import TfRecordSource
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]


def _example(**features: Any) -> bytes:
    from tensorflow.core.example import example_pb2

    example = example_pb2.Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return bytes(example.SerializeToString())


def _framed(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def _file(path: Path, records: Sequence[bytes], compress: Callable[[bytes], bytes] = bytes) -> Path:
    path.write_bytes(compress(b"".join(map(_framed, records))))
    return path


def _contents(result: Ingested) -> list[bytes]:
    import tensorflow as tf

    files = [str(result.folder / shard.path) for shards in result.manifest.shards.values() for shard in shards]
    return sorted(tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator())


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress])
def test_records_are_kept_byte_for_byte(
    tmp_path: Path, ingest_path: Ingest, compress: Callable[[bytes], bytes]
) -> None:
    """Whatever they are compressed with, though the name says nothing; fields in an order of others' too."""
    records = [_example(x=[number], s=[b"v%d" % number, b""]) for number in range(50)]
    records.append(records[0] + b"\x12\x03abc")  # with a field that tf.Example does not know
    result = ingest_path(_file(tmp_path / "rows.tfrecord", records, compress), num_shards=3)
    assert _contents(result) == sorted(records)
    assert [shard.records for shard in result.manifest.shards["all"]] == [17, 17, 17]
    assert result.manifest.types == {"x": "int", "s": "list<string>"}


def test_what_lockstep_wrote_is_read(tmp_path: Path, ingest_path: Ingest) -> None:
    """Shards of another ExampleGen, by their folder."""
    write_examples({"train": [{"x": number, "y": 1.5} for number in range(10)]}, tmp_path / "in", num_shards=2)
    result = ingest_path(tmp_path / "in" / "Split-train")
    assert result.column("x") == list(range(10))
    assert result.manifest.types == {"x": "int", "y": "float"}


def test_a_cut_file_is_named_with_its_offset(tmp_path: Path, ingest_path: Ingest) -> None:
    """Whole records before it are kept in quarantine."""
    records = [_example(x=[number]) for number in range(100)]
    path = _file(tmp_path / "rows.tfrecord", records)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-3])
    begin = size - len(_framed(records[-1]))
    with pytest.raises(DataError, match=rf"rows\.tfrecord, byte {begin}: the file is cut: \d+ bytes are left"):
        ingest_path(path)
    assert ingest_path(path, on_error="quarantine").column("x") == list(range(99))


def test_a_cut_gzip_is_named_with_its_offset(tmp_path: Path, ingest_path: Ingest) -> None:
    """All records that can be had of it are kept."""
    records = [_example(x=[number]) for number in range(5000)]
    path = _file(tmp_path / "rows.tfrecord", records, gzip.compress)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 100])
    message = rf"rows\.tfrecord, byte \d+: the file is cut: it ends at byte {len(whole) - 100}"
    with pytest.raises(DataError, match=message):
        ingest_path(path)
    kept = ingest_path(path, on_error="quarantine").column("x")
    assert kept == list(range(len(kept)))
    assert len(kept) > 4900
    path.write_bytes(whole[:1000] + bytes(200) + whole[1200:])
    with pytest.raises(DataError, match=r"rows\.tfrecord, byte \d+: the (record|file) is damaged"):
        ingest_path(path)


def test_a_damaged_record_is_named_and_those_behind_it_are_kept(tmp_path: Path, ingest_path: Ingest) -> None:
    """Its length is still known; where that is damaged too, nothing behind it can be found."""
    records = [_example(x=[number]) for number in range(1, 4)]
    first = len(_framed(records[0]))
    path = _file(tmp_path / "rows.tfrecord", records)
    whole = bytearray(path.read_bytes())
    whole[first + 14] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match=rf"rows\.tfrecord, byte {first}: the record is damaged"):
        ingest_path(path)
    assert ingest_path(path, on_error="quarantine").column("x") == [1, 3]
    whole[first + 9] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match=rf"rows\.tfrecord, byte {first}: no record begins here"):
        ingest_path(path)
    assert ingest_path(path, on_error="quarantine").column("x") == [1]


def test_a_record_that_is_no_example_is_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """A serialised something else, or text."""
    path = _file(tmp_path / "rows.tfrecord", [_example(x=[1]), b"not an example", _example(x=[2])])
    begin = len(_framed(_example(x=[1])))
    with pytest.raises(DataError, match=rf"rows\.tfrecord, byte {begin}: the record is not a tf\.Example"):
        ingest_path(path)
    assert ingest_path(path, on_error="quarantine").column("x") == [1, 2]
    (tmp_path / "text.tfrecord").write_text("a,b\n1,2\n" * 10)
    with pytest.raises(DataError, match=r"text\.tfrecord, byte 0: no record begins here"):
        ingest_path(tmp_path / "text.tfrecord")


def test_types_that_differ_are_named_with_file_and_record(tmp_path: Path, ingest_path: Ingest) -> None:
    """Between files and within one; a declared type converts them."""
    (tmp_path / "in").mkdir()
    a = _file(tmp_path / "in" / "a.tfrecord", [_example(x=[1], n=[0])])
    b = _file(tmp_path / "in" / "b.tfrecord", [_example(n=[1]), _example(x=[2.5], n=[2]), _example(x=[3], n=[3])])
    message = rf"feature 'x' is float in {b}, byte {len(_framed(_example(n=[1])))}, int in {a}, byte 0; declare"
    with pytest.raises(DataError, match=message):
        ingest_path(tmp_path / "in")
    rows = sorted(ingest_path(tmp_path / "in", types={"x": "float"}).rows(), key=lambda row: row["n"])
    assert [row.get("x") for row in rows] == [[1.0], None, [2.5], [3.0]]


def test_requirements_hold_for_records_too(tmp_path: Path, ingest_path: Ingest) -> None:
    """A record without a label is named, or dropped."""
    path = _file(tmp_path / "rows.tfrecord", [_example(x=[1], y=[1]), _example(x=[2])])
    with pytest.raises(DataError, match=r"byte \d+: column 'y' has no value"):
        ingest_path(path, Requirements(complete_columns=("y",)))
    assert ingest_path(path, Requirements(complete_columns=("y",), on_missing="drop")).column("x") == [1]
    with pytest.raises(DataError, match="has no column 'z'"):
        ingest_path(path, Requirements(columns=("z",)))
    with pytest.raises(DataError, match="no rows"):
        ingest_path(_file(tmp_path / "empty.tfrecord", []))


def test_ranges_of_records_do_not_depend_on_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins with a record; together they are the file, damaged end included."""
    monkeypatch.setattr(record_stream, "_UNIT_BYTES", 200)
    monkeypatch.setattr(record_stream, "_PIECE_BYTES", 50)
    path = _file(tmp_path / "rows.tfrecord", [_example(x=[number]) for number in range(100)])
    path.write_bytes(path.read_bytes() + b"rest of something else")
    source = TfRecordSource([str(path)], DataOptions(path=str(path), on_error="quarantine"))
    units = source.units()
    assert len(units) == 15
    types = source.resolve(source.infer(unit) for unit in units)
    batches = [batch for unit in units for batch in source.batches(unit, types)]
    assert [value for batch in batches for value in batch.columns["x"].to_pylist()] == list(range(100))
    [rejected] = [rejected for batch in batches for rejected in batch.rejected]
    assert "no record begins here" in rejected.reason


_VALUES = (
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3)
    | st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3)
    | st.lists(st.binary(max_size=5), min_size=1, max_size=3)
)


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3), max_size=20), compress=st.booleans())
def test_any_records_are_read_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], compress: bool
) -> None:
    """With one type a feature, or text where they are mixed."""
    records = [_example(**row) for row in rows]
    path = _file(tmp_path_factory.mktemp("in") / "rows.tfrecord", records, gzip.compress if compress else bytes)
    names = {name for row in rows for name in row}
    data = DataOptions(path=str(path), types=dict.fromkeys(names, "list<string>"))
    for options in (DataOptions(path=str(path)), data):
        source = TfRecordSource([str(path)], options)
        found = [source.infer(unit) for unit in source.units()]
        kinds = {name: {type(row[name][0]) for row in rows if name in row} for name in names}
        if options is not data and any(len(each) > 1 for each in kinds.values()):
            with pytest.raises(DataError, match="declare"):
                source.resolve(found)
            continue
        types = source.resolve(found)
        batches = [batch for unit in source.units() for batch in source.batches(unit, types)]
        assert sum(batch.num_rows for batch in batches) == len(rows)
        if options is not data:
            kept = [record.as_py() for batch in batches for record in batch.records]
            assert kept == records
