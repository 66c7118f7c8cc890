"""Which tokens a vocabulary keeps, and in what order."""

from lockstep.transforms.vocabularies import NO_TOKENS, top_tokens


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
