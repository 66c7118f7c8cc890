"""What becomes of the words of texts, and what the kind text refuses."""

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.transforms import testing
from lockstep.transforms.features import (
    Feature,
    Label,
    TransformedFeature,
    to_config,
    transformed_features,
    vocabulary_name,
)
from lockstep.transforms.preprocessing import preprocessing_fn
from lockstep.transforms.texts import split_texts
from tests.transforms.conftest import VALUES

LABEL = Label(column="y", kind="regression")


def _split(text: str | bytes, **options: Any) -> list[str]:
    feature = Feature(kind="text", output="counts", **options)
    tokens: list[bytes] = split_texts(feature, tf.constant([text])).to_list()[0]
    return [token.decode() for token in tokens]


@pytest.mark.parametrize(
    ("options", "text", "tokens"),
    [
        ({}, "The quick-brown FOX, isn't 3.5€!", ["the", "quick", "brown", "fox", "isn", "t", "3", "5"]),
        ({"split": "whitespace", "lower": False}, " A-b,\tc!\r\n", ["A-b,", "c!"]),
        ({}, "ÀÉ\u2003ЖЁ\u00a0STRAßE 東京、大阪", ["àé", "жё", "straße", "東京", "大阪"]),
        ({}, "re\u0301sume\u0301 \U0001f600", ["re\u0301sume\u0301"]),
        ({}, " \n!? ", []),
        ({}, "", []),
        ({"ngrams": (1, 2)}, "a b c", ["a", "b", "c", "a b", "b c"]),
        ({"ngrams": (2, 3)}, "a", []),
        ({"ngrams": (3, 3)}, "a b c d", ["a b c", "b c d"]),
    ],
)
def test_texts_become_words_and_runs_of_them(options: dict[str, Any], text: str, tokens: list[str]) -> None:
    """In every script; punctuation and symbols are between words, or part of them, as declared."""
    assert _split(text, **options) == tokens


def test_bytes_that_are_no_text_are_no_words() -> None:
    """They stop nothing: a text cut within a letter is not rare."""
    assert _split(b"caf\xc3 \xff big") == ["caf", "big"]


def test_words_become_padded_indices_of_the_vocabulary(preprocessed: testing.Preprocessed) -> None:
    """Padding 0, then the most frequent first, others by hash, the last for a missing text; long texts are cut."""
    graph = preprocessed.transform_output
    assert graph.vocabulary_by_name(vocabulary_name("words")) == [b"dog", b"big", "é".encode()]
    index = preprocessed.features["words"][: len(VALUES["words"])].tolist()
    (one, other, *rest), index[5] = index[5], []
    assert index == [[2, 2, 1, 0], [3, 3, 1, 0], [0] * 4, [6, 0, 0, 0], [1] * 4, [], [0] * 4, [2, 0, 0, 0]]
    assert {one, other} <= {4, 5}
    assert rest == [0, 0]
    assert preprocessed.features["words_count"][:8, 0].tolist() == [3, 3, 0, 1, 4, 2, 0, 1]


def test_counts_have_a_place_for_each_token(preprocessed: testing.Preprocessed) -> None:
    """And one for tokens that are not in the vocabulary; a missing text is told."""
    tokens = preprocessed.transform_output.vocabulary_by_name(vocabulary_name("pairs"))
    assert tokens[0] == b"a"
    assert {*tokens} == {b"a", b"b", b"B", b"a b", b"b a", b"a B"}
    expected: list[dict[bytes, int]] = [
        {b"a": 2, b"b": 1, b"a b": 1, b"b a": 1},
        {b"a": 1, b"B": 1, b"a B": 1},
        {},
        {},
        {b"a": 1},
    ]
    found = preprocessed.features["pairs"][: len(expected)].tolist()
    assert found == [[*(counts.get(token, 0) for token in tokens), 0] for counts in expected]
    assert preprocessed.features["pairs_missing"][: len(expected), 0].tolist() == [0, 0, 1, 0, 0]
    served = preprocessed.serve([{"pairs": "a new a new"}])["pairs"].tolist()
    assert served[0][tokens.index(b"a")] == 2
    # "new" twice, "a new" twice, "new a".
    assert served[0][-1] == 5


def test_rare_tokens_weigh_more_in_tf_idf(preprocessed: testing.Preprocessed) -> None:
    """As the formula says, computed beside; five texts, sixteen times each."""
    tokens = preprocessed.transform_output.vocabulary_by_name(vocabulary_name("weighed"))
    assert {*tokens} == {b"a", b"b", b"c"}
    num_having = {b"a": 32, b"b": 32, b"c": 16}
    shares: list[dict[bytes, float]] = [{b"a": 2 / 3, b"b": 1 / 3}, {b"b": 1}, {}, {}, {b"a": 1 / 2, b"c": 1 / 2}]
    expected = [
        [share.get(token, 0.0) * (1 + np.log(81 / (num_having[token] + 1))) for token in tokens] + [0, 0]
        for share in shares
    ]
    np.testing.assert_allclose(preprocessed.features["weighed"][: len(shares)], expected, rtol=1e-6)
    assert "weighed_missing" not in preprocessed.features


def test_a_column_of_text_without_any_word_has_a_vocabulary_all_the_same(preprocessed: testing.Preprocessed) -> None:
    """A text that appears at serving is not seen."""
    served = preprocessed.serve([{"words_of_nothing": "new"}, {}])
    assert served["words_of_nothing"].tolist() == [[2, 0], [3, 0]]


def test_a_text_declares_its_outputs() -> None:
    """Names, types and shapes."""
    column = {"column": "t"}
    assert transformed_features({"t": Feature(kind="text", max_tokens=9)}) == {
        "t": TransformedFeature(dtype="int64", shape=(9,), **column),  # type: ignore[arg-type]
        "t_count": TransformedFeature(dtype="float32", **column),  # type: ignore[arg-type]
    }
    assert transformed_features({"t": Feature(kind="text", output="tf_idf", top_k=9)}) == {
        "t": TransformedFeature(dtype="float32", shape=(10,), **column),  # type: ignore[arg-type]
        "t_missing": TransformedFeature(dtype="float32", **column),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "max_tokens: required for kind 'text' with `output: indices`, but not given"),
        ({"max_tokens": 0}, "max_tokens: 0 is not allowed; give 1 or more"),
        ({"max_tokens": 10_001}, "max_tokens: 10001 is not allowed; give 10000 or less"),
        ({"max_tokens": 9, "output": "counts"}, "max_tokens: 9 has no effect on `output: counts`; remove it"),
        ({"output": "counts", "top_k": 10_000}, "top_k: `output: counts` would give 10001 numbers a row, over 10000"),
        (
            {"output": "multi_hot"},
            "output: 'multi_hot' is not allowed for kind 'text'; give one of indices, counts, tf",
        ),
        ({"max_tokens": 9, "ngrams": (2, 1)}, "ngrams: [2, 1] is not allowed; give [least, most], from 1 to 5"),
        ({"max_tokens": 9, "ngrams": (2,)}, "ngrams: [2] is not allowed; give [least, most], from 1 to 5"),
        ({"max_tokens": 9, "split": "letters"}, "split: 'letters' is not allowed; give one of words, whitespace"),
        ({"max_tokens": 9, "missing": "mean"}, "missing: 'mean' is not allowed for kind 'text'; give one of indicator"),
        ({"max_tokens": 9, "weights": "w"}, "weights: 'w' has no effect on kind 'text', only on list; remove it"),
    ],
)
def test_what_a_text_cannot_be_is_refused_by_its_key(options: dict[str, Any], message: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Feature(kind="text", **options)


def test_a_column_of_numbers_is_no_text() -> None:
    """The message names a kind to take."""
    config = to_config({"x": Feature(kind="text", max_tokens=9)}, LABEL)
    with pytest.raises(ValueError, match=r"features\.x: kind text needs text, but column 'x' holds numbers; give"):
        preprocessing_fn({"x": tf.constant([1]), "y": tf.constant([1.0])}, config)
