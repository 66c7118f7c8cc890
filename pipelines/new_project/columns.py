"""What a table holds: ExampleGen's types of all its columns, and what a sample of its rows looks like."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from tensorflow_data_validation.statistics import stats_impl, stats_options
from tensorflow_metadata.proto.v0 import statistics_pb2

from lockstep.components.errors import DataError
from lockstep.components.example_gen.files import split_path
from lockstep.components.example_gen.inputs import opened_input
from lockstep.components.example_gen.options import ColumnType, DataOptions
from lockstep.components.example_gen.source import missing_column
from lockstep.components.example_gen.sources import open_source

__all__ = ["Column", "Table", "read_table"]

_SAMPLE_ROWS = 200_000
_DAY = r"^\d{4}-\d\d-\d\d"
_TIMES: Mapping[Literal["timestamp", "date"], str] = {
    "date": rf"{_DAY}$",
    "timestamp": rf"{_DAY}[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Args:
      name: Its name.
      type: As ExampleGen found it, in all rows.
      values: Of the sample: int64, float32 or binary, or large lists of such; null is a missing value.
      statistics: Of the sample, by TensorFlow Data Validation.
      is_declared: Whether ExampleGen has to be told the type: it takes text for text.
    """

    name: str
    type: ColumnType
    values: pa.Array
    statistics: statistics_pb2.FeatureNameStatistics
    is_declared: bool = False

    @property
    def num_missing(self) -> int:
        """Rows of the sample without a value."""
        return int(self.values.null_count)

    @property
    def distinct(self) -> list[int | float | bytes]:
        """The different values of the sample, most frequent first, equally frequent ones in order; not of lists."""
        counts = pc.value_counts(self.values.drop_null())
        pairs = ((-entry["counts"].as_py(), entry["values"].as_py()) for entry in counts)
        return [value for _, value in sorted(pairs)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table's columns, in its order, and how many rows the sample has.

    Args:
      columns: By name.
      num_rows: Of the sample; it is all rows unless ``is_sample``.
      is_sample: Whether there are more.
    """

    columns: Mapping[str, Column]
    num_rows: int
    is_sample: bool


def read_table(path: str, label: str) -> Table:
    """Reads the types of all rows, and up to 200,000 rows from the beginning; text that is always a time becomes one.

    Args:
      path: As ``data.path``.
      label: A column that has to be there.

    Raises:
      DataError: There are no rows, they cannot be read, or the label is not among the columns.
    """
    table = _read(DataOptions(path=path), label)
    times = {name: kind for name, column in table.columns.items() if (kind := _time_type(column))}
    if not times:
        return table
    try:
        return _read(DataOptions(path=path, types=times), label)
    except DataError:  # one of them is none after all, such as the 30th of February
        return table


def _time_type(column: Column) -> Literal["timestamp", "date"] | None:
    """Returns what a column of text is if all its values are written as ISO 8601 has it."""
    if column.type != "string" or column.num_missing == len(column.values):
        return None
    for kind, pattern in _TIMES.items():
        if pc.all(pc.match_substring_regex(column.values, pattern)).as_py():
            return kind
    return None


def _read(data: DataOptions, label: str) -> Table:
    with opened_input(*split_path(data.path), split="train", expected=None) as found:
        source = open_source(found.files, data, found.root)
        units = list(source.units())
        types = source.resolve(source.infer(unit) for unit in units)
        if label not in types:
            raise DataError(f"--label: {missing_column(label, found.files[0], list(types))}")
        pieces: dict[str, list[pa.Array]] = {name: [] for name in types}
        num_rows, is_sample = 0, False
        batches = (batch for unit in units for batch in source.batches(unit, types))
        for batch in batches:
            if num_rows >= _SAMPLE_ROWS:
                is_sample = True
                break
            num_rows += batch.num_rows
            for name, values in batch.columns.items():
                pieces[name].append(values)
    if not num_rows:
        raise DataError(f"--data: {found.files[0]} has no rows")
    arrays = {name: pa.concat_arrays(several) for name, several in pieces.items() if several}
    statistics = _statistics(arrays)
    columns = {
        name: Column(
            name=name, type=types[name], values=values, statistics=statistics[name], is_declared=name in data.types
        )
        for name, values in arrays.items()
    }
    return Table(columns=columns, num_rows=num_rows, is_sample=is_sample)


def _statistics(arrays: Mapping[str, pa.Array]) -> dict[str, statistics_pb2.FeatureNameStatistics]:
    batch = pa.RecordBatch.from_arrays([_as_lists(values) for values in arrays.values()], names=list(arrays))
    found = stats_impl.generate_statistics_in_memory(batch, stats_options.StatsOptions())
    return {feature.path.step[0]: feature for feature in found.datasets[0].features}


def _as_lists(values: pa.Array) -> pa.Array:
    """Returns what TensorFlow Data Validation takes: a list of values a row, null where there is none."""
    if pa.types.is_large_list(values.type) or pa.types.is_list(values.type):
        return values
    present = values.is_valid()
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(present.cast(pa.int64()))])
    lists = pa.LargeListArray.from_arrays(offsets, values.drop_null())
    return pc.if_else(present, lists, pa.scalar(None, lists.type))
