"""Exact values of the kinds made of numbers, and what they refuse."""

import re

import numpy as np
import pytest
import tensorflow as tf

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label
from tests.transforms.conftest import INF, NAN, declared, first_values

LABEL = Label(column="y", kind="regression")


def test_a_range_is_scaled_from_zero_to_one_and_goes_on_beyond_it(preprocessed: testing.Preprocessed) -> None:
    """A missing value is the mean; `clip` is what cuts, nothing else does."""
    assert first_values(preprocessed, "ranged") == [0, 0.5, 0.5, 1]
    assert preprocessed.serve([{"ranged": 8.0}, {"ranged": 0.0}])["ranged"].ravel().tolist() == [1.5, -0.5]


def test_quartiles_scale_without_being_moved_by_outliers(preprocessed: testing.Preprocessed) -> None:
    """The median becomes 0, as does a missing value; the quartiles are 2 apart."""
    assert first_values(preprocessed, "robust") == [-1, -0.5, 0, 0.5, 499, 0, 0, 0]


def test_a_number_that_is_not_scaled_is_itself(preprocessed: testing.Preprocessed) -> None:
    """Up to the greatest of float32; `missing: zero` is a 0, an infinite value is missing."""
    assert first_values(preprocessed, "unscaled") == [1.5, 0, float(np.float32(3e38)), 0]


def test_numbers_are_cut_at_their_bounds_as_is_the_default(preprocessed: testing.Preprocessed) -> None:
    """The default is a raw value: it goes through everything that raw values go through."""
    assert first_values(preprocessed, "cut") == [0, 5, 10, 10]
    assert first_values(preprocessed, "cut_below") == [0, 0, 1, float(np.float32(1 / 3))]
    assert first_values(preprocessed, "cut_below_missing") == [0, 0, 0, 1]


def test_the_logarithm_takes_every_number(preprocessed: testing.Preprocessed) -> None:
    """sign(x) * log(1 + abs(x)), against numpy."""
    numbers = np.array([0.0, 1.0, -1.0, np.float32(1e30)])
    expected = (np.sign(numbers) * np.log1p(np.abs(numbers))).astype(np.float32)
    np.testing.assert_array_equal(first_values(preprocessed, "logarithm"), expected)


def test_numbers_beyond_the_exact_range_are_rounded_where_that_is_declared(preprocessed: testing.Preprocessed) -> None:
    """2^24 + 1 has no float32."""
    values = first_values(preprocessed, "rounded")
    assert [values[i] for i in (0, 1, 3)] == [2.0**62, 2.0**24, 1]


def test_given_edges_are_the_lower_ends_of_their_buckets(preprocessed: testing.Preprocessed) -> None:
    """The last index is of missing values."""
    assert first_values(preprocessed, "bucket_of_edges") == [0, 1, 1, 2, 3]


def test_a_missing_value_falls_into_the_bucket_of_what_stands_for_it(preprocessed: testing.Preprocessed) -> None:
    """The median is a value of the upper half; a 0 is compared as the logarithms are."""
    assert first_values(preprocessed, "bucket_of_median") == [0, 0, 1, 1, 1]
    assert first_values(preprocessed, "bucket_of_logarithms")[3] == 0


def test_a_missing_value_is_refused_at_serving_too_where_that_is_declared() -> None:
    """The message names the column and what to do."""
    message = "features.x: a value of column x is missing, and the feature has missing: error; complete"
    feature = Feature(kind="numeric", scale="none", missing="error")
    trained = testing.run_preprocessing(declared({"x": feature}, LABEL), [{"x": 1.0, "y": 1.0}])
    assert trained.serve([{"x": 2.0}], without=["y"])["x"].tolist() == [[2.0]]
    incomplete: list[testing.Row] = [{}, {"x": NAN}, {"x": -INF}]
    for row in incomplete:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            trained.serve([{"x": 1.0}, row], without=["y"])


@pytest.mark.parametrize(
    ("feature", "values", "message"),
    [
        (Feature(kind="numeric"), [1, 2**53], "features.x.inexact: the column has whole numbers too large"),
        (
            Feature(kind="buckets", log=True),
            [1, -(2**63)],
            "features.x.inexact: the column has whole numbers too large",
        ),
        (Feature(kind="numeric", scale="none"), [2**24 + 1], "features.x.inexact: the column has whole numbers too"),
        (Feature(kind="numeric", constant="error"), [7.0, None], "features.x.constant: the column has one value, 7.0,"),
        (
            Feature(kind="numeric", scale="robust"),
            [0.0, 0.0, 0.0, 0.0, 9.0],
            "features.x.scale: 'robust' cannot scale this column, whose quartiles are both 0.0",
        ),
        (Feature(kind="numeric", missing="error"), [1.0, None], "features.x: a value of column x is missing"),
    ],
)
def test_what_is_in_the_data_but_must_not_be_stops_the_step(
    feature: Feature, values: list[int | float | None], message: str
) -> None:
    """The message starts with the key that decides it, and says what to do."""
    rows: list[testing.Row] = [{"x": value, "y": 1.0} for value in values]
    with pytest.raises(Exception, match=re.escape(message)):
        testing.run_preprocessing(declared({"x": feature}, LABEL), rows)


def test_the_largest_exact_numbers_are_taken() -> None:
    """2^53 - 1, and 2^24 without scaling: their neighbours below stay apart from them."""
    features = {
        "x": Feature(kind="numeric", scale="min_max"),
        "u": Feature(kind="numeric", scale="none"),
        "log": Feature(kind="buckets", num_buckets=2, log=True),
    }
    rows: list[testing.Row] = [
        {"x": 2**53 - 1 - i, "u": 2**24 - i, "log": 2**53 - 1 - 10**9 * i, "y": 1.0} for i in range(3)
    ]
    found = testing.run_preprocessing(declared(features, LABEL), rows).features
    assert found["x"].ravel().tolist() == [1, 0.5, 0]
    assert found["u"].ravel().tolist() == [2**24, 2**24 - 1, 2**24 - 2]
