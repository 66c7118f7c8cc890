"""Training and serving agree bit for bit, for every kind of feature and rows drawn at random."""

from typing import Any, get_args

import hypothesis
import pytest
from hypothesis import strategies as st

from lockstep.transforms import testing
from lockstep.transforms.feature_kinds import OPTIONS_OF_KIND, OUTPUTS_OF_KIND, Part
from lockstep.transforms.features import Feature, Label
from tests.transforms.conftest import declared

_FLOATS, _INTS = st.none() | st.floats(width=32), st.none() | st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(max_size=3) | st.binary(max_size=3)
_TEXTS = st.none() | _TEXT
_SENTENCES = st.none() | st.text(st.sampled_from("ab é!\n\u2003Σ"), max_size=12) | st.text(max_size=5)
# Never without a value, so that quartiles differ whatever is drawn beside: they are appended to what is drawn.
_FIXED: list[float] = [-3.0, -1.0, 0.5, 2.0, 5.0, 7.0, 11.0, 13.0]

# Column -> the feature, its type, and what its values are drawn from.
COLUMNS: dict[str, tuple[Feature, testing.Type, st.SearchStrategy[Any]]] = {
    "z_score": (Feature(kind="numeric"), "float", _FLOATS),
    "z_score_of_whole": (Feature(kind="numeric", inexact="round", missing="median"), "int", _INTS),
    "min_max": (Feature(kind="numeric", scale="min_max", missing="constant", default=0.1), "float", _FLOATS),
    "clipped": (Feature(kind="numeric", scale="min_max", clip=(-9.5, 9.5), missing="median"), "float", _FLOATS),
    "robust": (Feature(kind="numeric", scale="robust"), "float", st.none() | st.floats(0, 1, width=32)),
    "logarithm": (Feature(kind="numeric", log=True, missing="mean"), "float", _FLOATS),
    "logarithm_of_whole": (Feature(kind="numeric", log=True, scale="none", inexact="round"), "int", _INTS),
    "unscaled": (Feature(kind="numeric", scale="none", missing="zero"), "float", _FLOATS),
    "complete": (Feature(kind="numeric", missing="error"), "float", st.floats(-1e9, 1e9, width=32)),
    "buckets": (Feature(kind="buckets", num_buckets=3, inexact="round"), "int", _INTS),
    "buckets_of_logarithms": (Feature(kind="buckets", num_buckets=3, log=True, missing="mean"), "float", _FLOATS),
    "buckets_of_edges": (Feature(kind="buckets", edges=(-1.0, 0.1, 1e9), missing="zero"), "float", _FLOATS),
    "vocabulary": (Feature(kind="vocabulary", num_oov=2), "string", _TEXTS),
    "vocabulary_of_whole": (
        Feature(kind="vocabulary", top_k=3, min_frequency=2),
        "int",
        st.none() | st.integers(-3, 3),
    ),
    "vocabulary_or_default": (Feature(kind="vocabulary", missing="constant", default="x"), "string", _TEXTS),
    "hash": (Feature(kind="hash", num_buckets=7), "string", _TEXTS),
    "hash_of_whole": (Feature(kind="hash", num_buckets=10**9, missing="constant", default=7), "int", _INTS),
    "integer": (Feature(kind="integer", num_values=5), "int", st.none() | st.integers(-3, 9)),
    "timestamp": (
        Feature(kind="timestamp", parts=get_args(Part), since="2020-01-01", utc_offset="-03:30"),
        "int",
        _INTS,
    ),
    "timestamp_on_circles": (
        Feature(kind="timestamp", parts=("minute", "day"), cyclic=True, missing="constant", default=7),
        "int",
        _INTS,
    ),
    "text": (Feature(kind="text", max_tokens=3, num_oov=2), "string", _SENTENCES),
    "text_weighed": (
        Feature(kind="text", output="tf_idf", top_k=9, ngrams=(1, 2), missing="zero"),
        "string",
        _SENTENCES,
    ),
    "list": (Feature(kind="list", max_values=2, min_frequency=2), "string", st.none() | st.lists(_TEXT, max_size=4)),
    "list_hashed": (
        Feature(kind="list", max_values=3, num_buckets=5, missing="constant", default="x"),
        "int",
        st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    ),
    "pass_through": (Feature(kind="pass_through"), "float", _FLOATS),
    "pass_through_of_whole": (Feature(kind="pass_through", missing="zero"), "int", _INTS),
    "pass_through_of_text": (Feature(kind="pass_through", missing="constant", default="x"), "string", _TEXTS),
}

# Of several columns: a list with its weights, and crosses.
JOINT: dict[str, Feature] = {
    "list_weighed": Feature(kind="list", output="multi_hot", weights="weights", top_k=4),
    "cross": Feature(kind="cross", columns=("hash", "buckets", "timestamp_hour"), num_buckets=97),
    "cross_of_raw": Feature(
        kind="cross", columns=("integer", "vocabulary"), num_buckets=97, missing="constant", default=""
    ),
}
_WEIGHED = st.lists(st.tuples(_TEXT, st.floats(-1e9, 1e9, width=32)), max_size=4).map(
    lambda pairs: {"list_weighed": [value for value, _ in pairs], "weights": [weight for _, weight in pairs]}
)


# One run of tf.Transform costs seconds, a row nothing: many rows of all kinds go through one.
@st.composite
def _rows(draw: st.DrawFn) -> list[testing.Row]:
    columns = {name: values for name, (_, _, values) in COLUMNS.items()}
    label = {"tips": st.floats(0, 100, width=32), "fare": st.none() | st.floats(0, 100, width=32)}
    single = st.fixed_dictionaries({**columns, **label})
    return draw(st.lists(st.builds(lambda one, other: one | other, single, _WEIGHED), min_size=30, max_size=30))


@pytest.mark.slow
@hypothesis.settings(
    max_examples=1,
    deadline=None,
    # Without shrinking, which would run for minutes: the error names the row and the values anyhow.
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(_rows())
def test_training_and_serving_agree_on_rows_drawn_at_random(rows: list[testing.Row]) -> None:
    """Bit for bit, in a batch and alone, for every kind of feature and any value."""
    # The first that is drawn is the simplest of all, rows without values: it does not count.
    hypothesis.assume(any(row["vocabulary"] is not None for row in rows))
    features = {**{name: feature for name, (feature, _, _) in COLUMNS.items()}, **JOINT}
    types: dict[str, testing.Type] = {
        "fare": "float",
        "list_weighed": "string",
        "weights": "float",
        **{name: kind for name, (_, kind, _) in COLUMNS.items()},
    }
    spread: list[testing.Row] = [{"robust": value, "complete": value, "tips": 1.0} for value in _FIXED * 5]
    label = Label(column="tips", threshold=0.2, relative_to="fare")
    testing.assert_no_skew(declared(features, label), rows + spread, types=types)


def test_every_kind_is_among_the_rows_drawn() -> None:
    """A new kind, scale or way of missing values cannot be left out of the property."""
    features = [*(feature for feature, _, _ in COLUMNS.values()), *JOINT.values()]
    # Images have files of their own, in test_images.py.
    assert {feature.kind for feature in features} == set(OPTIONS_OF_KIND) - {"auto", "image"}
    numbers = [feature for feature in features if feature.kind == "numeric"]
    assert {feature.scale for feature in numbers} == {"z_score", "min_max", "robust", "none"}
    assert {feature.missing for feature in numbers} == {"indicator", "mean", "median", "zero", "constant", "error"}
    for kind, outputs in OUTPUTS_OF_KIND.items():
        # Counts are what TF-IDF is made of.
        assert {feature.output for feature in features if feature.kind == kind} == set(outputs) - {"counts"}
