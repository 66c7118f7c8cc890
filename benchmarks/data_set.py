"""Input of any size: CSV files made of the taxi trips that come with the tfx package, and folders of small images."""

import importlib.resources
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

_SOURCE = "examples/chicago_taxi_pipeline/data/simple/data.csv"
_SHIFTED = b"trip_start_timestamp"
_NUM_CLASSES = 10
_SHIFT_S = 900  # the trips' own resolution


def taxi_csv(cache_dir: Path, num_rows: int) -> Path:
    """Returns a CSV file, alone in its folder, with the taxi trips repeated to ``num_rows`` rows; written once.

    Each repetition begins a quarter of an hour later than the one before, in a column that is no feature. With equal
    rows CsvExampleGen, which orders them by hash, would put all copies side by side, and training would suffer.

    Args:
      cache_dir: Where the folders are kept.
      num_rows: 1 or more.
    """
    path = cache_dir / f"taxi-{num_rows}" / "data.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary_path = cache_dir / f".writing-taxi-{num_rows}.csv"
        lines = importlib.resources.files("tfx").joinpath(_SOURCE).read_bytes().splitlines()
        with temporary_path.open("wb") as file:
            file.writelines(line + b"\n" for line in repeated(lines, num_rows, _SHIFTED, _SHIFT_S))
        temporary_path.replace(path)
    return path


def repeated(lines: Sequence[bytes], num_rows: int, column: bytes, shift: int) -> Iterator[bytes]:
    """Yields the first line, then the others again and again until there are ``num_rows`` of them.

    Args:
      lines: A header and at least one row, without line breaks; a row is one line.
      num_rows: 1 or more.
      column: Of whole numbers, without missing values; no column before it holds a comma.
      shift: What is added to this column in each repetition.

    Raises:
      ValueError: ``num_rows`` is out of range, or there is no row.
    """
    header, *rows = lines
    if num_rows < 1:
        raise ValueError(f"rows: {num_rows} is not allowed; give 1 or more")
    if not rows:
        raise ValueError("there is no row to repeat")
    place = header.split(b",").index(column)
    yield header
    for number in range(num_rows):
        repetition, row = divmod(number, len(rows))
        cells = rows[row].split(b",", place + 1)
        cells[place] = b"%d" % (int(cells[place]) + repetition * shift)
        yield b",".join(cells)


def image_files(cache_dir: Path, num_images: int) -> Path:
    """Returns a folder of PNG files of 16 x 16 pixels of noise, in a folder for each of ten classes; written once.

    Args:
      cache_dir: Where the folders are kept.
      num_images: 1 or more.
    """
    import numpy as np
    import tensorflow as tf

    folder = cache_dir / f"images-{num_images}"
    if not folder.exists():
        writing = cache_dir / f".writing-images-{num_images}"
        shutil.rmtree(writing, ignore_errors=True)
        noise = np.random.default_rng(num_images)
        for label in range(min(_NUM_CLASSES, num_images)):
            (writing / f"class-{label}").mkdir(parents=True)
        for number in range(num_images):
            pixels = noise.integers(0, 256, (16, 16, 3), np.uint8)
            path = writing / f"class-{number % _NUM_CLASSES}" / f"{number:07d}.png"
            path.write_bytes(tf.io.encode_png(pixels).numpy())
        writing.replace(folder)
    return folder
