"""The SavedModel: what it takes, and that it predicts what the model in memory does."""

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.tf_metadata import metadata_io, schema_utils
from tensorflow_transform.tf_metadata.dataset_metadata import DatasetMetadata

from lockstep.components.errors import ConfigurationError
from lockstep.components.record_manifest import RAW_COLUMNS_NAME, RawColumns
from lockstep.components.trainer import loop
from lockstep.components.trainer.export import export, serving_columns, sources_of_features
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.components.trainer.models import build_model
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import ModelOptions, TrainOptions
from lockstep.components.trainer.step_function import StepFunction
from lockstep.transforms.testing import Row, run_preprocessing
from tests.components.trainer.conftest import TrainingData, example, write_split

ROW = {"record_id": 1, "fare": 20.0, "company": "blue", "tips": 5.0}


def small_model(*names: str) -> keras.Model:
    """A model of some transformed features, with random weights."""
    inputs = {name: keras.Input((1,), name=name, dtype="int64" if name == "company" else "float32") for name in names}
    values = [keras.ops.cast(value, "float32") for value in inputs.values()]
    joined = keras.layers.Concatenate()(values) if len(values) > 1 else values[0]
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(joined))


@pytest.fixture(scope="module")
def exported(training_data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> tuple[keras.Model, Path]:
    """A model, and its SavedModel; the transform graph that it was made with is gone."""
    folder = tmp_path_factory.mktemp("export")
    graph_dir = folder / "graph"
    shutil.copytree(training_data.transform_graph_dir, graph_dir)
    types = {"record_id": "timestamp", "fare": "float", "company": "string", "tips": "bool", "unused": "date"}
    written = RawColumns(types=types, time_zone="Europe/Berlin", time_formats={"record_id": "unix", "unused": "unix"})
    (graph_dir / RAW_COLUMNS_NAME).write_text(json.dumps(written.to_document()))
    output = tft.TFTransformOutput(str(graph_dir))
    model = small_model("fare", "company")
    columns = serving_columns(output, model, label="tips")
    export(model, output, columns, folder / "model", label="tips", label_kind="binary")
    shutil.rmtree(graph_dir)
    return model, folder / "model"


@functools.cache
def loaded(export_dir: Path) -> Any:
    """The model in a folder that stays as it is."""
    return tf.saved_model.load(str(export_dir))


def signature(export_dir: Path, name: str, *rows: dict[str, Any]) -> dict[str, np.ndarray]:
    """What a signature answers to raw rows."""
    function = loaded(export_dir).signatures[name]
    return {key: value.numpy() for key, value in function(tf.constant([example(row) for row in rows])).items()}


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """A row in which some cells are absent."""
    return {name: value for name, value in row.items() if name not in names}


def test_the_exported_model_predicts_what_the_model_in_memory_does(
    exported: tuple[keras.Model, Path], training_data: TrainingData
) -> None:
    """The same raw rows, absent cells among them, through the signature and through the transformed features."""
    model, export_dir = exported
    rows = training_data.eval_rows
    assert any("fare" not in row for row in rows)
    features = signature(export_dir, "transform_features", *rows)
    expected = model({name: tf.constant(features[name]) for name in ("fare", "company")})
    served = signature(export_dir, "serving_default", *rows)
    assert set(served) == {"predictions"}
    assert served["predictions"].dtype == np.float32
    assert served["predictions"].shape == (len(rows), 1)
    np.testing.assert_allclose(served["predictions"], expected.numpy(), atol=1e-6)


def test_transformed_features_are_those_that_were_trained_on(
    exported: tuple[keras.Model, Path], training_data: TrainingData
) -> None:
    """Label included, each [batch, 1]."""
    features = signature(exported[1], "transform_features", *training_data.eval_rows)
    spec = {
        "record_id": tf.io.FixedLenFeature([], tf.int64),
        "fare": tf.io.FixedLenFeature([], tf.float32),
        "company": tf.io.FixedLenFeature([], tf.int64),
        "tips": tf.io.FixedLenFeature([], tf.float32),
    }
    records = tf.data.TFRecordDataset(list(training_data.eval_files), "GZIP").batch(10_000)
    expected = tf.io.parse_example(next(iter(records)), spec)
    assert set(features) == set(spec)
    for name, values in expected.items():
        np.testing.assert_allclose(features[name], values.numpy()[:, None], rtol=1e-6)


def test_predictions_do_not_depend_on_the_label(exported: tuple[keras.Model, Path]) -> None:
    """The label's column may be absent, or hold anything."""
    rows = [ROW, without(ROW, "tips"), {**ROW, "tips": -99.0}]
    served = signature(exported[1], "serving_default", *rows)["predictions"]
    assert served[0] == served[1] == served[2]


def test_any_column_may_be_absent(exported: tuple[keras.Model, Path]) -> None:
    """A row of one cell, and of none, is answered; the features are there for it too."""
    rows = [without(ROW, "record_id", "fare", "tips"), {}]
    assert np.isfinite(signature(exported[1], "serving_default", *rows)["predictions"]).all()
    assert signature(exported[1], "transform_features", *rows)["tips"].tolist() == [[0.0], [0.0]]


def test_no_rows_give_no_predictions(exported: tuple[keras.Model, Path]) -> None:
    """An empty request is answered by an empty response."""
    function = loaded(exported[1]).signatures["serving_default"]
    assert function(tf.constant([], tf.string))["predictions"].shape == (0, 1)


def test_the_description_names_what_serving_reads(exported: tuple[keras.Model, Path]) -> None:
    """The label's own column is not among them; of a time it says so, and how it is written."""
    description = json.loads((exported[1] / "assets.extra" / "lockstep.json").read_text())
    assert description == {
        "raw_features": {"record_id": "int", "fare": "float", "company": "string"},
        "label": "tips",
        "label_kind": "binary",
        "raw_columns": {
            "types": {"record_id": "timestamp"},
            "time_zone": "Europe/Berlin",
            "time_formats": {"record_id": "unix"},
            "list_separator": "",
        },
    }


def test_the_sources_of_each_feature_are_found(training_data: TrainingData) -> None:
    """A label made of two columns has both."""
    assert sources_of_features(tft.TFTransformOutput(training_data.transform_graph_dir)) == {
        "record_id": {"record_id"},
        "fare": {"fare"},
        "company": {"company"},
        "tips": {"tips", "fare"},
    }


def test_a_feature_made_of_the_label_is_refused(training_data: TrainingData) -> None:
    """It is known when training, and not when serving: the usual leak."""
    output = tft.TFTransformOutput(training_data.transform_graph_dir)
    with pytest.raises(ConfigurationError, match="feature 'tips': made of the label's column 'fare'"):
        serving_columns(output, small_model("tips"), label="fare")


def test_what_a_killed_export_left_is_replaced(training_data: TrainingData, tmp_path: Path) -> None:
    """Both a half written folder and a model of an earlier attempt; nothing but the model stays."""
    output = tft.TFTransformOutput(training_data.transform_graph_dir)
    model = small_model("fare")
    for name in (".writing-model", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rest").touch()
    export(
        model,
        output,
        serving_columns(output, model, label="tips"),
        tmp_path / "model",
        label="tips",
        label_kind="binary",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (tmp_path / "model" / "rest").exists()
    assert signature(tmp_path / "model", "serving_default", ROW)["predictions"].shape == (1, 1)


AWKWARD_NAMES = (
    "prediction",
    "a b",
    "a:b",
    "100%",
    "it's",
    'say "x"',
    "x, y",
    "naïve ü 日本",
    "km/h",
    "-",
    "[0]",
    "a b ",
)
LABEL = "the label: 5%?"


def preprocess_awkward(inputs: dict[str, Any]) -> dict[str, Any]:
    """In turn a vocabulary, buckets and a quantity; names stay as they are."""
    outputs = {LABEL: tft.sparse_tensor_to_dense_with_shape(inputs[LABEL], [None, 1], 0.0)}
    for index, name in enumerate(AWKWARD_NAMES):
        value = tft.sparse_tensor_to_dense_with_shape(inputs[name], [None, 1], 0)
        if index % 3 == 0:
            text = tf.strings.as_string(value)
            outputs[name] = tft.compute_and_apply_vocabulary(text, vocab_filename=f"v{index}", num_oov_buckets=1)
        elif index % 3 == 1:
            outputs[name] = tft.bucketize(value, 3)
        else:
            outputs[name] = tf.cast(value, tf.float32)
    return outputs


AWKWARD_ROWS: list[Row] = [{LABEL: float(i % 2), **dict.fromkeys(AWKWARD_NAMES, (i + 1) % 5)} for i in range(20)]


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> tuple[tft.TFTransformOutput, tuple[str, ...]]:
    """The transform graph of columns with such names, and files of transformed records."""
    folder = tmp_path_factory.mktemp("awkward")
    transformed = run_preprocessing(preprocess_awkward, AWKWARD_ROWS, output_dir=folder / "graph")
    raw_schema = schema_utils.schema_from_feature_spec(transformed.raw_spec)
    metadata_io.write_metadata(DatasetMetadata(raw_schema), str(folder / "graph" / "metadata"))
    records = [
        example({name: column[i].item() for name, column in transformed.features.items()})
        for i in range(len(AWKWARD_ROWS))
    ]
    return transformed.transform_output, write_split(folder / "train", records, 2)


@pytest.mark.slow
@pytest.mark.parametrize("build", ["mlp", "linear"])
def test_columns_of_any_name_are_trained_on_and_served(
    awkward: tuple[tft.TFTransformOutput, tuple[str, ...]], tmp_path: Path, build: str
) -> None:
    """From transformed records with such names over a training step to both signatures of the SavedModel."""
    output, files = awkward
    data = TrainingInput(Records(files, output.transformed_feature_spec(), LABEL), batch_size=8, num_shards=2)
    model = build_model(ModelOptions(build=build), output, LABEL)
    optimizer = loop.optimizer_of(model, TrainOptions())
    loss = loop.per_example_loss(model, "binary")
    before = [weight.numpy() for weight in model.weights]
    StepFunction(tf.distribute.get_strategy(), 1, model, optimizer, loss, LABEL)(iter(data.batches()), 1)
    assert all(np.any(weight.numpy() != was) for weight, was in zip(model.weights, before, strict=True))

    columns = serving_columns(output, model, label=LABEL)
    export(model, output, columns, tmp_path / "model", label=LABEL, label_kind="binary")
    served_rows = [dict(row) for row in AWKWARD_ROWS]
    features = signature(tmp_path / "model", "transform_features", *served_rows)
    assert set(features) == {LABEL, *AWKWARD_NAMES}
    served = signature(tmp_path / "model", "serving_default", *(without(row, LABEL) for row in served_rows))
    expected = model({name: tf.constant(features[name]) for name in AWKWARD_NAMES})
    np.testing.assert_allclose(served["predictions"], expected.numpy(), atol=1e-6)
    description = json.loads((tmp_path / "model" / "assets.extra" / "lockstep.json").read_text(encoding="utf-8"))
    assert description["raw_features"] == dict.fromkeys(AWKWARD_NAMES, "int")
