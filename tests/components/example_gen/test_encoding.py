"""Serialised examples and their framing, byte for byte."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.components.example_gen.encoding import encode_examples, frame_records

_INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
_COLUMNS = st.integers(1, 5).flatmap(
    lambda rows: st.dictionaries(
        st.text(min_size=1, max_size=200),
        st.one_of(
            st.tuples(st.just(pa.int64()), st.lists(st.none() | _INTS, min_size=rows, max_size=rows)),
            st.tuples(st.just(pa.float32()), st.lists(st.none() | st.floats(width=32), min_size=rows, max_size=rows)),
            st.tuples(
                st.just(pa.binary()), st.lists(st.none() | st.binary(max_size=200), min_size=rows, max_size=rows)
            ),
        ),
        min_size=1,
        max_size=5,
    )
)


@given(_COLUMNS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_examples_are_what_protobuf_writes(columns: dict[str, tuple[pa.DataType, list[object]]]) -> None:
    """Every int64, float32 and bytes, every length, missing values, any name, features sorted by the bytes of the name.

    protobuf writes one feature at a time: how it sorts a map differs between releases where one name begins another.
    """
    import tensorflow as tf

    arrays = {name: pa.array(values, kind) for name, (kind, values) in columns.items()}
    num_rows = len(next(iter(arrays.values())))
    fields = {pa.int64(): "int64_list", pa.float32(): "float_list", pa.binary(): "bytes_list"}
    expected = []
    for row in range(num_rows):
        entries = []
        for name, (kind, values) in sorted(columns.items(), key=lambda column: column[0].encode()):
            if values[row] is not None:
                features = tf.train.Features()
                getattr(features.feature[name], fields[kind]).value.append(values[row])
                entries.append(features.SerializeToString())
        # Field 1 of an Example is the message Features; field 1 of a BytesList has the same wire format.
        expected.append(tf.train.BytesList(value=[b"".join(entries)]).SerializeToString())
    assert encode_examples(arrays, num_rows, named_missing_lists=True).to_pylist() == expected


_LIST_COLUMNS = st.integers(1, 5).flatmap(
    lambda rows: st.dictionaries(
        st.text(min_size=1, max_size=9).filter(lambda name: "\0" not in name),  # where tfx-bsl cuts a name
        st.sampled_from(
            [(pa.int64(), _INTS), (pa.float32(), st.floats(width=32)), (pa.large_binary(), st.binary(max_size=200))]
        ).flatmap(
            lambda kind: st.tuples(
                st.just(kind[0]), st.lists(st.none() | st.lists(kind[1], max_size=4), min_size=rows, max_size=rows)
            )
        ),
        min_size=1,
        max_size=4,
    )
)


@given(_LIST_COLUMNS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_lists_are_what_tfx_bsl_encodes(columns: dict[str, tuple[pa.DataType, list[object]]]) -> None:
    """Several values, none, and no list at all; but for the order of features, which tfx-bsl leaves to chance."""
    import tensorflow as tf
    from tfx_bsl.coders import example_coder

    arrays = {name: pa.array(values, pa.large_list(kind)) for name, (kind, values) in columns.items()}
    num_rows = len(next(iter(arrays.values())))
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
    theirs = [tf.train.Example.FromString(r) for r in example_coder.RecordBatchToExamplesEncoder().encode(batch)]
    ours = [
        tf.train.Example.FromString(record)
        for record in encode_examples(arrays, num_rows, named_missing_lists=True).to_pylist()
    ]
    # As bytes, since NaN is not equal to itself.
    assert [e.SerializeToString(deterministic=True) for e in ours] == [
        e.SerializeToString(deterministic=True) for e in theirs
    ]


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_lengths_at_the_borders_of_a_varint_are_read_back(length: int) -> None:
    """All nested lengths grow at different sizes of the value."""
    import tensorflow as tf

    for size in range(max(0, length - 20), length + 1):
        record = encode_examples({"c": pa.array([b"x" * size])}, 1)[0].as_py()
        assert tf.train.Example.FromString(record).features.feature["c"].bytes_list.value[0] == b"x" * size


def test_framed_records_are_what_tensorflow_writes(tmp_path: object) -> None:
    """Length, checksum, record, checksum."""
    import tensorflow as tf

    records = [bytes(np.random.default_rng(n).integers(0, 256, n, np.uint8)) for n in (0, 1, 5, 300)]
    with tf.io.TFRecordWriter(f"{tmp_path}/theirs") as writer:
        for record in records:
            writer.write(record)
    with open(f"{tmp_path}/theirs", "rb") as file:  # noqa: PTH123
        assert b"".join(frame_records(pa.array(records, pa.binary())).to_pylist()) == file.read()


def test_slices_of_arrays_are_encoded_as_their_values() -> None:
    """Arrow's arrays share memory with an offset."""
    columns = {
        "i": pa.array([1, None, 3, 400]),
        "f": pa.array([1.5, None, 2.5, 3.5], pa.float32()),
        "b": pa.array([b"a", None, b"ccc", b"dd"]),
    }
    whole = encode_examples(columns, 4).to_pylist()
    for begin, end in itertools.combinations(range(5), 2):
        part = {name: values.slice(begin, end - begin) for name, values in columns.items()}
        assert encode_examples(part, end - begin).to_pylist() == whole[begin:end]
