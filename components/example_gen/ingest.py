"""From files to an Examples artifact's folder; knows nothing of TFX."""

import dataclasses
import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.components.errors import DataError, RowError, StepFailed
from lockstep.components.example_gen.columns import TypeInference
from lockstep.components.example_gen.options import ColumnType, DataOptions, Requirements
from lockstep.components.example_gen.process_pool import ThisProcess, Workers
from lockstep.components.example_gen.quarantine import check_bad_rows, write_quarantine
from lockstep.components.example_gen.record_origins import OriginWriter
from lockstep.components.example_gen.record_parts import Run, WriteJob, cut_runs, write_run
from lockstep.components.example_gen.row_reader import TRAIN, ReadJob, UnitRows, read_unit, rejected_path
from lockstep.components.example_gen.scratch_rows import Stretch
from lockstep.components.example_gen.shards import ShardFiles, shard_name
from lockstep.components.example_gen.source import Source, missing_column
from lockstep.components.example_gen.sources import open_source
from lockstep.components.example_gen.splits import TIME_TYPES, SplitRule, TimeQuantiles, split_rule, time_quantiles
from lockstep.components.record_manifest import MANIFEST_NAME, Manifest, published_folder

_log = logging.getLogger(__name__)
_progress = logging.getLogger("lockstep.progress")

_PROGRESS_EVERY_S = 1.0
_SMALL_INPUT_BYTES = 8 << 20  # read before other processes have started
_BUCKET_BYTES = 8 << 20  # of input; a bucket is read back at once, unless it is far larger than this
_MAX_BUCKETS = 128
_MAX_STRETCHES = 500_000  # they are kept in memory
_MAX_SHARDS = 99_999
_MARK = 9_007_199_254_740_881  # a position that no text holds by chance


def ingest(
    files: Sequence[str],
    data: DataOptions,
    folder: Path,
    requirements: Requirements,
    check_input: Callable[[], None] = lambda: None,
    root: str | None = None,
    *,
    split_of: Mapping[str, str] | None = None,
    workers: Workers | None = None,
) -> Manifest:
    """Writes all rows as sharded TFRecords under ``folder``, whole or not at all; the same input gives the same bytes.

    The workers read the units of the input twice: first for the types of the columns, then for the rows, which go,
    typed, checked, and dealt into splits and buckets at random, to a scratch folder. Then each bucket is put into a
    random order, encoded and compressed. So a file sorted by label is mixed throughout, in bounded memory.

    Args:
      files: Paths, in the order in which they are read.
      data: Splits, shards, declared types and how the text is read; ``path`` is not used.
      folder: The artifact's; made if absent.
      requirements: Checked before anything is written, and on every row.
      check_input: Raises if the files changed since the reading began. Called when all rows are read, before anything
        is published, and before a fault in the data is told, which may be but two versions of a file.
      root: The folder that the files were found in; None is the deepest one that holds them all.
      split_of: File -> split, with ``data.split_by.paths``.
      workers: Who does the work; this process where none are given. They are not closed.

    Raises:
      DataError: The input cannot be used.
      StepFailed: There is no space left, a worker was killed, or ``check_input`` says so.
    """
    ingestion = _Ingestion(files, root, data, requirements, split_of or {}, workers or ThisProcess())
    try:
        with published_folder(folder) as staging:
            manifest = ingestion.write(staging)
            check_input()
    except StepFailed:
        raise
    except RowError as e:
        check_input()
        raise DataError(f"{e}; or leave such rows out and count them: data.on_error: quarantine") from e
    except Exception:
        check_input()
        raise
    return manifest


class _Ingestion:
    """The steps of ``ingest``."""

    def __init__(
        self,
        files: Sequence[str],
        root: str | None,
        data: DataOptions,
        requirements: Requirements,
        split_of: Mapping[str, str],
        workers: Workers,
    ) -> None:
        self._files = files
        self._root = root
        self._data = data
        self._requirements = requirements
        self._split_of = split_of
        self._input_bytes = sum(Path(path).stat().st_size for path in files)
        self._workers = ThisProcess() if self._input_bytes < _SMALL_INPUT_BYTES else workers

    def write(self, staging: Path) -> Manifest:
        """Fills the folder of the artifact."""
        scratch = staging / ".rows"
        scratch.mkdir()
        self._workers = self._workers.within(scratch)
        source = open_source(self._files, self._data, self._root)
        units = list(source.units())
        types = source.resolve(self._workers.map(_infer, source, units))
        _check_columns(source, types, self._requirements, self._files[0])
        rule = self._split_rule(source, units, types)
        job = ReadJob(
            source=source,
            types=types,
            data=self._data,
            rule=rule,
            requirements=self._requirements,
            num_buckets=self._num_buckets(len(units)) if self._data.shuffle else 1,
            scratch_dir=str(scratch),
        )
        total, groups = self._read(job, units)
        self._check(total)
        num_shards = self._num_shards(total)
        self._write_shards(staging, source, groups, total, num_shards)
        write_quarantine((rejected_path(str(scratch), i) for i in range(len(units))), staging)
        shutil.rmtree(scratch)
        manifest = Manifest(
            shards=self._shards,
            types=types,
            time_zone=self._data.time_zone,
            time_formats=self._data.time_formats,
            list_separator=self._data.list_separator,
            missing=dict(total.missing),
            dropped=dict(total.dropped),
            quarantined=total.num_rejected,
        )
        (staging / MANIFEST_NAME).write_text(manifest.to_json())
        return manifest

    def _split_rule(self, source: Source, units: Sequence[Any], types: Mapping[str, ColumnType]) -> SplitRule:
        quantiles: list[TimeQuantiles] = []
        by = self._data.split_by
        if not by.until and types.get(by.time) in TIME_TYPES:
            job = _TimeJob(source, by.time, types[by.time])
            quantiles = list(self._workers.map(_times, job, units))
        return split_rule(self._data, types, quantiles, self._split_of, self._files[0])

    def _num_buckets(self, num_units: int) -> int:
        most = max(1, _MAX_STRETCHES // max(1, num_units * len(self._data.splits)))
        return max(1, min(math.ceil(self._input_bytes / _BUCKET_BYTES), _MAX_BUCKETS, most))

    def _read(self, job: ReadJob, units: Sequence[Any]) -> tuple[UnitRows, list[list[Stretch]]]:
        """Returns all counts together, and the rows of each group."""
        total = UnitRows(rows=np.zeros(len(self._data.splits), np.int64))
        groups: list[list[Stretch]] = [[] for _ in range(len(self._data.splits) * job.num_buckets)]
        first_rejected: Path | None = None
        reported_at = time.monotonic()
        for number, read in enumerate(self._workers.map(read_unit, job, list(enumerate(units)))):
            for key, note in read.notes.items():
                if key not in total.notes:
                    _log.warning("%s", note)
            total.add(read)
            for stretches in read.stretches:
                for group, stretch in stretches.items():
                    groups[group].append(stretch)
            if read.num_rejected and first_rejected is None:
                first_rejected = rejected_path(job.scratch_dir, number)
            limit = self._data.max_bad_rows
            if limit is not None and limit >= 1:  # a share is known at the end only
                check_bad_rows(total.num_rejected, total.num_rows, limit, first_rejected)
            if time.monotonic() - reported_at > _PROGRESS_EVERY_S:
                reported_at = time.monotonic()
                _progress.info("%s rows", f"{int(total.rows.sum()):,}")
        check_bad_rows(total.num_rejected, total.num_rows, self._data.max_bad_rows, first_rejected)
        return total, groups

    def _num_shards(self, total: UnitRows) -> dict[str, int]:
        target_mb = self._data.target_shard_mb
        if target_mb is None:
            return dict.fromkeys(self._data.splits, self._data.num_shards)
        size, compressed = total.sample
        row_bytes = total.size / max(1, int(total.rows.sum())) * compressed / max(1, size)
        return {
            split: min(_MAX_SHARDS, max(1, round(int(rows) * row_bytes / (target_mb << 20))))
            for split, rows in zip(self._data.splits, total.rows, strict=True)
        }

    def _write_shards(
        self,
        staging: Path,
        source: Source,
        groups: Sequence[Sequence[Stretch]],
        total: UnitRows,
        num_shards: Mapping[str, int],
    ) -> None:
        assert total.schema is not None
        names = list(self._data.splits)
        each = len(groups) // len(names)
        runs: list[Run] = []
        for index, name in enumerate(names):
            mine = groups[index * each : (index + 1) * each]
            runs += cut_runs(index, mine, num_shards[name], shuffle=self._data.shuffle)
        job = WriteJob(schema=total.schema, shuffle=self._data.shuffle)
        place = source.place("{path}", _MARK).replace(str(_MARK), "{position}")
        written = 0
        reported_at = time.monotonic()
        with ShardFiles(staging, num_shards) as files, OriginWriter(staging, place) as origins:
            for parts in self._workers.map(write_run, job, runs):
                for part in parts:
                    name = names[part.split]
                    files.append(name, part.shard, part.num_records, part.content)
                    written += part.num_records
                    if part.origins is not None:
                        origins.append(shard_name(name, part.shard, num_shards[name]), part.origins)
                if time.monotonic() - reported_at > _PROGRESS_EVERY_S:
                    reported_at = time.monotonic()
                    _progress.info("%s rows written", f"{written:,}")
        self._shards = files.shards()

    def _check(self, total: UnitRows) -> None:
        num_rows = int(total.rows.sum())
        lost = [f"{count} {reason}" for reason, count in total.dropped.items()]
        lost += [f"{total.num_rejected} that cannot be used"] if total.num_rejected else []
        if not num_rows:
            raise DataError(
                f"{', '.join(self._files[:3])}: no rows" + (f" are left ({', '.join(lost)})" if lost else "")
            )
        for split, count in zip(self._data.splits, total.rows, strict=True):
            if not count:
                raise DataError(
                    f"the split {split!r} is empty: none of {num_rows} rows came to it; give more rows, other weights "
                    "in data.splits (or data.split_by), or leave the split out"
                )
        for name in self._requirements.columns:
            if name not in total.valued:
                # SchemaGen would not list it, and Transform then say that the data have no such column.
                elsewhere = TRAIN in self._data.splits and total.missing[name] < num_rows
                of_split = f" of the split {TRAIN!r}" if elsewhere else ""
                raise DataError(
                    f"column {name!r} has no value in any row{of_split}; leave it out of features (and evaluate.slices)"
                )
        for name, count in total.missing.items():
            if count == num_rows:
                _log.warning("column %r has no value in any row; its feature is absent from all examples", name)
        for reason, count in total.dropped.items():
            _log.warning("%d rows dropped: %s", count, reason)
        if total.num_rejected:
            _log.warning("%d rows cannot be used; they are kept in quarantine beside the examples", total.num_rejected)


@dataclasses.dataclass(frozen=True)
class _TimeJob:
    source: Source
    column: str
    kind: ColumnType


def _infer(source: Source, unit: Any) -> Mapping[str, TypeInference]:
    return source.infer(unit)


def _times(job: _TimeJob, unit: Any) -> TimeQuantiles:
    return time_quantiles(batch.columns[job.column] for batch in job.source.batches(unit, {job.column: job.kind}))


def _check_columns(source: Source, types: Mapping[str, ColumnType], requirements: Requirements, path: str) -> None:
    weight = [] if requirements.weight_column is None else [requirements.weight_column]
    required = (*requirements.columns, *requirements.complete_columns, *weight)
    for name in (*required, *requirements.complete_if_present, *requirements.images):
        if name in source.unreadable:
            raise DataError(source.unreadable[name])
    for name in (*required, *requirements.images):
        if name not in types:
            raise DataError(missing_column(name, path, list(types)))
    for problem in source.unreadable.values():
        _log.warning("%s; it is left out", problem)
