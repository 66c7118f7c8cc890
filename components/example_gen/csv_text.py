"""CSV files as text: the stream, the header, and a slow and exact second look that finds the line of a fault.

Arrow parses quickly and is forgiving, and tells little about where it stopped; so quotes are checked here for every
file, and when anything fails the file is read once more, line by line.
"""

import codecs
import contextlib
import csv
import dataclasses
import io
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.components.errors import DataError
from lockstep.components.example_gen.compression import READ_ERRORS, open_bytes
from lockstep.components.example_gen.options import CsvOptions

_CHUNK_BYTES = 4 << 20
_MAX_NAME_LENGTH = 1 << 20  # a quote that is never closed makes one name of the whole file


def open_utf8(path: str, encoding: str) -> pa.NativeFile:
    """Returns the file's text as a stream of UTF-8, decompressed as ``compression.open_bytes`` does."""
    stream = open_bytes(path)
    if codecs.lookup(encoding).name in ("utf-8", "ascii"):
        return stream
    return pa.transcoding_input_stream(stream, encoding, "utf-8")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The names of a file's columns, how many empty lines are above them, and whether any row is below."""

    names: tuple[str, ...]
    blank_lines: int
    has_rows: bool


def read_header(path: str, options: CsvOptions) -> Header:
    """Returns the names in the first line that is not empty; none for a file without any.

    Raises:
      DataError: The file cannot be read or decoded.
    """
    with _readable(path, options), _text(path, options, _MAX_NAME_LENGTH) as text:
        records = _numbered(csv.reader(text, delimiter=options.delimiter))
        try:
            line, cells = next(((line, cells) for line, cells in records if cells), (1, []))
        except csv.Error as e:
            check_quotes(path, options)
            raise DataError(f"{path}: the header cannot be read: {e}") from e
        has_rows = any(rest.strip("\r\n") for rest in text)
        return Header(names=tuple(cells), blank_lines=line - 1, has_rows=has_rows)


def check_quotes(path: str, options: CsvOptions) -> None:
    """Checks that quotes enclose whole cells, as RFC 4180 has it.

    Raises:
      DataError: With the line of a quote within an unquoted cell, of text after a closing quote, or of a quote that
        is never closed, and when the file cannot be read.
    """
    edges = np.zeros(256, np.bool_)
    edges[[ord(options.delimiter), ord("\r"), ord("\n"), ord('"')]] = True
    with _readable(path, options):
        fault = _first_bad_quote(path, options.encoding, edges)
    if fault is not None:
        position, problem = fault
        raise DataError(f"{path}:{_line_at(path, options.encoding, position)}: {problem}; write {_QUOTING}")


_QUOTING = 'a cell that holds quotes as "5"" pipe": in quotes, its own quotes doubled'


def explain(path: str, options: CsvOptions, num_columns: int) -> DataError | None:
    """Returns what is wrong with a file that could not be parsed, with its line; None if nothing is found."""
    with _readable(path, options), _records(path, options) as records:
        for line, cells in records:
            if cells and len(cells) != num_columns:
                return DataError(
                    f"{path}:{line}: {len(cells)} cells, but the header has {num_columns} columns; mend or remove it"
                )
    return None


def line_of_row(path: str, options: CsvOptions, row: int) -> int:
    """Returns the line, from 1, on which data row ``row`` begins (from 0, the header and empty lines not counted)."""
    with _records(path, options) as records:
        rows = (line for line, cells in records if cells)
        return next(line for index, line in enumerate(rows) if index == row + 1)


@contextlib.contextmanager
def _readable(path: str, options: CsvOptions) -> Iterator[None]:
    """Turns what happens on reading text into a DataError."""
    try:
        yield
    except UnicodeDecodeError as e:
        raise _undecodable(path, options.encoding) or DataError(f"{path}: {e}") from e
    except (*READ_ERRORS, csv.Error) as e:
        raise DataError(f"{path}: cannot be read to its end: {e}") from e


@contextlib.contextmanager
def _records(path: str, options: CsvOptions) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Gives each record with the line on which it begins."""
    with _text(path, options, sys.maxsize) as text:
        yield _numbered(csv.reader(text, delimiter=options.delimiter))


@contextlib.contextmanager
def _text(path: str, options: CsvOptions, max_cell_length: int) -> Iterator[io.TextIOWrapper]:
    """Gives the text, with the limit to a cell's length that ``csv`` keeps for the whole process."""
    limit = csv.field_size_limit(max_cell_length)
    try:
        with io.TextIOWrapper(open_utf8(path, options.encoding), encoding="utf-8-sig", newline="") as text:
            yield text
    finally:
        csv.field_size_limit(limit)


def _numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    begin = 1
    for cells in reader:
        yield begin, cells
        begin = reader.line_num + 1


def _undecodable(path: str, encoding: str) -> DataError | None:
    """Returns the error of the first line that is not in ``encoding``, or None."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with io.BufferedReader(open_bytes(path)) as stream:
        start = stream.peek(2)[:2]
        line = 0
        try:
            for line, content in enumerate(stream, start=1):  # noqa: B007 - told when decoding fails
                decoder.decode(content)
        except UnicodeDecodeError as e:
            other = "'utf-16'" if start in (b"\xff\xfe", b"\xfe\xff") else "'latin-1' or 'cp1252'"
            return DataError(
                f"{path}:{line}: byte 0x{e.object[e.start]:02x} is not {encoding}; "
                f"give data.options.encoding, such as {other}"
            )
    return None


def _first_bad_quote(
    path: str, encoding: str, edges: "np.ndarray[object, np.dtype[np.bool_]]"
) -> tuple[int, str] | None:
    """Returns position (in bytes of UTF-8) and kind of the first misplaced quote."""
    inside, opened_at, position, before = False, 0, 0, ord("\n")
    with open_utf8(path, encoding) as stream:
        chunk = stream.read(_CHUNK_BYTES)
        if chunk.startswith(codecs.BOM_UTF8):
            chunk, position = chunk[3:], 3
        while chunk:
            follow = stream.read(_CHUNK_BYTES)
            data = np.frombuffer(chunk + (follow[:1] or b"\n"), np.uint8)
            quotes = np.flatnonzero(data[:-1] == ord('"'))
            if len(quotes):
                opening, closing = (quotes[1::2], quotes[::2]) if inside else (quotes[::2], quotes[1::2])
                previous = np.where(opening > 0, data[opening - 1], before)
                bad_opening, bad_closing = opening[~edges[previous]], closing[~edges[data[closing + 1]]]
                if len(bad_opening) or len(bad_closing):
                    return _worse(bad_opening, bad_closing, position)
                if len(opening):
                    opened_at = position + int(opening[-1])
                inside ^= bool(len(quotes) % 2)
            before, position, chunk = int(data[-2]), position + len(chunk), follow
    return (opened_at, "a quote is opened here and never closed") if inside else None


def _worse(
    opening: "np.ndarray[object, np.dtype[np.intp]]", closing: "np.ndarray[object, np.dtype[np.intp]]", position: int
) -> tuple[int, str]:
    if len(opening) and (not len(closing) or opening[0] < closing[0]):
        return position + int(opening[0]), "a quote within an unquoted cell"
    return position + int(closing[0]), "text after a closing quote"


def _line_at(path: str, encoding: str, position: int) -> int:
    line = 1
    with open_utf8(path, encoding) as stream:
        while position > 0 and (chunk := stream.read(min(position, _CHUNK_BYTES))):
            line += chunk.count(b"\n")
            position -= len(chunk)
    return line
