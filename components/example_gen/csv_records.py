"""Where the records of CSV text begin and end, and which of them have misplaced quotes; vectorised, over bytes.

Quotes enclose whole cells, as RFC 4180 has it. A record in which they do not is a fault of the line on which it begins;
the next line begins a new record, so one stray quote costs one line and not the rest of the file.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_RECORD_BYTES = 128 << 20
"""A longer record counts as one with a quote that is never closed; it bounds the memory of a file with such a quote."""

_LF, _CR = b"\n\r"
_FIRST_WINDOW_BYTES = 64 << 10

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultyLine:
    """A line that is no record: its number from 1, what is wrong, and its bytes."""

    line: int
    problem: str
    raw: bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Records:
    """Whole records, one after another.

    Args:
      data: Their text, line ends included.
      starts: Where each begins in ``data``, empty lines left out.
      ends: Where each ends, its line end included.
      lines: The line on which each begins, from 1.
      faults: Lines between them that are no records.
    """

    data: bytes
    starts: _Places
    ends: _Places
    lines: _Places
    faults: tuple[FaultyLine, ...]


class RecordCutter:
    """Cuts text that comes in pieces into whole records; what it finds does not depend on the sizes of the pieces.

    Args:
      delimiter: One byte.
      line: Number of the line with which the text begins.
      quote: One byte; empty where no character encloses cells.
    """

    def __init__(self, delimiter: str, line: int = 1, *, quote: str = '"') -> None:
        self._edges = np.zeros(256, np.bool_)
        self._edges[[ord(delimiter), _CR, _LF, *map(ord, quote)]] = True
        self._quote = quote
        self._rest = b""
        self.line = line
        self.consumed = 0
        """Bytes before the end of the last record (or faulty line) that was given; that is where ``line`` begins."""

    @property
    def pending(self) -> int:
        """Bytes of the record that is not whole yet."""
        return len(self._rest)

    def feed(self, piece: bytes, *, last: bool = False) -> Records:
        """Returns the records that are whole now.

        Args:
          piece: The next bytes.
          last: No more come.
        """
        text = self._rest + piece if self._rest else piece
        data = np.frombuffer(text, np.uint8)
        at, window = 0, len(text)
        kept: list[tuple[int, int]] = []
        ends: list[_Places] = []
        lines: list[_Places] = []
        faults: list[FaultyLine] = []
        while at < len(text):
            whole = at + window >= len(text)
            found, found_lines, num_lines, problem = self._scan(data[at : at + window], last=last and whole)
            if len(found):
                kept.append((at, at + int(found[-1])))
                ends.append(found + at)
                lines.append(found_lines + self.line)
                at, self.line = kept[-1][1], self.line + num_lines
            if problem is None:
                if not len(found) and whole:
                    break
                window *= 4
                continue
            end = _line_end(text, at)
            if end is None and not last:
                break
            stop = len(text) if end is None else end
            faults.append(FaultyLine(line=self.line, problem=problem, raw=text[at:stop]))
            at, self.line, window = stop, self.line + 1, _FIRST_WINDOW_BYTES
        self._rest = text[at:]
        self.consumed += at
        return _joined(text, kept, ends, lines, tuple(faults))

    def _scan(self, data: _Bytes, *, last: bool) -> tuple[_Places, _Places, int, str | None]:
        """Returns of the records before the first fault: ends, lines before each, lines in all; and the fault."""
        breaks = _line_breaks(data, last=last)
        quotes = np.flatnonzero(data == ord(self._quote)) if self._quote else np.zeros(0, np.int64)
        problem: str | None = None
        ends = breaks + 1
        if len(quotes):
            ends = ends[np.searchsorted(quotes, breaks) % 2 == 0]
            fault = self._bad_quote(data, quotes, last=last)
            if fault is not None:
                position, problem = fault
                ends = ends[ends <= position]
        if problem is None and last and len(data) and (not len(ends) or ends[-1] < len(data)):
            ends = np.append(ends, len(data))
        begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        long = np.flatnonzero(ends - begins > MAX_RECORD_BYTES)
        if len(long):
            ends, begins, problem = ends[: long[0]], begins[: long[0]], _too_long()
        elif problem is None and len(data) - (int(ends[-1]) if len(ends) else 0) > MAX_RECORD_BYTES:
            problem = _too_long()
        if not len(quotes):
            return ends, np.arange(len(ends)), len(ends), problem
        added = np.searchsorted(breaks, begins)
        num_lines = int(np.searchsorted(breaks, ends[-1])) if len(ends) else 0
        return ends, added, num_lines, problem

    def _bad_quote(self, data: _Bytes, quotes: _Places, *, last: bool) -> tuple[int, str] | None:
        """Returns position and kind of the first misplaced quote."""
        q = self._quote
        quoting = f"write a cell that holds quotes as {q}5{q}{q} pipe{q}: in quotes, its own quotes doubled"
        opening, closing = quotes[::2], quotes[1::2]
        previous = np.where(opening > 0, data[opening - 1], _LF)
        bad_opening = opening[~self._edges[previous]]
        # The last byte's next one is unknown yet: it is seen again with what follows.
        following = data[np.minimum(closing + 1, len(data) - 1)]
        bad_closing = closing[~self._edges[following] & (closing + 1 < len(data))]
        if len(bad_opening) and (not len(bad_closing) or bad_opening[0] < bad_closing[0]):
            return int(bad_opening[0]), f"a quote within an unquoted cell; {quoting}"
        if len(bad_closing):
            return int(bad_closing[0]), f"text after a closing quote; {quoting}"
        if len(quotes) % 2 and last:
            return int(quotes[-1]), f"a quote is opened here and never closed; {quoting}"
        return None


def _joined(
    text: bytes, kept: list[tuple[int, int]], ends: list[_Places], lines: list[_Places], faults: tuple[FaultyLine, ...]
) -> Records:
    none = np.zeros(0, np.int64)
    if not kept:
        return Records(data=b"", starts=none, ends=none, lines=none, faults=faults)
    data = text[kept[0][0] : kept[0][1]] if len(kept) == 1 else b"".join(text[begin:end] for begin, end in kept)
    shifted, length = [], 0
    for (begin, end), each in zip(kept, ends, strict=True):
        shifted.append(each - begin + length)
        length += end - begin
    all_ends = np.concatenate(shifted)
    starts = np.concatenate([[0], all_ends[:-1]])
    filled = _is_filled(np.frombuffer(data, np.uint8), starts, all_ends)
    all_lines = np.concatenate(lines)
    if filled.all():
        return Records(data=data, starts=starts, ends=all_ends, lines=all_lines, faults=faults)
    return Records(data=data, starts=starts[filled], ends=all_ends[filled], lines=all_lines[filled], faults=faults)


def _is_filled(data: _Bytes, starts: _Places, ends: _Places) -> npt.NDArray[np.bool_]:
    """Tells which records are more than a line end."""
    first = data[starts]
    filled: npt.NDArray[np.bool_] = (ends - starts > 2) | ~((first == _LF) | (first == _CR))
    return filled


def _line_breaks(data: _Bytes, *, last: bool) -> _Places:
    """Returns where the last byte of each line end is: LF, CR LF, or CR alone."""
    feeds: Any = data == _LF
    returns = np.flatnonzero(data == _CR)
    if not len(returns):
        return np.flatnonzero(feeds)
    following = data[np.minimum(returns + 1, len(data) - 1)]
    alone = returns[(following != _LF) & (returns + 1 < len(data))]
    if last and data[-1] == _CR:
        alone = np.append(alone, len(data) - 1)
    feeds[alone] = True
    return np.flatnonzero(feeds)


def _line_end(text: bytes, begin: int) -> int | None:
    """Returns where the line that begins at ``begin`` ends, its line end included; None if it does not."""
    feed, carriage = text.find(b"\n", begin), text.find(b"\r", begin, begin + MAX_RECORD_BYTES)
    if carriage >= 0 and (feed < 0 or carriage < feed):
        if carriage + 1 == len(text):
            return None
        return carriage + 2 if text[carriage + 1] == _LF else carriage + 1
    return feed + 1 if feed >= 0 else None


def _too_long() -> str:
    return (
        f"a row longer than {MAX_RECORD_BYTES >> 20} MB: a quote is opened here and never closed, or the delimiter or "
        "line ends are others"
    )
