"""Labels of text: one class against all others, and all classes by their index."""

import re

import pytest
import tensorflow as tf

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label, to_config, vocabulary_name
from lockstep.transforms.preprocessing import preprocessing_fn
from tests.transforms.conftest import declared

FEATURES = {"x": Feature(kind="vocabulary")}


def test_classes_become_their_places_in_a_vocabulary_that_is_kept() -> None:
    """Most frequent first; a class that training had not, and a missing one, is -1; the features need no label."""
    classes = ["cat", "dog", "dog", "é", "cat", "dog"]
    rows: list[testing.Row] = [*({"animal": name, "x": name} for name in classes), {"x": "cat"}]
    trained = testing.run_preprocessing(declared(FEATURES, Label(column="animal", kind="multiclass")), rows)
    assert trained.features["animal"].ravel().tolist() == [1, 0, 0, 2, 1, 0, -1]
    assert trained.serve([{"animal": "cow"}, {"animal": "cat"}])["animal"].ravel().tolist() == [-1, 1]
    assert trained.serve([{"x": "dog"}], without=["animal"])["x"].tolist() == [[1]]
    graph = trained.transform_output
    assert graph.vocabulary_by_name(vocabulary_name("animal")) == [b"dog", b"cat", "é".encode()]
    domain = graph.transformed_domains()["animal"]
    assert (domain.min, domain.max) == (0, 2)


@pytest.mark.parametrize(
    ("column", "positive", "expected"),
    [
        (tf.constant(["yes", "no", "YES", ""]), "yes", [1, 0, 0, 0]),
        (tf.constant([2, 1], tf.int64), "2", [1, 0]),
    ],
)
def test_one_class_is_told_from_all_others(column: tf.Tensor, positive: str, expected: list[int]) -> None:
    """Text is compared as it is; whole numbers as they are written."""
    result = preprocessing_fn({"y": column}, to_config({}, Label(column="y", positive=positive)))["y"]
    assert (result.dtype, result.shape) == (tf.float32, (len(expected), 1))
    assert result.numpy().ravel().tolist() == expected


def test_a_missing_class_is_not_a_number() -> None:
    """0 would pass for a label."""
    column = tf.SparseTensor([[1, 0]], ["yes"], [2, 1])
    missing, present = preprocessing_fn({"y": column}, to_config({}, Label(column="y", positive="yes")))["y"].numpy()
    assert missing != missing
    assert present == 1


@pytest.mark.parametrize(
    ("label", "remedy"),
    [
        (Label(column="y", kind="multiclass"), "give kind: regression"),
        (Label(column="y", positive="1"), "give threshold instead of positive"),
    ],
)
def test_numbers_with_a_decimal_point_are_no_classes(label: Label, remedy: str) -> None:
    """1.0 and 1.00 would be two."""
    message = (
        f"label.column: text or whole numbers are needed, but column 'y' holds numbers with a decimal point; {remedy}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        preprocessing_fn({"y": tf.constant([1.0])}, to_config({}, label))
