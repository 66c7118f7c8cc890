"""The built-in models take what declared features give."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest

from lockstep.components.trainer.models import BUILT_IN, FeatureInput, ModelInputs, model_inputs
from lockstep.transforms import testing

PADDED = {
    "tags": FeatureInput(dtype="int64", shape=(3,), num_values=6, count="tags_count"),
    "tags_count": FeatureInput(dtype="float32"),
    "city": FeatureInput(dtype="int64", num_values=4),
}

IMAGE = FeatureInput(dtype="float32", shape=(8, 8, 1))  # for the model that needs one

_PASSED = ("same_text", "same", "unscaled", "rounded")


@pytest.fixture(scope="module")
def inputs(preprocessed: testing.Preprocessed) -> ModelInputs:
    """What the trainer reads from the graph of all kinds, without text and the largest numbers, which pass through."""
    found = model_inputs(preprocessed.transform_output, label="tips")
    features = {name: feature for name, feature in found.features.items() if name not in _PASSED}
    return dataclasses.replace(found, features=features)


@pytest.mark.parametrize("build", sorted(set(BUILT_IN) - {"detector"}))
def test_a_built_in_model_takes_every_kind(build: str, inputs: ModelInputs, preprocessed: testing.Preprocessed) -> None:
    """Each row of the data gives a probability."""
    model = BUILT_IN[build](dataclasses.replace(inputs, features=_for(build, inputs.features)))
    num_rows = len(preprocessed.features["tips"])
    columns = {name: preprocessed.features[name] for name in inputs.features}
    predictions = np.asarray(model(_with_images(build, columns, num_rows)))
    assert predictions.shape == (num_rows, 1)
    assert np.all((predictions >= 0) & (predictions <= 1))


def test_the_counts_of_padded_indices_are_found(inputs: ModelInputs) -> None:
    """Those of texts and lists, and no other feature's."""
    counts = {name: feature.count for name, feature in inputs.features.items() if feature.count is not None}
    assert counts == {name: f"{name}_count" for name in ("numbers", "tags", "words", "words_of_nothing")}


def _for(build: str, features: Mapping[str, FeatureInput]) -> dict[str, FeatureInput]:
    return {**features, "image": IMAGE} if build == "conv" else dict(features)


def _with_images(build: str, columns: Mapping[str, Any], num_rows: int) -> dict[str, Any]:
    images = np.random.default_rng(1).random((num_rows, *IMAGE.shape), np.float32)
    return {**columns, "image": images} if build == "conv" else dict(columns)


def _predict(build: str, model: keras.Model, tags: list[int], count: float = 2.0) -> float:
    batch = {"tags": np.array([tags]), "tags_count": np.array([[count]], np.float32), "city": np.array([[1]])}
    return float(np.asarray(model(_with_images(build, batch, 1))).item())


@pytest.mark.parametrize("build", sorted(set(BUILT_IN) - {"detector"}))
def test_padding_changes_nothing(build: str) -> None:
    """Neither where it stands nor what its row in the table holds; the other values do."""
    keras.utils.set_random_seed(0)
    model = BUILT_IN[build](ModelInputs(features=_for(build, PADDED), label_kind="regression"))
    weights: list[Any] = [np.random.default_rng(0).normal(size=weight.shape) for weight in model.get_weights()]
    model.set_weights(weights)
    before = _predict(build, model, [1, 2, 0])
    assert _predict(build, model, [0, 2, 1]) == pytest.approx(before, rel=1e-5)
    assert _predict(build, model, [1, 3, 0]) != pytest.approx(before, rel=1e-5)
    # One table for each index, or one for all, in which tags come second.
    row = 4 if build == "factorization_machine" else 0
    for weight in weights:
        if weight.shape[0] in (6, 10):
            weight[row] = 1e6
    model.set_weights(weights)
    assert _predict(build, model, [1, 2, 0]) == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize("build", ["linear", "mlp"])
def test_several_indices_are_the_mean_of_their_rows(build: str) -> None:
    """So that a long text has no larger numbers than a short one; no index at all is zeros."""
    keras.utils.set_random_seed(1)
    model = BUILT_IN[build](ModelInputs(features=_for(build, PADDED), label_kind="regression"))
    assert _predict(build, model, [2, 2, 2]) == pytest.approx(_predict(build, model, [2, 0, 0]), rel=1e-5)
    assert np.isfinite(_predict(build, model, [0, 0, 0], count=0.0))
