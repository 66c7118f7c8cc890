"""The second half of the work, in any process: rows of the scratch folder to compressed records of a split's shards."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.example_gen.encoding import encode_examples, frame_records
from lockstep.components.example_gen.gzip_parts import GzipPart
from lockstep.components.example_gen.row_hash import random_words
from lockstep.components.example_gen.scratch_rows import (
    ORIGIN_FILE,
    ORIGIN_POSITION,
    RECORDS,
    Stretch,
    read_stretches,
)
from lockstep.components.example_gen.shards import compress_records, first_records

_RUN_BYTES = 48 << 20  # of records that are put into a random order at once
_MAX_OVERHEAD_BYTES = 64 << 20  # of a batch's records: the names of many columns are far longer than their values
_CELL_OVERHEAD_BYTES = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteJob:
    """What is done with each run.

    Args:
      schema: Of the rows in the scratch folder.
      shuffle: Whether the rows of a run are put into a random order.
    """

    schema: pa.Schema
    shuffle: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Rows that follow each other in a split.

    Args:
      split: Its index.
      number: Of the run, in the split.
      first_record: At which of the split's records the run begins.
      shard_begins: At which of the split's records each shard begins, and their number.
      stretches: Where the rows are.
    """

    split: int
    number: int
    first_record: int
    shard_begins: npt.NDArray[np.int64]
    stretches: Sequence[Stretch]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """Records of one shard.

    Args:
      split: The split's index.
      shard: The shard's.
      num_records: How many.
      content: Framed and compressed.
      origins: ``file`` and ``position`` of each; None where they are not kept.
    """

    split: int
    shard: int
    num_records: int
    content: GzipPart
    origins: pa.RecordBatch | None


def cut_runs(split: int, groups: Sequence[Sequence[Stretch]], num_shards: int, *, shuffle: bool) -> Iterator[Run]:
    """Gives the rows of a split as runs that each fit into memory.

    Args:
      split: Its index.
      groups: The stretches of each of its groups, in the order of the units. Shuffled, those of a group are taken in a
        random order, so that a run holds rows from all over the input.
      num_shards: Files of the split.
      shuffle: Whether the order of rows is random.
    """
    total = sum(stretch.num_rows for group in groups for stretch in group)
    begins = first_records(total, num_shards)
    first_record, number = 0, 0
    for index, group in enumerate(groups):
        ordered = list(group)
        if shuffle:
            ordered = [group[i] for i in np.argsort(random_words(0, len(group), index + 1), kind="stable")]
        while ordered:
            run: list[Stretch] = []
            size = 0
            while ordered and (not run or size + ordered[0].size <= _RUN_BYTES):
                size += ordered[0].size
                run.append(ordered.pop(0))
            yield Run(split=split, number=number, first_record=first_record, shard_begins=begins, stretches=run)
            first_record += sum(stretch.num_rows for stretch in run)
            number += 1


def write_run(job: WriteJob, run: Run) -> list[Part]:
    """Returns the records of a run, cut where a shard ends.

    Raises:
      OSError: The scratch folder cannot be read.
    """
    rows = read_stretches(run.stretches, job.schema)
    order = np.arange(rows.num_rows)
    if job.shuffle:
        order = np.argsort(random_words(0, rows.num_rows, (run.split << 24) + run.number + 1), kind="stable")
    last_record = run.first_record + rows.num_rows
    first_shard = int(np.searchsorted(run.shard_begins, run.first_record, side="right")) - 1
    parts = []
    for shard in range(first_shard, len(run.shard_begins) - 1):
        begin = max(run.first_record, int(run.shard_begins[shard]))
        end = min(last_record, int(run.shard_begins[shard + 1]))
        if begin >= last_record:
            break
        if begin == end:
            continue
        picked = rows.take(pa.array(order[begin - run.first_record : end - run.first_record]))
        parts.append(
            Part(
                split=run.split,
                shard=shard,
                num_records=end - begin,
                content=compress_records(_framed(picked)),
                origins=_origins(picked),
            )
        )
    return parts


def _framed(rows: pa.RecordBatch) -> pa.Array:
    columns = {
        name: rows.column(i)
        for i, name in enumerate(rows.schema.names)
        if name not in (ORIGIN_FILE, ORIGIN_POSITION, RECORDS)
    }
    if RECORDS in rows.schema.names:
        return frame_records(rows.column(rows.schema.get_field_index(RECORDS)))
    max_rows = max(1, _MAX_OVERHEAD_BYTES // max(1, sum(_CELL_OVERHEAD_BYTES + len(name.encode()) for name in columns)))
    framed = []
    for begin in range(0, rows.num_rows, max_rows):
        some = {name: values.slice(begin, max_rows) for name, values in columns.items()}
        framed.append(frame_records(encode_examples(some, min(max_rows, rows.num_rows - begin))))
    return framed[0] if len(framed) == 1 else pa.concat_arrays(framed)


def _origins(rows: pa.RecordBatch) -> pa.RecordBatch | None:
    if ORIGIN_FILE not in rows.schema.names:
        return None
    file, position = (rows.column(rows.schema.get_field_index(name)) for name in (ORIGIN_FILE, ORIGIN_POSITION))
    return pa.record_batch([file, position], ["file", "position"])
