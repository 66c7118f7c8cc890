"""A label of several classes in training: its classes, its checks, its measures, and every strategy."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from sklearn import metrics
from tensorflow_transform.tf_metadata import metadata_io, schema_utils
from tensorflow_transform.tf_metadata.dataset_metadata import DatasetMetadata

from lockstep.components.class_labels import ClassOptions
from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.serving import read_contract
from lockstep.components.trainer import classes
from lockstep.components.trainer.early_stopping import EarlyStopping
from lockstep.components.trainer.evaluation import Evaluation, evaluate
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.components.trainer.loop import per_example_loss
from lockstep.components.trainer.models import BUILT_IN, FeatureInput, ModelInputs
from lockstep.components.trainer.outputs import check_output
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import ModelOptions, RunFiles, TrainOptions, TrainSpec
from lockstep.transforms.features import Feature, Label, vocabulary_name
from lockstep.transforms.testing import Preprocessed, Row, run_preprocessing
from tests.components.evaluator.test_class_counts import in_sum_one
from tests.components.trainer.conftest import example, write_split
from tests.components.trainer.test_parameter_server import KillingLauncher, supervised
from tests.transforms.conftest import declared

CLASSES = ("mid", "low", "hé")  # as frequent as in ``rows``, the most frequent first
OPTIONS = ClassOptions(vocabulary=vocabulary_name("size"))


def rows(count: int, seed: int) -> list[Row]:
    """Rows whose class follows from two numbers, roughly."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        x, z = random.normal(size=2)
        level = x + z + 0.3 * random.normal()
        made.append({"x": float(x), "z": float(z), "size": "low" if level < -0.8 else "mid" if level < 1 else "hé"})
    return made


@pytest.fixture(scope="module")
def preprocessed(tmp_path_factory: pytest.TempPathFactory) -> Preprocessed:
    """The rows of training, as declared features make them."""
    features = {"x": Feature(kind="numeric", missing="mean"), "z": Feature(kind="numeric", missing="mean")}
    preprocessing = declared(features, Label(column="size", kind="multiclass"))
    graph_dir = tmp_path_factory.mktemp("classes") / "graph"
    made = run_preprocessing(preprocessing, rows(400, 1), output_dir=graph_dir)
    schema = schema_utils.schema_from_feature_spec(made.raw_spec)
    metadata_io.write_metadata(DatasetMetadata(schema), str(graph_dir / "metadata"))
    return made


def serialized(columns: Any) -> list[bytes]:
    """Transformed records."""
    names = ("x", "z", "size")
    as_rows = zip(*(np.ravel(columns[name]).tolist() for name in names), strict=True)
    return [example(dict(zip(names, row, strict=True))) for row in as_rows]


@pytest.fixture(scope="module")
def spec(preprocessed: Preprocessed, tmp_path_factory: pytest.TempPathFactory) -> TrainSpec:
    """A training of the built-in mlp, that stops no earlier and restores the best."""
    folder = tmp_path_factory.mktemp("class-files")
    train = write_split(folder / "train", serialized(preprocessed.features), 3)
    options: dict[str, Any] = {"workers": 1, "strategy": "one_device", "steps": 60, "batch_size": 48}
    options |= {"num_virtual_shards": 8, "learning_rate": 0.02, "checkpoint_every": 30, "validate_every": 20}
    options |= {"class_weights": {"low": 2.0}, "early_stopping": EarlyStopping(monitor="macro_f1")}
    return TrainSpec(
        options=TrainOptions(**options),
        model=ModelOptions(parameters={"hidden": [8]}),
        label="size",
        label_kind="multiclass",
        classes=OPTIONS,
        train_files=train,
        eval_files=write_split(folder / "eval", serialized(preprocessed.serve(rows(150, 2))), 1),
        transform_graph_dir=str(Path(preprocessed.transform_output.transform_savedmodel_dir).parent),
        run_dir="",
        checkpoint_dir="",
        export_dir="",
        tensorboard_dir="",
    )


def test_classes_are_those_of_the_vocabulary(preprocessed: Preprocessed) -> None:
    """In the order of their indices; a label of another kind has none."""
    output = preprocessed.transform_output
    assert classes.class_names(output, "size", OPTIONS) == CLASSES
    assert classes.class_names(output, "size", None) == ()
    with pytest.raises(ConfigurationError, match="label 'x' is float32; a multiclass label is the index"):
        classes.class_names(output, "x", OPTIONS)


def test_without_a_vocabulary_the_range_of_the_label_says_how_many(tmp_path: Path) -> None:
    """As of a preprocessing function of the user's own; where nothing says it, or there is but one, that is told."""

    def preprocessing(inputs: dict[str, Any]) -> dict[str, Any]:
        label = tft.sparse_tensor_to_dense_with_shape(inputs["y"], [None, 1], "")
        number = tft.sparse_tensor_to_dense_with_shape(inputs["n"], [None, 1], 0)
        only = tft.compute_and_apply_vocabulary(tf.zeros_like(number), vocab_filename="only")
        return {"y": tft.compute_and_apply_vocabulary(label, vocab_filename="mine"), "n": number, "only": only}

    made: list[Row] = [{"y": name, "n": 1} for name in "abca"]
    output = run_preprocessing(preprocessing, made, output_dir=tmp_path / "graph").transform_output
    assert classes.class_names(output, "y", OPTIONS) == ("0", "1", "2")
    with pytest.raises(ConfigurationError, match=r"nothing says how many classes 'n' has; .* vocabulary called"):
        classes.class_names(output, "n", OPTIONS)
    with pytest.raises(DataError, match="'only' has less than two classes in the training split"):
        classes.class_names(output, "only", OPTIONS)


@pytest.mark.parametrize("build", ["mlp", "linear"])
def test_a_built_in_model_gives_the_probability_of_each_class(build: str) -> None:
    """They add up to 1, and are what the trainer asks for."""
    features = {"x": FeatureInput(dtype="float32"), "i": FeatureInput(dtype="int64", num_values=3)}
    model = BUILT_IN[build](ModelInputs(features=features, label_kind="multiclass", num_classes=4))
    batch = {"x": tf.constant([[1.0], [-2.0]]), "i": tf.constant([[0], [2]], tf.int64)}
    np.testing.assert_allclose(model(batch).numpy().sum(axis=1), [1.0, 1.0], rtol=1e-6)
    check_output(model, batch, tf.ones([2, 1]), build, "multiclass", 4)
    with pytest.raises(
        ConfigurationError, match=r"float32 \[batch, 4\]; it must give the probability of each class, .*5"
    ):
        check_output(model, batch, tf.ones([2, 1]), build, "multiclass", 5)


@pytest.mark.parametrize(("row", "shown"), [([0.5, 0.5, 0.5], "1.5"), ([-0.5, 1.0, 0.5], "-0.5")])
def test_values_that_are_no_probabilities_are_refused(row: list[float], shown: str) -> None:
    """As of a model without softmax; a row of padding may give anything."""
    model = keras.Sequential([keras.layers.Lambda(lambda inputs: inputs["x"], output_shape=(3,))])
    batch = {"x": tf.constant([[0.2, 0.3, 0.5], row])}
    check_output(model, batch, tf.constant([[1.0], [0.0]]), "mine", "multiclass", 3)
    with pytest.raises(ConfigurationError, match=f"such as {shown}; a multiclass label needs .* activation='softmax'"):
        check_output(model, batch, tf.ones([2, 1]), "mine", "multiclass", 3)


def scored_records(folder: Path, labels: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> Records:
    """Records that carry what the model shall predict."""
    made = []
    for label, score in zip(labels, scores, strict=True):
        label_of = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)]))
        scores_of = tf.train.Feature(float_list=tf.train.FloatList(value=score))
        features = tf.train.Features(feature={"size": label_of, "score": scores_of})
        made.append(tf.train.Example(features=features).SerializeToString())
    spec = {"size": tf.io.FixedLenFeature([1], tf.int64), "score": tf.io.FixedLenFeature([3], tf.float32)}
    return Records(write_split(folder, made, 2), spec, "size", classes=CLASSES)


def identity() -> keras.Model:
    """Predicts its only feature."""
    score = keras.Input((3,), name="score")
    return keras.Model({"score": score}, keras.layers.Identity()(score))


@pytest.fixture
def labels_and_scores() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Classes, and probabilities that lean towards them."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 1100)
    powers = np.exp(random.normal(size=(1100, 3)) + 1.5 * np.eye(3)[labels])
    return labels, (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


def test_classes_are_measured_as_scikit_learn_does(tmp_path: Path, labels_and_scores: Any) -> None:
    """Over batches, and over parts that are put together."""
    labels, scores = labels_and_scores
    records, model = scored_records(tmp_path / "eval", labels, scores), identity()
    loss = per_example_loss(model, "multiclass")
    found = evaluate(model, records, loss, "multiclass", on_batch=lambda: None)
    expected = {
        "loss": metrics.log_loss(labels, in_sum_one(scores)),
        "accuracy": metrics.accuracy_score(labels, scores.argmax(axis=1)),
        "macro_f1": metrics.f1_score(labels, scores.argmax(axis=1), average="macro"),
        "examples": 1100,
    }
    assert found == pytest.approx(expected, rel=1e-5)
    parts = [Evaluation(model, records, loss, "multiclass", part=i, num_parts=3) for i in range(3)]
    sums = np.sum([part.sums(on_batch=lambda: None) for part in parts], axis=0)
    assert parts[0].values(sums) == pytest.approx(found, rel=1e-6)


def test_records_of_unseen_classes_are_an_error_or_left_out(tmp_path: Path, labels_and_scores: Any) -> None:
    """As declared; what is measured without them is what the others alone give."""
    labels, scores = labels_and_scores
    labels[5:9] = -1
    records, model = scored_records(tmp_path / "eval", labels, scores), identity()
    rest = scored_records(tmp_path / "rest", np.delete(labels, range(5, 9)), np.delete(scores, range(5, 9), axis=0))
    loss = per_example_loss(model, "multiclass")
    with pytest.raises(DataError, match=r"4 records have in 'size' no class that the training split has"):
        evaluate(model, records, loss, "multiclass", on_batch=lambda: None)
    found = evaluate(model, records, loss, "multiclass", on_batch=lambda: None, unseen="leave_out")
    expected = evaluate(model, rest, loss, "multiclass", on_batch=lambda: None)
    assert found == pytest.approx({**expected, "unseen": 4}, rel=1e-6)


def test_a_training_record_of_no_class_is_told(tmp_path: Path, labels_and_scores: Any) -> None:
    """An empty text is none, nor is one with a line break; the loss must not take it for the first class."""
    labels, scores = labels_and_scores
    labels[2] = -1
    data = TrainingInput(scored_records(tmp_path / "train", labels, scores), batch_size=8, num_shards=4)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        data.sample()
    found = classes.as_data_error(raised.value)
    assert found is not None
    assert "a training record is of no class: its label is empty, or holds a line break" in str(found)
    assert classes.as_data_error(ValueError("another")) is None


def test_each_class_has_its_weight(tmp_path: Path, labels_and_scores: Any) -> None:
    """By its name; a name that is none of the classes is told with the nearest."""
    labels, scores = labels_and_scores
    records = scored_records(tmp_path / "train", labels, scores)
    data = TrainingInput(records, batch_size=8, num_shards=4, class_weights={"low": 2.0, "hé": 0.5})
    columns, weights = data.sample()
    assert weights.numpy().ravel().tolist() == [[1.0, 2.0, 0.5][i] for i in columns["size"].numpy().ravel()]
    with pytest.raises(ConfigurationError, match=r"train.class_weights.lov: .* no such class; did you mean 'low'\?"):
        TrainingInput(records, batch_size=8, num_shards=4, class_weights={"lov": 2.0})


def trained(spec: TrainSpec, folder: Path, **options: Any) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Trains by real processes; returns the report, and what the exported model says of 50 raw rows."""
    (folder / "run").mkdir(parents=True)
    spec = dataclasses.replace(
        spec,
        options=dataclasses.replace(spec.options, **options),
        run_dir=str(folder / "run"),
        checkpoint_dir=str(folder / "checkpoints"),
        export_dir=str(folder / "model"),
        tensorboard_dir=str(folder / "events"),
    )
    supervised(spec, KillingLauncher(None))
    report = json.loads(RunFiles(Path(spec.run_dir)).training_path.read_text())
    served = tf.saved_model.load(spec.export_dir).signatures["serving_default"]
    raw = [example({name: row[name] for name in ("x", "z")}) for row in rows(50, 3)]
    answer = {name: value.numpy() for name, value in served(tf.constant(raw)).items()}
    names = [name.decode() for name in answer["classes"][0]]
    assert tuple(names) == CLASSES
    assert (answer["classes"].shape, answer["class"].shape) == ((50, 3), (50, 1))
    assert [c.decode() for c in answer["class"].ravel()] == [names[i] for i in answer["predictions"].argmax(axis=1)]
    contract = read_contract(Path(spec.export_dir))
    assert contract is not None
    assert (contract.label_kind, contract.classes) == ("multiclass", CLASSES)
    return report, answer["predictions"]


@pytest.fixture(scope="module")
def alone(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """The training on one device, which the others are compared with."""
    return trained(spec, tmp_path_factory.mktemp("alone"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "multi_worker_mirrored", "workers": 2},
        {"strategy": "dtensor", "mesh": {"batch": 2}, "layout": {}},
    ],
    ids=lambda options: options["strategy"],
)
def test_every_synchronous_strategy_gives_the_same_model(
    spec: TrainSpec, alone: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Weights of classes, validations and the best weights included."""
    report, predictions = trained(spec, tmp_path, **options)
    expected, of_one = alone
    np.testing.assert_allclose(predictions, of_one, atol=2e-5)
    assert report["evaluation"] == pytest.approx(expected["evaluation"], abs=1e-4)
    assert report["evaluation"]["accuracy"] > 0.8
    steps = [validation["step"] for validation in report["validation"]["validations"]]
    assert steps == [validation["step"] for validation in expected["validation"]["validations"]]


@pytest.mark.slow
def test_parameter_servers_learn_classes(spec: TrainSpec, tmp_path: Path) -> None:
    """Not in the same order of steps, but the same task."""
    report, _ = trained(spec, tmp_path, strategy="parameter_server", workers=1, parameter_servers=1)
    assert report["evaluation"]["accuracy"] > 0.8
    assert set(report["evaluation"]) == {"loss", "accuracy", "macro_f1", "examples"}
