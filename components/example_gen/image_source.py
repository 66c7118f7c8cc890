"""Images as encoded bytes: files in folders named by their class, or files that a CSV file lists."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.components.errors import DataError
from lockstep.components.example_gen.cells import RawRows, RowConverter
from lockstep.components.example_gen.columns import TypeInference
from lockstep.components.example_gen.csv_source import CsvSource
from lockstep.components.example_gen.image_files import ImageError, read_image
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.source import FaultList, RowBatch, missing_column

_UNIT_FILES = 1000
_BATCH_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageRange:
    """Files ``begin`` to ``end`` of those of a source; ``path`` is the first one."""

    path: str
    begin: int
    end: int


class ImageFolderSource:
    """Reads image files, some MB at a time: their bytes as they are, the folder that each is in, and its path.

    Args:
      files: Paths below ``root``.
      data: Names of the columns, and what becomes of files that are no images.
      root: The folder of the class folders.

    Raises:
      DataError: A declared type that cannot be, on construction.
    """

    def __init__(self, files: Sequence[str], data: DataOptions, root: str) -> None:
        self._files = tuple(files)
        self._names = data.images
        self._cells = data.cells
        self._root = root
        self._on_error = data.on_error
        self._declared = data.types
        self.columns = tuple(name for name in (data.images.column, data.images.label, data.images.path) if name)
        self.unreadable: Mapping[str, str] = {}
        for name in data.types:
            if name not in self.columns:
                raise DataError(f"data.types.{name}: {missing_column(name, root, self.columns)}")

    def units(self) -> Sequence[ImageRange]:
        """Returns the files in ranges of ``_UNIT_FILES``."""
        num_files = len(self._files)
        return [
            ImageRange(path=self._files[begin], begin=begin, end=min(begin + _UNIT_FILES, num_files))
            for begin in range(0, num_files, _UNIT_FILES)
        ]

    def infer(self, unit: ImageRange) -> Mapping[str, TypeInference]:
        """Returns nothing: bytes and names are strings."""
        return {}

    def resolve(self, found: Iterable[Mapping[str, TypeInference]]) -> dict[str, ColumnType]:
        """Returns the type of each column: ``string`` unless declared, as of folders 0, 1, 2."""
        for _ in found:
            pass
        return {name: self._declared.get(name, "string") for name in self.columns}

    def batches(self, unit: ImageRange, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the images of a range.

        Args:
          unit: One of ``units()``.
          types: Of the columns wanted.

        Raises:
          DataError: A file is no image or lies in no class folder, with ``on_error: fail``.
        """
        faults = FaultList(self._on_error, self.place)
        converter = RowConverter(types, self._cells, faults, self.place, lambda name: f"declare data.types.{name}")
        paths: list[str] = []
        images: list[bytes] = []
        size = 0
        for path in self._files[unit.begin : unit.end]:
            try:
                image = read_image(path)
                if self._names.label and os.path.dirname(path) == self._root.rstrip("/"):  # noqa: PTH120 - text
                    raise ImageError("lies in no class folder; move it into one, or give data.images.label: ''")
            except ImageError as e:
                faults.add(path, 1, str(e), b"", e)
                continue
            paths.append(path)
            images.append(image)
            size += len(image)
            if size >= _BATCH_BYTES:
                yield self._batch(paths, images, types, converter)
                paths, images, size = [], [], 0
        if paths:
            yield self._batch(paths, images, types, converter)
        rest = converter.rest(unit.path, {self._names.column: pa.binary()})
        if rest is not None:
            yield rest

    def place(self, path: str, position: int) -> str:
        """Returns the file."""
        return path

    def _batch(
        self, paths: list[str], images: list[bytes], types: Mapping[str, ColumnType], converter: RowConverter
    ) -> RowBatch:
        columns = {self._names.column: pa.array(images, pa.binary())}
        hashed = dict(columns)  # so that an image that is there twice is in one split
        names = [os.path.relpath(path, self._root) for path in paths]
        if self._names.label:
            labels = [os.path.basename(os.path.dirname(path)) for path in paths]  # noqa: PTH119, PTH120 - text
            columns[self._names.label] = pa.array([os.fsencode(label) for label in labels], pa.binary())
        if self._names.path:
            columns[self._names.path] = pa.array([os.fsencode(name) for name in names], pa.binary())
        rows = RawRows(
            path=paths[0],
            positions=np.ones(len(paths), np.int64),
            columns={name: columns[name] for name in types},
            hashed=hashed,
            raw=lambda row: os.fsencode(names[row]),
            files=tuple(paths),
        )
        return converter.convert(rows)


class ImageListSource:
    """Reads a CSV file with the names of images and anything else, and the images.

    Args:
      files: One CSV file, and the images that it lists, by paths relative to its folder.
      data: Names of the columns of image and path, and how CSV is read.

    Raises:
      DataError: There is no CSV file or there are several, or it has no column of paths.
    """

    def __init__(self, files: Sequence[str], data: DataOptions) -> None:
        lists = [path for path in files if Path(path).suffix.lower() in (".csv", ".tsv", ".txt")]
        if len(lists) != 1:
            named = ", ".join(lists[:3]) or "none"
            raise DataError(
                f"format image_list takes one CSV file and its images (give data.path as FOLDER/**), and got {named}"
            )
        self._rows = CsvSource(lists, dataclasses.replace(data, types=_without(data.types, data.images.column)))
        self._folder = os.path.dirname(lists[0])  # noqa: PTH120 - text, as the files' names are
        self._known = frozenset(files)
        self._names = data.images
        self._on_error = data.on_error
        if self._names.path not in self._rows.columns:
            raise DataError(f"data.images.path: {missing_column(self._names.path, lists[0], self._rows.columns)}")
        if self._names.column in self._rows.columns:
            raise DataError(
                f"{lists[0]}: has a column {self._names.column!r}, which is that of the images; give data.images.column"
            )
        self.columns = (self._names.column, *self._rows.columns)
        self.unreadable: Mapping[str, str] = {}

    def units(self) -> Sequence[Any]:
        """Returns the ranges of the CSV file."""
        return self._rows.units()

    def infer(self, unit: Any) -> Mapping[str, TypeInference]:
        """Returns what the CSV file says of the columns' types."""
        return self._rows.infer(unit)

    def resolve(self, found: Iterable[Mapping[str, TypeInference]]) -> dict[str, ColumnType]:
        """Returns the types of the columns; paths are strings."""
        types = self._rows.resolve(found)
        return {self._names.column: "string", **types, self._names.path: "string"}

    def batches(self, unit: Any, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the rows of a range with their images, at most some MB at a time.

        Args:
          unit: One of ``units()``.
          types: Of the columns wanted.

        Raises:
          DataError: As of CSV, or a file is absent or no image, with ``on_error: fail``.
        """
        faults = FaultList(self._on_error, self.place)
        of_rows = _without(types, self._names.column) | {self._names.path: "string"}
        for batch in self._rows.batches(unit, of_rows):
            if batch.rejected or not batch.num_rows:
                yield self._empty(batch, types)
            begin, size, images = 0, 0, list[bytes | None]()
            for row, name in enumerate(batch.columns[self._names.path].to_pylist()):
                images.append(self._read(name, batch, row, faults))
                size += len(images[-1] or b"")
                if size >= _BATCH_BYTES or row + 1 == batch.num_rows:
                    yield self._joined(batch, begin, images, types, faults)
                    begin, size, images = row + 1, 0, []

    def place(self, path: str, position: int) -> str:
        """Returns ``file:line`` of the CSV file."""
        return self._rows.place(path, position)

    def _read(self, name: bytes | None, batch: RowBatch, row: int, faults: FaultList) -> bytes | None:
        position = int(batch.positions[row])
        if name is None:
            faults.add(batch.path, position, f"column {self._names.path!r} has no value, and names the image", b"")
            return None
        path = os.path.normpath(os.path.join(self._folder, os.fsdecode(name)))  # noqa: PTH118 - text
        try:
            if path not in self._known:
                raise ImageError("is not among the files of data.path; give FOLDER/** with the list and its images")
            return read_image(path)
        except ImageError as e:
            faults.add(batch.path, position, f"{path}: {e}", name, e)
            return None

    def _joined(
        self,
        batch: RowBatch,
        begin: int,
        images: list[bytes | None],
        types: Mapping[str, ColumnType],
        faults: FaultList,
    ) -> RowBatch:
        keep = np.zeros(batch.num_rows, np.bool_)
        keep[begin : begin + len(images)] = [image is not None for image in images]
        part = batch.filtered(keep)
        found = pa.array([image for image in images if image is not None], pa.binary())
        columns = {**part.columns, self._names.column: found}
        return dataclasses.replace(
            part, columns={name: columns[name] for name in types}, hashed={self._names.column: found},
            rejected=faults.taken(), notes=batch.notes if not begin else {},
        )  # fmt: skip

    def _empty(self, batch: RowBatch, types: Mapping[str, ColumnType]) -> RowBatch:
        """Returns what was rejected of the rows of the CSV file, without any row."""
        part = batch.filtered(np.zeros(batch.num_rows, np.bool_))
        none = pa.array([], pa.binary())
        columns = {**part.columns, self._names.column: none}
        return dataclasses.replace(
            part, columns={name: columns[name] for name in types}, hashed={self._names.column: none}, notes={}
        )


def _without(types: Mapping[str, ColumnType], column: str) -> dict[str, ColumnType]:
    return {name: kind for name, kind in types.items() if name != column}
