"""CSV files as bytes: how a file is decoded and whether it can be read from the middle, its header, its pieces."""

import codecs
import contextlib
import csv
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.components.errors import DataError
from lockstep.components.example_gen.compression import PieceStream, is_compressed, open_bytes
from lockstep.components.example_gen.csv_records import MAX_RECORD_BYTES, RecordCutter
from lockstep.components.example_gen.options import CsvOptions

UNIT_BYTES = 16 << 20
_PIECE_BYTES = 4 << 20
_DECODED_BYTES = 256 << 10
_UTF8 = ("utf-8", "ascii", "utf-8-sig")
# Delimiters, quotes and line ends are these bytes and no others; of other encodings, UTF-16 and Shift-JIS among them,
# the whole file is decoded first.
_ONE_BYTE = ("iso8859", "cp125", "koi8", "mac-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRange:
    """Records of one file: ``begin`` to ``end`` in bytes (None: to the end of a stream), on lines from ``line`` on."""

    path: str
    begin: int
    end: int | None
    line: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The names of a file's columns, the line and the byte after them, and whether any row is below."""

    names: tuple[str, ...]
    line: int
    end: int
    has_rows: bool


def bytes_encoding(options: CsvOptions) -> str:
    """Returns the encoding of what ``open_text`` gives: the file's own, or UTF-8 where it is decoded as a whole."""
    name = codecs.lookup(options.encoding).name
    return name if _is_cut_as_it_is(name) else "utf-8"


def open_text(path: str, options: CsvOptions) -> Any:
    """Returns the text as a stream of bytes in which line ends, quotes and delimiters are those of ASCII."""
    stream = open_bytes(path)
    name = codecs.lookup(options.encoding).name
    return stream if _is_cut_as_it_is(name) else PieceStream(_transcoded(stream, name))


def read_header(path: str, options: CsvOptions) -> Header:
    """Returns the names in the first line that is not empty, or given for all files; none for a file without any line.

    Raises:
      DataError: The file cannot be read or decoded, or the quotes of the header are wrong.
    """
    cutter = RecordCutter(options.delimiter, quote=options.quote)
    with readable(path, options), contextlib.closing(open_text(path, options)) as stream:
        mark = stream.read(len(codecs.BOM_UTF8))
        marked = len(mark) if mark == codecs.BOM_UTF8 and bytes_encoding(options) in _UTF8 else 0
        size, piece, last = _PIECE_BYTES, mark[marked:], False
        while True:
            begin = cutter.consumed
            records = cutter.feed(piece, last=last)
            if records.faults and not (len(records.lines) and records.lines[0] < records.faults[0].line):
                raise DataError(f"{path}:{records.faults[0].line}: {records.faults[0].problem}")
            if len(records.starts):
                break
            if last:
                return Header(names=(), line=1, end=0, has_rows=False)
            piece, size = stream.read(size), min(2 * size, MAX_RECORD_BYTES)
            last = not piece
        start, end, line = int(records.starts[0]), int(records.ends[0]), int(records.lines[0])
        raw = records.data[start:end]
        has_rows = len(records.starts) > 1 or bool(records.faults) or cutter.pending > 0
        has_rows = has_rows or _has_more(stream)
    names = _names(raw, path, line, options)
    if not options.header:
        given = options.column_names
        if given and len(given) != len(names):
            raise DataError(
                f"{path}:{line}: {len(names)} cells, but data.options.column_names gives {len(given)} names; give one"
                " for each column"
            )
        names = given or tuple(f"column_{number}" for number in range(1, len(names) + 1))
        return Header(names=names, line=line, end=marked + begin + start, has_rows=True)
    return Header(names=names, line=line + num_lines(raw), end=marked + begin + end, has_rows=has_rows)


def text_ranges(path: str, header: Header, options: CsvOptions) -> list[TextRange]:
    """Returns the rows of a file as ranges of some ``UNIT_BYTES``; of one that cannot be read from the middle, one."""
    size = Path(path).stat().st_size
    whole = is_compressed(path) or not _is_cut_as_it_is(codecs.lookup(options.encoding).name)
    if whole or size - header.end <= UNIT_BYTES:
        end = None if whole else size
        return [TextRange(path=path, begin=header.end, end=end, line=header.line)]
    ranges = []
    cutter = RecordCutter(options.delimiter, header.line, quote=options.quote)
    begin, line = 0, header.line
    with Path(path).open("rb") as stream:
        stream.seek(header.end)
        for piece, last in pieces(stream, cutter):
            cutter.feed(piece, last=last)
            if cutter.consumed - begin >= UNIT_BYTES or last:
                if cutter.consumed > begin:
                    begins, ends = header.end + begin, header.end + cutter.consumed
                    ranges.append(TextRange(path=path, begin=begins, end=ends, line=line))
                begin, line = cutter.consumed, cutter.line
    return ranges


def pieces(stream: Any, cutter: RecordCutter, length: int | None = None) -> Iterator[tuple[bytes, bool]]:
    """Gives a stream piece by piece, and whether it is the last; larger ones while ``cutter`` holds a long record."""
    left = length
    piece = _read(stream, _PIECE_BYTES, left)
    while True:
        if left is not None:
            left -= len(piece)
        try:
            # One piece ahead: the last one has to be known as such.
            following = _read(stream, max(_PIECE_BYTES, min(cutter.pending, MAX_RECORD_BYTES)), left)
        except (OSError, UnicodeDecodeError):
            yield piece, False
            raise
        yield piece, not following
        if not following:
            return
        piece = following


@contextlib.contextmanager
def readable(path: str, options: CsvOptions) -> Iterator[None]:
    """Turns what happens on reading text into a DataError."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"{path}: {why_unreadable(options, e)}") from e


def why_unreadable(options: CsvOptions, error: Exception) -> str:
    """Returns why the rest of a stream cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        return _is_not_encoded(error, options)
    return f"cannot be read to its end: {error}"


def skip(stream: Any, unit: TextRange) -> None:
    """Moves a stream to the begin of a range."""
    if unit.end is not None:
        stream.seek(unit.begin)
        return
    left = unit.begin
    while left and (skipped := len(stream.read(min(left, _PIECE_BYTES)))):
        left -= skipped


def undecodable_byte(raw: bytes, encoding: str, options: CsvOptions) -> str | None:
    """Returns what is wrong with bytes that are not in ``encoding``, and the option to set; None if they are."""
    try:
        raw.decode(encoding)
    except UnicodeDecodeError as e:
        return _is_not_encoded(e, options)
    return None


def _is_not_encoded(error: UnicodeDecodeError, options: CsvOptions) -> str:
    is_utf_16 = error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and not options.encoding.startswith(
        "utf-16"
    )
    other = "'utf-16'" if is_utf_16 else "'latin-1' or 'cp1252'"
    byte = error.object[error.start]
    return f"byte 0x{byte:02x} is not {options.encoding}; give data.options.encoding, such as {other}"


def num_lines(raw: bytes) -> int:
    """Returns the number of line ends: LF, CR LF, or CR alone."""
    return raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")


def _transcoded(stream: Any, codec: str) -> Iterator[bytes]:
    """Gives text as UTF-8, all before the first bytes that are not in its encoding."""
    decoder = codecs.getincrementaldecoder(codec)()
    with stream:
        while piece := stream.read(_DECODED_BYTES):
            before = decoder.getstate()
            try:
                yield decoder.decode(piece).encode()
            except UnicodeDecodeError:
                decoder.setstate(before)
                for at in range(len(piece)):
                    yield decoder.decode(piece[at : at + 1]).encode()
        yield decoder.decode(b"", final=True).encode()


def _has_more(stream: Any) -> bool:
    """Tells whether anything but empty lines follows, if only something that cannot be read."""
    try:
        while following := stream.read(_PIECE_BYTES):
            if following.strip(b"\r\n"):
                return True
    except (OSError, UnicodeDecodeError):
        return True
    return False


def _is_cut_as_it_is(codec: str) -> bool:
    return codec in _UTF8 or codec.startswith(_ONE_BYTE)


def _names(raw: bytes, path: str, line: int, options: CsvOptions) -> tuple[str, ...]:
    encoding = bytes_encoding(options)
    problem = undecodable_byte(raw, encoding, options)
    if problem is not None:
        raise DataError(f"{path}:{line}: {problem}")
    limit = csv.field_size_limit(MAX_RECORD_BYTES)
    try:
        text = io.StringIO(raw.decode(encoding), newline="")
        if options.quote:
            return tuple(next(csv.reader(text, delimiter=options.delimiter, quotechar=options.quote)))
        return tuple(next(csv.reader(text, delimiter=options.delimiter, quoting=csv.QUOTE_NONE)))
    except csv.Error as e:
        raise DataError(f"{path}:{line}: the first line cannot be read: {e}") from e
    finally:
        csv.field_size_limit(limit)


def _read(stream: Any, size: int, left: int | None) -> bytes:
    wanted = size if left is None else min(size, left)
    return bytes(stream.read(wanted)) if wanted else b""
