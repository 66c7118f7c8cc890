"""One model with all that can make workers differ, by real processes: the same numbers on any of them.

Dense, sparse and ragged features, weighted records and classes, a synchronised BatchNormalization, uneven ends of
epochs, validations of fewer records than there are batches, and early stopping.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.early_stopping import EarlyStopping
from lockstep.components.trainer.spec import ModelOptions, RunFiles, TrainOptions, TrainSpec
from tests.components.trainer.conftest import COMPANIES, write_split
from tests.components.trainer.worker_processes import Finished, run_group

pytestmark = pytest.mark.slow

ONE = {"strategy": "one_device", "workers": 1}
MIRRORED = {"strategy": "mirrored", "workers": 1, "devices_per_worker": 2}
MULTI_WORKER = {"strategy": "multi_worker_mirrored", "workers": 2}
MULTI_DEVICE = {"strategy": "multi_worker_mirrored", "workers": 2, "devices_per_worker": 2}
NUM_RECORDS = {"train": 401, "eval": 3}
# No validation is better than the first by that much: the fourth ends the training.
STOPPING = {"validate_every": 4, "early_stopping": EarlyStopping(monitor="auc", min_delta=1.0, patience=3)}


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows whose label follows from all features, roughly; some have no tag and no stop."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        row = {
            "fare": [float(random.normal())],
            "company": [int(random.integers(len(COMPANIES)))],
            "tags": sorted({int(tag) for tag in random.integers(0, 6, random.integers(0, 4))}),
            "stops": [int(stop) for stop in random.integers(0, 9, random.integers(0, 5))],
            "weight": [float(random.choice([0.0, 0.5, 1.0, 3.0]))],
        }
        score = row["fare"][0] + (row["company"][0] == 1) + len(row["tags"]) - len(row["stops"]) / 2 - 1
        made.append({**row, "tips": [float(random.random() < 1 / (1 + np.exp(-score)))]})
    return made


def example(row: dict[str, Any], *names: str) -> bytes:
    """A serialised tf.Example of some columns of a row; of all without names."""
    features = {}
    for name in names or row:
        if name in ("fare", "weight", "tips"):
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=row[name]))
        else:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=row[name]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
    """Everything as it is: dense, sparse, ragged."""
    dense = {name: tf.sparse.to_dense(inputs[name]) for name in ("fare", "company", "weight", "tips")}
    dense = {name: tf.ensure_shape(tf.reshape(value, [-1, 1]), [None, 1]) for name, value in dense.items()}
    return {**dense, "tags": inputs["tags"], "stops": tf.RaggedTensor.from_sparse(inputs["stops"])}


@pytest.fixture(scope="module")
def rich_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A transform graph made by tf.Transform, and the files of both splits."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
    from tfx_bsl.public import tfxio

    folder = tmp_path_factory.mktemp("rich")
    types = {"fare": tf.float32, "weight": tf.float32, "tips": tf.float32, "company": tf.int64}
    types |= {"tags": tf.int64, "stops": tf.int64}
    schema = schema_utils.schema_from_feature_spec({name: tf.io.VarLenFeature(kind) for name, kind in types.items()})
    made = {split: rows(count, seed) for seed, (split, count) in enumerate(NUM_RECORDS.items())}
    source = tfxio.TFExampleBeamRecord(physical_format="memory", schema=schema, telemetry_descriptors=["test"])
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    with beam.Pipeline(runner=runner) as pipeline, tft_beam.Context(temp_dir=str(folder / "beam")):
        raw = pipeline | beam.Create([example(row) for row in made["train"]]) | source.BeamSource()
        transform_fn = (raw, source.TensorAdapterConfig()) | tft_beam.AnalyzeDataset(preprocess)
        transform_fn | tft_beam.WriteTransformFn(str(folder / "graph"))
        dataset_metadata.DatasetMetadata(schema) | tft_beam.WriteMetadata(str(folder / "graph" / "metadata"), pipeline)
    files = {split: write_split(folder / split, [example(row) for row in each], 3) for split, each in made.items()}
    return {"graph": str(folder / "graph"), **files}


MakeRich = Callable[..., TrainSpec]


@pytest.fixture
def make_rich(rich_files: dict[str, Any], tmp_path: Path) -> MakeRich:
    """Makes a specification in a folder of its own."""

    def make(name: str, *, parameters: dict[str, Any], **options: Any) -> TrainSpec:
        run_dir = tmp_path / name
        run_dir.mkdir()
        defaults: dict[str, Any] = {"steps": 40, "batch_size": 64, "num_virtual_shards": 8, "checkpoint_every": 6}
        defaults |= {"weight_column": "weight", "class_weights": {"1": 2.0}, "learning_rate": 0.02, "clip_norm": 0.5}
        return TrainSpec(
            options=TrainOptions(**{**defaults, **STOPPING, **options}),
            model=ModelOptions(build="sample_models:rich_model", parameters=parameters),
            label="tips",
            label_kind="binary",
            train_files=rich_files["train"],
            eval_files=rich_files["eval"],
            transform_graph_dir=rich_files["graph"],
            run_dir=str(run_dir),
            checkpoint_dir=str(tmp_path / f"{name}-checkpoints"),
            export_dir=str(run_dir / "model" / "Format-Serving"),
            tensorboard_dir=str(run_dir / "events"),
            import_paths=(str(Path(__file__).parent),),
        )

    return make


def report(spec: TrainSpec) -> dict[str, Any]:
    """What the chief left."""
    loaded: dict[str, Any] = json.loads(RunFiles(Path(spec.run_dir)).training_path.read_text())
    return loaded


def final_variables(spec: TrainSpec, step: int) -> list[np.ndarray[Any, Any]]:
    """Weights, optimizer variables and the best weights of a checkpoint, in order; not what is text."""
    path = Path(spec.checkpoint_dir) / f"step-{step:08d}" / "checkpoint"
    reader = tf.train.load_checkpoint(str(path))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    values = [reader.get_tensor(name) for name in sorted(names, key=lambda name: int(name.split("/")[1]))]
    return [
        np.asarray(value) for value in values if not isinstance(value, bytes) and np.asarray(value).dtype.kind != "O"
    ]


def trained(spec: TrainSpec, *, attempt: int = 1) -> list[Finished]:
    """Runs the group to its end; all stop at the same step with the same weights."""
    workers = run_group(spec, attempt=attempt)
    assert [worker.code for worker in workers] == [0] * len(workers), workers[0].log[-3000:]
    assert len({worker.last("done").digest for worker in workers}) == 1
    course = report(spec)["validation"]
    assert [validation["step"] for validation in course["validations"]] == [4, 8, 12, 16]
    assert (course["best_step"], course["has_stopped"]) == (4, True)
    assert {worker.last("done").step for worker in workers} == {16}
    return workers


def check_close(spec: TrainSpec, other: TrainSpec, tolerance: float) -> None:
    """Asserts that all variables, and what validations found, are equal to the tolerance."""
    for one, two in zip(final_variables(spec, 16), final_variables(other, 16), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=tolerance)
    courses = [report(each)["validation"]["validations"] for each in (spec, other)]
    for one, two in zip(*courses, strict=True):
        assert one["metrics"] == pytest.approx(two["metrics"], abs=1e-5)
        assert one["metrics"]["examples"] == NUM_RECORDS["eval"]


@pytest.mark.parametrize(
    ("optimizer", "dtype", "tolerance"), [("adam", "float64", 1e-9), ("sgd", "float64", 1e-9), ("sgd", "float32", 1e-5)]
)
def test_workers_equal_one_process(make_rich: MakeRich, optimizer: str, dtype: str, tolerance: float) -> None:
    """Two, and two with two devices each, of which some have no record to validate."""
    options = {"parameters": {"dtype": dtype}, "optimizer": optimizer}
    one = make_rich("one", **options, **ONE)
    trained(one)
    multi = make_rich("multi", **options, **(MULTI_WORKER if dtype == "float32" else MULTI_DEVICE))
    trained(multi)
    check_close(multi, one, tolerance)


def test_dropout_in_parts_and_a_resumed_training(make_rich: MakeRich, rich_files: dict[str, Any]) -> None:
    """Two workers equal one process with two devices, with other masks on each replica; a resumed one is the same bits.

    What is served takes raw records without label and weight.
    """
    options = {"parameters": {"dropout": 0.3}, "accumulate": 2}
    mirrored, multi = make_rich("mirrored", **options, **MIRRORED), make_rich("multi", **options, **MULTI_WORKER)
    trained(mirrored)
    whole = trained(multi)
    check_close(multi, mirrored, 1e-5)
    shutil.rmtree(Path(multi.checkpoint_dir) / "step-00000016")
    again = trained(dataclasses.replace(multi), attempt=2)
    assert again[0].last("training").step == 12
    assert again[0].last("done").digest == whole[0].last("done").digest
    once_more = trained(dataclasses.replace(multi), attempt=3)
    assert once_more[0].last("training").step == 16
    assert once_more[1].last("done").digest == whole[0].last("done").digest

    served = tf.saved_model.load(multi.export_dir).signatures["serving_default"]
    raw = [example(row, "fare", "company", "tags", "stops") for row in rows(5, 7)]
    predictions = served(tf.constant(raw))["predictions"].numpy()
    assert predictions.shape == (5, 1)
    assert len(set(predictions.ravel().tolist())) == 5
    description = json.loads((Path(multi.export_dir) / "assets.extra" / "lockstep.json").read_text())
    assert sorted(description["raw_features"]) == ["company", "fare", "stops", "tags"]


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_validates_and_stops(make_rich: MakeRich, precision: str) -> None:
    """With weights, in parts, clipped, on two workers."""
    spec = make_rich("half", parameters={}, accumulate=2, precision=precision, **MULTI_WORKER)
    spec = dataclasses.replace(spec, model=ModelOptions(build="sample_models:rich_model", parameters={"dtype": None}))
    trained(spec)
