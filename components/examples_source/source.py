"""Raw examples: gzip TFRecords of tf.Examples read whole by tf.data, big Arrow batches, with keys for Transform."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
from tfx_bsl.tfxio import tf_example_record

from lockstep.components.errors import DataError
from lockstep.components.examples_source.arrow_examples import ExampleParser
from lockstep.components.tfrecord_files import FRAME_BYTES, check_whole

BATCH_KEY = "__TFT_PASS_KEY__"
"""Column that says which batch it is, the same in all its rows. TFX's name, which it leaves out of statistics."""

# A batch is this much serialised data, and no more than this many rows: TensorFlow is quicker the more rows, and what
# a preprocessing function makes of them must fit into memory several times.
_BATCH_BYTES = 4 << 20
_MAX_ROWS = 16_384
_SAMPLE = 256  # records whose mean size tells how many rows a batch has
_FILE_BITS = 32
_SEPARATOR = "\n"

_Parsed = TypeVar("_Parsed")


class ExampleFiles(tf_example_record.TFExampleRecord):
    """tfx-bsl's source of gzip TFRecords, read by tf.data, with the column ``BATCH_KEY`` behind the others.

    The batches of a file depend on nothing but the file; their keys grow with the order of the files, sorted by name,
    and the first row's place in the file.
    """

    def ArrowSchema(self) -> pa.Schema:  # noqa: N802 - tfx-bsl's name
        """Returns the schema of a batch."""
        return super().ArrowSchema().append(pa.field(BATCH_KEY, pa.large_list(pa.int64())))

    def BeamSource(self, batch_size: int | None = None) -> beam.PTransform:  # noqa: N802 - tfx-bsl's name
        """Returns a transform from a pipeline to its record batches.

        Args:
          batch_size: Rows of a batch; None picks by the size of the records.
        """
        return _ReadFiles(tuple(self._file_pattern), self._ArrowSchemaNoRawRecordColumn(), batch_size)

    def _ProjectImpl(self, tensor_names: list[str]) -> "ExampleFiles":  # noqa: N802 - tfx-bsl's name
        projected = super()._ProjectImpl(tensor_names)
        return ExampleFiles(
            self._file_pattern, schema=projected._schema, telemetry_descriptors=self.telemetry_descriptors
        )


def matched_files(patterns: Iterable[str]) -> list[str]:
    """Returns the files of each pattern in turn, sorted by name; ``joined_patterns`` are several."""
    each = (pattern for joined in patterns for pattern in joined.split(_SEPARATOR))
    return [file for pattern in each for file in sorted(tf.io.gfile.glob(pattern))]


def joined_patterns(patterns: Iterable[str]) -> str:
    """Returns patterns as one, for which TFX makes one data set."""
    return _SEPARATOR.join(patterns)


def batch_position(key: int) -> tuple[int, int]:
    """Returns of a batch's key the place of its file among the files, and the place of its first row in the file."""
    return divmod(key, 1 << _FILE_BITS)


class _ReadFiles(beam.PTransform):
    def __init__(self, patterns: tuple[str, ...], schema: pa.Schema, batch_size: int | None) -> None:
        super().__init__()
        self._patterns, self._schema, self._batch_size = patterns, schema, batch_size

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        files = matched_files(self._patterns)
        return (
            pipeline
            | "Files" >> beam.Create(list(enumerate(files)))
            | "ReadAndParse" >> beam.ParDo(_ReadFile(self._schema, self._batch_size)).with_output_types(pa.RecordBatch)
        )


class _ReadFile(beam.DoFn):
    def __init__(self, schema: pa.Schema, batch_size: int | None) -> None:
        self._schema, self._batch_size = schema, batch_size

    def setup(self) -> None:
        self._parser = ExampleParser(self._schema)

    def process(self, element: tuple[int, str]) -> Iterator[pa.RecordBatch]:
        place, path = element
        yield from read_batches(path, place, self._parser, self._schema, self._batch_size)


def read_batches(
    path: str, place: int, parser: ExampleParser, schema: pa.Schema, batch_size: int | None
) -> Iterator[pa.RecordBatch]:
    """Gives a file's records as record batches.

    Args:
      path: A gzip TFRecord.
      place: Of the file among the files.
      parser: Of ``schema``.
      schema: Without the column ``BATCH_KEY``.
      batch_size: Rows of a batch; None picks by the size of the records.

    Raises:
      DataError: The file is damaged, or a record is no tf.Example of the schema's types.
    """
    schema = schema.append(pa.field(BATCH_KEY, pa.large_list(pa.int64())))
    first = 0
    for rows, columns in read_parsed(path, lambda records: (len(records), parser.parse(records)), batch_size):
        key = pa.LargeListArray.from_arrays(np.arange(rows + 1), pa.array(np.full(rows, (place << _FILE_BITS) + first)))
        first += rows
        yield pa.RecordBatch.from_arrays([*columns, key], schema=schema)


def read_parsed(path: str, parse: Callable[["tf.Tensor"], _Parsed], batch_size: int | None = None) -> Iterator[_Parsed]:
    """Gives what a parser makes of a file's records, batch after batch.

    Args:
      path: A gzip TFRecord.
      parse: Takes serialised tf.Examples, string [batch].
      batch_size: Rows of a batch; None picks by the size of the records.

    Raises:
      DataError: The file is damaged, or the parser takes a record for no tf.Example of the types it knows.
    """
    yield from _ahead(_parsed(path, parse, records) for records in read_records(path, batch_size))


def _ahead(batches: Iterator[_Parsed]) -> Iterator[_Parsed]:
    """Has the next batch made by a thread: TensorFlow reads and parses without Python's lock."""
    with ThreadPoolExecutor(1, "examples") as thread:
        waiting = thread.submit(next, batches, None)
        while (batch := waiting.result()) is not None:
            waiting = thread.submit(next, batches, None)
            yield batch


def _parsed(path: str, parse: Callable[["tf.Tensor"], _Parsed], records: "tf.Tensor") -> _Parsed:
    try:
        return parse(records)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError, RuntimeError) as e:
        # TensorFlow's message may hold the record; tfx-bsl's decoder raises RuntimeError.
        reason = "its bytes are something else" if isinstance(e, UnicodeDecodeError) else _reason(e)
        raise DataError(f"{path}: a record is not a tf.Example of the schema's types: {reason}") from e


def read_records(path: str, batch_size: int | None = None) -> Iterator["tf.Tensor"]:
    """Gives a file's records, string [batch], batch after batch.

    Args:
      path: A gzip TFRecord.
      batch_size: Rows of a batch; None picks by the size of the records.

    Raises:
      DataError: The file is damaged: cut too, which is known behind its last batch.
    """
    num_rows = num_bytes = 0
    try:
        for records in _batches(path, batch_size):
            num_rows += len(records)
            num_bytes += int(tf.reduce_sum(tf.strings.length(records))) + len(records) * FRAME_BYTES
            yield records
    except (tf.errors.OpError, UnicodeDecodeError) as e:
        reason = "its bytes are something else" if isinstance(e, UnicodeDecodeError) else _reason(e)
        raise DataError(f"{path}: not a whole gzip TFRecord ({reason}); run the step that wrote it again") from e
    check_whole(path, num_rows, num_bytes)


def _batches(path: str, batch_size: int | None) -> "tf.data.Dataset":
    """Returns the records in vectors of ``batch_size``, or of as many as make ``_BATCH_BYTES`` judged by the first."""
    records = tf.data.TFRecordDataset(path, compression_type="GZIP", buffer_size=2**20)
    if batch_size is None:
        sample: Sequence[bytes] = next(records.batch(_SAMPLE).take(1).as_numpy_iterator(), [])
        mean = max(1, sum(map(len, sample)) // max(1, len(sample)))
        batch_size = min(_MAX_ROWS, max(1, _BATCH_BYTES // mean))
    return records.batch(batch_size).prefetch(2)


def _reason(error: Exception) -> str:
    """Returns the message without the names of TensorFlow's own operations."""
    message = error.message if isinstance(error, tf.errors.OpError) else error
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:\w+\].*", "", str(message), flags=re.DOTALL)
