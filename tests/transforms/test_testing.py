"""The helpers that users test their preprocessing functions with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms import testing


def _centred(inputs: Mapping[str, Any]) -> dict[str, Any]:
    values = tf.sparse.to_dense(tf.sparse.reset_shape(inputs["x"], [tf.size(inputs["x"].values), 1]))
    return {"centred": tf.ensure_shape(tf.cast(values, tf.float32) - tft.mean(values), [None, 1])}


def _dependent_on_the_batch(inputs: Mapping[str, Any]) -> dict[str, Any]:
    values = tf.sparse.to_dense(inputs["x"])
    return {"wrong": tf.ensure_shape(values - tf.reduce_mean(values), [None, 1])}


def test_a_users_own_function_is_run_and_its_rows_keep_their_order(tmp_path: Path) -> None:
    """Over several batches; the graph is written where asked, and transforms other rows by what it learned."""
    rows: list[testing.Row] = [{"x": i} for i in range(100)]
    result = testing.run_preprocessing(_centred, rows, output_dir=tmp_path / "graph")
    assert result.features["centred"].ravel().tolist() == [i - 49.5 for i in range(100)]
    assert result.serve([{"x": 1000}])["centred"].tolist() == [[950.5]]
    assert tft.TFTransformOutput(str(tmp_path / "graph")).transformed_feature_spec().keys() == {"centred"}


def test_skew_is_found_and_told_by_feature_row_and_values() -> None:
    """Here the mean of the batch stands where that of the training data should."""
    with pytest.raises(
        AssertionError, match=r"feature 'wrong', row 0: \[-1.0\] in training, \[0.0\] served alone.*'x'"
    ):
        testing.assert_no_skew(_dependent_on_the_batch, [{"x": 1.0}, {"x": 3.0}])


def test_rows_without_a_usable_type_are_refused_by_column() -> None:
    """What a column is made of has to be known before Beam starts."""
    with pytest.raises(ValueError, match="rows: there are none"):
        testing.run_preprocessing(_centred, [])
    with pytest.raises(ValueError, match="column 'x' has no value; give types its type"):
        testing.run_preprocessing(_centred, [{"x": None}])
    with pytest.raises(ValueError, match="column 'x' has text and numbers"):
        testing.run_preprocessing(_centred, [{"x": 1}, {"x": "a"}])


def test_all_names_are_the_public_ones() -> None:
    """What is imported with a star is what is meant for users."""
    assert set(testing.__all__) == {
        "Preprocessed",
        "Preprocessing",
        "Row",
        "Type",
        "assert_no_skew",
        "run_preprocessing",
    }
