"""Compressed bytes, decompressed piece by piece up to the place where they are cut or damaged.

Each function gives all that can be had, and raises only then. Of deflate that is every byte before the damage; bzip2
and zstd compress in blocks, of which one that is not whole gives nothing.
"""

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

GZIP_WBITS = 16 + zlib.MAX_WBITS
ZLIB_WBITS = zlib.MAX_WBITS
RAW_DEFLATE_WBITS = -zlib.MAX_WBITS

_PIECE_BYTES = 1 << 20
_COMPRESSED_BYTES = 64 << 10
_STEP_BYTES = 512  # of blocks that end within as many compressed bytes as a damaged one, none can be had


class DamagedFile(OSError):
    """A file ends too early or is damaged; the text says where. All that can be had of it was given before."""


def inflated(file: IO[bytes], wbits: int, *, several: bool = True) -> Iterator[bytes]:
    """Gives what gzip members or zlib streams hold, from where a file stands.

    Args:
      file: Its offsets are those of messages; left behind the last stream, or somewhat further.
      wbits: As of ``zlib.decompressobj``.
      several: Whether the file holds nothing but streams, one after another, and zeros between them, as tapes add.
        Otherwise one is read, whatever follows it.

    Raises:
      DamagedFile: It is cut or damaged.
    """
    offset = file.tell()
    inflater = zlib.decompressobj(wbits)
    while chunk := file.read(_COMPRESSED_BYTES):
        while chunk:
            if inflater.eof:
                stripped = chunk.lstrip(b"\0")
                offset, chunk = offset + len(chunk) - len(stripped), stripped
                if not chunk:
                    break
                inflater = zlib.decompressobj(wbits)
            before = inflater.copy()
            try:
                piece = inflater.decompress(chunk, _PIECE_BYTES)
            except zlib.error as e:
                good, at = _before_the_fault(before, chunk)
                yield good
                raise DamagedFile(_damaged(offset + at, str(e).rpartition(": ")[2])) from e
            rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            offset, chunk = offset + len(chunk) - len(rest), rest
            if piece:
                yield piece
            if inflater.eof and not several:
                return
    if not inflater.eof:
        yield inflater.flush()
        raise DamagedFile(_cut(offset))


def unpacked_bzip2(file: IO[bytes], *, several: bool = True) -> Iterator[bytes]:
    """Gives what bzip2 streams hold, from where a file stands; ``inflated`` describes arguments and errors."""
    return _fed(file, bz2.BZ2Decompressor, several=several)


def unpacked_lzma(file: IO[bytes], length: int) -> Iterator[bytes]:
    """Gives what an LZMA stream holds as zip archives have it (section 5.8 of PKWARE's APPNOTE.TXT).

    Args:
      file: Stands at its begin.
      length: Bytes of what it holds: the stream need not have an end of its own.

    Raises:
      DamagedFile: It is cut or damaged.
    """
    begin, head = file.tell(), file.read(9)
    if len(head) < 9:
        raise DamagedFile(_cut(begin + len(head)))
    coded = head[4]
    properties = {
        "lc": coded % 9,
        "lp": coded // 9 % 5,
        "pb": coded // 45,
        "dict_size": int.from_bytes(head[5:], "little"),
    }

    def make() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, **properties}])

    pieces, left = _fed(file, make, several=False), length
    while left > 0 and (piece := next(pieces, b"")):
        yield piece[:left]
        left -= len(piece)


def unpacked_zstd(path: str) -> Iterator[bytes]:
    """Gives what the zstd frames of a file hold.

    Raises:
      DamagedFile: It is cut or damaged.
    """
    given, end = 0, Path(path).stat().st_size
    problem: Exception | None = None
    # What Arrow has decompressed when it fails is lost, so it is asked again, for less at a time.
    for size, step in ((_PIECE_BYTES, _COMPRESSED_BYTES), (4096, _STEP_BYTES), (1, _STEP_BYTES)):
        with Path(path).open("rb") as file, _zstd_stream(file, step) as stream:
            left = given
            while left:
                left -= len(stream.read(min(left, _PIECE_BYTES)))
            try:
                while piece := stream.read(size):
                    given += len(piece)
                    yield piece
                return
            except (OSError, pa.ArrowInvalid) as e:
                problem, at = e, file.tell()
    is_cut = at == end and "runcated" in str(problem)
    raise DamagedFile(_cut(end) if is_cut else _damaged(at, str(problem))) from problem


def _zstd_stream(file: IO[bytes], step: int) -> pa.CompressedInputStream:
    return pa.CompressedInputStream(pa.PythonFile(_Steps(file, step), mode="r"), "zstd")


class _Steps:
    """A file that gives a few bytes at a time, whatever is asked for."""

    def __init__(self, file: IO[bytes], step: int) -> None:
        self._file = file
        self._step = step
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        return self._file.read(self._step if size < 0 else min(size, self._step))

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _fed(file: IO[bytes], make: Callable[[], Any], *, several: bool) -> Iterator[bytes]:
    """Gives what decompressors of ``bz2`` or ``lzma`` say, few compressed bytes at a time."""
    offset = file.tell()
    unpacker = make()
    while chunk := file.read(_STEP_BYTES):
        offset += len(chunk)
        while chunk:
            if unpacker.eof:
                unpacker = make()
            pieces = []  # held back until their block's checksum is known to be right
            try:
                pieces.append(unpacker.decompress(chunk, _PIECE_BYTES))
                while not (unpacker.eof or unpacker.needs_input):
                    pieces.append(unpacker.decompress(b"", _PIECE_BYTES))
            except (OSError, EOFError, lzma.LZMAError) as e:
                raise DamagedFile(_damaged(offset, str(e))) from e
            yield from filter(None, pieces)
            chunk = unpacker.unused_data if unpacker.eof else b""
            if unpacker.eof and not several:
                return
    if not unpacker.eof:
        raise DamagedFile(_cut(offset))


def _before_the_fault(inflater: Any, chunk: bytes) -> tuple[bytes, int]:
    """Returns what a chunk holds up to the byte at which it cannot be decompressed any more, and where that is."""
    good = []
    at = 0
    with contextlib.suppress(zlib.error):
        for at in range(len(chunk)):
            good.append(inflater.decompress(chunk[at : at + 1]))
    return b"".join(good), at


def _cut(end: int) -> str:
    return f"the file is cut: it ends at byte {end}, and its compressed data go on"


def _damaged(offset: int, problem: str) -> str:
    return f"the file is damaged at byte {offset} or before it ({problem})"
