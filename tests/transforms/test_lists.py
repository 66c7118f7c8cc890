"""What becomes of several values a row, and what the kind list refuses."""

import re
from typing import Any

import pytest
import tensorflow as tf

from lockstep.transforms import testing
from lockstep.transforms.features import (
    Feature,
    Label,
    TransformedFeature,
    source_columns,
    to_config,
    transformed_features,
    vocabulary_name,
)
from lockstep.transforms.preprocessing import preprocessing_fn

LABEL = Label(column="y", kind="regression")


def test_values_become_padded_indices_of_the_vocabulary(preprocessed: testing.Preprocessed) -> None:
    """An empty text counts as not seen; no value at all has an index of its own; what is too much is cut off."""
    assert preprocessed.transform_output.vocabulary_by_name(vocabulary_name("tags")) == [b"a", b"b", b"c"]
    assert preprocessed.features["tags"][:5].tolist() == [[1, 2, 0], [1, 0, 0], [5, 0, 0], [5, 0, 0], [2, 4, 3]]
    assert preprocessed.features["tags_count"][:5, 0].tolist() == [2, 1, 1, 1, 3]


def test_whole_numbers_are_hashed_as_they_are_written_beside_the_padding(preprocessed: testing.Preprocessed) -> None:
    """A row without values has the default."""
    one, minus_one, seven = (tf.strings.to_hash_bucket_fast(["1", "-1", "7"], 50).numpy() + 1).tolist()
    expected = [[one, minus_one], [seven, 0], [seven, 0], [seven, 0]]
    assert preprocessed.features["numbers"][:4].tolist() == expected
    assert preprocessed.features["numbers_count"][:4, 0].tolist() == [2, 1, 1, 1]


def test_weights_of_a_value_add_up(preprocessed: testing.Preprocessed) -> None:
    """At its place in the vocabulary; values that are not in it share the last place."""
    tokens = preprocessed.transform_output.vocabulary_by_name(vocabulary_name("shares"))
    assert tokens[0] == b"x"
    y, z = tokens.index(b"y"), tokens.index(b"z")
    expected = [[0.0] * 4 for _ in range(4)]
    expected[0][0], expected[0][y], expected[1][0], expected[3][z], expected[3][3] = 0.75, 2, 1, -1, 4
    assert preprocessed.features["shares"][:4].tolist() == expected
    assert preprocessed.features["shares_missing"][:4, 0].tolist() == [0, 0, 1, 0]


def test_without_weights_a_value_is_there_or_not(preprocessed: testing.Preprocessed) -> None:
    """However often."""
    p, q, r = tf.strings.to_hash_bucket_fast(["p", "q", "r"], 5).numpy().tolist()
    assert preprocessed.features["hot"][:3].tolist() == [
        [float(bucket in present) for bucket in range(5)] for present in ({p, q}, set(), {r})
    ]


def test_a_list_declares_its_outputs_and_its_columns() -> None:
    """Names, types, shapes, and how many indices there are where that is known."""
    column = {"column": "t"}
    assert transformed_features({"t": Feature(kind="list", max_values=9, num_buckets=5)}) == {
        "t": TransformedFeature(dtype="int64", num_values=7, shape=(9,), **column),  # type: ignore[arg-type]
        "t_count": TransformedFeature(dtype="float32", **column),  # type: ignore[arg-type]
    }
    weighed = {"t": Feature(kind="list", output="multi_hot", weights="w", num_buckets=5, missing="zero")}
    assert transformed_features(weighed) == {
        "t": TransformedFeature(dtype="float32", shape=(5,), **column),  # type: ignore[arg-type]
    }
    assert source_columns(weighed) == ["t", "w"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "max_values: required for kind 'list' with `output: indices`, but not given"),
        ({"max_values": 9, "weights": "w"}, "weights: has no effect on `output: indices`; give `output: multi_hot`"),
        ({"output": "multi_hot", "max_values": 9}, "max_values: 9 has no effect on `output: multi_hot`; remove it"),
        ({"output": "multi_hot", "num_buckets": 10_001}, "num_buckets: `output: multi_hot` would give 10001 numbers"),
        ({"max_values": 9, "num_buckets": 9, "num_oov": 2}, "num_oov: 2 has no effect beside num_buckets; keep one of"),
        ({"max_values": 9, "missing": "constant", "default": 1.5}, "default: 1.5 is not allowed for kind 'list'; give"),
    ],
)
def test_what_a_list_cannot_be_is_refused_by_its_key(options: dict[str, Any], message: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Feature(kind="list", **options)


def test_weights_out_of_the_label_are_refused() -> None:
    """The model would be given the answer."""
    features = {"x": Feature(kind="list", output="multi_hot", weights="y")}
    with pytest.raises(ValueError, match=r"^features\.x\.weights: 'y' is label\.column too"):
        transformed_features(features, LABEL)


def _transform(values: Any, weights: Any) -> Any:
    config = to_config({"x": Feature(kind="list", output="multi_hot", weights="w", num_buckets=5)}, LABEL)
    return preprocessing_fn({"x": values, "w": weights, "y": tf.constant([1.0, 1.0])}, config)["x"]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (tf.ragged.constant([[1.0], [2.0]]), r"a row has another number of values in column w than in column x; give"),
        (tf.ragged.constant([[1.0, float("nan")], [2.0]]), r"column w has a weight that is NaN or infinite; mend the"),
    ],
)
def test_weights_that_do_not_fit_their_values_stop_the_step(weights: tf.RaggedTensor, message: str) -> None:
    """As many values over all rows are not enough: each row must fit."""
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"features\.x\.weights: {message}") as caught:
        _transform(tf.ragged.constant([["a", "b"], ["c"]]), weights)
    assert "\\" not in caught.value.message


def test_as_many_weights_in_other_rows_do_not_fit() -> None:
    """Though their sum does."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row has another number of values"):
        _transform(tf.ragged.constant([["a", "b"], ["c"]]), tf.ragged.constant([[1.0], [2.0, 3.0]]))


@pytest.mark.parametrize(
    ("raw", "weights", "message"),
    [
        ([[1.5]], [[1.0]], "features.x: text or whole numbers are needed, but column 'x' holds numbers with a decimal"),
        ([["a"]], [["1"]], "features.x.weights: column 'w' holds text; a weight is a number: convert it"),
    ],
)
def test_a_list_that_cannot_use_the_type_of_its_column_is_refused(raw: Any, weights: Any, message: str) -> None:
    """The message names the key and the column."""
    with pytest.raises(ValueError, match=message):
        _transform(tf.constant(raw), tf.constant(weights))


def test_a_row_without_values_is_refused_where_that_is_declared() -> None:
    """The message names the column."""
    config = to_config({"x": Feature(kind="list", max_values=2, num_buckets=5, missing="error")}, LABEL)
    column = tf.SparseTensor([[0, 0]], ["a"], [2, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"features\.x: a value of column x is missing"):
        preprocessing_fn({"x": column, "y": tf.constant([1.0, 1.0])}, config)
