"""From files to an Examples artifact's folder; knows nothing of TFX."""

import collections
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.errors import DataError, StepFailed
from lockstep.components.example_gen.arrow_buffers import is_valid
from lockstep.components.example_gen.encoding import encode_examples, frame_records
from lockstep.components.example_gen.options import ColumnType, DataOptions, Requirements
from lockstep.components.example_gen.row_hash import Hashes, hash_rows
from lockstep.components.example_gen.shards import ShardWriter
from lockstep.components.example_gen.source import RowBatch, Source, missing_column
from lockstep.components.example_gen.sources import open_source
from lockstep.components.record_manifest import MANIFEST_NAME, Manifest, published_folder

_log = logging.getLogger(__name__)
_progress = logging.getLogger("lockstep.progress")

_TRAIN = "train"  # the split of which the schema is made, and what Transform takes for its input
_PROGRESS_EVERY_S = 1.0
_MAX_OVERHEAD_BYTES = 64 << 20  # of a batch's records: the names of many columns are far longer than their values
_CELL_OVERHEAD_BYTES = 24
_NUM_THREADS = 2
_MAX_AHEAD = 2  # batches, some 30 MB each

_T = TypeVar("_T")
_U = TypeVar("_U")


def ingest(
    files: Sequence[str],
    data: DataOptions,
    folder: Path,
    requirements: Requirements,
    check_input: Callable[[], None] = lambda: None,
    root: str | None = None,
) -> Manifest:
    """Writes all rows as sharded TFRecords under ``folder``, whole or not at all; the same input gives the same bytes.

    A row goes to its split by the hash of its values (``row_hash``). Within a split the rows of a batch are put in the
    order of their hashes and dealt to the shards in turn: a light shuffle in bounded memory, so that a file sorted by
    label does not make shards of one label. The order between batches is that of the files.

    Args:
      files: Paths, in the order in which they are read.
      data: Splits, shards, declared types and how the text is read; ``path`` is not used.
      folder: The artifact's; made if absent.
      requirements: Checked before anything is written, and on every row.
      check_input: Raises if the files changed since the reading began. Called when all rows are read, before anything
        is published, and before a fault in the data is told, which may be but two versions of a file.
      root: The folder that the files were found in; None is the deepest one that holds them all.

    Raises:
      DataError: The input cannot be used.
      StepFailed: There is no space left, or ``check_input`` says so.
    """
    try:
        source = open_source(files, data, root)
        units = source.units()
        types = source.resolve(source.infer(unit) for unit in units)
        _check_columns(source, requirements, files[0])
        tally = _Tally(source, requirements)
        with published_folder(folder) as staging:
            with ShardWriter(staging, tuple(data.splits), data.num_shards) as writer:
                _write_rows(source, units, types, data, tally, writer)
                tally.check(files, {name: sum(s.records for s in shards) for name, shards in writer.shards().items()})
            manifest = Manifest(
                shards=writer.shards(), types=types, missing=dict(tally.missing), dropped=dict(tally.dropped)
            )
            (staging / MANIFEST_NAME).write_text(manifest.to_json())
            check_input()
    except StepFailed:
        raise
    except Exception:
        check_input()
        raise
    return manifest


def assign_splits(hashes: Hashes, weights: Sequence[int]) -> npt.NDArray[np.int64]:
    """Returns the index of each row's split: the hash modulo the sum of the weights, laid along them."""
    buckets = (hashes % np.uint64(sum(weights))).astype(np.int64)
    return np.searchsorted(np.cumsum(weights), buckets, side="right")


def _check_columns(source: Source, requirements: Requirements, path: str) -> None:
    weight = [] if requirements.weight_column is None else [requirements.weight_column]
    required = (*requirements.columns, *requirements.complete_columns, *weight)
    for name in (*required, *requirements.complete_if_present):
        if name in source.unreadable:
            raise DataError(source.unreadable[name])
    for name in required:
        if name not in source.columns:
            raise DataError(missing_column(name, path, source.columns))
    for problem in source.unreadable.values():
        _log.warning("%s; it is left out", problem)


def _write_rows(
    source: Source,
    units: Sequence[Any],
    types: Mapping[str, ColumnType],
    data: DataOptions,
    tally: "_Tally",
    writer: ShardWriter,
) -> None:
    max_rows = max(1, _MAX_OVERHEAD_BYTES // max(1, sum(_CELL_OVERHEAD_BYTES + len(name.encode()) for name in types)))
    parts = (
        part for unit in units for batch in source.batches(unit, types) for part in tally.kept(batch).parts(max_rows)
    )
    for records in _map_ahead(lambda part: _records(part, data, tally.required), parts):
        tally.valued |= records.valued
        for split, order in records.order.items():
            writer.write(split, records.framed, order)


@dataclasses.dataclass(frozen=True)
class _Records:
    """A batch as records in TFRecord framing, and each split's rows in the order in which they are written.

    ``valued`` are the required columns that have a value in some row of the batch that is trained on.
    """

    framed: pa.Array
    order: dict[str, npt.NDArray[np.int64]]
    valued: frozenset[str]


def _records(batch: RowBatch, data: DataOptions, required: Sequence[str]) -> _Records:
    hashes = hash_rows(batch.hashed.items(), batch.num_rows)
    splits = tuple(data.splits)
    assigned = assign_splits(hashes, tuple(data.splits.values()))
    framed = frame_records(encode_examples(batch.columns, batch.num_rows) if batch.records is None else batch.records)
    # By the high bits: the low ones tell the split, and would be alike within it.
    order = np.argsort(hashes >> np.uint64(16), kind="stable")
    trained = assigned == splits.index(_TRAIN) if _TRAIN in splits else np.ones(batch.num_rows, np.bool_)
    valued = frozenset(name for name in required if (is_valid(batch.columns[name]) & trained).any())
    return _Records(framed, {split: order[assigned[order] == index] for index, split in enumerate(splits)}, valued)


def _map_ahead(function: Callable[[_T], _U], items: Iterable[_T]) -> Iterator[_U]:
    """Gives the function's results in order; up to ``_MAX_AHEAD`` are computed in other threads meanwhile.

    NumPy and Arrow release Python's lock for most of their time.
    """
    with ThreadPoolExecutor(_NUM_THREADS, "encode") as pool:
        running: collections.deque[Future[_U]] = collections.deque()
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > _MAX_AHEAD:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


class _Tally:
    """Counts rows, applies the requirements to each batch, and says how far the reading is."""

    def __init__(self, source: Source, requirements: Requirements) -> None:
        self._source = source
        self._on_missing = requirements.on_missing
        if_present = [name for name in requirements.complete_if_present if name in source.columns]
        self._weight = requirements.weight_column
        weight = [] if self._weight is None else [self._weight]
        self._complete = dict.fromkeys([*requirements.complete_columns, *if_present, *weight])
        self._rows = 0
        self._noted: set[str] = set()
        self._reported_at = time.monotonic()
        self.required = requirements.columns
        self.valued: frozenset[str] = frozenset()
        self.missing: collections.Counter[str] = collections.Counter()
        self.dropped: collections.Counter[str] = collections.Counter()

    def kept(self, batch: RowBatch) -> RowBatch:
        for key, note in batch.notes.items():
            if key not in self._noted:
                self._noted.add(key)
                _log.warning("%s", note)
        if batch.rejected:
            self.dropped["not usable"] += len(batch.rejected)
        for name in self._complete:
            if batch.columns[name].null_count:
                batch = self._without_missing(batch, name)
        if self._weight is not None:
            self._check_weights(batch, self._weight)
        for name, values in batch.columns.items():
            self.missing[name] += values.null_count
        self._rows += batch.num_rows
        if time.monotonic() - self._reported_at > _PROGRESS_EVERY_S:
            self._reported_at = time.monotonic()
            _progress.info("%s rows", f"{self._rows:,}")
        return batch

    def check(self, files: Sequence[str], rows: dict[str, int]) -> None:
        if not self._rows:
            lost = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
            raise DataError(f"{', '.join(files[:3])}: no rows" + (f" are left ({lost})" if lost else ""))
        for split, count in rows.items():
            if not count:
                raise DataError(
                    f"the split {split!r} is empty: none of {self._rows} rows came to it; "
                    "give more rows, other weights in data.splits, or leave the split out"
                )
        for name in self.required:
            if name not in self.valued:
                # SchemaGen would not list it, and Transform then say that the data have no such column.
                of_split = f" of the split {_TRAIN!r}" if _TRAIN in rows and self.missing[name] < self._rows else ""
                raise DataError(
                    f"column {name!r} has no value in any row{of_split}; leave it out of features (and evaluate.slices)"
                )
        for name, count in self.missing.items():
            if count == self._rows:
                _log.warning("column %r has no value in any row; its feature is absent from all examples", name)
        for reason, count in self.dropped.items():
            _log.warning("%d rows dropped: %s", count, reason)

    def _check_weights(self, batch: RowBatch, name: str) -> None:
        values = batch.columns[name]
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            numbers = values.to_numpy(zero_copy_only=False)  # those without a value are gone, or the run has ended
            wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        else:
            wrong = np.arange(len(values))
        if len(wrong):
            value = values[int(wrong[0])].as_py()
            shown = value.decode(errors="replace") if isinstance(value, bytes) else value
            raise DataError(
                f"{self._source.place(batch.path, int(batch.positions[wrong[0]]))}: column {name!r} holds {shown}; "
                "a weight (train.weight_column) is a finite number of 0 or more"
            )

    def _without_missing(self, batch: RowBatch, name: str) -> RowBatch:
        keep = is_valid(batch.columns[name])
        if self._on_missing == "error":
            where = self._source.place(batch.path, int(batch.positions[~keep][0]))
            raise DataError(f"{where}: column {name!r} has no value, and every row needs one")
        self.dropped[f"without {name}"] += int((~keep).sum())
        return batch.filtered(keep)
