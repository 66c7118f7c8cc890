"""One run of tf.Transform over rows with everything that declared features have to stand, shared by the tests."""

import functools
from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label, to_config
from lockstep.transforms.preprocessing import preprocessing_fn

NAN, INF = float("nan"), float("inf")

FEATURES: Mapping[str, Feature] = {
    "number": Feature(kind="numeric"),
    "whole": Feature(kind="numeric", missing="mean"),
    "constant": Feature(kind="numeric", missing="mean"),
    "huge": Feature(kind="numeric", missing="mean"),
    "huge_whole": Feature(kind="numeric", missing="mean"),
    "nothing": Feature(kind="numeric"),
    "bucket": Feature(kind="buckets", num_buckets=4),
    "bucket_of_whole": Feature(kind="buckets", num_buckets=4),
    "bucket_of_nothing": Feature(kind="buckets", num_buckets=3),
    "bucket_of_halves": Feature(kind="buckets", num_buckets=2),
    "text": Feature(kind="vocabulary", num_oov=3),
    "code": Feature(kind="vocabulary", top_k=2),
    "text_of_nothing": Feature(kind="vocabulary"),
    "km/h, né": Feature(kind="vocabulary"),
    "ranged": Feature(kind="numeric", scale="min_max", missing="mean"),
    "robust": Feature(kind="numeric", scale="robust", missing="median"),
    "unscaled": Feature(kind="numeric", scale="none", missing="zero"),
    "cut": Feature(kind="numeric", scale="none", clip=(0.0, 10.0), missing="constant", default=50),
    "cut_below": Feature(kind="numeric", scale="min_max", clip=(0.0, None)),
    "logarithm": Feature(kind="numeric", scale="none", log=True, missing="zero"),
    "rounded": Feature(kind="numeric", scale="none", inexact="round", missing="mean"),
    "bucket_of_edges": Feature(kind="buckets", edges=(0.0, 10.0)),
    "bucket_of_median": Feature(kind="buckets", num_buckets=2, missing="median"),
    "bucket_of_logarithms": Feature(kind="buckets", num_buckets=2, log=True, missing="zero"),
    "frequent": Feature(kind="vocabulary", min_frequency=20, missing="constant", default="none"),
    "hashed": Feature(kind="hash", num_buckets=5),
    "hashed_code": Feature(kind="hash", num_buckets=1000, missing="constant", default=7),
    "level": Feature(kind="integer", num_values=3),
    "level_or_one": Feature(kind="integer", num_values=3, missing="constant", default=1),
    "when": Feature(
        kind="timestamp",
        parts=("hour", "weekday", "month", "year"),
        since="1970-01-01",
        utc_offset="+01:00",
        scale="min_max",
    ),
    "turning": Feature(kind="timestamp", parts=("hour",), cyclic=True),
    "dated": Feature(kind="timestamp", parts=("day",), missing="constant", default="2024-01-31T23:00:00-00:30"),
    "crossed": Feature(kind="cross", columns=("code", "bucket_of_edges", "when_hour"), num_buckets=1000),
    "crossed_text": Feature(
        kind="cross", columns=("same_text", "text"), num_buckets=1000, missing="constant", default=""
    ),
    "words": Feature(kind="text", max_tokens=4, num_oov=2, min_frequency=11),
    "pairs": Feature(kind="text", output="counts", ngrams=(1, 2), split="whitespace", lower=False, top_k=6),
    "weighed": Feature(kind="text", output="tf_idf", top_k=4, missing="zero"),
    "words_of_nothing": Feature(kind="text", max_tokens=2),
    "tags": Feature(kind="list", max_values=3),
    "numbers": Feature(kind="list", max_values=2, num_buckets=50, missing="constant", default=7),
    "shares": Feature(kind="list", output="multi_hot", weights="share", top_k=3),
    "hot": Feature(kind="list", output="multi_hot", num_buckets=5, missing="zero"),
    "same": Feature(kind="pass_through"),
    "same_text": Feature(kind="pass_through", missing="zero"),
    "same_number": Feature(kind="pass_through", missing="constant", default=-1),
}
LABEL = Label(column="tips", threshold=0.2, relative_to="fare")
TYPES: Mapping[str, testing.Type] = {
    "nothing": "float",
    "bucket_of_nothing": "int",
    "text_of_nothing": "string",
    "words_of_nothing": "string",
}

# 80 rows, more than the 64 that make a batch: every column repeats these values.
VALUES: Mapping[str, list[Any]] = {
    "number": [1.0, 2.0, None, NAN, INF, -INF, 3.0, 4.0],
    "whole": [1, 2, 3, 4, None, 5, 6, 7],
    # 0.1 has no exact sum: only arithmetic relative to one of the values finds no deviation at all.
    "constant": [0.1],
    "huge": [1e9, 1e9 + 64, 1e9 + 128, 1e9 + 192],
    "huge_whole": [10**9, 10**9 + 1, 10**9 + 2, 10**9 + 3],
    "nothing": [None],
    "bucket": [1.0, 2.0, 3.0, 4.0, 5.0, None, NAN, INF],
    "bucket_of_whole": [10**9, 10**9 + 1, 10**9 + 2, 10**9 + 3],
    "bucket_of_nothing": [None],
    "bucket_of_halves": [0.5, 1.5, None, -INF],
    "text": ["b", "b", "a", "é", " ", "", "line\nbreak", None],
    "code": [7, 7, 7, -1, -1, 30, None, 7],
    "text_of_nothing": [None],
    "km/h, né": ["x"],
    "ranged": [2.0, 4.0, None, 6.0],
    "robust": [0.0, 1.0, 2.0, 3.0, 1000.0, None, NAN, 2.0],
    "unscaled": [1.5, None, 3e38, INF],
    "cut": [-5.0, 5.0, 20.0, None],
    "cut_below": [-5, 0, 5, None],
    "logarithm": [0.0, 1.0, -1.0, 1e30],
    "rounded": [2**62, 2**24 + 1, None, 1],
    "bucket_of_edges": [-1.0, 0.0, 9.5, 10.0, None],
    "bucket_of_median": [1.0, 2.0, 3.0, 4.0, None],
    "bucket_of_logarithms": [-1e30, 5.0, 1e30, None],
    "frequent": ["often", "often", "often", None, None, "rare", "often", "seldom"],
    "hashed": ["a", "b", "é", "", None],
    "hashed_code": [7, -7, None, 2**63 - 1],
    "level": [0, 2, 3, -1, None],
    "level_or_one": [0, 2, 3, -(2**63), None],
    "words": ["Big, BIG dog!", "É é, dog", "", None, "dog " * 9, "no\u00a0-\tcat\n", "...", b"\xff big"],
    "pairs": ["a b a", "a B", None, "", "a"],
    "weighed": ["a a b", "b", "", None, "a, c"],
    "words_of_nothing": [None],
    "tags": [["a", "b"], ["a"], [], None, ["b", "", "c", "a"]],
    "numbers": [[1, -1, 2**63 - 1], [7], None, []],
    "shares": [["x", "y", "x"], ["x"], None, ["z", "new\nline"]],
    "share": [[0.5, 2.0, 0.25], [1.0], None, [-1.0, 4.0]],
    "hot": [["p", "p", "q"], [], ["r"]],
    # The last is a leap day's 23:00, in 2024.
    "when": [0, -1, None, 1_709_247_600],
    "turning": [0, -1, None, 6 * 3600],
    "dated": [0, None],
    "same": [2**62 + 1, -5, None, 0],
    "same_text": ["a", "", None, b"\xff"],
    "same_number": [1.5, NAN, None, INF],
    "tips": [1.0, 0.5, 3.0, 0.0, 2.1],
    "fare": [5.0, 2.0, 10.0, 0.0, 10.0],
}
ROWS: list[testing.Row] = [{name: values[i % len(values)] for name, values in VALUES.items()} for i in range(80)]


def declared(features: Mapping[str, Feature], label: Label) -> testing.Preprocessing:
    """Returns the declared features as a function with tf.Transform's signature."""
    return functools.partial(preprocessing_fn, custom_config=to_config(features, label))


@pytest.fixture(scope="session")
def preprocessed(tmp_path_factory: pytest.TempPathFactory) -> testing.Preprocessed:
    """What tf.Transform on Beam makes of ROWS."""
    output_dir = tmp_path_factory.mktemp("transform") / "graph"
    return testing.run_preprocessing(declared(FEATURES, LABEL), ROWS, output_dir=output_dir, types=TYPES)


def first_values(preprocessed: testing.Preprocessed, name: str) -> list[Any]:
    """Returns the transformed values of the first rows, one for each raw value of the column."""
    values: list[Any] = preprocessed.features[name][: len(VALUES[name.removesuffix("_missing")]), 0].tolist()
    return values
