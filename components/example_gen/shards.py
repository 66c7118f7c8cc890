"""Sharded gzip TFRecords of several splits, of parts that are compressed elsewhere."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.example_gen.arrow_buffers import binary_buffers
from lockstep.components.example_gen.gzip_parts import GzipPart, GzipWriter, compress_part
from lockstep.components.record_manifest import Shard


class ShardFiles:
    """The files of all splits, each written from its begin to its end, one file of a split at a time.

    Use as a context manager: on leaving the block all files are complete and on disk.

    Args:
      folder: Where ``Split-<name>`` folders are made; exists.
      num_shards: Split -> its files, 1 or more.
    """

    def __init__(self, folder: Path, num_shards: Mapping[str, int]) -> None:
        self._folder = folder
        self._counts = {split: [0] * number for split, number in num_shards.items()}
        self._open: dict[str, tuple[int, IO[bytes], GzipWriter]] = {}

    def __enter__(self) -> "ShardFiles":
        for split in self._counts:
            (self._folder / f"Split-{split}").mkdir()
            self._begin(split, 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for split, counts in self._counts.items():
                    self._go_to(split, len(counts))
        finally:
            for each in self._open.values():
                with contextlib.suppress(OSError):  # what could not be flushed is being reported
                    each[1].close()

    def append(self, split: str, shard: int, num_records: int, part: GzipPart) -> None:
        """Adds records, in TFRecord framing and compressed, to a split's file: the same as before or a later one.

        Raises:
          OSError: The file cannot be written.
        """
        self._go_to(split, shard)
        self._counts[split][shard] += num_records
        self._open[split][2].write(part)

    def _go_to(self, split: str, shard: int) -> None:
        while self._open[split][0] < shard:
            i, file, writer = self._open[split]
            writer.finish()
            file.flush()
            os.fsync(file.fileno())
            file.close()
            if i + 1 == len(self._counts[split]):
                return
            self._begin(split, i + 1)

    def _begin(self, split: str, shard: int) -> None:
        file = (self._folder / self._name(split, shard)).open("xb")
        self._open[split] = shard, file, GzipWriter(file)

    def shards(self) -> dict[str, tuple[Shard, ...]]:
        """Returns split -> its files with the records written; to be called when the block was left."""
        return {
            split: tuple(self._shard(split, i, count) for i, count in enumerate(counts))
            for split, counts in self._counts.items()
        }

    def _shard(self, split: str, i: int, count: int) -> Shard:
        path = self._name(split, i)
        return Shard(path=path, records=count, size=(self._folder / path).stat().st_size)

    def _name(self, split: str, i: int) -> str:
        return shard_name(split, i, len(self._counts[split]))


def shard_name(split: str, i: int, num_shards: int) -> str:
    """Returns the name of a split's file ``i``, under the artifact's folder."""
    return f"Split-{split}/data_tfrecord-{i:05d}-of-{num_shards:05d}.gz"


def first_records(num_records: int, num_shards: int) -> npt.NDArray[np.int64]:
    """Returns at which of a split's records each of its files begins, and the number of all; files differ by one."""
    return np.arange(num_shards + 1, dtype=np.int64) * num_records // num_shards


def compress_records(framed: pa.Array) -> GzipPart:
    """Returns records in TFRecord framing (binary) as a part of a file."""
    data, _ = binary_buffers(framed)
    return compress_part(data.data)
