"""The only file in a zip archive, also in one that was cut, whose directory at the end is missing.

Format: PKWARE's APPNOTE.TXT.
"""

import dataclasses
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import IO

from lockstep.components.errors import DataError
from lockstep.components.example_gen.decompression import (
    RAW_DEFLATE_WBITS,
    DamagedFile,
    inflated,
    unpacked_bzip2,
    unpacked_lzma,
)

STARTS = (b"PK\x03\x04", b"PK\x05\x06")
"""With what an archive begins: its first entry, or its directory, where there is no entry."""

_HEADER = struct.Struct("<4sHHHHHIIIHH")  # of an entry: section 4.3.7
_ENCRYPTED, _SIZES_FOLLOW, _IS_UTF8 = 0x1, 0x8, 0x800  # bits of an entry's general purpose flags: section 4.4.4
_IN_EXTRA_FIELD = 0xFFFFFFFF  # in the place of a size over 4 GB
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_PIECE_BYTES = 1 << 20
_MAX_NAMED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """A file in an archive.

    Args:
      name: Within the archive.
      method: How it is compressed.
      begin: Offset of its content.
      packed: Bytes of its content as it is in the archive; None where that is not known.
      length: Bytes of what it holds; None where that is not known.
      crc: Their CRC-32; None where that is not known.
      missing_end: What is wrong with the archive; empty where it has its directory.
    """

    name: str
    method: int
    begin: int
    packed: int | None
    length: int | None
    crc: int | None
    missing_end: str = ""


def find_member(path: str) -> Member:
    """Returns the only file in an archive.

    Folders do not count, nor do hidden files, files named ``_*`` and what is in a folder named so, such as the
    ``__MACOSX`` that macOS adds. In an archive without its directory it is the first file.

    Raises:
      DataError: The archive does not hold exactly one file, or it is encrypted, or compressed in an unknown way.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entry = _only_file(path, archive.infolist())
    except zipfile.BadZipFile as e:
        return _first_member(path, str(e))
    with Path(path).open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(_HEADER.size)
        if not header.startswith(STARTS[0]) or len(header) < _HEADER.size:
            raise DataError(f"{path}: {entry.filename} is damaged (no entry begins there); copy the archive again")
        name_bytes, extra_bytes = _HEADER.unpack(header)[-2:]
    _check(path, entry.filename, entry.flag_bits, entry.compress_type)
    return Member(
        name=entry.filename,
        method=entry.compress_type,
        begin=entry.header_offset + _HEADER.size + name_bytes + extra_bytes,
        packed=entry.compress_size,
        length=entry.file_size,
        crc=entry.CRC,
    )


def unpacked(path: str, member: Member) -> Iterator[bytes]:
    """Gives what a file in an archive holds, piece by piece.

    Raises:
      DamagedFile: The archive is cut or damaged. All that can be had of it was given before.
    """
    crc = 0
    with Path(path).open("rb") as file:
        file.seek(member.begin)
        for piece in _content(file, member):
            crc = zlib.crc32(piece, crc)
            yield piece
        if member.crc is not None and crc != member.crc:
            raise DamagedFile(f"the archive is damaged before byte {file.tell()} ({member.name} has another checksum)")
    if member.missing_end:
        raise DamagedFile(member.missing_end)


def _content(file: IO[bytes], member: Member) -> Iterator[bytes]:
    if member.method == zipfile.ZIP_DEFLATED:
        return inflated(file, RAW_DEFLATE_WBITS, several=False)
    if member.method == zipfile.ZIP_BZIP2:
        return unpacked_bzip2(file, several=False)
    if member.method == zipfile.ZIP_LZMA:
        assert member.length is not None
        return unpacked_lzma(file, member.length)
    return _stored(file, member)


def _stored(file: IO[bytes], member: Member) -> Iterator[bytes]:
    assert member.packed is not None
    left = member.packed
    while left:
        piece = file.read(min(_PIECE_BYTES, left))
        if not piece:
            raise DamagedFile(f"the archive is cut: it ends at byte {file.tell()}, and {member.name} goes on")
        left -= len(piece)
        yield piece


def _only_file(path: str, entries: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    files = [entry for entry in entries if not stat.S_ISLNK(entry.external_attr >> 16) and _is_file(entry.filename)]
    if len(files) != 1:
        names = ", ".join(entry.filename for entry in files[:_MAX_NAMED])
        held = f"{len(files)} files ({names}{', ...' if len(files) > _MAX_NAMED else ''})" if files else "no file"
        raise DataError(
            f"{path}: the zip archive holds {held}, and one is read from an archive; "
            "give an archive to each file, or unpack them into a folder"
        )
    return files[0]


def _first_member(path: str, problem: str) -> Member:
    """Returns the first file in an archive without a directory, which stands at its end."""
    end = Path(path).stat().st_size
    without_end = f"a zip archive without its end ({problem}): it was cut at byte {end}, or damaged; copy it again"
    with Path(path).open("rb") as file:
        while True:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size or not header.startswith(STARTS[0]):
                raise DataError(f"{path}: {without_end}")
            _, _, flags, method, _, _, crc, packed, length, name_bytes, extra_bytes = _HEADER.unpack(header)
            name = file.read(name_bytes).decode("utf-8" if flags & _IS_UTF8 else "cp437", errors="replace")
            begin = file.tell() + extra_bytes
            are_known = not flags & _SIZES_FOLLOW and _IN_EXTRA_FIELD not in (packed, length)
            if _is_file(name):
                break
            if not are_known:
                raise DataError(f"{path}: {without_end}")
            file.seek(begin + packed)
    _check(path, name, flags, method)
    if not are_known and method in (zipfile.ZIP_STORED, zipfile.ZIP_LZMA):  # which do not tell where they end
        raise DataError(f"{path}: {without_end}")
    return Member(
        name=name,
        method=method,
        begin=begin,
        packed=packed if are_known else None,
        length=length if are_known else None,
        crc=None if flags & _SIZES_FOLLOW else crc,
        missing_end=without_end,
    )


def _check(path: str, name: str, flags: int, method: int) -> None:
    if flags & _ENCRYPTED:
        raise DataError(f"{path}: {name} is encrypted; unpack it, and give the file")
    if method not in _METHODS:
        raise DataError(
            f"{path}: {name} cannot be unpacked (compression method {method}); pack it as usual (deflate), or unpack it"
        )


def _is_file(name: str) -> bool:
    return not (name.endswith("/") or any(part.startswith((".", "_")) for part in PurePath(name).parts))
