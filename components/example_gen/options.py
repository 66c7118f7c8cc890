"""The ``data`` block of a pipeline's configuration."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

from lockstep.components.object_store import check_uri

ColumnType = Literal["int", "float", "string"]

_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """How CSV text is read.

    Args:
      delimiter: One character of ASCII.
      encoding: A Python codec name; the text is decoded with it before parsing.
      null_tokens: Cells that mean "no value"; an empty cell always does.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    null_tokens: tuple[str, ...] = ("NA", "N/A", "null", "NULL", "None", "nan", "NaN", "-")

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise ValueError(f"delimiter: {self.delimiter!r} is not allowed; give one character, such as ',' or ';'")
        try:
            "".encode(self.encoding)  # codecs.lookup would take those that are not of text, such as rot13
        except LookupError as e:
            raise ValueError(
                f"encoding: {self.encoding!r} is not allowed; give a Python codec, such as 'utf-8' or 'latin-1'"
            ) from e


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where the rows come from and how they are dealt into splits and shards.

    Args:
      path: A file, a folder or a glob, here or in an object store (``s3://``, ``gs://``, ``minio://``), or
        ``package:NAME/PATH``, which an installed package brings. Relative paths are relative to the YAML file. Hidden
        files and files named ``_*`` in a folder or glob are left out. TFX's ``{SPAN}``, ``{VERSION}`` and date patterns
        are understood. CSV may be compressed: gzip, bzip2, zstd, or a zip archive of one file.
      format: ``csv`` or ``parquet``; None picks by the file's name. A Parquet column that holds neither numbers,
        strings nor times, such as lists, is left out with a warning, and is an error where it is needed.
      splits: Name of split -> weight (integers of 1 or more). A row goes to a split by the hash of its values, so
        it stays there when rows are added.
      num_shards: Files per split, 1 or more.
      types: Column -> type, where the inferred one is not wanted.
      options: How CSV is read.
    """

    path: str
    format: Literal["csv", "parquet"] | None = None
    splits: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"train": 2, "eval": 1})
    num_shards: int = 4
    types: Mapping[str, ColumnType] = dataclasses.field(default_factory=dict)
    options: CsvOptions = CsvOptions()

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path: '' is not allowed; give a file, folder or glob")
        try:
            check_uri(self.path)
        except ValueError as e:
            raise ValueError(f"path: {e}") from e
        if not self.splits:
            raise ValueError("splits: {} is not allowed; name at least one, such as {train: 2, eval: 1}")
        for name, weight in self.splits.items():
            if not _SPLIT_NAME.fullmatch(name):
                raise ValueError(f"splits: the name {name!r} is not allowed; use letters, digits, '_' and '-'")
            if weight < 1:
                raise ValueError(f"splits.{name}: {weight} is not allowed; give 1 or more")
        if not 1 <= self.num_shards <= 1000:
            raise ValueError(f"num_shards: {self.num_shards} is not allowed; give 1 to 1000")
        for column, kind in self.types.items():
            if kind not in ("int", "float", "string"):
                raise ValueError(f"types.{column}: {kind!r} is not allowed; give int, float or string")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirements:
    """What the rest of the pipeline needs of the rows.

    Args:
      columns: Must be there, with a value in some row of the split ``train`` (of all rows, without such a split).
      complete_columns: Must be there, and have a value in every row: the label's.
      complete_if_present: Need not be there, but must have a value in every row if they are: the label's where a
        function of the user's may make it of other columns.
      on_missing: What a row without such a value means: ``error`` stops, ``drop`` leaves the row out and counts it.
    """

    columns: tuple[str, ...] = ()
    complete_columns: tuple[str, ...] = ()
    complete_if_present: tuple[str, ...] = ()
    on_missing: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        if self.on_missing not in ("error", "drop"):
            raise ValueError(f"on_missing: {self.on_missing!r} is not allowed; give error or drop")
