"""The ``data`` block of a pipeline's configuration."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

ColumnType = Literal["int", "float", "string"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """How CSV text is read.

    Args:
      delimiter: One character.
      encoding: A Python codec name; the text is decoded with it before parsing.
      null_tokens: Cells that mean "no value"; an empty cell always does.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    null_tokens: tuple[str, ...] = ("NA", "N/A", "null", "NULL", "None", "nan", "NaN", "-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where the rows come from and how they are dealt into splits and shards.

    Args:
      path: A file, a folder or a glob; relative paths are relative to the YAML file.
      format: ``csv`` or ``parquet``; None picks by the file's name.
      splits: Name of split -> weight (integers of 1 or more). A row goes to a split by the hash of its values, so
        it stays there when rows are added.
      num_shards: Files per split.
      types: Column -> type, where the inferred one is not wanted.
      options: How CSV is read.
    """

    path: str
    format: Literal["csv", "parquet"] | None = None
    splits: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"train": 2, "eval": 1})
    num_shards: int = 4
    types: Mapping[str, ColumnType] = dataclasses.field(default_factory=dict)
    options: CsvOptions = CsvOptions()
