"""Moments, range and quantiles of all numeric columns in one pass of Beam, in float64.

tf.Transform's own analyzers return quantiles in float32, and can leave a rounding error as the variance of a constant
column.
"""

import dataclasses
import functools
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl import sketches

__all__ = ["Moments", "NumberColumn", "Statistics", "analyze_numbers"]

_log = logging.getLogger(__name__)

# By which share of the values a quantile may miss its rank, and up to how many values that holds.
_QUANTILE_ERROR = 0.001
_QUANTILE_MAX_VALUES = 1 << 32

_Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberColumn:
    """What is asked of a column.

    Args:
      key: The configuration's key, to name the column in errors.
      scale: By what `Statistics.center` and `Statistics.width` are chosen.
      fill: Whether `Statistics.fill` is the mean or the median.
      num_buckets: How many buckets of equally many values `Statistics.edges` makes; 0 makes none.
      limit: Absolute value up to which numbers are exact; a greater one in the data is an error.
      is_constant_refused: Whether a column with only one value is an error.
    """

    key: str
    scale: Literal["z_score", "min_max", "robust", "none"] = "none"
    fill: Literal["mean", "median"] = "mean"
    num_buckets: int = 0
    limit: float = float("inf")
    is_constant_refused: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics:
    """What `analyze_numbers` found; tensors that tf.Transform turns into constants of its graph.

    Args:
      center: float64 [columns], what to subtract; 0 for a column without values.
      width: float64 [columns], what to divide by; exactly 0 for a column that is constant or has no values, but 1 for
        ``scale="none"``.
      fill: float64 [columns], mean or median; 0 for a column without values.
      edges: For each column float64 [num_buckets - 1], ascending, zeros for a column without values; [0] where there
        are no buckets.
    """

    center: tf.Tensor
    width: tf.Tensor
    fill: tf.Tensor
    edges: Sequence[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Moments:
    """Number, mean, sum of squared differences from the mean, least and greatest of the values that are not NaN.

    Each is [columns]; without values, least is infinite and greatest minus infinite.

    Merged by Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
    1979.
    """

    count: _Floats
    mean: _Floats
    squares: _Floats
    least: _Floats
    greatest: _Floats

    @staticmethod
    def of(values: _Floats) -> "Moments":
        """Returns the moments of a batch [rows, columns]; those of equal values are exact."""
        num_columns = values.shape[1]
        if not len(values):
            nothing, infinite = np.zeros(num_columns), np.full(num_columns, np.inf)
            return Moments(nothing, nothing, nothing, infinite, -infinite)
        present = ~np.isnan(values)
        count = present.sum(axis=0).astype(np.float64)
        # Differences from one of the values lose nothing where the values are large and close together.
        first = np.nan_to_num(values[present.argmax(axis=0), np.arange(num_columns)])
        differences = np.where(present, values - first, 0.0)
        shift = differences.sum(axis=0) / np.maximum(count, 1)
        squares = np.where(present, (differences - shift) ** 2, 0.0).sum(axis=0)
        least = np.where(present, values, np.inf).min(axis=0)
        greatest = np.where(present, values, -np.inf).max(axis=0)
        return Moments(count, first + shift, squares, least, greatest)

    def merge(self, other: "Moments") -> "Moments":
        """Returns the moments of both parts of the data together."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        difference = np.where((self.count > 0) & (other.count > 0), other.mean - self.mean, 0.0)
        mean = np.where(self.count > 0, self.mean + difference * share, other.mean)
        squares = self.squares + other.squares + difference**2 * self.count * share
        least, greatest = np.minimum(self.least, other.least), np.maximum(self.greatest, other.greatest)
        return Moments(count, mean, squares, least, greatest)

    @property
    def deviation(self) -> _Floats:
        """The biased standard deviation, [columns]; 0 without values."""
        deviation: _Floats = np.sqrt(self.squares / np.maximum(self.count, 1))
        return deviation


def analyze_numbers(values: tf.Tensor, columns: Sequence[NumberColumn]) -> Statistics:
    """Analyses columns over the whole data set.

    Args:
      values: float64 [batch, columns], NaN where a value is missing.
      columns: What is asked of each.

    Raises:
      ValueError: While Beam runs: a column has what it must not have; the message starts with its key.
    """
    num_edges = [max(column.num_buckets - 1, 0) for column in columns]
    (numbers,) = tft.experimental.ptransform_analyzer(
        inputs=[values],
        ptransform=beam.CombineGlobally(_CombineNumbers(tuple(columns))),
        output_dtypes=[tf.float64],
        output_shapes=[[3 * len(columns) + sum(num_edges)]],
        name="numbers",
    )
    center, width, fill, *edges = tf.split(numbers, [len(columns)] * 3 + num_edges)
    return Statistics(center=center, width=width, fill=fill, edges=edges)


# The sketches are one a column: one for all would leave out, and so shift, the columns without values.
_Accumulator = tuple[Moments, list[Any]]


class _CombineNumbers(beam.CombineFn):
    """From batches to one array: centres, widths, fills, then edges column by column."""

    def __init__(self, columns: Sequence[NumberColumn]) -> None:
        super().__init__()
        self._columns = columns

    def create_accumulator(self) -> _Accumulator:
        none = Moments.of(np.zeros((0, len(self._columns))))
        return none, [_new_sketch() if _needs_quantiles(column) else None for column in self._columns]

    def add_input(self, accumulator: _Accumulator, batch: Sequence[_Floats]) -> _Accumulator:
        moments, quantiles = accumulator
        (values,) = batch
        for sketch, column in zip(quantiles, values.T, strict=True):
            if sketch is not None:
                sketch.AddValues(pa.array(column))
        return moments.merge(Moments.of(values)), quantiles

    def merge_accumulators(self, accumulators: Iterable[_Accumulator]) -> _Accumulator:
        return functools.reduce(_merge, accumulators)

    def extract_output(self, accumulator: _Accumulator) -> _Floats:
        moments, sketches_of_columns = accumulator
        numbers: list[list[float]] = []
        edges = []
        for i, (column, sketch) in enumerate(zip(self._columns, sketches_of_columns, strict=True)):
            _check(column, moments, i)
            fill = _edges(sketch, 2)[0] if column.fill == "median" else moments.mean[i]
            numbers.append([*_center_and_width(column, moments, i, sketch), fill])
            edges.append(_edges(sketch, column.num_buckets) if column.num_buckets else np.zeros(0))
        return np.concatenate([*np.array(numbers, np.float64).reshape(-1, 3).T, *edges])


def _check(column: NumberColumn, moments: Moments, i: int) -> None:
    if not moments.count[i]:
        return
    least, greatest = moments.least[i], moments.greatest[i]
    if max(-least, greatest) > column.limit:
        raise ValueError(
            f"{column.key}.inexact: the column has whole numbers too large to be told apart as floating-point numbers;"
            " give `inexact: round` to have them rounded, or another kind, such as hash"
        )
    if least == greatest and column.is_constant_refused:
        raise ValueError(
            f"{column.key}.constant: the column has one value, {least}, in all rows of training; leave it out of the"
            " features, or give `constant: zero`"
        )


def _center_and_width(column: NumberColumn, moments: Moments, i: int, sketch: Any) -> tuple[float, float]:
    if column.scale == "none":
        return 0.0, 1.0
    if not moments.count[i]:
        return 0.0, 0.0
    least, greatest = float(moments.least[i]), float(moments.greatest[i])
    if least == greatest:
        _log.warning("%s: the column is constant in training, and so is the feature: always 0", column.key)
        return least, 0.0
    if column.scale == "z_score":
        return float(moments.mean[i]), float(moments.deviation[i])
    if column.scale == "min_max":
        return least, greatest - least
    low, median, high = map(float, _edges(sketch, 4))
    if low == high:
        raise ValueError(
            f"{column.key}.scale: 'robust' cannot scale this column, whose quartiles are both {low}: half of its values"
            " are the same; give z_score or min_max"
        )
    return median, high - low


def _merge(one: _Accumulator, other: _Accumulator) -> _Accumulator:
    for sketch, more in zip(one[1], other[1], strict=True):
        if sketch is not None:
            sketch.Merge(more)
    return one[0].merge(other[0]), one[1]


def _needs_quantiles(column: NumberColumn) -> bool:
    return column.num_buckets > 0 or column.scale == "robust" or column.fill == "median"


def _new_sketch() -> Any:
    return sketches.QuantilesSketch(_QUANTILE_ERROR, _QUANTILE_MAX_VALUES, 1)


def _edges(sketch: Any, num_buckets: int) -> _Floats:
    quantiles = sketch.GetQuantiles(num_buckets).to_pylist()
    return np.array(quantiles[0][1:-1] if quantiles else np.zeros(num_buckets - 1), np.float64)
