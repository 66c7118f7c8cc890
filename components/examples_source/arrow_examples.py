"""Serialised tf.Examples to Arrow, a batch at a time: what tfx-bsl's decoder gives, by TensorFlow's parser.

TensorFlow parses a batch on several threads without Python's lock, to values and the borders of rows, which are Arrow's
own layout; tfx-bsl's decoder does it on one, with the lock, and takes longer the larger the batch.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

_DTYPES = {pa.int64(): tf.int64, pa.float32(): tf.float32, pa.large_binary(): tf.string}
# A feature with a kind and no value, as protobuf writes it (``value { int64_list {} }``): TensorFlow's parser does not
# tell it from a feature that is absent, tfx-bsl's decoder does.
_EMPTY_LIST = re.compile(rb"\x12\x02[\x0a\x12\x1a]\x00")


class ExampleParser:
    """Parses batches of tf.Examples.

    Args:
      schema: Columns wanted, each a large list of int64, float32 or large_binary, as ``TFExampleRecord.ArrowSchema``.

    Raises:
      ValueError: A column is of another type.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._spec = {}
        for field in schema:
            dtype = _DTYPES.get(field.type.value_type) if pa.types.is_large_list(field.type) else None
            if dtype is None:
                raise ValueError(
                    f"schema: feature {field.name!r}: {field.type} is not allowed; a feature of a"
                    " tf.Example is a list of int64, float or bytes"
                )
            self._spec[field.name] = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)

    def parse(self, records: "tf.Tensor") -> list[pa.Array]:
        """Returns the columns of a batch, in the schema's order; an absent feature is null.

        Args:
          records: Serialised tf.Examples, string [batch].

        Raises:
          tf.errors.InvalidArgumentError: A record is no tf.Example, or a feature has another type.
        """
        if not self._spec:
            return []
        parsed: Mapping[str, Any] = tf.io.parse_example(records, self._spec)
        columns = {field.name: _Column(field.type, parsed[field.name]) for field in self._schema}
        if any(column.may_be_empty.any() for column in columns.values()):
            texts = records.numpy()
            for row in _rows_with_empty_lists(texts):
                features = tf.train.Example.FromString(texts[row]).features.feature
                for name, column in columns.items():
                    # Not features[name]: that would make one.
                    if name in features and features[name].WhichOneof("kind") is not None:
                        column.may_be_empty[row] = False
        return [column.to_arrow() for column in columns.values()]


class _Column:
    """One feature's values; rows without any are null where ``may_be_empty`` stays True."""

    def __init__(self, kind: pa.DataType, parsed: "tf.RaggedTensor") -> None:
        self._kind = kind
        self._values = parsed.values.numpy()
        self._splits = parsed.row_splits.numpy()
        self.may_be_empty = np.diff(self._splits) == 0

    def to_arrow(self) -> pa.Array:
        values = pa.array(self._values, self._kind.value_type)
        splits = pa.py_buffer(self._splits)
        null_count = int(self.may_be_empty.sum())
        bitmap = pa.py_buffer(np.packbits(~self.may_be_empty, bitorder="little")) if null_count else None
        rows = len(self._splits) - 1
        return pa.Array.from_buffers(self._kind, rows, [bitmap, splits], null_count=null_count, children=[values])


def _rows_with_empty_lists(records: Sequence[bytes]) -> "npt.NDArray[np.int64]":
    """Returns the rows that may have a feature with a kind and no value; few are named that have none."""
    text = b"".join(records)
    places = [match.start() for match in _EMPTY_LIST.finditer(text)]
    if not places:
        return np.zeros(0, np.int64)
    ends = np.cumsum([len(record) for record in records])
    return np.unique(np.searchsorted(ends, np.array(places), side="right"))
