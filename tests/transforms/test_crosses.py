"""Which columns can be crossed, and what comes out of it."""

import re
from typing import Any

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from lockstep.transforms import testing
from lockstep.transforms.features import (
    Feature,
    Label,
    TransformedFeature,
    source_columns,
    to_config,
    transformed_features,
)
from lockstep.transforms.preprocessing import preprocessing_fn

LABEL = Label(column="y", kind="regression")


def _bucket(values: list[str], num_buckets: int) -> int:
    written = b"".join(b"%d:%s" % (len(value), value) for value in (text.encode() for text in values))
    return int(tf.strings.to_hash_bucket_fast(written, num_buckets).numpy())


def test_a_cross_is_the_hash_of_its_values_together(preprocessed: testing.Preprocessed) -> None:
    """A raw number as it is written, of buckets and parts of times the index; one that is missing makes it missing."""
    values = [["7", "0", "1"], ["7", "1", "0"], None, ["-1", "2", "0"], None]
    expected = [1000 if row is None else _bucket(row, 1000) for row in values]
    assert preprocessed.features["crossed"][:5, 0].tolist() == expected


def test_the_default_stands_for_each_missing_value(preprocessed: testing.Preprocessed) -> None:
    """And no index is kept for missing ones."""
    found = preprocessed.features["crossed_text"][:3, 0].tolist()
    assert found == [_bucket([*pair], 1000) for pair in (("a", "b"), ("", "b"), ("", "a"))]


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.tuples(st.text("ab:12|", max_size=4), st.text("ab:12|", max_size=4)), min_size=1))
@hypothesis.example([("a", "b1:c"), ("a1:b", "c"), ("1", "1:1"), ("11:", "1")])
def test_different_values_share_an_index_by_the_hash_only(pairs: list[tuple[str, str]]) -> None:
    """Whatever stands in them: there are so many buckets that joined text alone could make two of them one."""
    config = to_config({"x": Feature(kind="cross", columns=("a", "b"), num_buckets=2**62)}, LABEL)
    columns = {name: tf.constant(values) for name, values in zip("ab", zip(*pairs, strict=True), strict=True)}
    # In a graph of its own: what tf.Transform records of tensors would stay in that of the process.
    transform = tf.function(lambda inputs: preprocessing_fn(inputs, config)["x"])
    found = transform({**columns, "y": tf.ones([len(pairs)])}).numpy().ravel().tolist()
    assert len(set(found)) == len(set(pairs))


def test_a_cross_declares_its_output_and_its_columns() -> None:
    """What it needs of the data are raw columns."""
    features = {
        "hour_and_fare": Feature(kind="cross", columns=("t_hour", "fare", "city"), num_buckets=9),
        "t": Feature(kind="timestamp", parts=("hour",)),
        "fare": Feature(kind="buckets"),
    }
    expected = TransformedFeature(column="hour_and_fare", dtype="int64", num_values=10)
    assert transformed_features(features, LABEL)["hour_and_fare"] == expected
    assert source_columns(features) == ["t", "fare", "city"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ("a", "b")}, "num_buckets: required for kind 'cross', but not given"),
        ({"columns": ("a",), "num_buckets": 9}, "columns: ['a'] is not allowed for kind 'cross'; give two or more"),
        ({"columns": ("a", "a"), "num_buckets": 9}, "columns: ['a', 'a'] is not allowed for kind 'cross'; give two"),
        ({"columns": ("a", "b"), "num_buckets": 9, "missing": "zero"}, "missing: 'zero' is not allowed for kind 'cro"),
    ],
)
def test_what_a_cross_cannot_be_is_refused_by_its_key(options: dict[str, Any], message: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Feature(kind="cross", **options)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("y", r"features\.x\.columns: 'y' is label\.column too, so that the model would be given the answer"),
        ("t", r"features\.x\.columns: 't', of kind 'timestamp', has no index to cross; name one of its .*: t_hour$"),
        ("words", r"features\.x\.columns: 'words', of kind 'text', has no index to cross; name another one"),
        ("other", r"features\.x\.columns: 'other', of kind 'cross', has no index to cross; name another one"),
    ],
)
def test_what_has_no_single_value_cannot_be_crossed(column: str, message: str) -> None:
    """Nor can the label."""
    features = {
        "x": Feature(kind="cross", columns=("a", column), num_buckets=9),
        "other": Feature(kind="cross", columns=("a", "b"), num_buckets=9),
        "t": Feature(kind="timestamp", parts=("hour",)),
        "words": Feature(kind="text", max_tokens=9),
    }
    with pytest.raises(ValueError, match=f"^{message}"):
        transformed_features(features, LABEL)


def test_numbers_with_a_decimal_point_are_crossed_by_buckets_only() -> None:
    """The message says how."""
    config = to_config({"x": Feature(kind="cross", columns=("a", "b"), num_buckets=9)}, LABEL)
    columns = {"a": tf.constant([1.5]), "b": tf.constant(["b"]), "y": tf.constant([1.0])}
    message = (
        r"features\.x\.columns: text or .* column 'a' holds .*; declare features\.a: \{kind: buckets\}, whose index"
    )
    with pytest.raises(ValueError, match=message):
        preprocessing_fn(columns, config)


def test_a_missing_value_is_refused_where_that_is_declared() -> None:
    """The message names the cross."""
    config = to_config({"x": Feature(kind="cross", columns=("a", "b"), num_buckets=9, missing="error")}, LABEL)
    columns = {"a": tf.SparseTensor([[0, 0]], ["a"], [2, 1]), "b": tf.constant(["b", "b"])}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"features\.x: a value of column x is missing"):
        preprocessing_fn({**columns, "y": tf.constant([1.0, 1.0])}, config)
