"""A small transformed data set, as TFX's Transform leaves it, and specifications that train on it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.spec import ModelOptions, TrainOptions, TrainSpec

NUM_TRAIN = 1003
NUM_EVAL = 200
COMPANIES = ("blue", "yellow", "green")


def raw_rows(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Rows of taxi trips whose tip is generous for long fares of one company; some cells are absent."""
    random = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        fare = float(random.gamma(4.0, 3.0))
        company = COMPANIES[int(random.integers(len(COMPANIES)))]
        generous = random.random() < 1 / (1 + np.exp(-(fare - 12) / 3 - (company == "blue")))
        row = {"record_id": index, "fare": fare, "company": company, "tips": fare * (0.3 if generous else 0.1)}
        if index % 17 == 3:
            del row["fare"]
        rows.append(row)
    return rows


def example(row: dict[str, Any]) -> bytes:
    """A serialised raw tf.Example of a row."""
    features = {}
    for name, value in row.items():
        if isinstance(value, str):
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
        elif isinstance(value, int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
    """A preprocessing function as a user might write it: two features, an id, and a label made of two columns."""
    import tensorflow_transform as tft

    def dense(name: str, default: Any) -> Any:
        return tft.sparse_tensor_to_dense_with_shape(inputs[name], [None, 1], default)

    fare, tips = dense("fare", 0.0), dense("tips", 0.0)
    return {
        "record_id": dense("record_id", 0),
        "fare": tft.scale_to_z_score(fare),
        "company": tft.compute_and_apply_vocabulary(dense("company", ""), num_oov_buckets=1, vocab_filename="company"),
        "tips": tf.squeeze(tf.cast(tips > 0.2 * fare, tf.float32), axis=1),
    }


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Where the session's transformed data are, and the raw rows they came from."""

    transform_graph_dir: str
    train_files: tuple[str, ...]
    eval_files: tuple[str, ...]
    train_rows: list[dict[str, Any]]
    eval_rows: list[dict[str, Any]]


def write_split(folder: Path, examples: list[bytes], num_files: int) -> tuple[str, ...]:
    """Writes gzip TFRecords, dealing the examples out in turn."""
    folder.mkdir(parents=True)
    paths = [folder / f"transformed_examples-{i:05d}-of-{num_files:05d}.gz" for i in range(num_files)]
    for index, path in enumerate(paths):
        with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
            for record in examples[index::num_files]:
                writer.write(record)
    return tuple(str(path) for path in paths)


@pytest.fixture(scope="session")
def training_data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Transforms the rows with tf.Transform in this process; about ten seconds, once a session."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils
    from tfx_bsl.public import tfxio

    folder = tmp_path_factory.mktemp("training-data")
    schema = schema_utils.schema_from_feature_spec(
        {
            "record_id": tf.io.VarLenFeature(tf.int64),
            "fare": tf.io.VarLenFeature(tf.float32),
            "company": tf.io.VarLenFeature(tf.string),
            "tips": tf.io.VarLenFeature(tf.float32),
        }
    )
    graph_dir = folder / "transform_graph"
    rows = {"train": raw_rows(NUM_TRAIN, seed=1), "eval": raw_rows(NUM_EVAL, seed=2)}
    source = tfxio.TFExampleBeamRecord(physical_format="memory", schema=schema, telemetry_descriptors=["test"])
    config = source.TensorAdapterConfig()
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    with beam.Pipeline(runner=runner) as pipeline, tft_beam.Context(temp_dir=str(folder / "beam")):
        raw = pipeline | beam.Create([example(row) for row in rows["train"]]) | source.BeamSource()
        transform_fn = (raw, config) | tft_beam.AnalyzeDataset(preprocess)
        transform_fn | tft_beam.WriteTransformFn(str(graph_dir))
        dataset_metadata.DatasetMetadata(schema) | tft_beam.WriteMetadata(str(graph_dir / "metadata"), pipeline)
    splits = {name: transform_rows(graph_dir, split) for name, split in rows.items()}
    return TrainingData(
        transform_graph_dir=str(graph_dir),
        train_files=write_split(folder / "train", splits["train"], 3),
        eval_files=write_split(folder / "eval", splits["eval"], 1),
        train_rows=rows["train"],
        eval_rows=rows["eval"],
    )


def transform_rows(graph_dir: Path, rows: list[dict[str, Any]]) -> list[bytes]:
    """Serialised transformed tf.Examples of the rows, in their order."""
    import tensorflow_transform as tft

    output = tft.TFTransformOutput(str(graph_dir))
    raw = tf.io.parse_example(tf.constant([example(row) for row in rows]), output.raw_feature_spec())
    columns = {name: value.numpy() for name, value in output.transform_features_layer()(raw).items()}
    examples = []
    for index in range(len(rows)):
        features = {}
        for name, column in columns.items():
            values = np.atleast_1d(column[index]).tolist()
            if column.dtype.kind == "i":
                features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            else:
                features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        examples.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return examples


MakeSpec = Callable[..., TrainSpec]


@pytest.fixture
def make_spec(training_data: TrainingData, tmp_path: Path) -> MakeSpec:
    """Makes a specification in a folder of its own; options are keywords, `name` tells runs of one test apart."""

    def make(name: str = "run", *, build: str = "", parameters: Any = None, **options: Any) -> TrainSpec:
        run_dir = tmp_path / name
        run_dir.mkdir()
        defaults: dict[str, Any] = {"workers": 1, "steps": 40, "batch_size": 64, "checkpoint_every": 20}
        defaults |= {"num_virtual_shards": 8, "learning_rate": 0.01}
        return TrainSpec(
            options=TrainOptions(**{**defaults, **options}),
            model=ModelOptions(build=build or "sample_models:small_model", parameters=parameters or {}),
            label="tips",
            label_kind="binary",
            train_files=training_data.train_files,
            eval_files=training_data.eval_files,
            transform_graph_dir=training_data.transform_graph_dir,
            run_dir=str(run_dir),
            checkpoint_dir=str(tmp_path / f"{name}-checkpoints"),
            export_dir=str(run_dir / "model" / "Format-Serving"),
            tensorboard_dir=str(run_dir / "events"),
            import_paths=(str(Path(__file__).parent),),
        )

    return make
