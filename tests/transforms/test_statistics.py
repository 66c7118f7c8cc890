"""Moments of batches and their merging, against numpy on the whole."""

from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lockstep.transforms.statistics import Moments

NAN = float("nan")

_VALUES = st.just(NAN) | st.floats(-1e6, 1e6)
_BATCHES = hnp.arrays(np.float64, st.tuples(st.integers(0, 20), st.just(3)), elements=_VALUES)


@hypothesis.given(st.lists(_BATCHES, min_size=1, max_size=5))
def test_merged_moments_are_those_of_all_values_together(batches: list[Any]) -> None:
    """However the rows are dealt out to batches, empty ones and empty columns included."""
    merged = Moments.of(batches[0])
    for batch in batches[1:]:
        merged = merged.merge(Moments.of(batch))
    for column, values in enumerate(np.concatenate(batches).T):
        present = values[~np.isnan(values)]
        assert merged.count[column] == len(present)
        assert merged.mean[column] == pytest.approx(present.mean() if len(present) else 0, abs=1e-8)
        assert merged.deviation[column] == pytest.approx(present.std() if len(present) else 0, abs=1e-6)
        assert merged.least[column] == (present.min() if len(present) else float("inf"))
        assert merged.greatest[column] == (present.max() if len(present) else -float("inf"))


@hypothesis.given(st.floats(-1e300, 1e300), st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_the_deviation_of_a_constant_is_exactly_zero(value: float, sizes: list[int]) -> None:
    """And the mean exactly its value, whatever rounding a sum of it would suffer."""
    merged = Moments.of(np.zeros((0, 1)))
    for size in sizes:
        merged = merged.merge(Moments.of(np.full((size, 1), value)))
    assert merged.mean.tolist() == [value]
    assert merged.deviation.tolist() == [0.0]


def test_large_values_close_together_keep_their_deviation() -> None:
    """A sum of squares would lose it: 1e15 squared has no room for what follows the 15th digit."""
    values = 1e15 + np.array([[0.0], [1.0], [2.0], [3.0]])
    merged = Moments.of(values[:1]).merge(Moments.of(values[1:]))
    assert merged.mean.tolist() == [1e15 + 1.5]
    assert merged.deviation[0] == pytest.approx(np.sqrt(1.25), rel=1e-12)
