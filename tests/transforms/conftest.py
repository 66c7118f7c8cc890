"""One run of tf.Transform over rows with everything that declared features have to stand, shared by the tests."""

import functools
from collections.abc import Mapping

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
}
LABEL = Label(column="tips", threshold=0.2, relative_to="fare")
TYPES: Mapping[str, testing.Type] = {"nothing": "float", "bucket_of_nothing": "int", "text_of_nothing": "string"}

# 80 rows, more than the 64 that make a batch: every column repeats these values.
VALUES: Mapping[str, list[int | float | str | bytes | None]] = {
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
