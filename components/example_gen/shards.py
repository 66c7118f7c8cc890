"""Sharded gzip TFRecords of several splits, written while the records come."""

import contextlib
import os
import zlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.example_gen.arrow_buffers import binary_buffers
from lockstep.components.record_manifest import Shard

_GZIP_LEVEL = 1  # level 6 takes three times as long for a tenth less
_GZIP_WBITS = 31  # zlib writes a gzip header without name or time, so equal records give equal files
_NUM_THREADS = 2  # compression releases Python's lock
_MAX_WAITING = 16  # parts of a batch between encoding and disk, some MB each


class ShardWriter:
    """Deals records to the files of their split; compresses and writes in threads of its own.

    Records go to a split's files in turn, so that the files differ by at most one record. Use as a context manager:
    on leaving the block all files are complete and on disk. ``write`` blocks while too much waits to be written.

    Args:
      folder: Where ``Split-<name>`` folders are made; exists.
      splits: Their names.
      num_shards: Files of each split, 1 or more.
    """

    def __init__(self, folder: Path, splits: Sequence[str], num_shards: int) -> None:
        self._folder = folder
        self._counts = {split: [0] * num_shards for split in splits}
        self._files: dict[str, list[_GzipFile]] = {}
        self._threads = [ThreadPoolExecutor(1, "shards") for _ in range(_NUM_THREADS)]
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> "ShardWriter":
        for split, counts in self._counts.items():
            (self._folder / f"Split-{split}").mkdir()
            self._files[split] = [_GzipFile(self._folder / self._name(split, i)) for i in range(len(counts))]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._submit_all_finished()
        finally:
            for thread in self._threads:
                thread.shutdown(wait=True, cancel_futures=True)
            for file in (file for files in self._files.values() for file in files):
                file.abandon()

    def write(self, split: str, framed: pa.Array, order: npt.NDArray[np.int64]) -> None:
        """Adds records to ``split``.

        Args:
          split: One of the splits.
          framed: Records in TFRecord framing (binary).
          order: Which of them, and in which order.

        Raises:
          OSError: A file cannot be written, perhaps of an earlier call.
        """
        counts = self._counts[split]
        begin = sum(counts) % len(counts)
        for i, file in enumerate(self._files[split]):
            rows = order[(i - begin) % len(counts) :: len(counts)]
            if len(rows):
                data, _ = binary_buffers(framed.take(pa.array(rows)))
                counts[i] += len(rows)
                self._submit(i, file.write, data)

    def shards(self) -> dict[str, tuple[Shard, ...]]:
        """Returns split -> its files with the records written so far; the sizes are final when all is written."""
        return {
            split: tuple(self._shard(split, i, count) for i, count in enumerate(counts))
            for split, counts in self._counts.items()
        }

    def _shard(self, split: str, i: int, count: int) -> Shard:
        path = self._name(split, i)
        return Shard(path=path, records=count, size=(self._folder / path).stat().st_size)

    def _name(self, split: str, i: int) -> str:
        return f"Split-{split}/data_tfrecord-{i:05d}-of-{len(self._counts[split]):05d}.gz"

    def _submit(self, shard: int, action: Any, *arguments: Any) -> None:
        # A shard always goes to the same thread: its parts stay in order.
        self._waiting.append(self._threads[shard % len(self._threads)].submit(action, *arguments))
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft().result()

    def _submit_all_finished(self) -> None:
        for files in self._files.values():
            for i, file in enumerate(files):
                self._submit(i, file.finish)
        while self._waiting:
            self._waiting.popleft().result()


class _GzipFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)

    def write(self, data: "np.ndarray[Any, Any]") -> None:
        self._file.write(self._compressor.compress(data.data))

    def finish(self) -> None:
        self._file.write(self._compressor.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # what could not be flushed has been reported by the write that failed
            self._file.close()
