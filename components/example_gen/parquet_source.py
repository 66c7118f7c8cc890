"""Rows of Parquet files, as typed Arrow columns."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lockstep.components.errors import DataError
from lockstep.components.example_gen.cells import convert_rows
from lockstep.components.example_gen.columns import CellError, TypeInference, convert, precision_loss, to_float32
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.source import FaultList, Positions, RowBatch, missing_column

_BATCH_ROWS = 32_768
_BATCH_BYTES = 32 << 20
_UNIT_BYTES = 32 << 20
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


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
    is int in one file and float in another is float in all. Columns of other types, such as lists, are ``unreadable``.

    Args:
      files: Paths; all have the same columns, in any order.
      data: Declared types.

    Raises:
      DataError: On construction, when a file or no column can be used.
    """

    def __init__(self, files: Sequence[str], data: DataOptions) -> None:
        self._declared = data.types
        self._on_error = data.on_error
        self._schemas = {path: _schema(path) for path in files}
        first = files[0]
        columns = tuple(name for name in self._schemas[first].names if not _PANDAS_INDEX.fullmatch(name))
        if len(set(columns)) < len(columns):
            raise DataError(f"{first}: a column name occurs more than once: {', '.join(columns)}")
        for path, schema in self._schemas.items():
            differing = {name for name in schema.names if not _PANDAS_INDEX.fullmatch(name)} ^ set(columns)
            if differing:
                names = ", ".join(sorted(differing))
                raise DataError(f"{path}: its columns are not those of {first}; only in one: {names}")
        self.unreadable: Mapping[str, str] = {
            name: problem
            for path, schema in reversed(self._schemas.items())  # so that the first file's problem stays
            for name in columns
            if (problem := _why_unreadable(path, schema.field(name)))
        }
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
        types: dict[str, ColumnType] = {}
        for name in self.columns:
            if name in self._declared:
                types[name] = self._declared[name]
                continue
            kinds = {path: _column_type(schema.field(name).type) for path, schema in self._schemas.items()}
            seen = {kind for kind in kinds.values() if kind is not None} or {"float"}
            if seen == {"int", "float"}:
                seen = {"float"}
            if len(seen) > 1:
                places = ", ".join(f"{kind} in {path}" for path, kind in kinds.items())
                raise DataError(f"column {name!r} is {places}; declare data.types.{name}: string")
            types[name] = next(iter(seen))
        return types

    def batches(self, unit: RowGroups, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the rows of some row groups.

        Args:
          unit: One of ``units()``.
          types: Of the columns wanted.

        Raises:
          DataError: A value does not have its type, or a file is corrupt, with ``on_error: fail``.
        """
        faults = FaultList(self._on_error, self.place)
        noted: set[str] = set()
        row = unit.first_row
        for batch in self._arrow_batches(unit, list(types), faults):
            values = {name: _plain(batch.column(name)) for name in types}
            positions = np.arange(row + 1, row + 1 + batch.num_rows)
            row += batch.num_rows

            def reject(
                i: int, name: str, problem: str, positions: Positions = positions, batch: pa.RecordBatch = batch
            ) -> None:
                reason = f"column {name!r}: {problem}; declare data.types.{name}"
                raw = json.dumps(batch.slice(i, 1).to_pylist()[0], default=str).encode()
                faults.add(unit.path, int(positions[i]), reason, raw)

            columns, keep = convert_rows(values, types, _convert, reject)
            if keep is not None:
                mask = pa.array(keep)
                values, positions = {n: each.filter(mask) for n, each in values.items()}, positions[keep]
            notes = {}
            for name, kind in types.items():
                if kind == "float" and name not in noted and pa.types.is_integer(values[name].type):
                    note = self._note_of_loss(name, values[name], columns[name], unit.path, positions)
                    if note is not None:
                        noted.add(name)
                        notes[f"precision:{name}"] = note
            yield RowBatch(
                path=unit.path,
                positions=positions,
                columns=columns,
                hashed=values,
                rejected=faults.taken(),
                notes=notes,
            )
        rest = faults.taken()
        if rest:
            none = {name: _plain(pa.nulls(0, self._schemas[unit.path].field(name).type)) for name in types}
            columns = {name: _convert(none[name], kind) for name, kind in types.items()}
            yield RowBatch(path=unit.path, positions=np.zeros(0, np.int64), columns=columns, hashed=none, rejected=rest)

    def place(self, path: str, position: int) -> str:
        """Returns ``file, row n`` with rows counted from 1."""
        return f"{path}, row {position}"

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

    def _note_of_loss(self, name: str, wide: pa.Array, narrow: pa.Array, path: str, positions: Positions) -> str | None:
        row = precision_loss(wide, narrow)
        if row is None:
            return None
        return (
            f"{self.place(path, int(positions[row]))}: column {name!r}: {wide[row].as_py()} becomes "
            f"{narrow[row].as_py():.1f} as float32, which holds whole numbers up to 16777216 exactly"
        )


def _schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as e:
        raise DataError(f"{path}: not a Parquet file: {e}") from e


def _why_unreadable(path: str, field: pa.Field) -> str | None:
    kind = _value_type(field.type)
    if pa.types.is_null(kind) or _column_type(kind) is not None:
        return None
    return f"{path}: column {field.name!r} is of type {field.type}; only numbers, strings and times can be read"


def _column_type(kind: pa.DataType) -> ColumnType | None:
    """Returns the type of feature, None for a column without values or of values that no feature can hold."""
    kind = _value_type(kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "int"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float"
    return "string" if _is_bytes(kind) else None


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_bytes(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(check(kind) for check in checks) or pa.types.is_fixed_size_binary(kind)


def _plain(values: pa.Array) -> pa.Array:
    """Returns the values as int64, float64, string or binary."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return values.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values.cast(pa.int64())
    if pa.types.is_integer(kind):
        return values if kind == pa.uint64() else values.cast(pa.int64())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.float64())
    return values.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else values


def _convert(values: pa.Array, kind: ColumnType) -> pa.Array:
    if _is_bytes(values.type):
        return convert(values.cast(pa.string()) if kind != "string" else values, kind)
    if kind == "string":
        return values.cast(pa.string()).cast(pa.binary())
    if kind == "float":
        return to_float32(values.cast(pa.float64(), safe=False))
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid as e:
        wide = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        row = int(np.flatnonzero((np.floor(wide) != wide) | (np.abs(wide) >= 2.0**63))[0])
        raise CellError(row, f"{values[row].as_py()!r} is not an int (of 64 bits)") from e
