"""Gzip read so that nothing before a damage is lost, and the damage has a place."""

import zlib
from pathlib import Path

_PIECE_BYTES = 1 << 20
_SMALL_STEP_BYTES = 4096
_WBITS = 31


class GzipStream:
    """The decompressed content of a gzip file of one or more members, for ``pyarrow.PythonFile``.

    A file that is cut or damaged gives all that can be decompressed, and raises at the next read.
    """

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb")  # noqa: SIM115 - closed by close
        self._decompressor = zlib.decompressobj(_WBITS)
        self._compressed = b""
        self._offset = 0  # of what follows ``_compressed`` in the file
        self._begun = False  # whether the current member has begun
        self._damage: OSError | None = None
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes: fewer than ``size`` at the end and before a damage.

        Raises:
          OSError: The rest is damaged; with the offset in the compressed file.
        """
        parts, left = [], size if size >= 0 else 1 << 62
        while left and self._damage is None:
            part = self._next(left)
            if not part:
                break
            parts.append(part)
            left -= len(part)
        if not parts and size and self._damage is not None:
            raise self._damage
        return b"".join(parts)

    def readable(self) -> bool:
        """Returns True."""
        return True

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        self.closed = True

    def _next(self, size: int) -> bytes:
        while True:
            if self._decompressor.eof:
                self._compressed = self._decompressor.unused_data.lstrip(b"\0")  # padding of tapes
                self._decompressor = zlib.decompressobj(_WBITS)
                self._begun = False
            if not self._compressed:
                self._compressed = self._file.read(_PIECE_BYTES)
                self._offset += len(self._compressed)
                if not self._compressed:
                    if self._begun:
                        self._damage = OSError(f"the gzip file ends at byte {self._offset}, before its content does")
                    return b""
            before = self._decompressor.copy()
            try:
                content = self._decompressor.decompress(self._compressed, min(size, _PIECE_BYTES))
            except zlib.error as e:
                begin = self._offset - len(self._compressed)
                self._damage = OSError(f"the gzip file is damaged, behind its byte {begin}: {e}")
                return _before_damage(before, self._compressed)
            self._begun = True
            if not self._decompressor.eof:
                self._compressed = self._decompressor.unconsumed_tail
            if content:
                return content


def _before_damage(decompressor: "zlib._Decompress", compressed: bytes) -> bytes:
    """Returns what can be decompressed before an error."""
    parts = []
    for step in (_SMALL_STEP_BYTES, 1):
        while True:
            before = decompressor.copy()
            try:
                part = decompressor.decompress(compressed, step)
            except zlib.error:
                decompressor = before
                break
            if not part:
                break
            parts.append(part)
            compressed = decompressor.unconsumed_tail
    return b"".join(parts)
