"""What a reader of one format offers, whatever the format.

A source cuts its input into units of work that any process can read by itself: byte ranges, row groups, files. It is
pickled to those processes, so it keeps no file open, starts no thread and remembers nothing between two calls.
"""

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.errors import RowError
from lockstep.components.example_gen.columns import TypeInference
from lockstep.components.example_gen.options import ColumnType

Positions = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejected:
    """A row that cannot be used.

    Args:
      path: The file.
      position: As in ``RowBatch.positions``.
      reason: What is wrong and what to do, without the place.
      raw: The row as it is in the file; empty where it cannot be read at all.
    """

    path: str
    position: int
    reason: str
    raw: bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Some rows of one file.

    Args:
      path: The file.
      positions: Where each row is in the file: a line or a row from 1, a byte from 0; see ``Source.place``.
      columns: int64, float32 or binary arrays of equal length, or large lists of such; null is a missing value.
      hashed: The same columns as they are in the file: what tells the rows' splits.
      files: Each row's own file, where ``path`` is not it: images.
      records: Serialised tf.Examples (binary), written as they are instead of ``columns``.
      rejected: Rows of the same piece of the file that cannot be used, with ``on_error: quarantine``.
      notes: Kind of warning, such as ``precision:fare`` -> its text; the first of each kind is shown.
    """

    path: str
    positions: Positions
    columns: Mapping[str, pa.Array]
    hashed: Mapping[str, pa.Array]
    files: Sequence[str] | None = None
    records: pa.Array | None = None
    rejected: tuple[Rejected, ...] = ()
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows in this batch."""
        return len(self.positions)

    def parts(self, max_rows: int) -> Iterator["RowBatch"]:
        """Gives the same rows in batches of at most ``max_rows``, without copying values; one at least."""
        for begin in range(0, max(1, self.num_rows), max_rows):
            end = begin + max_rows
            part = self._picked(operator.methodcaller("slice", begin, max_rows), slice(begin, end))
            yield part if not begin else dataclasses.replace(part, rejected=(), notes={})

    def filtered(self, keep: npt.NDArray[np.bool_]) -> "RowBatch":
        """Returns the rows where ``keep`` is True, and all that were rejected."""
        mask = pa.array(keep)
        return self._picked(lambda values: values.filter(mask), np.flatnonzero(keep))

    def _picked(self, pick: Callable[[pa.Array], pa.Array], rows: Any) -> "RowBatch":
        columns, hashed = (
            {name: pick(values) for name, values in each.items()} for each in (self.columns, self.hashed)
        )
        return dataclasses.replace(
            self,
            positions=self.positions[rows],
            columns=columns,
            hashed=hashed,
            files=None if self.files is None else list(np.asarray(self.files, object)[rows]),
            records=None if self.records is None else pick(self.records),
        )


class Unit(Protocol):
    """A piece of the input that is read at once: a small frozen dataclass of the format's own, which can be pickled."""

    @property
    def path(self) -> str:
        """The file, or the first of several."""


class Source(Protocol):
    """Files of one format; all errors are ``DataError``."""

    columns: tuple[str, ...]
    """Those that can be read, in the order of the first file."""
    unreadable: Mapping[str, str]
    """Other columns -> why no feature can hold their values, for a message."""

    def units(self) -> Sequence[Any]:
        """Returns the input in pieces, in order; they depend on the input alone, not on who reads them."""

    def infer(self, unit: Any) -> Mapping[str, TypeInference]:
        """Returns what the values of a unit say of their columns' types; nothing where the files' schema tells."""

    def resolve(self, found: Iterable[Mapping[str, TypeInference]]) -> dict[str, ColumnType]:
        """Returns the type of each column, declared or found; ``found`` is of all units, in order."""

    def batches(self, unit: Any, types: Mapping[str, ColumnType]) -> Iterator[RowBatch]:
        """Gives the rows of a unit with the columns that ``types`` names, some 32,768 rows or 32 MB at a time."""

    def place(self, path: str, position: int) -> str:
        """Returns where a row is, for a message; reads nothing."""


class FaultList:
    """What happens with rows that cannot be used: the first is an error, or all are collected.

    Args:
      on_error: The ``data`` option.
      place: The source's.
    """

    def __init__(self, on_error: Literal["fail", "quarantine"], place: Callable[[str, int], str]) -> None:
        self._on_error = on_error
        self._place = place
        self._rejected: list[Rejected] = []

    def add(self, path: str, position: int, reason: str, raw: bytes, cause: Exception | None = None) -> None:
        """Takes in a row that cannot be used.

        Raises:
          RowError: The place and the reason, with ``on_error: fail``.
        """
        if self._on_error == "fail":
            raise RowError(f"{self._place(path, position)}: {reason}") from cause
        self._rejected.append(Rejected(path=path, position=position, reason=reason, raw=raw))

    def taken(self) -> tuple[Rejected, ...]:
        """Returns what was collected since the last call."""
        taken, self._rejected = tuple(self._rejected), []
        return taken


def merge_inferred(found: Iterable[Mapping[str, TypeInference]]) -> dict[str, TypeInference]:
    """Returns what all units together say of each column that any of them has."""
    merged: dict[str, TypeInference] = {}
    for each in found:
        for name, inference in each.items():
            merged.setdefault(name, TypeInference()).merge(inference)
    return merged


def resolve_inferred(
    source: Source,
    declared: Mapping[str, ColumnType],
    found: Iterable[Mapping[str, TypeInference]],
    on_error: Literal["fail", "quarantine"],
) -> dict[str, ColumnType]:
    """Returns the type of each column of a source whose values tell them: CSV, JSON lines.

    Raises:
      RowError: A whole number of an int column is over int64, with ``on_error: fail``; else its row is rejected later.
    """
    merged = {name: TypeInference() for name in source.columns if name not in declared}
    for each in found:
        for name, inference in merged.items():
            if name in each:
                inference.merge(each[name])
    for name, inference in merged.items():
        if inference.kind == "int" and inference.over_int64 is not None and on_error == "fail":
            path, position, problem = inference.over_int64
            remedy = f"declare data.types.{name}: string (or float)"
            raise RowError(f"{source.place(path, position)}: column {name!r}: {problem}; {remedy}")
    types = dict(declared)
    for name, inference in merged.items():
        types[name] = inference.resolved()
    return {name: types[name] for name in source.columns}


def missing_column(name: str, path: str, columns: Sequence[str]) -> str:
    """Returns the message that a column is not there, with the nearest name and all there are."""
    near = difflib.get_close_matches(name, columns, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{path} has no column {name!r}{hint} (columns: {', '.join(columns)})"
