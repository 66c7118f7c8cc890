"""Examples whose schema nobody knows yet, as tfx-bsl's decoder gives them: a batch has the features of its records."""

import contextlib
from collections.abc import Iterator, Mapping

import pyarrow as pa
import tensorflow as tf
from tfx_bsl.coders import example_coder

from lockstep.components.example_gen.options import STORED
from lockstep.components.examples_source.arrow_examples import ExampleParser
from lockstep.components.examples_source.source import read_parsed
from lockstep.components.record_manifest import Manifest

_VALUES = {"int": pa.int64(), "float": pa.float32(), "string": pa.large_binary()}
_ARROW: Mapping[str, pa.DataType] = {kind: _VALUES[stored] for kind, stored in STORED.items()}
_LOOKED_AT = 256  # records of a batch


def known_columns(artifact_uri: str) -> pa.Schema | None:
    """Returns the features of an Examples artifact with their types, as its manifest says; None where none does.

    Args:
      artifact_uri: A local folder.
    """
    with contextlib.suppress(FileNotFoundError):
        types = Manifest.load(artifact_uri).types
        if types:
            return pa.schema([pa.field(name, pa.large_list(_ARROW[kind])) for name, kind in types.items()])
    return None


def read_untyped(path: str, columns: pa.Schema | None, batch_size: int | None = None) -> Iterator[pa.RecordBatch]:
    """Gives a file's records as record batches, without the features that none of a batch's records has.

    TensorFlow parses the features that are known; tfx-bsl's decoder takes twice as long. A file is decoded by tfx-bsl
    from where the first records of a batch have another feature.

    Args:
      path: A gzip TFRecord.
      columns: What ``known_columns`` returned.
      batch_size: Rows of a batch; None picks by the size of the records.

    Raises:
      DataError: The file is damaged, or a record is no tf.Example, or a feature has several types.
    """
    return read_parsed(path, _Parser(columns).parse, batch_size)


class _Parser:
    def __init__(self, columns: pa.Schema | None) -> None:
        self._decoder = example_coder.ExamplesToRecordBatchDecoder()
        self._names = () if columns is None else tuple(columns.names)
        self._known = None if columns is None else ExampleParser(columns)

    def parse(self, records: tf.Tensor) -> pa.RecordBatch:
        if self._known is not None and self._has_others(records[:_LOOKED_AT]):
            self._known = None
        if self._known is None:
            return self._decode(records)
        found = zip(self._names, self._known.parse(records), strict=True)
        present = {name: values for name, values in found if values.null_count < len(values)}
        if not present:
            return self._decode(records)  # rows without a column
        return pa.RecordBatch.from_arrays(list(present.values()), names=list(present))

    def _decode(self, records: tf.Tensor) -> pa.RecordBatch:
        return self._decoder.DecodeBatch(records.numpy().tolist())

    def _has_others(self, records: tf.Tensor) -> bool:
        return any(name not in self._names for name in self._decode(records).schema.names)
