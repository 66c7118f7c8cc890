"""Which split a row goes to: by the hash of its values or keys, by its time, or by the file that it is in."""

import dataclasses
import datetime as dt
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.components.errors import DataError
from lockstep.components.example_gen.arrow_buffers import is_valid
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.row_hash import Hashes, hash_rows
from lockstep.components.example_gen.source import RowBatch, missing_column

NO_SPLIT = -1
TIME_TYPES = ("int", "float", "timestamp", "date")
_QUANTILES = 1024  # of a unit's times: a cut by shares is off by a thousandth of the rows at most

_Splits = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitRule:
    """How rows are dealt to splits.

    Args:
      weights: Of each split, in order.
      key_columns: The columns whose hash decides; all where there are none.
      time_column: The column whose value decides, if any.
      cuts: The times at which each split but the first begins.
      split_of_file: File -> index of its split; empty where files do not decide.
    """

    weights: Sequence[int]
    key_columns: Sequence[str] = ()
    time_column: str = ""
    cuts: Sequence[float] = ()
    split_of_file: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def assign(self, batch: RowBatch) -> _Splits:
        """Returns the index of each row's split; ``NO_SPLIT`` for a row without time."""
        if self.split_of_file:
            if batch.files is not None:
                return np.array([self.split_of_file[file] for file in batch.files], np.int64)
            return np.full(batch.num_rows, self.split_of_file[batch.path], np.int64)
        if self.time_column:
            times = batch.columns[self.time_column]
            numbers = times.fill_null(0).to_numpy(zero_copy_only=False)
            found = np.searchsorted(np.asarray(self.cuts, np.float64), numbers.astype(np.float64), side="right")
            return np.where(is_valid(times), found, NO_SPLIT)
        return assign_splits(self._hashes(batch), self.weights)

    def _hashes(self, batch: RowBatch) -> Hashes:
        whole = dict(batch.hashed)
        if not self.key_columns:
            return hash_rows(whole.items(), batch.num_rows)
        keys = {name: whole.get(name, batch.columns.get(name)) for name in self.key_columns}
        hashes = hash_rows(keys.items(), batch.num_rows)
        without = np.ones(batch.num_rows, np.bool_)
        for values in keys.values():
            without &= ~is_valid(values)
        # Rows without any key are not one customer.
        return np.where(without, hash_rows(whole.items(), batch.num_rows), hashes) if without.any() else hashes


def assign_splits(hashes: Hashes, weights: Sequence[int]) -> _Splits:
    """Returns the index of each row's split: the hash modulo the sum of the weights, laid along them."""
    buckets = (hashes % np.uint64(sum(weights))).astype(np.int64)
    return np.searchsorted(np.cumsum(weights), buckets, side="right")


def split_rule(
    data: DataOptions,
    types: Mapping[str, ColumnType],
    quantiles: Sequence["TimeQuantiles"],
    split_of: Mapping[str, str],
    first_file: str,
) -> SplitRule:
    """Returns the rule that ``data.splits`` and ``data.split_by`` say.

    Args:
      data: The options.
      types: Of all columns.
      quantiles: Of the time column, one a unit; needed where the cuts are shares.
      split_of: File -> split, for ``split_by.paths``.
      first_file: For messages.

    Raises:
      DataError: There is no such column, or it holds no times.
    """
    names, weights = list(data.splits), tuple(data.splits.values())
    by = data.split_by
    for key, columns in (("columns", by.columns), ("time", (by.time,) if by.time else ())):
        for name in columns:
            if name not in types:
                raise DataError(f"data.split_by.{key}: {missing_column(name, first_file, list(types))}")
    if by.paths:
        split_of_file = {path: names.index(split) for path, split in split_of.items()}
        return SplitRule(weights=weights, split_of_file=split_of_file)
    if not by.time:
        return SplitRule(weights=weights, key_columns=by.columns)
    kind = types[by.time]
    if kind not in TIME_TYPES:
        raise DataError(
            f"data.split_by.time: column {by.time!r} is of type {kind}, which has no order of time; "
            f"declare data.types.{by.time}: timestamp"
        )
    if by.until:
        cuts = [_cut(by.until[name], kind, data.time_zone, f"data.split_by.until.{name}") for name in names[:-1]]
    else:
        cuts = _shares(quantiles, weights, by.time)
    return SplitRule(weights=weights, time_column=by.time, cuts=cuts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeQuantiles:
    """The times of some rows, thinned out: each stands for ``weight`` rows."""

    values: npt.NDArray[np.float64]
    weight: float


def time_quantiles(times: Iterable[pa.Array]) -> TimeQuantiles:
    """Returns what stands for the values of a unit's time column: all of a few, evenly spaced ones of many."""
    found = [values.drop_null().to_numpy(zero_copy_only=False).astype(np.float64) for values in times]
    values = np.sort(np.concatenate([np.zeros(0), *found]))
    if len(values) <= _QUANTILES:
        return TimeQuantiles(values=values, weight=1.0)
    places = (np.arange(_QUANTILES) + 0.5) * len(values) / _QUANTILES
    return TimeQuantiles(values=values[places.astype(np.int64)], weight=len(values) / _QUANTILES)


def _shares(quantiles: Sequence[TimeQuantiles], weights: Sequence[int], column: str) -> list[float]:
    values = np.concatenate([np.zeros(0), *(each.values for each in quantiles)])
    if not len(values):
        raise DataError(f"data.split_by.time: column {column!r} has no value in any row")
    each = np.concatenate([np.full(len(each.values), each.weight) for each in quantiles])
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(each[order])
    wanted = np.cumsum(weights)[:-1] / sum(weights) * ends[-1]
    places = np.minimum(np.searchsorted(ends, wanted - 1e-9 * ends[-1], side="left") + 1, len(values) - 1)
    return [float(cut) for cut in values[order][places]]


def _cut(text: str, kind: ColumnType, zone: str, key: str) -> float:
    """Returns the number that a configured time means for a column."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as e:
        raise DataError(f"{key}: {text!r} is neither a number nor a time such as 2024-01-31 08:00") from e
    if kind == "float":
        raise DataError(f"{key}: {text!r} is a time, but the column is of floats; give a number")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc if zone == "UTC" else zoneinfo.ZoneInfo(zone))
    return moment.timestamp()
