"""Validation of the blocks, and the names that they produce."""

import dataclasses
import json
import re
from typing import Any, get_args

import hypothesis
import pytest
from hypothesis import strategies as st

from lockstep.transforms.feature_kinds import Part
from lockstep.transforms.features import (
    Feature,
    Label,
    TransformedFeature,
    from_config,
    to_config,
    transformed_features,
    vocabulary_name,
)

INF = float("inf")

_DEFAULTS = {"missing": st.just("constant"), "default": st.integers()}
_FEATURES = st.one_of(
    st.builds(
        Feature,
        kind=st.just("numeric"),
        missing=st.sampled_from(["indicator", "mean", "median", "zero", "error"]),
        scale=st.sampled_from(["z_score", "min_max", "robust", "none"]),
        clip=st.none() | st.tuples(st.none() | st.floats(-1e9, 0), st.none() | st.floats(1, 1e9)),
        log=st.booleans(),
    ),
    st.builds(Feature, kind=st.just("buckets"), num_buckets=st.integers(2, 100)),
    st.builds(Feature, kind=st.just("buckets"), edges=st.sets(st.floats(-9, 9)).map(sorted), **_DEFAULTS),
    st.builds(Feature, kind=st.just("vocabulary"), top_k=st.integers(1, 10**9), num_oov=st.integers(1, 100)),
    st.builds(Feature, kind=st.just("hash"), num_buckets=st.integers(2, 10**9), **_DEFAULTS),
    st.builds(Feature, kind=st.just("integer"), num_values=st.integers(1, 10**9)),
    st.builds(
        Feature,
        kind=st.just("timestamp"),
        parts=st.sets(st.sampled_from(get_args(Part)), min_size=1).map(sorted),
        since=st.none() | st.dates().map(str),
    ),
    st.builds(Feature, kind=st.just("text"), max_tokens=st.integers(1, 100), ngrams=st.just((1, 2))),
    st.builds(Feature, kind=st.just("list"), output=st.just("multi_hot"), num_buckets=st.integers(2, 100)),
    st.builds(Feature, kind=st.just("pass_through"), missing=st.just("constant"), default=st.text()),
)
_LABELS = st.one_of(
    st.builds(Label, column=st.text(min_size=1), kind=st.sampled_from(["binary", "regression", "multiclass"])),
    st.builds(Label, column=st.just("y"), positive=st.text()),
    st.builds(Label, column=st.just("y"), threshold=st.floats(-1e9, 1e9), relative_to=st.sampled_from([None, "x"])),
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "numbers"}, "kind: 'numbers' is not allowed; give one of numeric, buckets, vocabulary"),
        (
            {"kind": "numeric", "missing": "drop"},
            "missing: 'drop' is not allowed for kind 'numeric'; give one of indicator, mean, median, zero, const",
        ),
        (
            {"kind": "hash", "num_buckets": 9, "missing": "mean"},
            "missing: 'mean' is not allowed for kind 'hash'; give one of indicator, constant, error",
        ),
        (
            {"kind": "numeric", "scale": "max"},
            "scale: 'max' is not allowed for kind 'numeric'; give one of z_score, min_max, robust, none",
        ),
        ({"kind": "buckets", "num_buckets": 1}, "num_buckets: 1 is not allowed; give 2 or more"),
        ({"kind": "vocabulary", "top_k": 0}, "top_k: 0 is not allowed; give 1 or more"),
        ({"kind": "vocabulary", "num_oov": 0}, "num_oov: 0 is not allowed; give 1 or more"),
        ({"kind": "vocabulary", "min_frequency": 0}, "min_frequency: 0 is not allowed; give 1 or more"),
        ({"kind": "hash"}, "num_buckets: required for kind 'hash', but not given"),
        ({"kind": "integer"}, "num_values: required for kind 'integer', but not given"),
        (
            {"kind": "numeric", "num_oov": 2},
            "num_oov: 2 has no effect on kind 'numeric', only on vocabulary, text, list; remove it",
        ),
        (
            {"kind": "vocabulary", "clip": (0.0, 1.0)},
            "clip: (0.0, 1.0) has no effect on kind 'vocabulary', only on numeric, buckets; remove it",
        ),
        ({"kind": "numeric", "missing": "constant"}, "default: required for `missing: constant`, but not given"),
        (
            {"kind": "numeric", "default": 1},
            "default: 1 has no effect on `missing: indicator`; give `missing: constant`",
        ),
        (
            {"kind": "numeric", "clip": (1.0, 1.0)},
            "clip: [1.0, 1.0] is not allowed; the least must be below the greatest",
        ),
        ({"kind": "numeric", "clip": (1.0, INF)}, "clip: [1.0, inf] is not allowed; give [least, greatest]"),
        (
            {"kind": "buckets", "edges": (1.0, 1.0)},
            "edges: [1.0, 1.0] is not allowed; give finite numbers in ascending",
        ),
        (
            {"kind": "buckets", "edges": (1.0, INF)},
            "edges: [1.0, inf] is not allowed; give finite numbers in ascending",
        ),
        ({"kind": "buckets", "edges": (1.0,), "num_buckets": 2}, "edges: not allowed beside num_buckets: 2; keep one"),
        ({"kind": "buckets", "edges": (1.0,), "log": True}, "log: has no effect on edges"),
    ],
)
def test_a_feature_out_of_range_is_refused_by_its_key(options: dict[str, Any], message: str) -> None:
    """The message starts with the key, has the value, and says what is allowed."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Feature(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": ""}, "column: an empty name"),
        (
            {"column": "y", "kind": "ranking"},
            "kind: 'ranking' is not allowed; give binary, regression, multiclass or boxes",
        ),
        ({"column": "y", "kind": "multiclass", "positive": "a"}, "positive: 'a' has no effect on kind 'multiclass'"),
        ({"column": "y", "positive": "a", "threshold": 1.0}, "positive: not allowed beside threshold: 1.0; keep one"),
        ({"column": "y", "missing": "zero"}, "missing: 'zero' is not allowed; give error or drop"),
        ({"column": "y", "kind": "regression", "threshold": 1.0}, "threshold: 1.0 has no effect on kind 'regression'"),
        ({"column": "y", "threshold": float("nan")}, "threshold: nan is not allowed; give a finite number"),
        (
            {"column": "y", "kind": "multiclass", "unseen": "drop"},
            "unseen: 'drop' is not allowed; give error or leave_out",
        ),
        (
            {"column": "y", "unseen": "leave_out"},
            "unseen: 'leave_out' has no effect on kind 'binary', only on multiclass",
        ),
        ({"column": "y", "relative_to": "x"}, "relative_to: 'x' needs a threshold"),
        ({"column": "y", "threshold": 1.0, "relative_to": "y"}, "relative_to: 'y' is the label's own column"),
    ],
)
def test_a_label_out_of_range_is_refused_by_its_key(options: dict[str, Any], message: str) -> None:
    """The message starts with the key, has the value, and says what is allowed."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Label(**options)


@pytest.mark.parametrize(
    ("kind", "default", "allowed"),
    [
        ("numeric", "a", "a finite number"),
        ("buckets", INF, "a finite number"),
        ("integer", 1.5, "a whole number"),
        ("vocabulary", 1.5, "text or a whole number"),
    ],
)
def test_a_default_that_cannot_be_a_value_of_its_kind_is_refused(kind: Any, default: Any, allowed: str) -> None:
    """Before anything runs."""
    message = f"default: {default!r} is not allowed for kind {kind!r}; give {allowed}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Feature(kind=kind, missing="constant", default=default, num_values=3 if kind == "integer" else None)


def test_each_kind_declares_its_outputs() -> None:
    """Names, types and numbers of values of everything that the features produce."""
    features = {
        "a": Feature(kind="numeric"),
        "b": Feature(kind="numeric", missing="mean"),
        "c": Feature(kind="buckets", num_buckets=5),
        "d": Feature(kind="vocabulary"),
        "e": Feature(kind="buckets", edges=(1.0, 2.0), missing="error"),
        "f": Feature(kind="hash", num_buckets=7),
        "g": Feature(kind="integer", num_values=7, missing="error"),
        "h": Feature(kind="pass_through"),
    }
    assert transformed_features(features, Label(column="y")) == {
        "a": TransformedFeature(column="a", dtype="float32"),
        "a_missing": TransformedFeature(column="a", dtype="float32"),
        "b": TransformedFeature(column="b", dtype="float32"),
        "c": TransformedFeature(column="c", dtype="int64", num_values=6),
        "d": TransformedFeature(column="d", dtype="int64"),
        "e": TransformedFeature(column="e", dtype="int64", num_values=3),
        "f": TransformedFeature(column="f", dtype="int64", num_values=8),
        "g": TransformedFeature(column="g", dtype="int64", num_values=8),
        "h": TransformedFeature(column="h", dtype=None),
        "h_missing": TransformedFeature(column="h", dtype="float32"),
    }


@pytest.mark.parametrize("columns", [("fare", "fare_missing"), ("fare_missing", "fare")])
def test_two_outputs_of_one_name_are_refused_naming_both(columns: tuple[str, str]) -> None:
    """A raw column may be called what the indicator of another one is called, in either order."""
    with pytest.raises(ValueError, match="'fare_missing'") as caught:
        transformed_features({column: Feature(kind="numeric") for column in columns})
    assert all(f"features.{column} " in str(caught.value) for column in columns)


def test_the_label_among_the_features_is_refused() -> None:
    """The model would be given the answer."""
    with pytest.raises(ValueError, match=r"features\.tips: this column is label\.column too"):
        transformed_features({"tips": Feature(kind="numeric")}, Label(column="tips"))


def test_an_indicator_with_the_name_of_the_label_is_refused() -> None:
    """Label and indicator would be one output."""
    with pytest.raises(ValueError, match=r"features\.a produces 'a_missing', which is the name of label\.column too"):
        transformed_features({"a": Feature(kind="numeric")}, Label(column="a_missing"))


def test_the_column_that_a_label_is_relative_to_may_be_a_feature() -> None:
    """The fare is known before the tip, and tells nothing about it that serving does not have."""
    label = Label(column="tips", threshold=0.2, relative_to="fare")
    assert list(transformed_features({"fare": Feature(kind="numeric", missing="mean")}, label)) == ["fare"]


@hypothesis.given(st.lists(st.text(min_size=1), unique=True))
def test_vocabularies_of_different_columns_have_different_file_names(columns: list[str]) -> None:
    """Whatever the columns are called, also where tf.Transform replaces characters or a file system ignores them."""
    names = [vocabulary_name(column) for column in columns]
    assert len(set(names)) == len(columns)
    assert all(name.isascii() and name.replace("_", "").isalnum() for name in names)


@hypothesis.given(st.dictionaries(st.text(min_size=1), _FEATURES), _LABELS)
def test_the_json_form_gives_back_the_features(features: dict[str, Feature], label: Label) -> None:
    """What the pipeline definition writes is what the preprocessing function reads."""
    assert from_config(json.loads(json.dumps(to_config(features, label)))) == (features, label, None)
    assert from_config(to_config(features, label, "weight")) == (features, label, "weight")


def test_options_that_have_defaults_may_be_absent_from_the_json_form() -> None:
    """A configuration written by hand needs no more than the YAML file does."""
    config = {"features": {"a": {"kind": "numeric"}}, "label": {"column": "y"}}
    assert from_config(config) == ({"a": Feature(kind="numeric")}, Label(column="y"), None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"features": {}}, "custom_config must have the keys features and label, got features"),
        ({"features": {"a": {"kind": "odd"}}, "label": {"column": "y"}}, "features.a.kind: 'odd' is not allowed"),
        ({"features": {"a": {"knid": "numeric"}}, "label": {"column": "y"}}, "features.a: .*knid"),
        ({"features": {}, "label": {"column": ""}}, "label.column: an empty name"),
    ],
)
def test_an_invalid_json_form_is_refused_by_its_key(config: dict[str, Any], message: str) -> None:
    """The key is spelled from the block on."""
    with pytest.raises(ValueError, match=message):
        from_config(config)


def test_the_options_are_frozen() -> None:
    """One that was validated stays valid."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Feature(kind="numeric").kind = "odd"  # type: ignore[misc, assignment]
