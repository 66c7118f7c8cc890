"""The first half of the work, in any process: the rows of a unit, checked and grouped, go to the scratch folder."""

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.errors import RowError
from lockstep.components.example_gen.arrow_buffers import is_valid
from lockstep.components.example_gen.encoding import encode_examples
from lockstep.components.example_gen.gzip_parts import compress_part
from lockstep.components.example_gen.image_decoding import decoding_problem
from lockstep.components.example_gen.options import ColumnType, DataOptions, Requirements
from lockstep.components.example_gen.quarantine import rejected_line
from lockstep.components.example_gen.row_hash import random_words
from lockstep.components.example_gen.scratch_rows import (
    ORIGIN_FILE,
    ORIGIN_POSITION,
    RECORDS,
    Stretch,
    record_bytes,
    write_groups,
)
from lockstep.components.example_gen.source import Rejected, RowBatch, Source
from lockstep.components.example_gen.splits import NO_SPLIT, SplitRule

TRAIN = "train"  # the split of which the schema is made, and what Transform takes for its input

_CHUNK_BYTES = 64 << 20
_SAMPLE_ROWS = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadJob:
    """What is done with each unit.

    Args:
      source: Reads them.
      types: Of the columns wanted.
      data: The options.
      rule: Which split a row goes to.
      requirements: What the rows must have; its columns are there.
      num_buckets: Groups of each split into which the rows are dealt at random; 1 where the order is kept.
      scratch_dir: Where the rows are written; exists.
    """

    source: Source
    types: Mapping[str, ColumnType]
    data: DataOptions
    rule: SplitRule
    requirements: Requirements
    num_buckets: int
    scratch_dir: str


@dataclasses.dataclass(kw_only=True)
class UnitRows:
    """What came of a unit.

    Args:
      stretches: Its rows, each mapping a stretch of the unit: group -> rows. Group ``split * num_buckets + bucket``.
      rows: Of each split.
      missing: Column -> rows without a value, of those kept.
      dropped: Reason -> rows left out.
      valued: Required columns with a value in some row that is trained on.
      num_rejected: Rows in the quarantine file of the unit.
      notes: Kind of warning -> its text.
      schema: Of the stretches; None where there are none.
      size: Bytes of the records, about.
      sample: Bytes of some records by ``record_bytes``, and compressed.
    """

    stretches: list[dict[int, Stretch]] = dataclasses.field(default_factory=list)
    rows: npt.NDArray[np.int64]
    missing: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    dropped: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    valued: set[str] = dataclasses.field(default_factory=set)
    num_rejected: int = 0
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    schema: pa.Schema | None = None
    size: int = 0
    sample: tuple[int, int] = (0, 0)

    @property
    def num_rows(self) -> int:
        """All rows seen: kept, dropped and rejected."""
        return int(self.rows.sum()) + sum(self.dropped.values()) + self.num_rejected

    def add(self, later: "UnitRows") -> None:
        """Adds the counts and warnings of a later unit, but not its stretches."""
        self.rows = self.rows + later.rows
        self.missing.update(later.missing)
        self.dropped.update(later.dropped)
        self.valued |= later.valued
        self.num_rejected += later.num_rejected
        self.notes = later.notes | self.notes
        self.schema = self.schema or later.schema
        self.size += later.size
        self.sample = self.sample[0] + later.sample[0], self.sample[1] + later.sample[1]


def read_unit(job: ReadJob, task: tuple[int, Any]) -> UnitRows:
    """Reads a unit and writes its rows to the scratch folder.

    Args:
      job: What is done with each unit.
      task: The unit's number and the unit.

    Raises:
      RowError: A row cannot be used, with ``on_error: fail``.
      OSError: The scratch folder cannot be written to.
    """
    number, unit = task
    return _UnitReader(job, number).read(unit)


def rejected_path(scratch_dir: str, number: int) -> Path:
    """Returns the file of rows of a unit that cannot be used, if it has any."""
    return Path(scratch_dir, f"rejected-{number:07d}.jsonl")


class _UnitReader:
    def __init__(self, job: ReadJob, number: int) -> None:
        self._job = job
        self._number = number
        self._read = UnitRows(rows=np.zeros(len(job.data.splits), np.int64))
        self._batches: list[pa.RecordBatch] = []
        self._groups: list[npt.NDArray[np.int64]] = []
        self._size = 0
        self._num_rows = 0
        requirements = job.requirements
        if_present = [name for name in requirements.complete_if_present if name in job.types]
        weight = [] if requirements.weight_column is None else [requirements.weight_column]
        self._complete = dict.fromkeys([*requirements.complete_columns, *if_present, *weight])

    def read(self, unit: Any) -> UnitRows:
        rejected_path(self._job.scratch_dir, self._number).unlink(missing_ok=True)  # of a try that failed
        for batch in self._job.source.batches(unit, self._job.types):
            for key, note in batch.notes.items():
                self._read.notes.setdefault(key, note)
            self._reject(batch.rejected)
            self._take_in(self._with_images(self._with_weights(self._without_missing(batch))))
            if self._size >= _CHUNK_BYTES:
                self._write()
        self._write()
        return self._read

    def _take_in(self, batch: RowBatch) -> None:
        splits = self._job.rule.assign(batch)
        if (splits == NO_SPLIT).any():
            column = self._job.rule.time_column
            self._reject_rows(batch, splits == NO_SPLIT, f"column {column!r} has no value, and splits are by it", None)
            batch, splits = batch.filtered(splits != NO_SPLIT), splits[splits != NO_SPLIT]
        if not batch.num_rows:
            return
        read, names = self._read, list(self._job.data.splits)
        read.rows += np.bincount(splits, minlength=len(names))
        trained = splits == names.index(TRAIN) if TRAIN in names else np.ones(len(splits), np.bool_)
        for name, values in batch.columns.items():
            read.missing[name] += values.null_count
        for name in self._job.requirements.columns:
            if name not in read.valued and (is_valid(batch.columns[name]) & trained).any():
                read.valued.add(name)
        groups = splits
        if self._job.data.shuffle:
            words = random_words(self._num_rows, batch.num_rows, self._number)
            buckets = (words % np.uint64(self._job.num_buckets)).astype(np.int64)
            groups = splits * self._job.num_buckets + buckets
        self._num_rows += batch.num_rows
        columns = dict(batch.columns) if batch.records is None else {RECORDS: batch.records}
        size = record_bytes(columns, batch.num_rows)
        if self._job.data.target_shard_mb is not None and not read.sample[0]:
            read.sample = _sampled(columns, batch.num_rows, size)
        if self._job.data.keep_origin:
            files = [batch.path] * batch.num_rows if batch.files is None else list(batch.files)
            columns[ORIGIN_FILE] = pa.array(files, pa.string())
            columns[ORIGIN_POSITION] = pa.array(batch.positions)
        self._batches.append(pa.record_batch(list(columns.values()), list(columns)))
        self._groups.append(groups)
        self._size += size
        read.size += size

    def _write(self) -> None:
        if not self._batches:
            return
        batch = pa.Table.from_batches(self._batches).combine_chunks().to_batches()[0]
        path = Path(self._job.scratch_dir, f"rows-{self._number:07d}-{len(self._read.stretches):05d}")
        self._read.schema = batch.schema
        self._read.stretches.append(write_groups(batch, np.concatenate(self._groups), str(path), self._size))
        self._batches, self._groups, self._size = [], [], 0

    def _without_missing(self, batch: RowBatch) -> RowBatch:
        for name in self._complete:
            keep = is_valid(batch.columns[name])
            if not keep.all():
                self._reject_rows(batch, ~keep, f"column {name!r} has no value, and every row needs one", name)
                batch = batch.filtered(keep)
        return batch

    def _with_weights(self, batch: RowBatch) -> RowBatch:
        """Returns the rows whose weight is one."""
        name = self._job.requirements.weight_column
        if name is None or not batch.num_rows:
            return batch
        values = batch.columns[name]
        wrong = np.ones(batch.num_rows, np.bool_)
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            numbers = values.to_numpy(zero_copy_only=False)  # those without a value are gone
            wrong = ~(np.isfinite(numbers) & (numbers >= 0))
        if not wrong.any():
            return batch
        value = values[int(np.flatnonzero(wrong)[0])].as_py()
        shown = value.decode(errors="replace") if isinstance(value, bytes) else value
        reason = f"column {name!r} holds {shown}; a weight (train.weight_column) is a finite number of 0 or more"
        self._reject_rows(batch, wrong, reason, None)
        return batch.filtered(~wrong)

    def _with_images(self, batch: RowBatch) -> RowBatch:
        """Returns the rows whose images can be decoded; those that have none are not looked at."""
        wanted = self._job.requirements.images
        for name, channels in wanted.items():
            values = batch.columns[name]
            if not pa.types.is_binary(values.type):  # numbers, or several in a row: Transform says what to declare
                continue
            keep = np.ones(batch.num_rows, np.bool_)
            for row, value in enumerate(values):
                content = value.as_py()
                problem = decoding_problem(content, channels) if content else None
                if problem is not None:
                    keep[row] = False
                    reason = f"column {name!r}: an image that TensorFlow cannot decode ({problem}); mend or remove it"
                    self._reject_row(batch, row, reason, {n: v for n, v in batch.columns.items() if n not in wanted})
            batch = batch if keep.all() else batch.filtered(keep)
        return batch

    def _reject_rows(self, batch: RowBatch, rows: npt.NDArray[np.bool_], reason: str, column: str | None) -> None:
        places = np.flatnonzero(rows)
        if column is not None and self._job.requirements.on_missing == "drop":
            self._read.dropped[f"without {column}"] += len(places)
            return
        for row in places:
            self._reject_row(batch, int(row), reason, batch.hashed)

    def _reject_row(self, batch: RowBatch, row: int, reason: str, shown: Mapping[str, pa.Array]) -> None:
        path, position = batch.path if batch.files is None else batch.files[row], int(batch.positions[row])
        if self._job.data.on_error == "fail":
            raise RowError(f"{self._job.source.place(path, position)}: {reason}")
        raw = _shown({name: values[row].as_py() for name, values in shown.items()})
        self._reject([Rejected(path=path, position=position, reason=reason, raw=raw)])

    def _reject(self, rejected: Iterable[Rejected]) -> None:
        lines = [rejected_line(each, self._job.source.place(each.path, each.position)) for each in rejected]
        if lines:
            self._read.num_rejected += len(lines)
            with rejected_path(self._job.scratch_dir, self._number).open("ab") as file:
                file.writelines(lines)


def _sampled(columns: Mapping[str, pa.Array], num_rows: int, size: int) -> tuple[int, int]:
    few = {name: values.slice(0, _SAMPLE_ROWS) for name, values in columns.items()}
    num_few = min(num_rows, _SAMPLE_ROWS)
    records = few[RECORDS] if RECORDS in few else encode_examples(few, num_few)
    compressed = compress_part(b"".join(records.to_pylist()))
    return size * num_few // num_rows, len(compressed.data)


def _shown(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, default=_text).encode()


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
