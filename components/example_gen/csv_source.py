"""Rows of CSV files, as typed Arrow columns."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.csv

from lockstep.components.errors import DataError
from lockstep.components.example_gen import csv_text
from lockstep.components.example_gen.columns import CellError, TypeInference, convert, precision_loss
from lockstep.components.example_gen.compression import READ_ERRORS
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.source import RowBatch, missing_column

_log = logging.getLogger(__name__)

_BLOCK_BYTES = 4 << 20
_MAX_BLOCK_BYTES = 1 << 30


class CsvSource:
    """Reads CSV files twice, in bounded memory: first every value's type, then the rows.

    Args:
      files: Paths; all have the same columns, in any order.
      data: Declared types and how the text is read.

    Raises:
      DataError: On construction, when a header cannot be used.
    """

    def __init__(self, files: Sequence[str], data: DataOptions) -> None:
        self._options = data.options
        self._declared = data.types
        self._block_bytes = _BLOCK_BYTES
        self._reported: set[str] = set()
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

    def infer_types(self) -> dict[str, ColumnType]:
        """Returns the type of each column, declared or seen in all files.

        Raises:
          DataError: A file is malformed, or a whole number is over int64.
        """
        inferences = {name: TypeInference() for name in self.columns if name not in self._declared}
        over_int64: dict[str, tuple[str, int, str]] = {}
        for path in self._headers:
            csv_text.check_quotes(path, self._options)
            for first_row, columns in self._retried_text_batches(path):
                for name, inference in inferences.items():
                    fault = inference.add(columns[name])
                    if fault is not None:
                        over_int64.setdefault(name, (path, first_row + fault.row, fault.problem))
        for name, (path, row, problem) in over_int64.items():
            if inferences[name].kind == "int":
                remedy = f"declare data.types.{name}: string (or float)"
                raise DataError(f"{self.place(path, row)}: column {name!r}: {problem}; {remedy}")
        types = dict(self._declared)
        for name, inference in inferences.items():
            types[name] = "float" if inference.kind == "empty" else inference.kind
        return {name: types[name] for name in self.columns}

    def check(self) -> None:
        """Reads all files once, so that ``batches`` without ``infer_types`` meets no malformed row.

        Raises:
          DataError: A file is malformed.
        """
        for path in self._headers:
            csv_text.check_quotes(path, self._options)
            for _ in self._retried_text_batches(path):
                pass

    def batches(self, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives all rows, file by file.

        Args:
          types: Of the columns wanted.

        Raises:
          DataError: A value does not have its type, or a file is malformed.
        """
        warned: set[str] = set()
        for path in self._headers:
            for first_row, text in self._text_batches(path):
                columns = {}
                for name, kind in types.items():
                    try:
                        columns[name] = convert(text[name], kind)
                    except CellError as e:
                        where = self.place(path, first_row + e.row)
                        raise DataError(f"{where}: column {name!r}: {e.problem}; {_remedy(name)}") from e
                    if kind == "float" and name not in warned:
                        self._warn_of_loss(name, text[name], columns[name], path, first_row, warned)
                yield RowBatch(path=path, first_row=first_row, columns=columns, hashed={n: text[n] for n in types})

    def place(self, path: str, row: int) -> str:
        """Returns ``file:line`` of a data row; reads the file for it."""
        return f"{path}:{csv_text.line_of_row(path, self._options, row)}"

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

    def _retried_text_batches(self, path: str) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """As ``_text_batches``, from the start again with larger blocks when one row is longer than a block."""
        try:
            yield from self._text_batches(path)
        except _RowOverBlock as e:
            if self._block_bytes >= _MAX_BLOCK_BYTES:
                raise DataError(f"{path}: a row is longer than {_MAX_BLOCK_BYTES >> 20} MB") from e
            self._block_bytes *= 4
            yield from self._retried_text_batches(path)

    def _text_batches(self, path: str) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Gives the number of the first row, and each named column's cells as strings, missing ones as null."""
        header = self._headers[path].names
        if not self._headers[path].has_rows:
            return
        first_row = 0
        unnamed = [i for i, name in enumerate(header) if not name]
        for batch in self._arrow_batches(path, self._headers[path]):
            for i in unnamed:
                self._check_unnamed(path, first_row, i, batch.column(i))
            yield first_row, {name: batch.column(i) for i, name in enumerate(header) if name}
            first_row += batch.num_rows
        if unnamed and path not in self._reported:
            self._reported.add(path)
            _log.warning("%s: %d column(s) without name and values are dropped", path, len(unnamed))

    def _arrow_batches(self, path: str, header: csv_text.Header) -> Iterator[pa.RecordBatch]:
        names = [str(i) for i in range(len(header.names))]
        options = self._options
        try:
            with csv_text.open_utf8(path, options.encoding) as stream:
                yield from pyarrow.csv.open_csv(
                    stream,
                    # Names of our own, and the header skipped as a row: theirs may be absent.
                    pyarrow.csv.ReadOptions(
                        column_names=names,
                        skip_rows=header.blank_lines,
                        skip_rows_after_names=1,
                        block_size=self._block_bytes,
                    ),
                    pyarrow.csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
                    pyarrow.csv.ConvertOptions(
                        column_types=dict.fromkeys(names, pa.string()),
                        null_values=["", *options.null_tokens],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=True,
                    ),
                )
        except (UnicodeDecodeError, *READ_ERRORS) as e:
            self._raise_explained(path, len(names), e)

    def _raise_explained(self, path: str, num_columns: int, error: Exception) -> NoReturn:
        if "straddling" in str(error):
            raise _RowOverBlock from error
        known = csv_text.explain(path, self._options, num_columns)
        raise known or DataError(f"{path}: cannot be read as CSV: {error}") from error

    def _check_unnamed(self, path: str, first_row: int, index: int, values: pa.Array) -> None:
        if values.null_count == len(values):
            return
        row = next(i for i, text in enumerate(values.to_pylist()) if text is not None)
        raise DataError(
            f"{self.place(path, first_row + row)}: column {index + 1} has the value {values[row].as_py()!r} but no "
            "name; name it in the header (pandas writes an index so: index=False leaves it out)"
        )

    def _warn_of_loss(
        self, name: str, text: pa.Array, narrow: pa.Array, path: str, first_row: int, warned: set[str]
    ) -> None:
        row = precision_loss(text, narrow)
        if row is not None:
            warned.add(name)
            _log.warning(
                "%s: column %r: %s becomes %.1f as float32, which holds whole numbers up to 16777216 exactly; "
                "declare data.types.%s: string, or int if all its values are whole",
                self.place(path, first_row + row), name, text[row].as_py(), narrow[row].as_py(), name,
            )  # fmt: skip


class _RowOverBlock(Exception):
    """A row is longer than the block that Arrow reads at once."""


def _remedy(name: str) -> str:
    return f"mend the cell, add it to data.options.null_tokens, or declare data.types.{name}"
