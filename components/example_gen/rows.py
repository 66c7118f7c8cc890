"""Rows outside a pipeline: raw rows to tf.Examples for prediction, Python values to an Examples folder for tests."""

import dataclasses
import logging
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from lockstep.components.errors import DataError
from lockstep.components.example_gen.arrow_casts import is_list
from lockstep.components.example_gen.encoding import encode_examples, frame_records
from lockstep.components.example_gen.files import format_of, split_path
from lockstep.components.example_gen.inputs import opened_input
from lockstep.components.example_gen.options import STORED, ColumnType, DataOptions
from lockstep.components.example_gen.shards import ShardFiles, compress_records
from lockstep.components.example_gen.sources import open_source
from lockstep.components.record_manifest import MANIFEST_NAME, Manifest, published_folder

_log = logging.getLogger(__name__)

Value = int | float | str | bytes | None | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bytes]


def read_examples(data: DataOptions, types: Mapping[str, ColumnType]) -> Iterator[list[bytes]]:
    """Gives the rows of a file, folder or glob as batches of serialised tf.Examples, every row in order.

    Args:
      data: Files, their format, and how they are read; its types tell which columns are times or lists; with
        ``on_error: quarantine`` rows that cannot be read are left out, each with a warning; splits and shards do not
        matter.
      types: The columns wanted; others in the files are left out. One that the files do not have is absent from every
        example, with a warning.

    Raises:
      DataError: No file, no rows, none of the columns, one whose type no feature has, or a value
        that does not have its type.
    """
    with opened_input(*split_path(data.path)) as found:
        yield from _read(found.files, found.root, data, types)


def _read(files: Sequence[str], root: str, data: DataOptions, types: Mapping[str, ColumnType]) -> Iterator[list[bytes]]:
    path = data.path
    undeclared = dataclasses.replace(data, types={}, time_formats={})
    source = open_source(files, undeclared, root)
    units = source.units()
    # All of it before the first row is given, so that no malformed row is met when some are out already.
    found = source.resolve([source.infer(unit) for unit in units])
    declared = _declared(data, types, found, is_text=(data.format or format_of(files)) in ("csv", "image_list"))
    if declared:
        formats = {name: text for name, text in data.time_formats.items() if name in declared}
        source = open_source(files, dataclasses.replace(data, types=declared, time_formats=formats), root)
        found = source.resolve([source.infer(unit) for unit in units])
    for name in types:
        if name in source.unreadable:
            raise DataError(source.unreadable[name])
    known = {name: _read_as(found[name], kind) for name, kind in types.items() if name in found}
    if not known:
        raise DataError(f"{path} has none of the columns {', '.join(types)} (columns: {', '.join(found)})")
    absent = [name for name in types if name not in known]
    if absent:
        _log.warning("%s has no column %s: missing in every row", path, ", ".join(absent))
    empty = True
    noted: set[str] = set()
    for batch in (batch for unit in units for batch in source.batches(unit, known)):
        for key, note in batch.notes.items():
            if key not in noted:
                noted.add(key)
                _log.warning("%s", note)
        for row in sorted(batch.rejected, key=operator.attrgetter("position")):
            _log.warning("left out: %s: %s", source.place(row.path, row.position), row.reason)
        if not batch.num_rows:
            continue
        empty = False
        yield encode_examples(batch.columns, batch.num_rows).to_pylist()
    if empty:
        raise DataError(f"{path}: no rows")


def _declared(
    data: DataOptions, types: Mapping[str, ColumnType], found: Mapping[str, ColumnType], *, is_text: bool
) -> dict[str, ColumnType]:
    """Returns the declared types of columns that are there; whole numbers are times already, without a format."""
    return {
        name: kind
        for name, kind in data.types.items()
        if name in types
        and name in found
        and (is_text or name in data.time_formats or kind not in ("timestamp", "date") or found[name] != "int")
    }


def _read_as(found: ColumnType, wanted: ColumnType) -> ColumnType:
    """Returns the type of a column of which the model wants one of the three types of a feature."""
    if STORED[found] == wanted:  # a time, a bool or a list of the very type
        return found
    return cast(ColumnType, f"list<{wanted}>") if is_list(found) else wanted


def write_examples(
    rows_by_split: Mapping[str, Iterable[Mapping[str, Value]]], folder: Path, num_shards: int = 1
) -> Manifest:
    """Writes Python values as the folder of an Examples artifact, whole or not at all, and returns its manifest.

    Args:
      rows_by_split: Split -> rows, each column -> int, float, str or bytes, or a sequence of them; None and an absent
        key are missing values. The order of rows is kept within a shard.
      folder: Made if absent.
      num_shards: Files a split.

    Raises:
      TypeError: A value is of another type.
    """
    with published_folder(folder) as staging:
        with ShardFiles(staging, dict.fromkeys(rows_by_split, num_shards)) as files:
            for split, rows in rows_by_split.items():
                framed = frame_records(pa.array([_example(row) for row in rows], pa.binary()))
                for shard in range(num_shards):
                    dealt = framed.take(pa.array(np.arange(shard, len(framed), num_shards)))
                    files.append(split, shard, len(dealt), compress_records(dealt))
        manifest = Manifest(shards=files.shards())
        (staging / MANIFEST_NAME).write_text(manifest.to_json())
    return manifest


def _example(row: Mapping[str, Value]) -> bytes:
    from tensorflow.core.example import example_pb2

    example = example_pb2.Example()
    for name, value in row.items():
        if value is None:
            continue
        values = list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
        feature = example.features.feature[name]
        if all(isinstance(item, int) for item in values):
            feature.int64_list.value.extend(values)
        elif all(isinstance(item, int | float) for item in values):
            feature.float_list.value.extend(values)
        elif all(isinstance(item, str | bytes) for item in values):
            feature.bytes_list.value.extend(item.encode() if isinstance(item, str) else item for item in values)
        else:
            raise TypeError(f"{name}: {value!r} is not an int, float, str or bytes, or a sequence of one of them")
    return bytes(example.SerializeToString(deterministic=True))
