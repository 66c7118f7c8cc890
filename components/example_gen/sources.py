"""Which reader is for which files."""

import os
from collections.abc import Sequence

from lockstep.components.errors import DataError
from lockstep.components.example_gen.csv_source import CsvSource
from lockstep.components.example_gen.files import format_of
from lockstep.components.example_gen.image_source import ImageFolderSource, ImageListSource
from lockstep.components.example_gen.json_source import JsonSource
from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_gen.parquet_source import ParquetSource
from lockstep.components.example_gen.source import Source
from lockstep.components.example_gen.tfrecord_source import TfRecordSource


def open_source(files: Sequence[str], data: DataOptions, root: str | None = None) -> Source:
    """Returns the reader for the files' format.

    Args:
      files: Paths, in the order in which they are read.
      data: Their format, and how they are read.
      root: The folder that they were found in; None is the deepest one that holds them all.

    Raises:
      DataError: The format is unknown, a name is not UTF-8, or the columns cannot be used.
    """
    kind = data.format or format_of(files)
    if kind not in ("images", "image_list") or data.keep_origin:
        _check_names(files)
    if root is None:
        root = os.path.commonpath([os.path.dirname(path) for path in files])  # noqa: PTH120 - text, as the paths are
    if kind == "parquet":
        return ParquetSource(files, data, root)
    if kind == "json":
        return JsonSource(files, data)
    if kind == "tfrecord":
        return TfRecordSource(files, data)
    if kind == "images":
        return ImageFolderSource(files, data, root)
    if kind == "image_list":
        return ImageListSource(files, data)
    return CsvSource(files, data)


def _check_names(files: Sequence[str]) -> None:
    """Refuses what Arrow neither opens nor holds in a table of origins."""
    odd = next((path for path in files if any("\ud800" <= letter <= "\udfff" for letter in path)), None)
    if odd is not None:
        raise DataError(f"{os.fsencode(odd)!r}: the file's name is not UTF-8; rename it")
