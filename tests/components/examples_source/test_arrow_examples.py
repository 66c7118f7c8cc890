"""TensorFlow's parser gives what tfx-bsl's decoder gives."""

import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf import text_format
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders import example_coder

from lockstep.components.examples_source.arrow_examples import ExampleParser

_SCHEMA = text_format.Parse(
    'feature { name: "i" type: INT } feature { name: "f" type: FLOAT } feature { name: "b" type: BYTES }',
    schema_pb2.Schema(),
)
_DECODER = example_coder.ExamplesToRecordBatchDecoder(_SCHEMA.SerializeToString())
# What an absent feature looks like otherwise than by not being there.
_NO_KIND = "no kind"


def _feature(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | st.just(_NO_KIND) | st.lists(values, max_size=3)


_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": _feature(st.integers(-(2**63), 2**63 - 1)),
            "f": _feature(st.floats(width=32)),
            "b": _feature(st.binary(max_size=20) | st.just(b"\x12\x02\x1a\x00")),
            "other": _feature(st.integers(0, 3)),
        }
    ),
    min_size=1,
    max_size=9,
)
_FIELDS = {"i": "int64_list", "f": "float_list", "b": "bytes_list", "other": "int64_list"}


def _serialised(row: dict[str, object]) -> bytes:
    record = tf.train.Example()
    for name, values in row.items():
        if values is None:
            continue
        feature = record.features.feature[name]
        if values != _NO_KIND:
            getattr(feature, _FIELDS[name]).SetInParent()
            getattr(feature, _FIELDS[name]).value.extend(values)
    return bytes(record.SerializeToString())


@given(_ROWS)
@example([{"i": [], "f": [], "b": [b""], "other": None}, {"i": None, "f": _NO_KIND, "b": [], "other": []}])
@example([{"i": None, "f": None, "b": None, "other": None}])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_feature_is_what_tfx_bsl_decodes(rows: list[dict[str, object]]) -> None:
    """Absent, without a kind, with a kind and no value, several; NaN; a text that looks like an empty list."""
    records = [_serialised(row) for row in rows]
    theirs = _DECODER.DecodeBatch(records)
    ours = ExampleParser(_DECODER.ArrowSchema()).parse(tf.constant(records))
    assert [column.type for column in ours] == [column.type for column in theirs.columns]
    for mine, their in zip(ours, theirs.columns, strict=True):
        mine.validate(full=True)
        assert str(mine.to_pylist()) == str(their.to_pylist())  # as text, since NaN is not equal to itself
        assert mine.null_count == their.null_count


def test_no_column_is_no_work() -> None:
    """A preprocessing function may use none."""
    assert ExampleParser(pa.schema([])).parse(tf.constant([_serialised({"i": [1]})])) == []


def test_a_column_that_no_tf_example_has_is_refused() -> None:
    """Such as a structure in a sequence example."""
    with pytest.raises(ValueError, match="feature 'x': struct"):
        ExampleParser(pa.schema([("x", pa.struct([("y", pa.int64())]))]))
