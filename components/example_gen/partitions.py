"""Columns that stand in the names of folders: ``year=2023/part-0.parquet``, as Hive and Spark write them."""

import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from lockstep.components.errors import DataError
from lockstep.components.example_gen.columns import TypeInference
from lockstep.components.example_gen.options import ColumnType

_MISSING = ("__HIVE_DEFAULT_PARTITION__", "")


class Partitions:
    """What the folders ``key=value`` between a root folder and its files say.

    Args:
      files: Paths below ``root``.
      root: Folders above it say nothing.
      besides: Columns that the files have; a key of such a name is left to them.

    Raises:
      DataError: The files differ in their keys, or one key stands twice.
    """

    def __init__(self, files: Sequence[str], root: str, besides: Collection[str]) -> None:
        found = {path: _keys(path, root) for path in files}
        self.columns = tuple(key for key in found[files[0]] if key not in besides)
        for path, keys in found.items():
            differing = {key for key in keys if key not in besides} ^ set(self.columns)
            if differing:
                names = ", ".join(sorted(differing))
                raise DataError(f"{path}: its folders key=value are not those of {files[0]}; only in one: {names}")
        self._values = {path: {key: keys[key] for key in self.columns} for path, keys in found.items()}

    @property
    def types(self) -> dict[str, ColumnType]:
        """Column -> the type that holds the values of all folders."""
        types: dict[str, ColumnType] = {}
        for name in self.columns:
            inference = TypeInference()
            texts = pa.array([values[name] for values in self._values.values()], pa.string())
            inference.add(texts, "", np.arange(len(texts)))
            is_too_large = inference.kind == "int" and inference.over_int64 is not None
            types[name] = "string" if is_too_large else inference.resolved()
        return types

    def values(self, path: str, num_rows: int, wanted: Collection[str]) -> Mapping[str, pa.Array]:
        """Returns the text of the columns wanted, the same in all rows of a file."""
        return {
            name: pa.array([value] * num_rows, pa.string())
            for name, value in self._values[path].items()
            if name in wanted
        }


def _keys(path: str, root: str) -> dict[str, str | None]:
    keys: dict[str, str | None] = {}
    for part in PurePath(path).relative_to(root).parts[:-1]:
        key, equals, value = part.partition("=")
        if not equals or not key:
            continue
        key = urllib.parse.unquote(key)
        if key in keys:
            raise DataError(f"{path}: the folder {part!r} gives {key!r} once more; rename one")
        keys[key] = None if value in _MISSING else urllib.parse.unquote(value)
    return keys
