"""Which tokens a vocabulary keeps, and in what order."""

import collections
from pathlib import Path

import pytest

from lockstep.transforms.vocabularies import (
    NO_TOKENS,
    VocabularyOptions,
    _WriteVocabularies,
    broken_tokens,
    top_tokens,
)


def test_the_most_frequent_tokens_are_kept_in_a_fixed_order() -> None:
    """Ties are broken by the bytes, so that two runs over the same data give the same indices."""
    assert top_tokens({b"rare": 1, b"b": 2, b"a": 2, b"often": 9}, 3) == [b"often", b"a", b"b"]


def test_tokens_that_no_line_can_hold_are_left_out_before_the_cut() -> None:
    """Empty ones and those with a line break of either kind take no place from the others."""
    assert top_tokens({b"": 9, b"a\nb": 8, b"a\rb": 7, b" ": 2, b"a": 1}, 2) == [b" ", b"a"]


def test_tokens_below_the_least_frequency_are_left_out() -> None:
    """Also where the vocabulary has room for them."""
    assert top_tokens({b"a": 3, b"b": 2, b"c": 1}, 5, 2) == [b"a", b"b"]
    assert top_tokens({b"a": 3}, 5, 4) == [NO_TOKENS]


def test_a_column_without_tokens_gets_a_line_that_says_so() -> None:
    """A table cannot be made from an empty file."""
    assert top_tokens({}, 5) == top_tokens({b"": 3}, 5) == [NO_TOKENS]


def test_tokens_with_a_line_break_are_counted_with_their_rows() -> None:
    """The step tells how many values it could not give a place."""
    assert broken_tokens({b"a\nb": 8, b"a\rb": 7, b"": 9, b" ": 2, b"a": 1}) == (2, 15)


def test_the_step_tells_what_it_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the vocabulary, whose file has the others."""
    counts = collections.Counter({b"a\nb": 8, b"a": 1})
    list(_WriteVocabularies([VocabularyOptions(name="vocabulary_a", top_k=5)], str(tmp_path)).process([counts]))
    assert (tmp_path / "vocabulary_a").read_bytes() == b"a\n"
    assert "vocabulary_a: 1 values with a line break, in 8 rows" in caplog.text
