"""The bytes of a file, decompressed while they are read; what it is compressed with is found by content."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.components.example_gen import zip_archive
from lockstep.components.example_gen.decompression import (
    GZIP_WBITS,
    ZLIB_WBITS,
    DamagedFile,
    inflated,
    unpacked_bzip2,
    unpacked_zstd,
)

_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte from 0x50 to 0x5f: pzstd begins so (section 3.1.2 of RFC 8878)
_PIECE_BYTES = 4 << 20
_GATHERED_BYTES = 1 << 20


def is_zlib(start: bytes) -> bool:
    """Tells whether bytes are the start of a zlib stream (RFC 1950); others may look so, one in a thousand."""
    return len(start) >= 2 and start[0] & 0x0F == 8 and start[0] >> 4 <= 7 and (start[0] << 8 | start[1]) % 31 == 0


def is_compressed(path: str) -> bool:
    """Tells whether ``read_pieces`` decompresses a file."""
    start = _start(path)
    return start.startswith((_GZIP, _BZIP2, *zip_archive.STARTS)) or _is_zstd(start)


def read_pieces(path: str, *, may_be_zlib: bool = False) -> Iterator[bytes]:
    """Returns the content of a file, some MB at a time: plain, gzip, bzip2, zstd, or the only file in a zip archive.

    Nothing is unpacked to disk or held in memory as a whole.

    Args:
      path: The file.
      may_be_zlib: Whether a file that looks like a zlib stream is one.

    Raises:
      DamagedFile: While it is read: the file is cut or damaged. All that can be had of it was given before.
      DataError: It is an archive that does not hold exactly one file, or one that cannot be unpacked.
      OSError: The file cannot be read.
    """
    start = _start(path)
    if start.startswith(zip_archive.STARTS):
        return _gathered(zip_archive.unpacked(path, zip_archive.find_member(path)))
    if _is_zstd(start):
        return _gathered(unpacked_zstd(path))
    return _streamed(path, start, may_be_zlib=may_be_zlib)


def open_bytes(path: str) -> "PieceStream | io.BufferedReader":
    """Returns what ``read_pieces`` gives as a stream; that of a plain file can be read from any place."""
    return PieceStream(read_pieces(path)) if is_compressed(path) else Path(path).open("rb")


class PieceStream(io.RawIOBase):
    """Pieces of bytes as a stream, which gives all of them before it raises what their iterator did.

    Args:
      pieces: Closed with the stream, if it can be.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._error: Exception | None = None

    def readable(self) -> bool:
        """Returns True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes: fewer than ``size`` at the end, and before an error."""
        parts, left = [], size if size >= 0 else 1 << 62
        while left and (self._rest or self._fill()):
            part = self._rest[:left]
            self._rest = self._rest[left:]
            parts.append(part)
            left -= len(part)
        if not parts and size and self._error is not None:
            raise self._error
        return b"".join(parts)

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer, and returns how many bytes."""
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Closes the file."""
        getattr(self._pieces, "close", int)()
        super().close()

    def _fill(self) -> bool:
        if self._error is not None:
            return False
        try:
            self._rest = memoryview(next(filter(None, self._pieces), b""))
        except (OSError, UnicodeDecodeError) as e:
            self._error = e
        return bool(self._rest)


def _streamed(path: str, start: bytes, *, may_be_zlib: bool) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        if start.startswith(_GZIP):
            yield from _gathered(inflated(file, GZIP_WBITS))
        elif start.startswith(_BZIP2):
            yield from _gathered(unpacked_bzip2(file))
        elif may_be_zlib and is_zlib(start):
            yield from _gathered(inflated(file, ZLIB_WBITS))
        else:
            while piece := file.read(_PIECE_BYTES):
                yield piece


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Gives some small pieces as one, and all of them before an error."""
    parts: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            parts.append(piece)
            size += len(piece)
            if size >= _GATHERED_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    except DamagedFile:
        if parts:
            yield b"".join(parts)
        raise
    if parts:
        yield b"".join(parts)


def _start(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(4)


def _is_zstd(start: bytes) -> bool:
    return start == _ZSTD or (start[1:] == _ZSTD_SKIPPABLE and 0x50 <= start[0] <= 0x5F)
