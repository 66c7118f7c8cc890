"""Conversion of the cells of a batch, row by row where one cannot be converted."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.example_gen.columns import CellError
from lockstep.components.example_gen.options import ColumnType

Convert = Callable[[pa.Array, ColumnType], pa.Array]


def convert_rows(
    values: Mapping[str, pa.Array],
    types: Mapping[str, ColumnType],
    convert: Convert,
    reject: Callable[[int, str, str], None],
) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_] | None]:
    """Returns the converted columns of the rows all of whose cells can be, and which rows those are (None: all).

    Args:
      values: Columns of equal length; those of ``types`` at least.
      types: The columns wanted.
      convert: From values to their type; raises CellError for the first that cannot be.
      reject: Called with row, column and problem of each row that is left out; may raise.
    """
    columns: dict[str, pa.Array] = {}
    problems: dict[int, tuple[str, str]] = {}
    for name, kind in types.items():
        converted = _try(convert, values[name], kind)
        if converted is not None:
            columns[name] = converted
            continue
        for error in _failing(values[name], kind, convert):
            problems.setdefault(error.row, (name, error.problem))
    if not problems:
        columns[name] = convert(values[name], kind)
    if not problems:
        return columns, None
    keep = np.ones(len(next(iter(values.values()))), np.bool_)
    for row in sorted(problems):
        reject(row, *problems[row])
        keep[row] = False
    mask = pa.array(keep)
    return {name: convert(values[name].filter(mask), kind) for name, kind in types.items()}, keep


def _failing(values: pa.Array, kind: ColumnType, convert: Convert, first: int = 0) -> list[CellError]:
    """Returns an error for each cell that cannot be converted, found by halving."""
    try:
        convert(values, kind)
    except CellError as e:
        if len(values) == 1:
            return [CellError(first, e.problem)]
        half = len(values) // 2
        begin = _failing(values.slice(0, half), kind, convert, first)
        return begin + _failing(values.slice(half), kind, convert, first + half)
    return []


def _try(convert: Convert, values: pa.Array, kind: ColumnType) -> pa.Array | None:
    try:
        return convert(values, kind)
    except CellError:
        return None
