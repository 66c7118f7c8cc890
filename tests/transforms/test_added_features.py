"""Features that a function of the user's adds to the declared ones."""

import functools

import numpy as np
import pytest

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label, from_config, to_config
from lockstep.transforms.preprocessing import preprocessing_fn

MODULE = "tests.transforms.sample_features"
FEATURES = {"fare": Feature(kind="numeric", missing="mean"), "company": Feature(kind="vocabulary", missing="error")}
LABEL = Label(column="tips", kind="regression")
ROWS: list[testing.Row] = [
    {"fare": 2.0, "distance": 1.0, "company": "a", "tips": 0.0},
    {"fare": 4.0, "distance": 4.0, "company": "b", "tips": 1.0},
    {"fare": 6.0, "distance": 3.0, "company": "a", "tips": 2.0},
]


def with_function(name: str) -> testing.Preprocessing:
    """Returns the declared features with a function of `tests.transforms.sample_features`."""
    config = to_config(FEATURES, LABEL, preprocessing=f"{MODULE}:{name}")
    return functools.partial(preprocessing_fn, custom_config=config)


def test_a_function_adds_to_the_declared_features() -> None:
    """Of raw columns, of what was declared, and of analyses of its own; None leaves a declared one out."""
    made = testing.run_preprocessing(with_function("per_kilometre"), ROWS)
    assert set(made.features) == {"company", "rate", "joined", "same_fare", "tips"}
    z_scores = (np.array([2.0, 4.0, 6.0]) - 4) / np.sqrt(8 / 3)
    np.testing.assert_allclose(made.features["same_fare"][:, 0], z_scores, rtol=1e-6)
    np.testing.assert_allclose(made.features["joined"], np.stack([z_scores, [1, 0, 1]], axis=1), rtol=1e-6)
    np.testing.assert_allclose(made.features["rate"][:, 0], [2**-0.5, -(2**0.5), 2**-0.5], rtol=1e-6)
    assert made.features["company"].ravel().tolist() == [0, 1, 0]


def test_what_is_added_is_served_as_it_is_trained() -> None:
    """Bit for bit, without the label, which the function is never given."""
    testing.assert_no_skew(with_function("per_kilometre"), ROWS, without=["tips"])


def test_declared_features_may_be_returned_as_they_came() -> None:
    """As from a function that begins with all of them."""
    assert set(testing.run_preprocessing(with_function("unchanged"), ROWS).features) == {"fare", "company", "tips"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("without_any", "leaves out every feature; return at least one"),
        ("of_the_label", "fails with KeyError: 'tips'; inputs are company, distance, fare; features are company, fare"),
        ("named_as_the_label", "returns 'tips', which is the name of label.column too; give another name"),
        ("named_as_declared", "returns another 'fare' than the one that features declare; give it a name of its own"),
        ("of_rank_one", r"returns 'flat' with the shape \(None,\); it must be \[batch, 1\]"),
        ("of_any_width", r"returns 'wide' with the shape \(None, None\); fix the sizes after the batch"),
        ("of_one_row", r"returns 'mean' with the shape \(1, 1\); its first size must be that of the batch"),
        ("sparse", "returns 'raw' as SparseTensor; it must be a dense tensor"),
        ("of_double_width", "returns 'exact' as float64; cast it to float32, int64 or string"),
        ("nothing", "returns NoneType; it must return a dict of the features that it adds, by name"),
        ("absent", "module 'tests.transforms.sample_features' has no function 'absent'"),
    ],
)
def test_a_function_that_cannot_be_used_is_named_with_what_it_does(name: str, problem: str) -> None:
    """Before any row is transformed."""
    with pytest.raises(ValueError, match=f"preprocessing: {MODULE}:{name}:? {problem}"):
        testing.run_preprocessing(with_function(name), ROWS)


def test_a_module_that_is_not_there_is_named() -> None:
    """One that is, and imports something absent, raises that instead."""
    config = to_config(FEATURES, LABEL, preprocessing="tests.absent:function")
    with pytest.raises(ValueError, match=r"preprocessing: tests\.absent:function: there is no module 'tests\.absent'"):
        preprocessing_fn({}, config | {"features": {}})


def test_the_function_goes_with_the_configuration() -> None:
    """Through JSON, beside what else is told."""
    config = to_config(FEATURES, LABEL, "weight", "m:f")
    assert config["preprocessing"] == "m:f"
    assert from_config(config) == (FEATURES, LABEL, "weight")
