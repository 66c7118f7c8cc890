"""Rows of JSON lines: one object a line, in UTF-8."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.components.errors import DataError
from lockstep.components.example_gen.arrow_casts import over_int64
from lockstep.components.example_gen.cells import RawRows, RowConverter
from lockstep.components.example_gen.columns import TypeInference
from lockstep.components.example_gen.compression import is_compressed
from lockstep.components.example_gen.json_blocks import JsonBlock, quick_block
from lockstep.components.example_gen.json_values import (
    NESTED,
    LineError,
    Row,
    first_over_int64,
    kinds_of,
    parse_row,
    to_array,
)
from lockstep.components.example_gen.line_ranges import LineRange, line_ranges, numbered_blocks
from lockstep.components.example_gen.options import STORED, ColumnType, DataOptions
from lockstep.components.example_gen.source import FaultList, RowBatch, merge_inferred, missing_column, resolve_inferred

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclasses.dataclass(frozen=True)
class _Lines:
    """Rows with their lines' numbers, from 1, and texts."""

    numbers: list[int]
    texts: list[bytes]
    rows: list[Row]

    def column(self, name: str) -> list[Any]:
        return [row.get(name) for row in self.rows]


class JsonSource:
    """Reads JSON lines twice, in bounded memory: first every value's type, then the rows.

    A key is a column, one within another object ``outer.inner``; null and an absent key are missing values. A list is a
    feature of several values; a column whose values are all lists of objects or lists is ``unreadable``. Numbers keep
    all their digits; a column of numbers and of texts is one of texts.

    Args:
      files: Paths; each has the columns that its lines have.
      data: Declared types, how times are read, and what becomes of lines that are no rows.

    Raises:
      DataError: On construction, when a file is in another encoding.
    """

    def __init__(self, files: Sequence[str], data: DataOptions) -> None:
        self._files = tuple(files)
        self._declared = data.types
        self._cells = data.cells
        self._on_error = data.on_error
        self.columns: tuple[str, ...] = ()
        self.unreadable: Mapping[str, str] = {}
        for path in files:
            with Path(path).open("rb") as file:
                if file.read(2) in _UTF_16:
                    raise DataError(f"{path}: is UTF-16, and JSON lines are UTF-8; convert it (iconv -t utf-8)")

    def units(self) -> Sequence[LineRange]:
        """Returns the lines of all files as ranges of bytes that end with a line; a compressed file is one."""
        units: list[LineRange] = []
        for path in self._files:
            if is_compressed(path):
                units.append(LineRange(path=path, begin=0, end=None, line=1))
            else:
                units += line_ranges(path)
        return units

    def infer(self, unit: LineRange) -> Mapping[str, TypeInference]:
        """Returns what the lines of a range say of all columns.

        Raises:
          DataError: A line is no row, with ``on_error: fail``.
        """
        inferences: dict[str, TypeInference] = {}
        faults = FaultList(self._on_error, self.place)
        for first, block in numbered_blocks(unit, faults):
            quick = quick_block(block)
            if quick is not None:
                for name, array in quick.columns.items():
                    inference = inferences.setdefault(name, TypeInference())
                    if array.null_count < len(array):
                        inference.see(quick.kind(name))
                continue
            lines = self._lines(unit.path, first, block, faults)
            faults.taken()  # they are told by ``batches``
            for name in dict.fromkeys(name for row in lines.rows for name in row):
                inference = inferences.setdefault(name, TypeInference())
                values = lines.column(name)
                kinds, has_lists = kinds_of(values)
                inference.is_list |= has_lists
                for kind in sorted(kinds):
                    inference.see(kind)
                over = first_over_int64(values) if "int" in kinds and inference.over_int64 is None else None
                if over is not None:
                    inference.over_int64 = unit.path, lines.numbers[over[0]], over_int64(over[1])
                if inference.nested is None and NESTED in values:
                    inference.nested = unit.path, lines.numbers[values.index(NESTED)]
        return inferences

    def resolve(self, found: Iterable[Mapping[str, TypeInference]]) -> dict[str, ColumnType]:
        """Returns the type of each column, declared or seen in all files, and knows the columns from then on.

        Raises:
          DataError: A whole number is over int64, with ``on_error: fail``, or a declared column is not there.
        """
        merged = merge_inferred(found)
        self.unreadable = {
            name: f"{self.place(*inference.nested)}: column {name!r} holds lists of objects or of lists; no feature can"
            for name, inference in merged.items()
            if inference.kind == "empty" and inference.nested is not None
        }
        self.columns = tuple(name for name in merged if name not in self.unreadable)
        for name in self._declared:
            if name in self.unreadable:
                raise DataError(self.unreadable[name])
            if name not in self.columns:
                raise DataError(f"data.types.{name}: {missing_column(name, self._files[0], self.columns)}")
        return resolve_inferred(self, self._declared, [merged], self._on_error)

    def batches(self, unit: LineRange, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the rows of a range.

        Args:
          unit: One of ``units()``.
          types: Of the columns wanted.

        Raises:
          DataError: A value does not have its type, or a line is no row, with ``on_error: fail``.
        """
        faults = FaultList(self._on_error, self.place)
        converter = RowConverter(types, self._cells, faults, self.place, _remedy)
        for first, block in numbered_blocks(unit, faults):
            quick = quick_block(block)
            if quick is not None and all(quick.holds(name, STORED[kind]) for name, kind in types.items()):
                yield converter.convert(_quick_rows(unit.path, first, quick, types))
                continue
            parsed = self._lines(unit.path, first, block, faults)
            columns, lines = self._columns(unit.path, parsed, types, faults)
            yield converter.convert(
                RawRows(
                    path=unit.path,
                    positions=np.array(lines.numbers, np.int64),
                    columns=columns,
                    hashed={"line": pa.array([text.strip() for text in lines.texts], pa.binary())},
                    raw=functools.partial(_raw, lines),
                )
            )
        rest = converter.rest(unit.path, {"line": pa.binary()})
        if rest is not None:
            yield rest

    def place(self, path: str, position: int) -> str:
        """Returns ``file:line``."""
        return f"{path}:{position}"

    def _columns(
        self, path: str, lines: _Lines, types: Mapping[str, ColumnType], faults: FaultList
    ) -> tuple[dict[str, pa.Array], _Lines]:
        """Returns the columns wanted, and the lines without those that have a value that no array can hold."""
        columns = {name: to_array(lines.column(name), as_text=STORED[kind] == "string") for name, kind in types.items()}
        problems: dict[int, str] = {}
        for name, column in columns.items():
            for row, problem in column.faults.items():
                problems.setdefault(row, f"column {name!r}: {problem}; mend or remove it")
        if not problems:
            return {name: column.values for name, column in columns.items()}, lines
        for row in sorted(problems):
            faults.add(path, lines.numbers[row], problems[row], lines.texts[row])
        kept = [row for row in range(len(lines.rows)) if row not in problems]
        mask = pa.array(kept, pa.int64())
        return {name: column.values.take(mask) for name, column in columns.items()}, _Lines(
            [lines.numbers[row] for row in kept], [lines.texts[row] for row in kept], [lines.rows[row] for row in kept]
        )

    def _lines(self, path: str, first: int, block: bytes, faults: FaultList) -> _Lines:
        lines = _Lines([], [], [])
        for number, text in enumerate(block.removesuffix(b"\n").split(b"\n"), first):
            if not text or text.isspace():
                continue
            try:
                row = parse_row(text)
            except LineError as e:
                faults.add(path, number, str(e), text, e)
                continue
            lines.numbers.append(number)
            lines.texts.append(text)
            lines.rows.append(row)
        return lines


def _quick_rows(path: str, first: int, block: JsonBlock, names: Iterable[str]) -> RawRows:
    num_rows = len(block.texts)
    return RawRows(
        path=path,
        positions=np.arange(first, first + num_rows),
        columns={name: block.columns.get(name, pa.nulls(num_rows, pa.string())) for name in names},
        hashed={"line": block.texts},
        raw=lambda row: bytes(block.texts[row].as_py()),
    )


def _raw(lines: _Lines, row: int) -> bytes:
    return lines.texts[row]


def _remedy(name: str) -> str:
    return f"mend the value, or declare data.types.{name}"
