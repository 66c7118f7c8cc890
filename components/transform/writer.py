"""The transformed examples of Transform: shards of gzip TFRecords, the same bytes for the same batches.

Workers write a part for each batch, with a gzip stream for each shard in it, whatever the order in which batches come.
When all are there, a shard is made of its streams in the order of the batches: a gzip file may hold several streams.
"""

import os
import struct
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders import example_coder

from lockstep.components.example_gen.arrow_buffers import binary_buffers
from lockstep.components.example_gen.encoding import encode_examples, frame_records
from lockstep.components.examples_source.source import BATCH_KEY, batch_position
from lockstep.components.record_manifest import Shard

_GZIP_LEVEL = 1  # level 6 takes three times as long for a tenth less
_GZIP_WBITS = 31  # zlib writes a gzip header without name or time, so equal records give equal files
_NUM_THREADS = 2  # Arrow, NumPy and zlib release Python's lock, so that the next batch is transformed meanwhile
_MAX_WAITING = 4  # batches
_PART_SUFFIX = ".part"
_ENTRY = struct.Struct("<QQ")  # records of a shard in a part, and bytes of their stream

Batch = tuple[pa.RecordBatch, dict[str, pa.Array]]


class WriteParts(beam.PTransform):
    """Writes transformed batches, each as a part, below a folder that exists and that all workers see.

    Args:
      folder: For these batches alone.
      schema: Of the transformed examples.
      num_shards: Shards into which ``join_parts`` will make them.
    """

    def __init__(self, folder: str, schema: schema_pb2.Schema, num_shards: int) -> None:
        super().__init__()
        self._fn = _WritePart(folder, schema.SerializeToString(), num_shards)

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """Takes batches, each with its key in it or beside it, and gives nothing."""
        return batches | "EncodeAndWrite" >> beam.ParDo(self._fn)


class _WritePart(beam.DoFn):
    def __init__(self, folder: str, schema: bytes, num_shards: int) -> None:
        self._folder, self._serialised_schema, self._num_shards = folder, schema, num_shards

    def setup(self) -> None:
        self._schema = schema_pb2.Schema.FromString(self._serialised_schema)
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "parts")

    def start_bundle(self) -> None:
        self._waiting: deque[Future[None]] = deque()
        # tf.Transform cuts a batch that came out very large: its pieces come one after the other.
        self._pieces: Counter[int] = Counter()

    def process(self, element: Batch) -> Iterator[None]:
        key, batch = _unkeyed(*element)
        path = Path(self._folder) / f"{key:020d}-{self._pieces[key]:06d}{_PART_SUFFIX}"
        self._pieces[key] += 1
        self._waiting.append(self._threads.submit(self._write, path, key, batch))
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft().result()
        yield from ()

    def finish_bundle(self) -> None:
        while self._waiting:
            self._waiting.popleft().result()

    def teardown(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _write(self, path: Path, number: int, batch: pa.RecordBatch) -> None:
        content = encode_part(
            frame_records(_encode(batch, self._schema)), sum(batch_position(number)), self._num_shards
        )
        temporary_path = path.with_suffix(f".{os.getpid()}")
        temporary_path.write_bytes(content)
        temporary_path.replace(path)


def encode_part(framed: pa.Array, begin: int, num_shards: int) -> bytes:
    """Returns the part of a batch: for each shard how much there is, and then a gzip stream for each.

    Args:
      framed: Records in TFRecord framing (binary), dealt to the shards in turn.
      begin: The shard of the first, modulo ``num_shards``.
      num_shards: 1 or more.
    """
    entries, streams = [], []
    for shard in range(num_shards):
        rows = np.arange((shard - begin) % num_shards, len(framed), num_shards)
        stream = b""
        if len(rows):
            data, _ = binary_buffers(framed.take(pa.array(rows)))
            stream = _gzip(data)
        entries.append(_ENTRY.pack(len(rows), len(stream)))
        streams.append(stream)
    return b"".join([*entries, *streams])


def join_parts(folder: Path, target: Path, prefix: str, num_shards: int, files: range) -> tuple[Shard, ...]:
    """Makes shards of the parts of some files, which are gone then.

    Args:
      folder: Of ``WriteParts``.
      target: Where the shards appear; made, and synced to the disk.
      prefix: Of their names.
      num_shards: As the parts were written with.
      files: Places of the files whose batches are taken.

    Returns:
      The shards; their paths begin with the name of ``target``.
    """
    target.mkdir(parents=True)
    paths = [target / f"{prefix}-{shard:05d}-of-{num_shards:05d}.gz" for shard in range(num_shards)]
    records = [0] * num_shards
    opened = [path.open("xb") for path in paths]
    try:
        for part in sorted(folder.glob(f"*{_PART_SUFFIX}")):
            if batch_position(int(part.name.partition("-")[0]))[0] not in files:
                continue
            content = memoryview(part.read_bytes())
            place = num_shards * _ENTRY.size
            for shard, (count, size) in enumerate(_ENTRY.iter_unpack(content[:place])):
                opened[shard].write(content[place : place + size])
                records[shard] += count
                place += size
            part.unlink()
        for file, count in zip(opened, records, strict=True):
            if not count:
                file.write(_gzip(np.zeros(0, np.uint8)))
            file.flush()
            os.fsync(file.fileno())
    finally:
        for file in opened:
            file.close()
    return tuple(
        Shard(path=f"{target.name}/{path.name}", records=count, size=path.stat().st_size)
        for path, count in zip(paths, records, strict=True)
    )


def _unkeyed(batch: pa.RecordBatch, unary: Mapping[str, pa.Array]) -> tuple[int, pa.RecordBatch]:
    """Takes the key out of a batch, or from beside it where the number of rows was changed."""
    index = batch.schema.get_field_index(BATCH_KEY)
    if index < 0:
        return int(unary[BATCH_KEY][0].as_py()[0]), batch
    columns = [column for i, column in enumerate(batch.columns) if i != index]
    key = int(batch.column(index)[0].as_py()[0])
    return key, pa.RecordBatch.from_arrays(columns, schema=batch.schema.remove(index))


def _encode(batch: pa.RecordBatch, schema: schema_pb2.Schema) -> pa.Array:
    """Returns a serialised tf.Example for each row (binary)."""
    if any(pa.types.is_large_list(field.type.value_type) for field in batch.schema):
        # Ragged tensors of several dimensions: tfx-bsl's encoder knows how the schema names their borders.
        return pa.array(example_coder.RecordBatchToExamplesEncoder(schema).encode(batch), pa.binary())
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return encode_examples(columns, batch.num_rows, named_missing_lists=True)


def _gzip(data: "npt.NDArray[Any]") -> bytes:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    return compressor.compress(data.data) + compressor.flush()
