"""Exact values of the declared features, through tf.Transform on Beam and through the graph that serves."""

import numpy as np
import pytest
import tensorflow as tf

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label, to_config, transformed_features, vocabulary_name
from lockstep.transforms.preprocessing import preprocessing_fn
from tests.transforms.conftest import FEATURES, INF, LABEL, NAN, ROWS, TYPES, first_values

LABEL_COLUMNS = ["tips"]


def test_outputs_are_those_declared_and_dense(preprocessed: testing.Preprocessed) -> None:
    """With the declared types and shapes; the label is float32 under the name of its column."""
    own = {"same": "int64", "same_text": "object", "same_number": "float32"}
    expected = {name: output.dtype or own[name] for name, output in transformed_features(FEATURES, LABEL).items()}
    assert {name: str(values.dtype) for name, values in preprocessed.features.items()} == {
        **expected,
        "tips": "float32",
    }
    shapes = {name: output.shape for name, output in transformed_features(FEATURES, LABEL).items()} | {"tips": (1,)}
    assert {name: values.shape[1:] for name, values in preprocessed.features.items()} == shapes
    assert {len(values) for values in preprocessed.features.values()} == {len(ROWS)}
    spec = preprocessed.transform_output.transformed_feature_spec()
    assert {type(feature) for feature in spec.values()} == {tf.io.FixedLenFeature}
    assert {name: tuple(feature.shape) for name, feature in spec.items()} == shapes


def test_numbers_are_scaled_by_the_values_that_are_present(preprocessed: testing.Preprocessed) -> None:
    """Missing, NaN and infinite values take no part in mean and deviation, become 0, and set the indicator."""
    scores = (np.array([1.0, 2.0, 3.0, 4.0]) - 2.5) / np.sqrt(1.25)
    low, lower, upper, high = scores.astype(np.float32).tolist()
    assert first_values(preprocessed, "number") == [low, lower, 0, 0, 0, 0, upper, high]
    assert preprocessed.features["number_missing"][:8, 0].tolist() == [0, 0, 1, 1, 1, 1, 0, 0]


def test_whole_numbers_are_scaled_without_an_indicator_where_none_is_asked_for(
    preprocessed: testing.Preprocessed,
) -> None:
    """`missing: mean` gives the mean, and no second output."""
    scores = (np.arange(1.0, 8.0) - 4) / 2
    assert first_values(preprocessed, "whole") == [*scores[:4], 0, *scores[4:]]
    assert "whole_missing" not in preprocessed.features


def test_a_constant_column_is_scaled_to_zero(preprocessed: testing.Preprocessed) -> None:
    """And not to the rounding error of its mean divided by itself."""
    assert set(preprocessed.features["constant"].ravel()) == {0.0}
    assert preprocessed.serve([{"constant": 7.0}])["constant"].tolist() == [[0.0]]


@pytest.mark.parametrize("name", ["huge", "huge_whole"])
def test_large_numbers_close_together_keep_their_differences(preprocessed: testing.Preprocessed, name: str) -> None:
    """Centring in float32 would make all of them 0."""
    expected = ((np.arange(4.0) - 1.5) / np.sqrt(1.25)).astype(np.float32)
    np.testing.assert_array_equal(first_values(preprocessed, name), expected)


def test_a_column_without_values_is_zero_and_missing(preprocessed: testing.Preprocessed) -> None:
    """Whatever its kind; a value that appears at serving is in no range that training saw."""
    assert set(preprocessed.features["nothing"].ravel()) == {0.0}
    assert set(preprocessed.features["nothing_missing"].ravel()) == {1.0}
    assert set(preprocessed.features["bucket_of_nothing"].ravel()) == {3}
    # One line stands for the empty vocabulary, one index for values not seen, then comes that for missing values.
    assert set(preprocessed.features["text_of_nothing"].ravel()) == {2}
    served = preprocessed.serve([{"nothing": 5.0, "bucket_of_nothing": 5, "text_of_nothing": "new"}])
    assert {name: served[name].item() for name in ("nothing", "nothing_missing")} == {
        "nothing": 0,
        "nothing_missing": 0,
    }
    assert served["bucket_of_nothing"].item() < 3
    assert served["text_of_nothing"].item() == 1


def test_buckets_are_quantiles_and_missing_values_have_an_index_of_their_own(
    preprocessed: testing.Preprocessed,
) -> None:
    """The last index, one for each kind of missing value; a column beside it without values changes nothing."""
    assert first_values(preprocessed, "bucket") == [0, 1, 2, 3, 3, 4, 4, 4]
    assert first_values(preprocessed, "bucket_of_halves") == [0, 1, 2, 2]


def test_buckets_tell_apart_whole_numbers_beyond_float32(preprocessed: testing.Preprocessed) -> None:
    """Edges in float32 would put all of them into one bucket."""
    assert first_values(preprocessed, "bucket_of_whole") == [0, 1, 2, 3]


def test_values_beyond_the_training_range_fall_into_the_outer_buckets(preprocessed: testing.Preprocessed) -> None:
    """And never into the index of a missing value."""
    served = preprocessed.serve([{"bucket": -1e30}, {"bucket": 1e30}, {"bucket": 3.4e38}])
    assert served["bucket"].ravel().tolist() == [0, 3, 3]


def test_a_vocabulary_has_the_most_frequent_token_first(preprocessed: testing.Preprocessed) -> None:
    """Equally frequent ones follow in the order of their bytes; no empty token, none with a line break."""
    tokens = preprocessed.transform_output.vocabulary_by_name(vocabulary_name("text"))
    assert tokens == [b"b", b" ", b"a", "é".encode()]


def test_tokens_become_indices_then_unseen_ones_then_missing_ones(preprocessed: testing.Preprocessed) -> None:
    """Four tokens, three indices for what is not in the vocabulary, one for missing values."""
    b, same, a, accented, space, empty, line_break, missing = first_values(preprocessed, "text")
    assert (b, same, space, a, accented, missing) == (0, 0, 1, 2, 3, 7)
    assert {empty, line_break} <= {4, 5, 6}
    served = preprocessed.serve([{"text": f"unseen {i}"} for i in range(50)])
    assert set(served["text"].ravel()) == {4, 5, 6}


def test_whole_numbers_are_tokens_too_and_top_k_cuts_the_rare_ones(preprocessed: testing.Preprocessed) -> None:
    """The third most frequent number counts as not seen."""
    assert preprocessed.transform_output.vocabulary_by_name(vocabulary_name("code")) == [b"7", b"-1"]
    assert first_values(preprocessed, "code") == [0, 0, 0, 1, 1, 2, 3, 0]


def test_a_column_may_have_any_name(preprocessed: testing.Preprocessed) -> None:
    """Also one that is no name of a file."""
    assert set(preprocessed.features["km/h, né"].ravel()) == {0}


def test_the_transformed_schema_knows_how_many_indices_there_are(preprocessed: testing.Preprocessed) -> None:
    """Those for values not seen and for missing values are counted: the built-in models size their embeddings by it."""
    domains = preprocessed.transform_output.transformed_domains()
    assert {name: (domain.min, domain.max) for name, domain in domains.items()} == {
        "bucket": (0, 4),
        "bucket_of_whole": (0, 4),
        "bucket_of_nothing": (0, 3),
        "bucket_of_halves": (0, 2),
        "text": (0, 7),
        "code": (0, 3),
        "text_of_nothing": (0, 2),
        "km/h, né": (0, 2),
        "bucket_of_edges": (0, 3),
        "bucket_of_median": (0, 1),
        "bucket_of_logarithms": (0, 1),
        "frequent": (0, 2),
        "hashed": (0, 5),
        "hashed_code": (0, 999),
        "level": (0, 4),
        "level_or_one": (0, 3),
        "when_hour": (0, 24),
        "when_weekday": (0, 7),
        "when_month": (0, 12),
        "dated_day": (0, 30),
        "crossed": (0, 1000),
        "crossed_text": (0, 999),
        # Padding, three words, two for others, one for missing texts.
        "words": (0, 6),
        # Padding, the line that stands for the empty vocabulary, one for others, one for missing texts.
        "words_of_nothing": (0, 3),
        "tags": (0, 5),
        "numbers": (0, 50),
    }


def test_the_schema_and_the_declaration_agree_on_the_number_of_indices(preprocessed: testing.Preprocessed) -> None:
    """What is known before the analysis is what tf.Transform records after it."""
    domains = preprocessed.transform_output.transformed_domains()
    for name, output in transformed_features(FEATURES, LABEL).items():
        if output.num_values is not None:
            assert domains[name].max + 1 == output.num_values, name


def test_a_label_relative_to_another_column_is_compared_exactly(preprocessed: testing.Preprocessed) -> None:
    """A tip of exactly a fifth of the fare is not over it."""
    # 0.5 > 0.4, 3 > 2 and 2.1 > 2; 1 > 1 and 0 > 0 are false.
    assert first_values(preprocessed, "tips") == [0, 1, 1, 0, 1]


def test_the_graph_serves_without_the_columns_of_the_label(preprocessed: testing.Preprocessed) -> None:
    """Every feature is there, with the values of training; only the label is not."""
    served = preprocessed.serve(ROWS, without=["tips", "fare"])
    assert set(served) == set(preprocessed.features) - {"tips"}
    for name, values in served.items():
        np.testing.assert_array_equal(values, preprocessed.features[name], err_msg=name)


def test_a_label_with_a_missing_part_is_not_a_number(preprocessed: testing.Preprocessed) -> None:
    """A model trained on it would show a loss that is NaN, whereas 0 would pass for a label."""
    rows: list[testing.Row] = [{"tips": 1.0}, {"fare": 1.0}, {}, {"tips": INF, "fare": 1.0}, {"tips": 1.0, "fare": NAN}]
    assert np.isnan(preprocessed.serve(rows)["tips"]).all()


def test_an_empty_batch_stays_empty(preprocessed: testing.Preprocessed) -> None:
    """Beam and servers may send one."""
    trained = {name: (0, *values.shape[1:]) for name, values in preprocessed.features.items()}
    assert {name: values.shape for name, values in preprocessed.serve([]).items()} == trained


def test_a_second_value_in_a_row_is_refused(preprocessed: testing.Preprocessed) -> None:
    """Taking the first one would drop data silently."""
    column = tf.SparseTensor([[0, 0], [0, 1]], [1.0, 2.0], [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of bounds"):
        preprocessed.transform_output.transform_features_layer()(
            {**tf.io.parse_example(tf.constant([b""]), preprocessed.raw_spec), "number": column}
        )


def test_dense_and_ragged_columns_give_what_sparse_ones_give() -> None:
    """A schema with shapes gives dense columns; ragged ones come from a reader with ragged features."""
    config = to_config({}, Label(column="y", kind="regression"))
    columns = [
        tf.constant([1.0, NAN]),
        tf.constant([[1.0], [NAN]]),
        tf.ragged.constant([[1.0], []]),
        tf.SparseTensor([[0, 0]], [1.0], [2, 1]),
    ]
    results = [preprocessing_fn({"y": column}, config)["y"].numpy() for column in columns]
    for result in results:
        np.testing.assert_array_equal(result, np.array([[1.0], [NAN]], np.float32))


def test_a_binary_label_without_threshold_must_be_zero_or_one() -> None:
    """A 2 among the labels stops the step: its message names the column and what to do."""
    config = to_config({}, Label(column="y"))
    assert preprocessing_fn({"y": tf.constant([0, 1])}, config)["y"].numpy().tolist() == [[0.0], [1.0]]
    message = "label.column: column y holds other values than 0 and 1; give a threshold or kind: regression"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as caught:
        preprocessing_fn({"y": tf.constant([0, 2])}, config)
    assert "\\" not in caught.value.message


@pytest.mark.parametrize(
    ("feature", "raw", "message"),
    [
        (
            Feature(kind="numeric"),
            tf.constant(["a"]),
            "^features.x: kind numeric needs numbers, but column 'x' holds text; give kind: vocabulary$",
        ),
        (
            Feature(kind="buckets"),
            tf.constant(["a"]),
            "^features.x: kind buckets needs numbers, but column 'x' holds text; give kind: vocabulary$",
        ),
        (Feature(kind="vocabulary"), tf.constant([1.5]), "features.x: text or whole numbers are needed, but"),
    ],
)
def test_a_kind_that_cannot_use_the_type_of_its_column_is_refused(
    feature: Feature, raw: tf.Tensor, message: str
) -> None:
    """The message names the key and the column."""
    with pytest.raises(ValueError, match=message):
        preprocessing_fn({"x": raw, "y": tf.constant([1.0])}, to_config({"x": feature}, Label(column="y")))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (
            Label(column="t"),
            r"^label\.column: column 't' holds text; a label needs numbers \(0 and 1 for binary, or give positive\): ",
        ),
        (
            Label(column="t", kind="regression"),
            r"^label\.column: column 't' holds text; a label needs numbers: convert it first$",
        ),
        (
            Label(column="y", threshold=0.2, relative_to="t"),
            r"^label\.relative_to: column 't' holds text; a label needs numbers: convert it first$",
        ),
    ],
)
def test_a_label_of_text_is_refused(label: Label, message: str) -> None:
    """A label has no kind that could take text, so the message tells to convert the column."""
    with pytest.raises(ValueError, match=message):
        preprocessing_fn({"t": tf.constant(["yes"]), "y": tf.constant([1.0])}, to_config({}, label))


@pytest.mark.parametrize(
    ("label", "key"),
    [(Label(column="z"), "label.column"), (Label(column="y", threshold=1.0, relative_to="z"), "label.relative_to")],
)
def test_a_column_without_any_value_is_refused_with_those_that_have_some(label: Label, key: str) -> None:
    """The schema leaves it out; the message names the key, the column, and the columns that are there."""
    message = f"{key}: column 'z' has no value in any row of the training split; use one that has: x, y"
    with pytest.raises(ValueError, match=message):
        preprocessing_fn({"x": tf.constant([1.0]), "y": tf.constant([1.0])}, to_config({}, label))


def test_training_and_serving_agree_on_everything_that_features_have_to_stand(
    preprocessed: testing.Preprocessed,
) -> None:
    """The label too, where its columns are sent."""
    served = preprocessed.serve(ROWS)
    assert set(served) == set(preprocessed.features)
    for name, values in served.items():
        np.testing.assert_array_equal(values, preprocessed.features[name], err_msg=name)
    assert set(TYPES) <= set(preprocessed.raw_spec)
