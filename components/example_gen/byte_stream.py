"""The bytes of a file, decompressed piece by piece, up to the very byte where it is cut or damaged."""

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.components.example_gen.compression import READ_ERRORS, open_bytes

_COMPRESSED_BYTES = 64 << 10
_PIECE_BYTES = 4 << 20
_DETECT = 32 + zlib.MAX_WBITS  # zlib finds out itself whether a stream has the header of gzip or of zlib
_GZIP = b"\x1f\x8b"


class CutStream(Exception):
    """A file ends too early or is damaged; all before was given.

    Args:
      problem: What is wrong, with the offset in the file, or of what was decompressed.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def is_zlib(start: bytes) -> bool:
    """Tells whether bytes are the start of a zlib stream (RFC 1950); others may look so, one in a thousand."""
    return len(start) >= 2 and start[0] & 0x0F == 8 and start[0] >> 4 <= 7 and (start[0] << 8 | start[1]) % 31 == 0


def read_pieces(path: str, *, may_be_zlib: bool = False) -> Iterator[bytes]:
    """Gives the content of a file, decompressed as its first bytes tell (see ``open_bytes``), some MB at a time.

    Args:
      path: The file.
      may_be_zlib: Whether a file that looks like a zlib stream is one.

    Raises:
      CutStream: The file is cut or damaged. What could be decompressed of it was given before.
      DataError: An archive that cannot be read at all.
    """
    with Path(path).open("rb") as file:
        start = file.read(2)
        if start == _GZIP or (may_be_zlib and is_zlib(start)):
            file.seek(0)
            yield from _inflated(file)
            return
    given = 0
    try:
        with open_bytes(path) as stream:
            while piece := stream.read(_PIECE_BYTES):
                given += len(piece)
                yield piece
    except READ_ERRORS as e:
        raise CutStream(f"cannot be read after byte {given} of what it holds: {e}") from e


def _inflated(file: Any) -> Iterator[bytes]:
    """Gives what gzip members or zlib streams, one after another, hold."""
    offset = 0
    inflater = zlib.decompressobj(_DETECT)
    begun = True
    while chunk := file.read(_COMPRESSED_BYTES):
        while chunk:
            if inflater.eof:
                chunk = chunk.lstrip(b"\0")  # padding, as tapes and some tools add
                if not chunk:
                    break
                inflater = zlib.decompressobj(_DETECT)
            before = inflater.copy()
            try:
                piece = inflater.decompress(chunk)
            except zlib.error as e:
                good, at = _before_the_fault(before, chunk)
                yield good
                raise CutStream(f"is damaged at byte {offset + at} of the file ({e})") from e
            begun = not inflater.eof
            if piece:
                yield piece
            offset += len(chunk) - len(inflater.unused_data)
            chunk = inflater.unused_data
    if begun:
        raise CutStream(f"is cut: it ends at byte {offset}, and its compressed data go on")


def _before_the_fault(inflater: Any, chunk: bytes) -> tuple[bytes, int]:
    """Returns what a chunk holds up to the byte at which it cannot be decompressed any more, and where that is."""
    good = []
    at = 0
    with contextlib.suppress(zlib.error):
        for at in range(len(chunk)):
            good.append(inflater.decompress(chunk[at : at + 1]))
    return b"".join(good), at
