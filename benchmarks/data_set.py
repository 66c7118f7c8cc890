"""CSV files of any number of rows, made of the taxi trips that come with the tfx package."""

import importlib.resources
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

_SOURCE = "examples/chicago_taxi_pipeline/data/simple/data.csv"


def taxi_csv(cache_dir: Path, num_rows: int) -> Path:
    """Returns a CSV file, alone in its folder, with the taxi trips repeated to ``num_rows`` rows; written once.

    The repetitions are equal. So all copies of a row fall into the same split whatever hashes them, none leaks from the
    training into the evaluation, and columns keep their distributions.

    Args:
      cache_dir: Where the folders are kept.
      num_rows: 1 or more.
    """
    path = cache_dir / f"taxi-{num_rows}" / "data.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary_path = cache_dir / f".writing-taxi-{num_rows}.csv"
        lines = importlib.resources.files("tfx").joinpath(_SOURCE).read_bytes().splitlines(keepends=True)
        with temporary_path.open("wb") as file:
            file.writelines(repeated(lines, num_rows))
        temporary_path.replace(path)
    return path


def repeated(lines: Iterable[bytes], num_rows: int) -> Iterator[bytes]:
    """Yields the first line, then the others again and again until there are ``num_rows`` of them.

    Args:
      lines: A header and at least one row; a row is one line.
      num_rows: 1 or more.

    Raises:
      ValueError: ``num_rows`` is out of range, or there is no row.
    """
    header, *rows = lines
    if num_rows < 1:
        raise ValueError(f"rows: {num_rows} is not allowed; give 1 or more")
    if not rows:
        raise ValueError("there is no row to repeat")
    yield header
    # The last line of a file may come without its line break.
    whole = (row if row.endswith(b"\n") else row + b"\n" for row in itertools.cycle(rows))
    yield from itertools.islice(whole, num_rows)
