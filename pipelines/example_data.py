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

import numpy as np
import numpy.typing as npt

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.package_files import resolve_package_path

_PREFIX = "example:"
_DIGITS = "package:sklearn/datasets/data/digits.csv.gz"
_DIGIT_SIDE, _DIGIT_WHITE = 8, 16
_NUM_IMAGES, _HEIGHT, _WIDTH = 1500, 60, 80


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


def png(rows: list[bytes], channels: int = 1) -> bytes:
    """Returns an image of 8 bits as a PNG file.

    Args:
      rows: From the top, each ``channels`` bytes a pixel, all of one length.
      channels: 1 for grey, 3 for red, green and blue.
    """
    kind_of_color = {1: 0, 3: 2}[channels]

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", len(rows[0]) // channels, len(rows), 8, kind_of_color, 0, 0, 0)
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
            image = png([pixels[i : i + _DIGIT_SIDE] for i in range(0, len(pixels), _DIGIT_SIDE)])
            (of_label / f"{number:04d}.png").write_bytes(image)


def _write_shapes(folder: pathlib.Path) -> None:
    """Draws 1,500 images of 80 by 60 pixels with up to three shapes on them, and lists their boxes in ``boxes.csv``."""
    random = np.random.RandomState(0)  # numpy promises that its numbers stay the same
    with (folder / "boxes.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path", "boxes", "classes"])
        for number in range(_NUM_IMAGES):
            name = f"{number:04d}.png"
            pixels, boxes, classes = draw_shapes(random)
            (folder / name).write_bytes(png([row.tobytes() for row in pixels], channels=3))
            writer.writerow([name, " ".join(str(side) for box in boxes for side in box), " ".join(classes)])


def draw_shapes(
    random: np.random.RandomState,
) -> tuple[npt.NDArray[np.uint8], list[tuple[int, int, int, int]], list[str]]:
    """Draws an image of none to three shapes that overlap a little at most, on a noisy background.

    Returns:
      The image, uint8 [60, 80, 3]; for each shape the box around its pixels, x_min, y_min, x_max, y_max; and what it
      is: ``disc``, ``square`` or ``triangle``.
    """
    background = random.uniform(40, 200, 3)
    pixels = background + random.normal(0, 12, (_HEIGHT, _WIDTH, 3))
    y, x = np.mgrid[:_HEIGHT, :_WIDTH] + 0.5
    boxes: list[tuple[int, int, int, int]] = []
    classes: list[str] = []
    covered = np.zeros((_HEIGHT, _WIDTH), bool)
    for _ in range(random.choice(4, p=[0.04, 0.36, 0.4, 0.2])):
        side = random.uniform(14, 30)
        top, left = random.uniform(0, _HEIGHT - side), random.uniform(0, _WIDTH - side)
        name = ("disc", "square", "triangle")[random.randint(3)]
        v, u = (y - top) / side, (x - left) / side
        within = (v >= 0) & (v <= 1) & (u >= 0) & (u <= 1)
        if name == "disc":
            within = (v - 0.5) ** 2 + (u - 0.5) ** 2 <= 0.25
        elif name == "triangle":
            within &= np.abs(u - 0.5) <= v / 2
        color = random.uniform(0, 255, 3)
        if (covered & within).any() or np.abs(color - background).max() < 60:
            continue
        covered |= within
        pixels = np.where(within[..., np.newaxis], color + random.normal(0, 8, pixels.shape), pixels)
        rows, columns = np.flatnonzero(within.any(axis=1)), np.flatnonzero(within.any(axis=0))
        boxes.append((int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1))
        classes.append(name)
    return np.clip(np.round(pixels), 0, 255).astype(np.uint8), boxes, classes


_WRITERS: Mapping[str, Callable[[pathlib.Path], None]] = {"digits": _write_digits, "detection": _write_shapes}
