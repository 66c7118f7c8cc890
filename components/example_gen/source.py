"""What a reader of one format offers, whatever the format."""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.example_gen.options import ColumnType


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Some rows of one file.

    Args:
      path: The file.
      first_row: Number of the first row in the file, from 0.
      columns: int64, float32 or binary arrays of equal length; null is a missing value.
      hashed: The same columns as they are in the file: what tells the rows' splits.
    """

    path: str
    first_row: int
    columns: Mapping[str, pa.Array]
    hashed: Mapping[str, pa.Array]

    @property
    def num_rows(self) -> int:
        """Rows in this batch."""
        return len(next(iter(self.columns.values()), ()))

    def parts(self, max_rows: int) -> Iterator["RowBatch"]:
        """Gives the same rows in batches of at most ``max_rows``, without copying values."""
        for begin in range(0, self.num_rows, max_rows):
            columns, hashed = (
                {name: values.slice(begin, max_rows) for name, values in arrays.items()}
                for arrays in (self.columns, self.hashed)
            )
            yield dataclasses.replace(self, first_row=self.first_row + begin, columns=columns, hashed=hashed)

    def filtered(self, keep: npt.NDArray[np.bool_]) -> "RowBatch":
        """Returns the rows where ``keep`` is True; ``first_row`` no longer tells where they are."""
        mask = pa.array(keep)
        columns, hashed = (
            {name: values.filter(mask) for name, values in arrays.items()} for arrays in (self.columns, self.hashed)
        )
        return dataclasses.replace(self, columns=columns, hashed=hashed)


class Source(Protocol):
    """Files of one format; all errors are ``DataError``."""

    columns: tuple[str, ...]
    """Those that can be read, in the order of the first file."""
    unreadable: Mapping[str, str]
    """Other columns -> why no feature can hold their values, for a message."""

    def infer_types(self) -> dict[str, ColumnType]:
        """Returns the type of each column, declared or found in all files."""

    def check(self) -> None:
        """Checks that all files are well formed, as far as their format's reader would not."""

    def batches(self, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives all rows with the columns that ``types`` names."""

    def place(self, path: str, row: int) -> str:
        """Returns where row ``row`` (from 0) of a file is, for a message."""


def missing_column(name: str, path: str, columns: Sequence[str]) -> str:
    """Returns the message that a column is not there, with the nearest name and all there are."""
    near = difflib.get_close_matches(name, columns, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{path} has no column {name!r}{hint} (columns: {', '.join(columns)})"
