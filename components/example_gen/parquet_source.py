"""Rows of Parquet files, as typed Arrow columns."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.components.errors import DataError
from lockstep.components.example_gen.arrow_casts import is_any_list, is_text
from lockstep.components.example_gen.cells import RawRows, RowConverter
from lockstep.components.example_gen.columns import TypeInference
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.partitions import Partitions
from lockstep.components.example_gen.source import FaultList, RowBatch, missing_column

_BATCH_ROWS = 32_768
_BATCH_BYTES = 32 << 20
_UNIT_BYTES = 32 << 20
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_LISTS: Mapping[ColumnType, ColumnType] = {
    "int": "list<int>",
    "bool": "list<int>",
    "float": "list<float>",
    "string": "list<string>",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowGroups:
    """Row groups ``begin`` to ``end`` of one file; ``first_row`` counts from 0."""

    path: str
    begin: int
    end: int
    first_row: int


class ParquetSource:
    """Reads Parquet files in bounded memory; the files' own types are the columns' types.

    Booleans become 0 and 1, dates and timestamps seconds since 1970 in UTC, decimals floats, NaN missing. A column that
    is int in one file and float in another is float in all, and one that is a list in one is a list in all. Columns of
    other types, such as structs and lists of lists, are ``unreadable``. A folder ``key=value`` below ``root`` makes a
    column of that name, unless the files have one.

    Args:
      files: Paths; all have the same columns, in any order.
      data: Declared types, and how times are read.
      root: The folder that the files were found in.

    Raises:
      DataError: On construction, when a file or no column can be used.
    """

    def __init__(self, files: Sequence[str], data: DataOptions, root: str) -> None:
        self._declared = data.types
        self._cells = data.cells
        self._on_error = data.on_error
        self._schemas = {path: _schema(path) for path in files}
        first = files[0]
        stored = tuple(name for name in self._schemas[first].names if not _PANDAS_INDEX.fullmatch(name))
        if len(set(stored)) < len(stored):
            raise DataError(f"{first}: a column name occurs more than once: {', '.join(stored)}")
        for path, schema in self._schemas.items():
            differing = {name for name in schema.names if not _PANDAS_INDEX.fullmatch(name)} ^ set(stored)
            if differing:
                names = ", ".join(sorted(differing))
                raise DataError(f"{path}: its columns are not those of {first}; only in one: {names}")
        self._partitions = Partitions(files, root, besides=stored)
        self.unreadable: Mapping[str, str] = {
            name: problem
            for path, schema in reversed(self._schemas.items())  # so that the first file's problem stays
            for name in stored
            if (problem := _why_unreadable(path, schema.field(name)))
        }
        columns = (*stored, *self._partitions.columns)
        self.columns = tuple(name for name in columns if name not in self.unreadable)
        if columns and not self.columns:
            raise DataError(self.unreadable[columns[0]])
        for name in self._declared:
            if name in self.unreadable:
                raise DataError(self.unreadable[name])
            if name not in columns:
                raise DataError(f"data.types.{name}: {missing_column(name, first, columns)}")

    def units(self) -> Sequence[RowGroups]:
        """Returns the rows of all files as row groups, small neighbours together."""
        units: list[RowGroups] = []
        for path in self._schemas:
            try:
                metadata = pq.read_metadata(path)
            except (pa.ArrowException, OSError) as e:
                raise DataError(f"{path}: cannot be read: {e}") from e
            first_row, begin, row, size = 0, 0, 0, 0
            for i in range(metadata.num_row_groups):
                group = metadata.row_group(i)
                size, row = size + group.total_byte_size, row + group.num_rows
                if size >= _UNIT_BYTES or i + 1 == metadata.num_row_groups:
                    units.append(RowGroups(path=path, begin=begin, end=i + 1, first_row=first_row))
                    begin, first_row, size = i + 1, row, 0
        return units

    def infer(self, unit: RowGroups) -> Mapping[str, TypeInference]:
        """Returns nothing: the schema tells the types."""
        return {}

    def resolve(self, found: Iterable[Mapping[str, TypeInference]]) -> dict[str, ColumnType]:
        """Returns the type of each column, declared or the files'.

        Raises:
          DataError: A column differs between files beyond int and float.
        """
        for _ in found:
            pass
        types = dict(self._partitions.types)
        for name in self.columns:
            if name in self._declared:
                types[name] = self._declared[name]
            elif name not in types:
                types[name] = self._common_type(name)
        return {name: types[name] for name in self.columns}

    def batches(self, unit: RowGroups, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the rows of some row groups.

        Args:
          unit: One of ``units()``.
          types: Of the columns wanted.

        Raises:
          DataError: A value does not have its type, or a file is corrupt, with ``on_error: fail``.
        """
        faults = FaultList(self._on_error, self.place)
        rows = RowConverter(types, self._cells, faults, self.place, lambda name: f"declare data.types.{name}")
        stored = [name for name in types if name not in self._partitions.columns]
        first = unit.first_row + 1
        for batch in self._arrow_batches(unit, stored, faults):
            columns = {name: _decoded(batch.column(name)) for name in stored}
            columns |= self._partitions.values(unit.path, batch.num_rows, types)
            raw = RawRows(
                path=unit.path,
                positions=np.arange(first, first + batch.num_rows),
                columns=columns,
                hashed={name: _plain(values) for name, values in columns.items()},
                raw=lambda row, batch=batch: _as_json(batch, row),  # type: ignore[misc]
            )
            first += batch.num_rows
            yield rows.convert(raw)
        fields = {name: self._schemas[unit.path].field(name).type for name in stored}
        fields |= {name: pa.string() for name in types if name not in fields}
        rest = rows.rest(
            unit.path, {name: _plain(pa.nulls(0, _value_type(kind))).type for name, kind in fields.items()}
        )
        if rest is not None:
            yield rest

    def place(self, path: str, position: int) -> str:
        """Returns ``file, row n`` with rows counted from 1."""
        return f"{path}, row {position}"

    def _common_type(self, name: str) -> ColumnType:
        kinds = {path: _column_type(schema.field(name).type) for path, schema in self._schemas.items()}
        found: set[ColumnType] = {kind for kind in kinds.values() if kind is not None} or {"float"}
        if any(kind.startswith("list<") for kind in found):
            found = {_LISTS.get(kind, kind) for kind in found}
        for whole, fraction in (("int", "float"), ("list<int>", "list<float>")):
            if found == {whole, fraction}:
                return "float" if fraction == "float" else "list<float>"
        if len(found) > 1:
            places = ", ".join(f"{kind} in {path}" for path, kind in kinds.items())
            raise DataError(f"column {name!r} is {places}; declare data.types.{name}: string")
        return next(iter(found))

    def _arrow_batches(self, unit: RowGroups, names: list[str], faults: FaultList) -> Iterator[pa.RecordBatch]:
        row = unit.first_row
        try:
            with pq.ParquetFile(unit.path) as file:
                groups = [file.metadata.row_group(i) for i in range(unit.begin, unit.end)]
                num_rows = sum(group.num_rows for group in groups)
                row_bytes = sum(group.total_byte_size for group in groups) // max(1, num_rows)
                rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(1, row_bytes)))
                for batch in file.iter_batches(
                    batch_size=rows, row_groups=range(unit.begin, unit.end), columns=names, use_threads=False
                ):
                    row += batch.num_rows
                    yield batch
        except (pa.ArrowException, OSError) as e:
            faults.add(unit.path, row + 1, f"cannot be read to its end: {e}", b"", e)


def _schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as e:
        raise DataError(f"{path}: not a Parquet file: {e}") from e


def _why_unreadable(path: str, field: pa.Field) -> str | None:
    element = field.type.value_type if is_any_list(field.type) else field.type
    if pa.types.is_null(_value_type(element)) or _column_type(field.type) is not None:
        return None
    return (
        f"{path}: column {field.name!r} is of type {field.type}; only numbers, strings and times, and lists of numbers "
        "or strings, can be read"
    )


def _column_type(kind: pa.DataType) -> ColumnType | None:
    """Returns the type of a column, None for one without values or of values that no feature can hold."""
    kind = _value_type(kind)
    if is_any_list(kind):
        element = _column_type(kind.value_type)
        return None if element is None else _LISTS.get(element)
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float"
    return "string" if is_text(kind) or pa.types.is_fixed_size_binary(kind) else None


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _decoded(values: pa.Array) -> pa.Array:
    """Returns values without dictionary, and binaries of any length."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values


def _plain(values: pa.Array) -> pa.Array:
    """Returns the values as int64, float64, string or binary, or lists, which tell a row's split."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return values.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values.cast(pa.int64())
    if pa.types.is_integer(kind):
        return values if kind == pa.uint64() else values.cast(pa.int64())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    return values


def _as_json(batch: pa.RecordBatch, row: int) -> bytes:
    return json.dumps(batch.slice(row, 1).to_pylist()[0], default=str, ensure_ascii=False).encode()
