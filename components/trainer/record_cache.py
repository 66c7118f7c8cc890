"""Parsed records, kept for later epochs in memory or on the disk: a round is there whole, or not at all.

A round that is not there is read from the files and then put there, so a cache changes what is quick and nothing else:
whatever a killed worker left, whoever goes on, at whichever step, reads the same records.
"""

import errno
import hashlib
import json
import logging
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lockstep.components.trainer.rounds import Rounds

_log = logging.getLogger(__name__)

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_HEADER_BYTES = 8
_WRITING = ".writing-"

Arrays = list["npt.NDArray[Any]"]
"""A round's columns, in the order of their names."""


class RecordCache(Protocol):
    """Rounds of parsed records."""

    def first_missing(self, number: int) -> int:
        """Returns the first round from ``number`` on that is not there; the number of rounds if all are."""

    def get(self, number: int) -> Arrays:
        """Returns a round that is there."""

    def put(self, number: int, columns: Arrays) -> None:
        """Keeps a round."""


class MemoryCache:
    """Keeps rounds in this process' memory; see `RecordCache`.

    Args:
      num_rounds: Of an epoch.
    """

    def __init__(self, num_rounds: int) -> None:
        self._num_rounds = num_rounds
        self._rounds: dict[int, Arrays] = {}

    def first_missing(self, number: int) -> int:
        """See `RecordCache`."""
        return next((i for i in range(number, self._num_rounds) if i not in self._rounds), self._num_rounds)

    def get(self, number: int) -> Arrays:
        """See `RecordCache`."""
        return self._rounds[number]

    def put(self, number: int, columns: Arrays) -> None:
        """See `RecordCache`."""
        if number not in self._rounds:
            self._rounds[number] = [np.array(column) for column in columns]


class DiskCache:
    """Keeps each virtual shard's part of each round in a file of its own; see `RecordCache`.

    Only the worker that is dealt a shard writes its files, each under a temporary name that becomes its own when it is
    whole. So workers never share one, and another number of workers finds what all of them left.

    Args:
      cache_dir: Of the training; made where missing. Below it a folder is named by what its files depend on.
      rounds: What is kept.
      identity: What else the records depend on.
      kinds: Type and shape without rows of each column, in the order of their names.

    Raises:
      OSError: The folder cannot be made, or the disk has not the room.
    """

    def __init__(
        self,
        cache_dir: Path,
        rounds: Rounds,
        *,
        identity: Sequence[object],
        kinds: Sequence[tuple["np.dtype[Any]", tuple[int, ...]]],
    ) -> None:
        self._rounds = rounds
        self._kinds = list(kinds)
        shapes = [(str(dtype), shape) for dtype, shape in kinds]
        content = [rounds.deal.files, rounds.deal.counts, len(rounds.deal.sizes), rounds.block, shapes, list(identity)]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        self._dirs = {shard: cache_dir / key / f"shard-{shard:05d}" for shard in rounds.shards}
        try:
            for folder in self._dirs.values():
                folder.mkdir(parents=True, exist_ok=True)
                for left in folder.glob(f"{_WRITING}*"):  # by a worker that was killed while it wrote
                    left.unlink()
        except OSError as e:
            raise _told(e, cache_dir) from e
        self._check_room(cache_dir)

    def first_missing(self, number: int) -> int:
        """See `RecordCache`."""
        for i in range(number, self._rounds.num_rounds):
            if not all(_is_whole(self._path(shard, i)) for shard in self._rounds.shards):
                return i
        return self._rounds.num_rounds

    def get(self, number: int) -> Arrays:
        """See `RecordCache`.

        Raises:
          OSError: A file changed since it was written; it is removed, so that it is read anew after a restart.
        """
        columns: Arrays = [
            np.full((self._rounds.num_rows, *shape), b"", np.object_)
            if dtype == np.object_
            else np.zeros((self._rounds.num_rows, *shape), dtype)
            for dtype, shape in self._kinds
        ]
        for shard in self._rounds.shards:
            path, place = self._path(shard, number), self._rounds.rows_of(shard)
            count = self._rounds.num_records(shard, number)
            try:
                parts = _decode(path.read_bytes(), self._kinds, count)
            except ValueError as e:
                path.unlink()
                raise OSError(f"train.cache: {path} was damaged ({e}) and is removed") from e
            for column, part in zip(columns, parts, strict=True):
                column[place][:count] = part
        return columns

    def put(self, number: int, columns: Arrays) -> None:
        """See `RecordCache`.

        Raises:
          OSError: It cannot be written (a full disk); nothing of it stays.
        """
        for shard in self._rounds.shards:
            path, place = self._path(shard, number), self._rounds.rows_of(shard)
            if _is_whole(path):
                continue
            count = self._rounds.num_records(shard, number)
            temporary_path = path.with_name(f"{_WRITING}{os.getpid()}-{path.name}")
            try:
                temporary_path.write_bytes(_encode([column[place][:count] for column in columns]))
                temporary_path.replace(path)
            except OSError as e:
                temporary_path.unlink(missing_ok=True)
                raise _told(e, path.parent) from e

    def _path(self, shard: int, number: int) -> Path:
        return self._dirs[shard] / f"{number:08d}"

    def _check_room(self, cache_dir: Path) -> None:
        """Raises OSError if it is known that the records do not fit; of texts only a guess is."""
        row = sum(int(np.prod(shape)) * dtype.itemsize for dtype, shape in self._kinds if dtype != np.object_)
        missing = sum(
            self._rounds.num_records(shard, i) * row
            for shard in self._rounds.shards
            for i in range(self._rounds.num_rounds)
            if not self._path(shard, i).exists()
        )
        state = os.statvfs(cache_dir)
        free = state.f_bavail * state.f_frsize
        if missing > free:
            problem = OSError(errno.ENOSPC, f"{missing >> 20:,} MiB are needed, and {free >> 20:,} MiB are free")
            raise _told(problem, cache_dir)


def _told(error: OSError, folder: Path) -> OSError:
    if error.errno not in _NO_SPACE:
        return error
    # The supervisor knows a full disk by these words.
    return OSError(
        error.errno,
        f"No space left on device: train.cache: disk: {error.strerror}; make room, or give train.cache: none",
        str(folder),
    )


def _is_whole(path: Path) -> bool:
    """Whether a file has the size that it says; after a power failure a file may be shorter than it was written."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(_HEADER_BYTES), "little")
            return os.fstat(file.fileno()).st_size == size
    except FileNotFoundError:
        return False


def _encode(columns: Arrays) -> bytes:
    """Returns a file: its size, the checksum of what follows, and each column's bytes; of texts the lengths first."""
    parts = []
    for column in columns:
        if column.dtype == np.object_:
            items = column.reshape(-1)
            parts.append(np.array([len(item) for item in items], np.int64).tobytes())
            parts.append(b"".join(items))
        else:
            parts.append(np.ascontiguousarray(column).tobytes())
    body = b"".join(parts)
    size = 2 * _HEADER_BYTES + len(body)
    return size.to_bytes(_HEADER_BYTES, "little") + zlib.crc32(body).to_bytes(_HEADER_BYTES, "little") + body


def _decode(content: bytes, kinds: Sequence[tuple["np.dtype[Any]", tuple[int, ...]]], count: int) -> Arrays:
    """Returns the columns of a file; raises ValueError if it is not whole."""
    body = memoryview(content)[2 * _HEADER_BYTES :]
    if len(content) != int.from_bytes(content[:_HEADER_BYTES], "little"):
        raise ValueError(f"{len(content)} bytes")
    if zlib.crc32(body) != int.from_bytes(content[_HEADER_BYTES : 2 * _HEADER_BYTES], "little"):
        raise ValueError("its checksum differs")
    columns: Arrays = []
    begin = 0
    for dtype, shape in kinds:
        num_values = count * int(np.prod(shape))
        if dtype == np.object_:
            lengths = np.frombuffer(body, np.int64, num_values, begin)
            ends = begin + lengths.nbytes + np.cumsum(lengths)
            starts = ends - lengths
            values = np.empty(num_values, np.object_)
            values[:] = [bytes(body[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            begin += lengths.nbytes + int(lengths.sum())
        else:
            values = np.frombuffer(body, dtype, num_values, begin)
            begin += values.nbytes
        columns.append(values.reshape(count, *shape))
    if begin != len(body):
        raise ValueError("its columns are others")
    return columns
