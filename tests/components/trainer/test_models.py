"""What a model function is given, and the built-in models."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.models import (
    BUILT_IN,
    FeatureInput,
    ModelInputs,
    build_model,
    linear,
    mlp,
    model_inputs,
    resolve_build,
)
from lockstep.components.trainer.spec import ModelOptions
from lockstep.transforms.testing import Row, run_preprocessing

FEATURES = {
    "amount": FeatureInput(dtype="float32"),
    "city": FeatureInput(dtype="int64", num_values=5),
    "count": FeatureInput(dtype="int64"),
    "flat": FeatureInput(dtype="float32", shape=()),
    "km/h": FeatureInput(dtype="int64", num_values=3, first_value=-1, shape=()),
    "several": FeatureInput(dtype="float32", shape=(2,)),
}
BATCH = {
    "amount": np.array([[0.5], [1.5]], np.float32),
    "city": np.array([[0], [4]]),
    "count": np.array([[7], [8]]),
    "flat": np.array([1.0, 2.0], np.float32),
    "km/h": np.array([-1, 1]),
    "several": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
}


def users_preprocessing(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """One as tf.Transform's tutorials write it: an index from -1 on, outputs of any rank."""
    number = tf.ensure_shape(tf.sparse.to_dense(inputs["number"]), [None, 1])
    text = tf.reshape(tf.sparse.to_dense(inputs["text"]), [-1])
    return {
        "number": number,
        "index": tft.compute_and_apply_vocabulary(text),
        "bucket": tft.bucketize(number, 4),
        "whole": tf.cast(number, tf.int64),
        "y": number,
    }


def sparse_preprocessing(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """One that passes a raw column on."""
    return {"number": inputs["number"], "y": tf.ensure_shape(tf.sparse.to_dense(inputs["number"]), [None, 1])}


@pytest.fixture(scope="module")
def transform_output(tmp_path_factory: pytest.TempPathFactory) -> tft.TFTransformOutput:
    """The transform graph of a user's own preprocessing function."""
    rows: list[Row] = [{"number": float(i), "text": "abc"[i % 3]} for i in range(8)]
    output_dir = tmp_path_factory.mktemp("models") / "graph"
    return run_preprocessing(users_preprocessing, rows, output_dir=output_dir).transform_output


def build_small(inputs: ModelInputs) -> keras.Model:
    """A user's model function that says what it was given."""
    tensors = {"number": keras.Input((1,), name="number")}
    return keras.Model(tensors, keras.layers.Dense(inputs.parameters["units"])(tensors["number"]))


def build_nothing(inputs: ModelInputs) -> None:
    """A user's model function that forgot to return its model."""


def test_model_inputs_are_read_from_the_graph_of_any_preprocessing_function(
    transform_output: tft.TFTransformOutput,
) -> None:
    """How many indices there are where tf.Transform recorded it; a whole number of unknown range is a number."""
    inputs = model_inputs(transform_output, label="y", label_kind="regression", parameters={"a": 1})
    assert inputs == ModelInputs(
        features={
            "bucket": FeatureInput(dtype="int64", num_values=4),
            "index": FeatureInput(dtype="int64", shape=(), num_values=4, first_value=-1),
            "number": FeatureInput(dtype="float32"),
            "whole": FeatureInput(dtype="int64"),
        },
        label_kind="regression",
        parameters={"a": 1},
    )
    assert list(inputs.features) == sorted(inputs.features)


def test_a_label_that_preprocessing_does_not_return_is_refused(transform_output: tft.TFTransformOutput) -> None:
    """The message names the label and what there is."""
    with pytest.raises(
        ConfigurationError, match=r"label.column: 'tips' is not among .* \(bucket, index, number, whole, y\)"
    ):
        model_inputs(transform_output, label="tips")


def test_a_sparse_output_is_for_models_of_the_user_s_own(tmp_path: Path) -> None:
    """They are told its layout; the built-in ones refuse it by its name."""
    output = run_preprocessing(sparse_preprocessing, [{"number": 1.0}], output_dir=tmp_path / "graph").transform_output
    inputs = model_inputs(output, label="y")
    assert (inputs.features["number"].layout, inputs.features["number"].shape) == ("sparse", (None,))
    with pytest.raises(ConfigurationError, match=r"feature 'number': the built-in models take dense .* this is sparse"):
        BUILT_IN["mlp"](inputs)


@pytest.mark.parametrize("build", sorted(set(BUILT_IN) - {"conv", "detector"}))
def test_a_built_in_model_takes_features_of_any_shape_and_returns_one_column(build: str) -> None:
    """Called with the dict of transformed features, also where a column's name is none that Keras takes for a layer."""
    model = BUILT_IN[build](ModelInputs(features=FEATURES, label_kind="binary"))
    predictions = model(BATCH)
    assert predictions.shape == (2, 1)
    assert predictions.dtype == tf.float32
    assert np.all((predictions.numpy() > 0) & (predictions.numpy() < 1))


# Names that Keras' own layers have, TensorFlow's scopes do not take, or that differ only in what they do not take.
AWKWARD_NAMES = ("prediction", "inputs", "hidden_1", "embed_0_x", "x", "X", "a b", "a:b", "a%b", "é", "_", " ", "'\"")


@settings(max_examples=30, deadline=None)
@given(
    features=st.dictionaries(
        st.sampled_from(AWKWARD_NAMES) | st.text(min_size=1),
        st.sampled_from(
            [
                FeatureInput(dtype="int64", num_values=3),
                FeatureInput(dtype="int64", num_values=3, first_value=-1, shape=()),
                FeatureInput(dtype="float32"),
            ]
        ),
        min_size=1,
        max_size=6,
    ),
    build=st.sampled_from(["linear", "mlp"]),
)
def test_a_feature_may_have_any_name(features: dict[str, FeatureInput], build: str) -> None:
    """A built-in model of it takes the dict under these names, and every one of its weights learns."""
    parameters = {"hidden": (2,), "dropout": 0.5} if build == "mlp" else {}
    model = BUILT_IN[build](ModelInputs(features=features, label_kind="regression", parameters=parameters))
    batch = {name: tf.ones([2, *feature.shape], feature.dtype) for name, feature in features.items()}
    assert set(model._inputs_struct) == set(features)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(batch, training=False) - 1.0) ** 2)
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    assert all(gradient is not None for gradient in gradients)
    keras.optimizers.SGD(0.1).apply(gradients, model.trainable_variables)


@pytest.mark.parametrize("build", ["linear", "mlp"])
def test_a_built_in_regression_is_not_bounded(build: str) -> None:
    """The last layer has no activation."""
    model = BUILT_IN[build](ModelInputs(features={"x": FeatureInput(dtype="float32")}, label_kind="regression"))
    outputs = model({"x": np.array([[-1e6], [1e6]], np.float32)}).numpy()
    assert np.abs(outputs).max() > 1


def test_the_parameters_shape_the_mlp() -> None:
    """Hidden layers, dropout, and the size of the embeddings."""
    features = {"city": FeatureInput(dtype="int64", num_values=5), "x": FeatureInput(dtype="float32")}
    parameters = {"hidden": [7, 3], "dropout": 0.5, "embedding_dim": 2}
    model = mlp(ModelInputs(features=features, label_kind="binary", parameters=parameters))
    shapes = [tuple(weight.shape) for weight in model.trainable_weights]
    assert sorted(shapes) == sorted([(5, 2), (3, 7), (7,), (7, 3), (3,), (3, 1), (1,)])
    assert [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)] == [0.5, 0.5]


@pytest.mark.parametrize("num_values", [2, 16, 17, 10_000])
def test_embeddings_are_the_fourth_root_of_their_values_by_default(num_values: int) -> None:
    """Rounded up, a rule that suits small data, too."""
    inputs = ModelInputs(features={"x": FeatureInput(dtype="int64", num_values=num_values)}, label_kind="binary")
    (table,) = [layer.embeddings for layer in mlp(inputs).layers if isinstance(layer, keras.layers.Embedding)]
    assert tuple(table.shape) == (num_values, math.ceil(num_values**0.25))


def test_no_hidden_layers_make_the_mlp_linear() -> None:
    """An empty list is allowed, and dropout then has nothing to drop."""
    inputs = ModelInputs(features={"x": FeatureInput(dtype="float32")}, label_kind="binary", parameters={"hidden": []})
    assert mlp(inputs).count_params() == 2


def test_the_linear_model_has_a_weight_for_each_number_and_each_value() -> None:
    """1 + 5 + 1 + 1 + 3 + 2 features' weights, and the last layer's for the two indices, and its bias."""
    assert (
        linear(ModelInputs(features=FEATURES, label_kind="binary")).count_params()
        == 5 + 3 + (1 + 1 + 1 + 1 + 1 + 2) + 1
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hiden": [1]}, r"model.parameters.hiden: 'mlp' has no such parameter \(did you mean 'hidden'\?\); it takes"),
        ({"hidden": 64}, "model.parameters.hidden: 64 is not allowed; give a list of whole numbers of 1 or more"),
        ({"hidden": [64, 0]}, r"model.parameters.hidden: \(64, 0\) is not allowed"),
        ({"dropout": 1}, "model.parameters.dropout: 1 is not allowed; give a number from 0 to under 1"),
        ({"dropout": "a"}, "model.parameters.dropout: 'a' is not allowed"),
        ({"embedding_dim": 0}, "model.parameters.embedding_dim: 0 is not allowed; give a whole number of 1 or more"),
    ],
)
def test_a_parameter_that_mlp_does_not_take_is_refused_by_its_key(parameters: dict[str, Any], message: str) -> None:
    """Before any layer is made."""
    with pytest.raises(ConfigurationError, match=message):
        mlp(ModelInputs(features=FEATURES, label_kind="binary", parameters=parameters))


def test_linear_takes_no_parameters() -> None:
    """And says so."""
    with pytest.raises(
        ConfigurationError, match=r"model\.parameters\.hidden: 'linear' has no such parameter; it takes none"
    ):
        linear(ModelInputs(features=FEATURES, label_kind="binary", parameters={"hidden": [1]}))


def test_what_a_built_in_model_cannot_use_is_refused() -> None:
    """No features at all, or text that no vocabulary made an index of."""
    with pytest.raises(ConfigurationError, match="features: a model needs at least one"):
        mlp(ModelInputs(features={}, label_kind="binary"))
    with pytest.raises(ConfigurationError, match="feature 'id': the built-in models take numbers, this is text"):
        mlp(ModelInputs(features={"id": FeatureInput(dtype="string")}, label_kind="binary"))


def test_build_model_calls_a_built_in_model(transform_output: tft.TFTransformOutput) -> None:
    """By name, for the features of the graph; every index that the graph can produce has its embedding."""
    model = build_model(ModelOptions(build="mlp", parameters={"hidden": [4]}), transform_output, "y")
    batch = {"bucket": [[3]], "index": [-1], "number": [[0.0]], "whole": [[100]]}
    assert model({name: tf.constant(values) for name, values in batch.items()}).shape == (1, 1)


def test_build_model_calls_a_users_function_by_import_path(transform_output: tft.TFTransformOutput) -> None:
    """With the parameters of the configuration."""
    options = ModelOptions(build=f"{__name__}:build_small", parameters={"units": 1})
    assert build_model(options, transform_output, "y", "regression").output_shape == (None, 1)


def test_a_function_that_returns_no_keras_model_is_refused(transform_output: tft.TFTransformOutput) -> None:
    """A model of tf_keras is none either: the loop is written for Keras 3."""
    with pytest.raises(ConfigurationError, match=r"returned NoneType; it must return a keras\.Model"):
        build_model(ModelOptions(build=f"{__name__}:build_nothing"), transform_output, "y")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "mpl",
            r"model.build: 'mpl' is not allowed \(did you mean 'mlp'\?\); give one of mlp, linear, conv, detector",
        ),
        ("no_such_module:build", "model.build: there is no module 'no_such_module'"),
        ("json.no_such_module:build", "model.build: there is no module 'json.no_such_module'"),
        ("json:build", "model.build: module 'json' has no function 'build'"),
    ],
)
def test_a_name_that_leads_to_no_function_is_refused(name: str, message: str) -> None:
    """The message says which part of the name is wrong."""
    with pytest.raises(ConfigurationError, match=message):
        resolve_build(name)


def test_a_module_that_imports_something_absent_shows_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exists, so that to call it absent would send the user the wrong way."""
    (tmp_path / "model_with_a_bad_import.py").write_text("import no_such_package_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        resolve_build("model_with_a_bad_import:build")
