"""One gzip stream of parts that were compressed apart, each by another process.

A part is a run of deflate blocks that ends on a whole byte and refers to nothing before it, so parts stand one after
another; the checksum of all follows from those of the parts (zlib's ``crc32_combine``). Readers that take one gzip
member for a whole file see one.
"""

import dataclasses
import functools
import zlib
from typing import IO

_LEVEL = 1  # level 6 takes three times as long for a tenth less
_RAW_WBITS = -15
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"  # no name and no time, so that equal records give equal files
_FINAL_BLOCK = b"\x03\x00"
_POLYNOMIAL = 0xEDB88320


@dataclasses.dataclass(frozen=True)
class GzipPart:
    """Compressed bytes, and the CRC-32 and the length of what they hold."""

    data: bytes
    crc: int
    length: int


def compress_part(content: "bytes | memoryview") -> GzipPart:
    """Returns the content as a part; equal content gives equal bytes."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_WBITS)
    data = compressor.compress(content) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return GzipPart(data=data, crc=zlib.crc32(content), length=len(content))


class GzipWriter:
    """Writes parts to a file; ``finish`` completes it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._crc, self._length = 0, 0
        file.write(_HEADER)

    def write(self, part: GzipPart) -> None:
        """Appends a part."""
        self._file.write(part.data)
        self._crc = combined_crc(self._crc, part.crc, part.length)
        self._length += part.length

    def finish(self) -> None:
        """Writes what a gzip stream ends with."""
        trailer = self._crc.to_bytes(4, "little") + (self._length % 2**32).to_bytes(4, "little")
        self._file.write(_FINAL_BLOCK + trailer)


def combined_crc(first: int, second: int, second_length: int) -> int:
    """Returns the CRC-32 of two texts, one after the other, of the checksum of each and the length of the second."""
    bit = 0
    while second_length:
        if second_length & 1:
            first = _times(_zeros(bit), first)
        second_length >>= 1
        bit += 1
    return first ^ second


# A CRC is a vector over GF(2), and appending zeros multiplies it by a matrix: one column of 32 bits a bit.
_Matrix = tuple[int, ...]


@functools.cache
def _zeros(bit: int) -> _Matrix:
    """Returns the matrix that appends ``2**bit`` zero bytes."""
    if bit == 0:
        one_bit: _Matrix = (_POLYNOMIAL, *(1 << i for i in range(31)))
        for _ in range(3):
            one_bit = _squared(one_bit)
        return one_bit
    return _squared(_zeros(bit - 1))


def _squared(matrix: _Matrix) -> _Matrix:
    return tuple(_times(matrix, column) for column in matrix)


def _times(matrix: _Matrix, vector: int) -> int:
    total = 0
    for column in matrix:
        if not vector:
            break
        if vector & 1:
            total ^= column
        vector >>= 1
    return total
