"""Which reader is for which files."""

import os
from collections.abc import Sequence

from lockstep.components.example_gen.csv_source import CsvSource
from lockstep.components.example_gen.files import format_of
from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_gen.parquet_source import ParquetSource
from lockstep.components.example_gen.source import Source


def open_source(files: Sequence[str], data: DataOptions, root: str | None = None) -> Source:
    """Returns the reader for the files' format.

    Args:
      files: Paths, in the order in which they are read.
      data: Their format, and how they are read.
      root: The folder that they were found in; None is the deepest one that holds them all.

    Raises:
      DataError: The format is unknown, or the columns cannot be used.
    """
    kind = data.format or format_of(files)
    if root is None:
        root = os.path.commonpath([os.path.dirname(path) for path in files])  # noqa: PTH120 - text, as the paths are
    if kind == "parquet":
        return ParquetSource(files, data, root)
    return CsvSource(files, data)
