"""Rows of CSV files, as typed Arrow columns."""

import contextlib
import dataclasses
import functools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from lockstep.components.errors import DataError
from lockstep.components.example_gen import csv_text
from lockstep.components.example_gen.cells import RawRows, RowConverter
from lockstep.components.example_gen.columns import TypeInference
from lockstep.components.example_gen.csv_records import RecordCutter, Records
from lockstep.components.example_gen.csv_text import TextRange
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.source import FaultList, RowBatch, missing_column, resolve_inferred

_log = logging.getLogger(__name__)


class CsvSource:
    """Reads CSV files twice, in bounded memory: first every value's type, then the rows.

    Args:
      files: Paths; all have the same columns, in any order.
      data: Declared types, how the text is read, and what becomes of rows that cannot be.

    Raises:
      DataError: On construction, when a header cannot be used.
    """

    def __init__(self, files: Sequence[str], data: DataOptions) -> None:
        self._options = data.options
        self._declared = data.types
        self._cells = data.cells
        self._on_error = data.on_error
        self._headers = {path: csv_text.read_header(path, data.options) for path in files}
        empty = [path for path, header in self._headers.items() if not header.names]
        if len(empty) == len(files):
            raise DataError(f"{files[0]}: no rows, not even a header")
        for path in empty:
            _log.warning("%s: the file is empty", path)
            del self._headers[path]
        self.columns = self._check_headers()
        self.unreadable: Mapping[str, str] = {}
        if any(header.has_rows for header in self._headers.values()):  # else no rows at all are an error, told once
            for path, header in self._headers.items():
                if not header.has_rows:
                    _log.warning("%s: no rows under the header", path)

    def units(self) -> Sequence[TextRange]:
        """Returns the rows of all files as ranges of bytes that begin with a record."""
        ranges: list[TextRange] = []
        for path, header in self._headers.items():
            if header.has_rows:
                with csv_text.readable(path, self._options):
                    ranges += csv_text.text_ranges(path, header, self._options)
        return ranges

    def infer(self, unit: TextRange) -> Mapping[str, TypeInference]:
        """Returns what the values of a range say of the columns whose type is not declared.

        Raises:
          DataError: A row is malformed, with ``on_error: fail``.
        """
        inferences = {name: TypeInference() for name in self.columns if name not in self._declared}
        faults = self._faults()
        for text, records in self._text_batches(unit, faults):
            for name, inference in inferences.items():
                inference.add(text[name], unit.path, records.lines)
            faults.taken()  # they are told by ``batches``
        return inferences

    def resolve(self, found: Iterable[Mapping[str, TypeInference]]) -> dict[str, ColumnType]:
        """Returns the type of each column, declared or seen in all files.

        Raises:
          DataError: A whole number is over int64, with ``on_error: fail``.
        """
        return resolve_inferred(self, self._declared, found, self._on_error)

    def batches(self, unit: TextRange, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the rows of a range.

        Args:
          unit: One of ``units()``.
          types: Of the columns wanted.

        Raises:
          DataError: A value does not have its type, or a row is malformed, with ``on_error: fail``.
        """
        faults = self._faults()
        rows = RowConverter(types, self._cells, faults, self.place, _remedy)
        notes = self._notes_of_unnamed(unit.path)
        for text, records in self._text_batches(unit, faults):
            wanted = {name: text[name] for name in types}
            raw = RawRows(
                path=unit.path,
                positions=records.lines,
                columns=wanted,
                hashed=wanted,
                raw=functools.partial(_raw, records),
            )
            batch = rows.convert(raw)
            yield dataclasses.replace(batch, notes={**notes, **batch.notes})
        rest = rows.rest(unit.path, dict.fromkeys(types, pa.string()))
        if rest is not None:
            yield rest

    def place(self, path: str, position: int) -> str:
        """Returns ``file:line``."""
        return f"{path}:{position}"

    def _faults(self) -> FaultList:
        return FaultList(self._on_error, self.place)

    def _check_headers(self) -> tuple[str, ...]:
        first_path = ""
        columns: tuple[str, ...] = ()
        for path, header in self._headers.items():
            self._check_header(path, header.names)
            named = tuple(name for name in header.names if name)
            if not first_path:
                first_path, columns = path, named
            elif set(named) != set(columns):
                differing = sorted(set(named) ^ set(columns))
                raise DataError(
                    f"{path}: its columns are not those of {first_path}; only in one: {', '.join(differing)}"
                )
        for name in self._declared:
            if name not in columns:
                raise DataError(f"data.types.{name}: {missing_column(name, first_path, columns)}")
        return columns

    def _check_header(self, path: str, header: Sequence[str]) -> None:
        twice = [name for name, count in Counter(name for name in header if name).items() if count > 1]
        if twice:
            raise DataError(f"{path}:1: the column name {twice[0]!r} occurs more than once; rename one")
        if not any(header):
            raise DataError(f"{path}:1: the header names no column")
        delimiter = self._options.delimiter
        for other in ",;\t|":
            if len(header) == 1 and other != delimiter and other in header[0]:
                raise DataError(
                    f"{path}:1: one column, {header[0]!r}; the delimiter seems to be {other!r}, not {delimiter!r}: "
                    "give data.options.delimiter"
                )

    def _text_batches(self, unit: TextRange, faults: FaultList) -> Iterator[tuple[dict[str, pa.Array], Records]]:
        """Gives each named column's cells as strings, missing ones as null, and the records that they are of."""
        names = self._headers[unit.path].names
        for records in self._records(unit, faults):
            batch, kept = self._parsed(unit.path, records, faults)
            for i, name in enumerate(names):
                if not name:
                    self._check_unnamed(unit.path, kept, i, batch.column(i))
            yield {name: batch.column(i) for i, name in enumerate(names) if name}, kept

    def _records(self, unit: TextRange, faults: FaultList) -> Iterator[Records]:
        cutter = RecordCutter(self._options.delimiter, unit.line, quote=self._options.quote)
        with contextlib.ExitStack() as stack:
            try:
                stream = stack.enter_context(contextlib.closing(csv_text.open_text(unit.path, self._options)))
                csv_text.skip(stream, unit)
                length = None if unit.end is None else unit.end - unit.begin
                for piece, last in csv_text.pieces(stream, cutter, length):
                    records = cutter.feed(piece, last=last)
                    for fault in records.faults:
                        faults.add(unit.path, fault.line, fault.problem, fault.raw)
                    if len(records.starts):
                        yield records
            except (UnicodeDecodeError, OSError) as e:
                reason = csv_text.why_unreadable(self._options, e)
                faults.add(unit.path, cutter.line, reason, b"", e)

    def _parsed(self, path: str, records: Records, faults: FaultList) -> tuple[pa.RecordBatch, Records]:
        """Returns the cells of the records that have the right number of them and can be decoded."""
        num_columns = len(self._headers[path].names)
        error: Exception | None = None
        try:
            batch = self._parse(records.data, num_columns)
            if batch.num_rows == len(records.starts):
                return batch, records
        except (UnicodeDecodeError, pa.ArrowInvalid) as e:
            error = e
        kept = []
        for row in range(len(records.starts)):
            raw = _raw(records, row)
            problem = self._problem(raw, num_columns)
            if problem is None:
                kept.append(row)
            else:
                faults.add(path, int(records.lines[row]), problem, raw)
        if len(kept) == len(records.starts):
            raise DataError(f"{path}: cannot be read as CSV: {error or 'lines are not told apart'}") from error
        records = _picked(records, kept)
        return self._parse(records.data, num_columns), records

    def _problem(self, raw: bytes, num_columns: int) -> str | None:
        undecodable = csv_text.undecodable_byte(raw, csv_text.bytes_encoding(self._options), self._options)
        if undecodable is not None:
            return undecodable
        quote = re.escape(self._options.quote.encode())
        bare = re.sub(quote + b"[^" + quote + b"]*" + quote, b"", raw) if quote else raw
        num_cells = 1 + bare.count(self._options.delimiter.encode())
        if num_cells == num_columns:
            return None
        named_by = "the header has" if self._options.header else "there are"
        return f"{num_cells} cells, but {named_by} {num_columns} columns; mend or remove it"

    def _parse(self, data: bytes, num_columns: int) -> pa.RecordBatch:
        names = [str(i) for i in range(num_columns)]  # of our own: theirs may be absent
        if not data:
            return pa.record_batch([pa.nulls(0, pa.string())] * num_columns, names)
        encoding = csv_text.bytes_encoding(self._options)
        if not encoding.startswith(("utf", "ascii")):
            data = data.decode(encoding).encode()
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            pyarrow.csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
            pyarrow.csv.ParseOptions(
                delimiter=self._options.delimiter,
                quote_char=self._options.quote or False,
                newlines_in_values=bool(self._options.quote),
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=["", *self._options.null_tokens],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        return table.combine_chunks().to_batches()[0]

    def _check_unnamed(self, path: str, records: Records, index: int, values: pa.Array) -> None:
        if values.null_count == len(values):
            return
        row = next(i for i, text in enumerate(values.to_pylist()) if text is not None)
        raise DataError(
            f"{self.place(path, int(records.lines[row]))}: column {index + 1} has the value {values[row].as_py()!r} "
            "but no name; name it in the header (pandas writes an index so: index=False leaves it out)"
        )

    def _notes_of_unnamed(self, path: str) -> dict[str, str]:
        unnamed = sum(not name for name in self._headers[path].names)
        if not unnamed:
            return {}
        return {f"unnamed:{path}": f"{path}: {unnamed} column(s) without name and values are dropped"}


def _raw(records: Records, row: int) -> bytes:
    raw: bytes = records.data[int(records.starts[row]) : int(records.ends[row])]
    return raw


def _picked(records: Records, rows: Sequence[int]) -> Records:
    data = b"".join(_raw(records, row) for row in rows)
    lengths = (records.ends - records.starts)[rows]
    ends = np.cumsum(lengths)
    return Records(data=data, starts=ends - lengths, ends=ends, lines=records.lines[rows], faults=())


def _remedy(name: str) -> str:
    return f"mend the cell, add it to data.options.null_tokens, or declare data.types.{name}"
