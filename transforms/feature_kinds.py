"""Which kinds of features there are, and which options and values each of them has."""

from collections.abc import Mapping
from typing import Literal, get_args

__all__ = [
    "DEFAULT_NUM_BUCKETS",
    "LEAST",
    "MAX_WIDTH",
    "MISSING_OF_KIND",
    "OPTIONS_OF_KIND",
    "OUTPUTS_OF_KIND",
    "SCALES_OF_KIND",
    "Kind",
    "Missing",
    "Part",
]

Kind = Literal[
    "numeric",
    "buckets",
    "vocabulary",
    "hash",
    "integer",
    "timestamp",
    "cross",
    "text",
    "list",
    "pass_through",
    "image",
    "auto",
]
Part = Literal["second", "minute", "hour", "hour_of_week", "weekday", "day", "day_of_year", "month", "quarter", "year"]
Missing = Literal["indicator", "mean", "median", "zero", "constant", "error"]

DEFAULT_NUM_BUCKETS = 10
# Places of a row: numbers of a dense bag of words, or indices with their padding.
MAX_WIDTH = 10_000

# Which options a kind has; one that it has not would be ignored, and is refused.
OPTIONS_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    "numeric": ("scale", "clip", "log", "missing", "default", "constant", "inexact"),
    "buckets": ("num_buckets", "edges", "clip", "log", "missing", "default", "inexact"),
    "vocabulary": ("top_k", "min_frequency", "num_oov", "missing", "default"),
    "hash": ("num_buckets", "missing", "default"),
    "integer": ("num_values", "missing", "default"),
    "timestamp": ("parts", "cyclic", "since", "utc_offset", "scale", "missing", "default"),
    "cross": ("columns", "num_buckets", "missing", "default"),
    "text": (
        *("output", "max_tokens", "split", "lower", "ngrams"),
        *("top_k", "min_frequency", "num_oov", "missing", "default"),
    ),
    "list": (
        *("output", "max_values", "weights", "num_buckets"),
        *("top_k", "min_frequency", "num_oov", "missing", "default"),
    ),
    "pass_through": ("missing", "default"),
    "auto": (),
    "image": ("height", "width", "channels", "scale", "fit", "decode", "missing"),
}
MISSING_OF_KIND: Mapping[Kind, tuple[Missing, ...]] = {
    "numeric": get_args(Missing),
    "buckets": get_args(Missing),
    "vocabulary": ("indicator", "constant", "error"),
    "hash": ("indicator", "constant", "error"),
    "integer": ("indicator", "constant", "error"),
    "timestamp": ("indicator", "constant", "error"),
    "cross": ("indicator", "constant", "error"),
    "text": ("indicator", "zero", "constant", "error"),
    "list": ("indicator", "zero", "constant", "error"),
    "pass_through": ("indicator", "zero", "constant", "error"),
    "auto": ("indicator",),
    "image": ("indicator", "zero", "error"),
}
OUTPUTS_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    "text": ("indices", "counts", "tf_idf"),
    "list": ("indices", "multi_hot"),
}
LEAST = {
    "num_buckets": 2,
    "top_k": 1,
    "min_frequency": 1,
    "num_oov": 1,
    "num_values": 1,
    "max_tokens": 1,
    "max_values": 1,
    "height": 1,
    "width": 1,
}
# The first one is what a kind has where none is declared.
SCALES_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    "numeric": ("z_score", "min_max", "robust", "none"),
    "timestamp": ("z_score", "min_max", "robust", "none"),
    "image": ("zero_one", "minus_one_one", "none"),
}
