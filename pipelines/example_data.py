"""``example:NAME``: data that Lockstep writes for its own examples, where no package brings them as files."""

import csv
import gzip
import os
import pathlib
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.package_files import resolve_package_path

_PREFIX = "example:"
_DIGITS = "package:sklearn/datasets/data/digits.csv.gz"
_DIGIT_SIDE, _DIGIT_WHITE = 8, 16


def is_example_path(path: str) -> bool:
    """Tells ``example:NAME`` from other paths."""
    return path.startswith(_PREFIX)


def example_data(path: str, root: pathlib.Path) -> str:
    """Returns the folder of an example's data below ``root``, which is written if it is not there; whole or not at all.

    Raises:
      ConfigurationError: There is no such example, or the package that it is made of is not installed.
      StepFailed: The folder cannot be written.
    """
    name = path.removeprefix(_PREFIX)
    if name not in _WRITERS:
        raise ConfigurationError(
            f"data.path: {path} is not allowed; there are {', '.join(map(_PREFIX.__add__, _WRITERS))}"
        )
    folder = root / "example-data" / name
    if folder.is_dir():
        return str(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            _WRITERS[name](temporary)
            temporary.chmod(0o755)
            os.replace(temporary, folder)  # noqa: PTH105 - of two runs at once the second finds a folder that is full
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as e:
        if folder.is_dir():
            return str(folder)
        raise StepFailed(f"data.path: {path} cannot be written to {folder}: {e.strerror}") from e
    return str(folder)


def grey_png(rows: list[bytes]) -> bytes:
    """Returns a grey image of 8 bits as a PNG file.

    Args:
      rows: From the top, each a byte a pixel, all of one length.
    """

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _write_digits(folder: pathlib.Path) -> None:
    """Writes scikit-learn's 1,797 handwritten digits, 8 by 8 pixels, in a folder for each digit."""
    with gzip.open(resolve_package_path(_DIGITS), "rt", encoding="ascii") as file:
        for number, row in enumerate(csv.reader(file)):
            *values, label = (int(float(value)) for value in row)
            pixels = bytes(round(value * 255 / _DIGIT_WHITE) for value in values)
            of_label = folder / str(label)
            of_label.mkdir(exist_ok=True)
            image = grey_png([pixels[i : i + _DIGIT_SIDE] for i in range(0, len(pixels), _DIGIT_SIDE)])
            (of_label / f"{number:04d}.png").write_bytes(image)


_WRITERS: Mapping[str, Callable[[pathlib.Path], None]] = {"digits": _write_digits}
