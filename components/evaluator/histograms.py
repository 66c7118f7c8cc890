"""Histograms whose bins follow from the values alone, whatever their order and however they were dealt to processes."""

from typing import Any

import numpy as np
import numpy.typing as npt

_MIN_EXPONENT = -900
Values = npt.NDArray[Any]


class DoublingHistogram:
    """Counts in at most ``num_bins`` bins a direction, whose width is the least power of two with which all values fit.

    That width, and so every count, follows from the values alone: not from their order, nor from how they were dealt.

    Args:
      num_bins: At most so many bins in each direction; a power of two.
      num_directions: Numbers a value has.
    """

    def __init__(self, num_bins: int, num_directions: int) -> None:
        self._num_bins = num_bins
        self._exponents = np.zeros(num_directions, dtype=int)
        self._first = np.zeros(num_directions, dtype=np.int64)
        self._counts: npt.NDArray[np.float64] = np.zeros((0,) * num_directions)

    def update(self, values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> None:
        """Counts values [batch, directions], finite, with weights [batch]."""
        if len(values):
            exponents = self._fitting(values.min(axis=0), values.max(axis=0))
            bins = np.floor(np.ldexp(values, -exponents)).astype(np.int64)
            first = bins.min(axis=0)
            counts = np.zeros(bins.max(axis=0) - first + 1)
            np.add.at(counts, tuple((bins - first).T), weights)
            self._add(exponents, first, counts)

    def merge(self, other: "DoublingHistogram") -> None:
        """Adds what another one counted."""
        if other._counts.size:
            self._add(other._exponents, other._first, other._counts)

    def bins(self) -> tuple[list[list[float]], Any]:
        """Returns the edges, a list a direction, and the counts as nested lists; empty without values."""
        edges = [
            [float(np.ldexp(float(first + i), int(exponent))) for i in range(size + 1)] if size else []
            for first, exponent, size in zip(self._first, self._exponents, self._counts.shape, strict=True)
        ]
        return edges, self._counts.tolist()

    def _fitting(self, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Returns the least exponents with which low and high fit; values that are all equal get a width too."""
        # Under the spacing of floats of that size, bins would have no meaning, nor a number.
        size = np.maximum(np.abs(low), np.abs(high))
        exponents = np.where(size > 0, np.maximum(np.frexp(size)[1] - 40, _MIN_EXPONENT), _MIN_EXPONENT)
        while True:
            spans = np.floor(np.ldexp(high, -exponents)) - np.floor(np.ldexp(low, -exponents))
            if (spans < self._num_bins).all():
                return exponents.astype(np.int64)
            exponents = exponents + (spans >= self._num_bins)

    def _add(self, exponents: Values, first: Values, counts: npt.NDArray[np.float64]) -> None:
        if not self._counts.size:
            self._exponents, self._first, self._counts = exponents.copy(), first.copy(), counts.copy()
            return
        wanted = np.maximum(self._exponents, exponents)
        while True:
            ours = _coarser(self._first, self._counts, wanted - self._exponents)
            theirs = _coarser(first, counts, wanted - exponents)
            low = np.minimum(ours[0], theirs[0])
            high = np.maximum(ours[0] + ours[1].shape, theirs[0] + theirs[1].shape)
            too_wide = high - low > self._num_bins
            if not too_wide.any():
                break
            wanted = wanted + too_wide
        total = np.zeros(high - low)
        for start, part in (ours, theirs):
            total[tuple(slice(a, a + n) for a, n in zip(start - low, part.shape, strict=True))] += part
        self._exponents, self._first, self._counts = wanted, low, total


def _coarser(
    first: Values, counts: npt.NDArray[np.float64], doublings: Values
) -> tuple[Values, npt.NDArray[np.float64]]:
    """Returns the bins with their widths doubled so many times, each direction's own."""
    starts = first.copy()
    for axis, shift in enumerate(doublings):
        if not shift:
            continue
        indices = (first[axis] + np.arange(counts.shape[axis])) >> min(int(shift), 62)
        starts[axis] = indices[0]
        shape = list(counts.shape)
        shape[axis] = int(indices[-1] - indices[0] + 1)
        coarse = np.zeros(shape)
        np.add.at(np.moveaxis(coarse, axis, 0), indices - indices[0], np.moveaxis(counts, axis, 0))
        counts = coarse
    return starts, counts
