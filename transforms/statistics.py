"""Moments and quantiles of all numeric columns in one pass of Beam, in float64.

tf.Transform's own analyzers return quantiles in float32, and can leave a rounding error as the variance of a constant
column.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl import sketches

__all__ = ["Moments", "Statistics", "analyze_numbers"]

# By which share of the values the edge of a bucket may miss its quantile, and up to how many values that holds.
_QUANTILE_ERROR = 0.001
_QUANTILE_MAX_VALUES = 1 << 32

_Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics:
    """What `analyze_numbers` found; tensors that tf.Transform turns into constants of its graph.

    Args:
      mean: float64 [scaled columns]; 0 for a column without values.
      deviation: float64 [scaled columns], the (biased) standard deviation; exactly 0 for a column that is constant or
        has no values.
      edges: For each bucketized column float64 [num_buckets - 1], ascending; zeros for a column without values.
    """

    mean: tf.Tensor
    deviation: tf.Tensor
    edges: Sequence[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Moments:
    """Number, mean, and sum of squared differences from the mean, of the values that are not NaN: each [columns].

    Merged by Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
    1979.
    """

    count: _Floats
    mean: _Floats
    squares: _Floats

    @staticmethod
    def of(values: _Floats) -> "Moments":
        """Returns the moments of a batch [rows, columns]; those of equal values are exact."""
        num_columns = values.shape[1]
        if not len(values):
            return Moments(np.zeros(num_columns), np.zeros(num_columns), np.zeros(num_columns))
        present = ~np.isnan(values)
        count = present.sum(axis=0).astype(np.float64)
        # Differences from one of the values lose nothing where the values are large and close together.
        first = np.nan_to_num(values[present.argmax(axis=0), np.arange(num_columns)])
        differences = np.where(present, values - first, 0.0)
        shift = differences.sum(axis=0) / np.maximum(count, 1)
        squares = np.where(present, (differences - shift) ** 2, 0.0).sum(axis=0)
        return Moments(count, first + shift, squares)

    def merge(self, other: "Moments") -> "Moments":
        """Returns the moments of both parts of the data together."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        difference = np.where((self.count > 0) & (other.count > 0), other.mean - self.mean, 0.0)
        mean = np.where(self.count > 0, self.mean + difference * share, other.mean)
        return Moments(count, mean, self.squares + other.squares + difference**2 * self.count * share)

    @property
    def deviation(self) -> _Floats:
        """The biased standard deviation, [columns]; 0 without values."""
        deviation: _Floats = np.sqrt(self.squares / np.maximum(self.count, 1))
        return deviation


def analyze_numbers(values: tf.Tensor, num_scaled: int, num_buckets: Sequence[int]) -> Statistics:
    """Analyses columns over the whole data set.

    Args:
      values: float64 [batch, columns], NaN where a value is missing: first the columns of which to take the moments,
        then those of which to take quantiles.
      num_scaled: Number of the former.
      num_buckets: For each of the latter, one more than it gets edges.
    """
    num_edges = [number - 1 for number in num_buckets]
    (numbers,) = tft.experimental.ptransform_analyzer(
        inputs=[values],
        ptransform=beam.CombineGlobally(_CombineNumbers(num_scaled, tuple(num_buckets))),
        output_dtypes=[tf.float64],
        output_shapes=[[2 * num_scaled + sum(num_edges)]],
        name="numbers",
    )
    mean, deviation, *edges = tf.split(numbers, [num_scaled, num_scaled, *num_edges])
    return Statistics(mean=mean, deviation=deviation, edges=edges)


# The sketches are one a column: one for all would leave out, and so shift, the columns without values.
_Accumulator = tuple[Moments, list[Any]]


class _CombineNumbers(beam.CombineFn):
    """From batches to one array: means, deviations, then edges column by column."""

    def __init__(self, num_scaled: int, num_buckets: Sequence[int]) -> None:
        super().__init__()
        self._num_scaled = num_scaled
        self._num_buckets = num_buckets

    def create_accumulator(self) -> _Accumulator:
        none = Moments.of(np.zeros((0, self._num_scaled)))
        return none, [sketches.QuantilesSketch(_QUANTILE_ERROR, _QUANTILE_MAX_VALUES, 1) for _ in self._num_buckets]

    def add_input(self, accumulator: _Accumulator, batch: Sequence[_Floats]) -> _Accumulator:
        moments, quantiles = accumulator
        (values,) = batch
        for sketch, column in zip(quantiles, values.T[self._num_scaled :], strict=True):
            sketch.AddValues(pa.array(column))
        return moments.merge(Moments.of(values[:, : self._num_scaled])), quantiles

    def merge_accumulators(self, accumulators: Iterable[_Accumulator]) -> _Accumulator:
        return functools.reduce(_merge, accumulators)

    def extract_output(self, accumulator: _Accumulator) -> _Floats:
        moments, quantiles = accumulator
        edges = [_edges(sketch, number) for sketch, number in zip(quantiles, self._num_buckets, strict=True)]
        return np.concatenate([moments.mean, moments.deviation, *edges])


def _merge(one: _Accumulator, other: _Accumulator) -> _Accumulator:
    for sketch, more in zip(one[1], other[1], strict=True):
        sketch.Merge(more)
    return one[0].merge(other[0]), one[1]


def _edges(sketch: Any, num_buckets: int) -> _Floats:
    quantiles = sketch.GetQuantiles(num_buckets).to_pylist()
    return np.array(quantiles[0][1:-1] if quantiles else np.zeros(num_buckets - 1), np.float64)
