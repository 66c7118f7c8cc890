"""Records of TFRecord files with their offsets, checked; plain, or compressed with whatever the content tells.

Framing: tensorflow/core/lib/io/record_writer.h. A file without compression is told by its first checksum, since a
length may look like the header of anything.
"""

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from lockstep.components.example_gen.compression import is_compressed, is_zlib, read_pieces
from lockstep.components.example_gen.decompression import DamagedFile

_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")
_PIECE_BYTES = 4 << 20
_UNIT_BYTES = 16 << 20
_MAX_RECORD_BYTES = 1 << 30
_CRC_MASK_DELTA = 0xA282EAD8


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordRange:
    """Bytes ``begin`` to ``end`` of a file, which begin with a record; to its end, if ``end`` is None."""

    path: str
    begin: int
    end: int | None
    is_compressed: bool


@dataclasses.dataclass(frozen=True)
class Records:
    """Some records of a file and their offsets, of what is decompressed where it is compressed.

    Args:
      offsets: Of the frames.
      contents: Without frames.
      damaged: Offset and content of those whose checksum is another.
      problem: Offset from which on nothing can be read, and why; None while there is more to read.
    """

    offsets: list[int]
    contents: list[bytes]
    damaged: list[tuple[int, bytes]]
    problem: tuple[int, str] | None = None


def masked_crc(data: bytes) -> int:
    """Returns the checksum that a TFRecord file has of some bytes."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _CRC_MASK_DELTA) & 0xFFFFFFFF


def record_ranges(path: str) -> Iterator[RecordRange]:
    """Gives a file in ranges of some MB that begin with a record; as one where it is compressed, or not readable."""
    with Path(path).open("rb") as file:
        start = file.read(_HEAD.size)
        if not start:
            return
        if not _is_head(start):
            compressed = is_compressed(path) or is_zlib(start)
            yield RecordRange(path=path, begin=0, end=None, is_compressed=compressed)
            return
        begin = offset = 0
        while _is_head(start):
            offset += _HEAD.size + _HEAD.unpack(start)[0] + _TAIL.size
            if offset - begin >= _UNIT_BYTES:
                yield RecordRange(path=path, begin=begin, end=offset, is_compressed=False)
                begin = offset
            file.seek(offset)
            start = file.read(_HEAD.size)
        if offset > begin or start:
            yield RecordRange(path=path, begin=begin, end=None, is_compressed=False)


def read_records(unit: RecordRange) -> Iterator[Records]:
    """Gives the records of a range, those of some MB at a time."""
    offset, rest = unit.begin, b""
    try:
        for piece in _pieces(unit):
            data = rest + piece
            records, used = _cut(data, offset)
            offset, rest = offset + used, data[used:]
            yield records
            if records.problem is not None:
                return
    except DamagedFile as e:
        yield Records([], [], [], (offset, str(e)))
        return
    if rest:
        problem = f"the file is cut: {len(rest)} bytes are left, which are no whole record"
        yield Records([], [], [], (offset, problem))


def _pieces(unit: RecordRange) -> Iterator[bytes]:
    if unit.is_compressed:
        yield from read_pieces(unit.path, may_be_zlib=True)
        return
    at = unit.begin
    with Path(unit.path).open("rb") as file:
        file.seek(at)
        while piece := file.read(_PIECE_BYTES if unit.end is None else min(_PIECE_BYTES, unit.end - at)):
            at += len(piece)
            yield piece


def _cut(data: bytes, offset: int) -> tuple[Records, int]:
    """Returns the whole records at the start of some bytes, and how many bytes they take."""
    records = Records([], [], [])
    at = 0
    while at + _HEAD.size <= len(data):
        head = data[at : at + _HEAD.size]
        (length, _) = _HEAD.unpack(head)
        if not _is_head(head):
            problem = "no record begins here (the checksum of its length is another), so the rest cannot be read"
            return dataclasses.replace(records, problem=(offset + at, problem)), at
        end = at + _HEAD.size + length
        if length > _MAX_RECORD_BYTES:
            problem = f"a record of {length >> 20} MB is more than {_MAX_RECORD_BYTES >> 20} MB"
            return dataclasses.replace(records, problem=(offset + at, problem)), at
        if end + _TAIL.size > len(data):
            break
        content = data[at + _HEAD.size : end]
        if _TAIL.unpack_from(data, end)[0] == masked_crc(content):
            records.offsets.append(offset + at)
            records.contents.append(content)
        else:
            records.damaged.append((offset + at, content))
        at = end + _TAIL.size
    return records, at


def _is_head(head: bytes) -> bool:
    return len(head) == _HEAD.size and _HEAD.unpack(head)[1] == masked_crc(head[:8])


def parts(records: Records, num_records: int, num_bytes: int) -> Iterator[tuple[list[int], list[bytes]]]:
    """Gives offsets and contents in parts of at most so many records and about so many bytes."""
    begin = size = 0
    for at, content in enumerate(records.contents):
        if at > begin and (at - begin >= num_records or size + len(content) > num_bytes):
            yield records.offsets[begin:at], records.contents[begin:at]
            begin, size = at, 0
        size += len(content)
    if len(records.contents) > begin:
        yield records.offsets[begin:], records.contents[begin:]
