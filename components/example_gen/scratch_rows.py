"""Rows on their way from the input to their shard: written to a scratch folder in groups, read back group by group.

A file holds some rows, those of a group together; a group is a split, or a share of one. Each group is an Arrow record
batch without its schema, which all have in common.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

ORIGIN_FILE, ORIGIN_POSITION = "\0file", "\0position"
RECORDS = "\0records"

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Rows of one group in a scratch file.

    Args:
      path: The file.
      begin: Their first byte.
      length: Their bytes.
      num_rows: How many.
      size: Bytes of their records, about.
    """

    path: str
    begin: int
    length: int
    num_rows: int
    size: int


def write_groups(batch: pa.RecordBatch, groups: npt.NDArray[np.int64], path: str, size: int) -> dict[int, Stretch]:
    """Writes rows to a new file, those of a group together and in their order.

    Args:
      batch: The rows.
      groups: Of each row, from 0.
      path: The file.
      size: Bytes of all the rows' records, about.

    Returns:
      Group -> where its rows are; without those that have no row.

    Raises:
      OSError: The file cannot be written.
    """
    order = np.argsort(groups.astype(np.uint16 if groups.max(initial=0) < 1 << 16 else np.uint32), kind="stable")
    ordered = batch.take(pa.array(order))
    ends = np.cumsum(np.bincount(groups))
    stretches: dict[int, Stretch] = {}
    with Path(path).open("wb") as file:
        begin = 0
        for group, end in enumerate(ends):
            first = int(ends[group - 1]) if group else 0
            num_rows = int(end) - first
            if not num_rows:
                continue
            content = _serialised(ordered.slice(first, num_rows))
            file.write(content)
            stretches[group] = Stretch(path, begin, content.size, num_rows, size * num_rows // len(groups))
            begin += content.size
    return stretches


def read_stretches(stretches: Sequence[Stretch], schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of some stretches, one after another."""
    batches = []
    for stretch in stretches:
        with Path(stretch.path).open("rb") as file:
            file.seek(stretch.begin)
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(file.read(stretch.length)), schema))
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def record_bytes(columns: Mapping[str, pa.Array], num_rows: int) -> int:
    """Returns about how many bytes the records of some rows have."""
    values = sum(array.nbytes for array in columns.values())
    return int(values + num_rows * sum(len(name.encode()) + 14 for name in columns) + num_rows * 20)


def _serialised(batch: pa.RecordBatch) -> pa.Buffer:
    """Returns a batch as one compressed message; ``RecordBatch.serialize`` has no compression."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    _schema, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return message.serialize()
