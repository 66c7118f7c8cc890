"""Text files in ranges of whole lines, and the lines of a range, numbered; plain or compressed, in bounded memory."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lockstep.components.example_gen.compression import read_pieces
from lockstep.components.example_gen.decompression import DamagedFile
from lockstep.components.example_gen.source import FaultList

_UNIT_BYTES = 16 << 20
_PIECE_BYTES = 4 << 20
_BLOCK_LINES = 32_768
_MAX_LINE_BYTES = 128 << 20
_BOM = b"\xef\xbb\xbf"
_LF = b"\n"[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineRange:
    """Bytes ``begin`` to ``end`` of a file, which begin with line ``line``; to its end, if ``end`` is None."""

    path: str
    begin: int
    end: int | None
    line: int


def line_ranges(path: str) -> Iterator[LineRange]:
    """Gives ranges of whole lines; reads the file once, to number them."""
    begin, line, offset, num_lines, last = 0, 1, 0, 0, -1
    with Path(path).open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            newline = piece.rfind(b"\n")
            if newline >= 0:
                last, num_lines = offset + newline + 1, num_lines + piece.count(b"\n")
            offset += len(piece)
            if last - begin >= _UNIT_BYTES:
                yield LineRange(path=path, begin=begin, end=last, line=line)
                begin, line, num_lines = last, line + num_lines, 0
    if offset > begin:
        yield LineRange(path=path, begin=begin, end=offset, line=line)


def numbered_blocks(unit: LineRange, faults: FaultList) -> Iterator[tuple[int, bytes]]:
    """Gives the lines of a range, some MB and 32,768 of them at most at a time, with the number of the first.

    Each ends with its line feed, but for the last one of a file that has none there.

    Args:
      unit: The range.
      faults: Takes lines that are too long, and the rest of a file that is cut or damaged.
    """
    line, rest = unit.line, b""
    too_long = False
    try:
        for piece in _pieces(unit):
            begin, newline, end = rest + piece, piece.find(b"\n"), piece.rfind(b"\n")
            if newline < 0:
                rest = b"" if too_long else begin
                if len(rest) > _MAX_LINE_BYTES:
                    faults.add(unit.path, line, f"the line is longer than {_MAX_LINE_BYTES >> 20} MB", rest[:1024])
                    rest, too_long = b"", True
                continue
            if too_long:
                begin, line, too_long = piece[newline + 1 :], line + 1, False
            rest = piece[end + 1 :]
            whole = begin[: len(begin) - len(rest)]
            ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == _LF) + 1
            for at in range(0, len(ends), _BLOCK_LINES):
                last = min(at + _BLOCK_LINES, len(ends)) - 1
                yield line + at, whole[0 if not at else int(ends[at - 1]) : int(ends[last])]
            line += len(ends)
    except DamagedFile as e:
        faults.add(unit.path, line, f"cannot be read to its end: {e}", b"", e)
        return
    if rest:
        yield line, rest


def _pieces(unit: LineRange) -> Iterator[bytes]:
    pieces = read_pieces(unit.path) if unit.end is None else _pieces_of_range(unit.path, unit.begin, unit.end)
    for number, piece in enumerate(pieces):
        yield piece.removeprefix(_BOM) if unit.begin == 0 and not number else piece


def _pieces_of_range(path: str, begin: int, end: int) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        file.seek(begin)
        while begin < end and (piece := file.read(min(_PIECE_BYTES, end - begin))):
            begin += len(piece)
            yield piece
