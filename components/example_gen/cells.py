"""From rows as their file has them to batches of typed columns, but for rows with a cell that cannot be converted."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lockstep.components.example_gen.arrow_casts import arrow_type
from lockstep.components.example_gen.conversion import convert
from lockstep.components.example_gen.options import CellOptions, ColumnType
from lockstep.components.example_gen.source import FaultList, Positions, RowBatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawRows:
    """Some rows of a file, not converted yet.

    Args:
      path: The file.
      positions: Where each row is, as in ``RowBatch``.
      columns: The columns that are wanted, of any type that ``convert`` takes.
      hashed: As in ``RowBatch``.
      raw: From the number of a row to its text, for those that are rejected.
      records: As in ``RowBatch``, and so ``files``.
    """

    path: str
    positions: Positions
    columns: Mapping[str, pa.Array]
    hashed: Mapping[str, pa.Array]
    raw: Callable[[int], bytes]
    records: pa.Array | None = None
    files: Sequence[str] | None = None


class RowConverter:
    """Converts the rows of one unit.

    Args:
      types: Of the columns wanted.
      cells: How times and lists are written.
      faults: Takes the rows that cannot be converted.
      place: The source's.
      remedy: From a column's name to what may be done about a cell of it that cannot be converted.
    """

    def __init__(
        self,
        types: Mapping[str, ColumnType],
        cells: CellOptions,
        faults: FaultList,
        place: Callable[[str, int], str],
        remedy: Callable[[str], str],
    ) -> None:
        self._types = types
        self._cells = cells
        self._faults = faults
        self._place = place
        self._remedy = remedy
        self._noted: set[str] = set()

    def convert(self, rows: RawRows) -> RowBatch:
        """Returns the rows whose cells can all be converted, and all that were rejected since the last call.

        Raises:
          DataError: A cell cannot be converted, with ``on_error: fail``.
        """
        columns: dict[str, pa.Array] = {}
        problems: dict[int, str] = {}
        losses: dict[str, tuple[int, str]] = {}
        for name, kind in self._types.items():
            conversion = convert(rows.columns[name], kind, self._cells, name)
            columns[name] = conversion.values
            for row, problem in conversion.faults.items():
                problems.setdefault(row, f"column {name!r}: {problem}; {self._remedy(name)}")
            if conversion.loss is not None and name not in self._noted:
                losses[name] = conversion.loss
        for row in sorted(problems):
            path = rows.path if rows.files is None else rows.files[row]
            self._faults.add(path, int(rows.positions[row]), problems[row], rows.raw(row))
        batch = RowBatch(
            path=rows.path,
            positions=rows.positions,
            columns=columns,
            hashed=rows.hashed,
            records=rows.records,
            files=rows.files,
        )
        if problems:
            keep = np.ones(len(rows.positions), np.bool_)
            keep[list(problems)] = False
            batch = batch.filtered(keep)
        notes = {f"precision:{name}": self._note(rows, name, *loss) for name, loss in losses.items()}
        self._noted |= losses.keys()
        return dataclasses.replace(batch, rejected=self._faults.taken(), notes=notes)

    def rest(self, path: str, hashed: Mapping[str, pa.DataType]) -> RowBatch | None:
        """Returns what was rejected since the last batch as a batch without rows; None if nothing was."""
        rejected = self._faults.taken()
        if not rejected:
            return None
        return RowBatch(
            path=path,
            positions=np.zeros(0, np.int64),
            columns={name: pa.nulls(0, arrow_type(kind)) for name, kind in self._types.items()},
            hashed={name: pa.nulls(0, kind) for name, kind in hashed.items()},
            rejected=rejected,
        )

    def _note(self, rows: RawRows, name: str, row: int, loss: str) -> str:
        path = rows.path if rows.files is None else rows.files[row]
        note = f"{self._place(path, int(rows.positions[row]))}: column {name!r}: {loss}"
        if self._types[name] != "float":
            return note
        return f"{note}; declare data.types.{name}: string, or int if all its values are whole"
