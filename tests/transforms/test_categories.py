"""Exact values of the kinds made of tokens and whole numbers, and what they refuse."""

import pytest
import tensorflow as tf

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label, to_config, vocabulary_name
from lockstep.transforms.preprocessing import preprocessing_fn
from tests.transforms.conftest import first_values

# FarmHash's 64-bit fingerprints of "a", "b", "é" and the empty text: what never may change.
FINGERPRINTS = (12917804110809363939, 11795596070477164822, 693143013273849025, 11160318154034397263)

LABEL = Label(column="y", kind="regression")


def test_rare_values_are_no_tokens_and_the_default_is_one(preprocessed: testing.Preprocessed) -> None:
    """A missing value counts as the default, and has no index of its own then."""
    tokens = preprocessed.transform_output.vocabulary_by_name(vocabulary_name("frequent"))
    assert tokens == [b"often", b"none"]
    assert first_values(preprocessed, "frequent") == [0, 0, 0, 1, 1, 2, 0, 2]


def test_a_hash_is_the_same_on_every_machine(preprocessed: testing.Preprocessed) -> None:
    """A release of TensorFlow that changed it would make models wrong."""
    *indices, missing = first_values(preprocessed, "hashed")
    assert indices == [fingerprint % 5 for fingerprint in FINGERPRINTS]
    assert missing == 5


def test_whole_numbers_are_hashed_as_they_are_written(preprocessed: testing.Preprocessed) -> None:
    """A missing one as its default."""
    seven, minus_seven, missing, largest = first_values(preprocessed, "hashed_code")
    expected = tf.strings.to_hash_bucket_fast(["7", "-7", str(2**63 - 1)], 1000).numpy().tolist()
    assert [seven, minus_seven, largest] == expected
    assert missing == seven


def test_integers_in_range_are_themselves_and_all_others_share_an_index(preprocessed: testing.Preprocessed) -> None:
    """Missing ones have the last index, or are the default."""
    assert first_values(preprocessed, "level") == [0, 2, 3, 3, 4]
    assert first_values(preprocessed, "level_or_one") == [0, 2, 3, 3, 1]


def test_what_passes_through_keeps_its_type_and_every_digit(preprocessed: testing.Preprocessed) -> None:
    """A missing value is 0, empty, or the default; NaN and infinite are missing, as everywhere."""
    assert first_values(preprocessed, "same") == [2**62 + 1, -5, 0, 0]
    assert first_values(preprocessed, "same_missing") == [0, 0, 1, 0]
    assert first_values(preprocessed, "same_text") == [b"a", b"", b"", b"\xff"]
    assert first_values(preprocessed, "same_number") == [1.5, -1, -1, -1]


@pytest.mark.parametrize(
    ("feature", "raw", "message"),
    [
        (
            Feature(kind="integer", num_values=2),
            tf.constant(["a"]),
            "features.x: kind integer needs whole numbers, but column 'x' holds text; give kind: vocabulary or hash",
        ),
        (
            Feature(kind="integer", num_values=2),
            tf.constant([1.5]),
            "features.x: kind integer needs whole numbers, but column 'x' holds numbers with a decimal point; give",
        ),
        (
            Feature(kind="hash", num_buckets=2),
            tf.constant([1.5]),
            "features.x: text or whole numbers are needed, but",
        ),
        (
            Feature(kind="pass_through", missing="constant", default="a"),
            tf.constant([1]),
            "features.x.default: 'a' cannot stand for a value of column 'x', of whole numbers",
        ),
        (
            Feature(kind="pass_through", missing="constant", default=1.5),
            tf.constant([1]),
            "features.x.default: 1.5 cannot stand for a value of column 'x', of whole numbers",
        ),
        (
            Feature(kind="pass_through", missing="constant", default=1),
            tf.constant(["a"]),
            "features.x.default: 1 cannot stand for a value of column 'x', of text",
        ),
    ],
)
def test_a_kind_that_cannot_use_the_type_of_its_column_is_refused(
    feature: Feature, raw: tf.Tensor, message: str
) -> None:
    """The message names the key and the column."""
    with pytest.raises(ValueError, match=message):
        preprocessing_fn({"x": raw, "y": tf.constant([1.0])}, to_config({"x": feature}, LABEL))


@pytest.mark.parametrize("kind", ["vocabulary", "hash", "integer", "pass_through"])
def test_a_missing_value_is_refused_where_that_is_declared(kind: str) -> None:
    """Whatever the kind; the message names the column."""
    options = {"hash": {"num_buckets": 2}, "integer": {"num_values": 2}}.get(kind, {})
    feature = Feature(kind=kind, missing="error", **options)  # type: ignore[arg-type]
    column = tf.SparseTensor([[0, 0]], tf.constant([1], tf.int64), [2, 1])
    config = to_config({"x": feature}, LABEL)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"features\.x: a value of column x is missing"):
        preprocessing_fn({"x": column, "y": tf.constant([1.0, 1.0])}, config)
