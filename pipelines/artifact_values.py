"""Reads what an artifact says: for the console's telling figures, and for tests."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact
from tfx.utils import io_utils

from lockstep.components.evaluator.verdict import VERDICT_NAME
from lockstep.components.object_store import is_object_uri
from lockstep.components.trainer.summary import SUMMARY_NAME


def read(artifact: Artifact) -> Any:
    """Returns the value of an artifact; see ``lockstep.pipelines.testing.Output.read`` for the types.

    Raises:
      TypeError: a type of artifact that has no reader here.
    """
    reader = _READERS.get(artifact.type_name)
    if reader is None:
        raise TypeError(f"{artifact.type_name}: no reader for this type; read the files under {artifact.uri}")
    return reader(artifact)


def read_examples(artifact: Artifact) -> dict[str, list[dict[str, list[Any]]]]:
    """Returns split -> rows; a row maps each present feature to its list of int, float or bytes values."""
    rows: dict[str, list[dict[str, list[Any]]]] = {}
    for split in artifact_utils.decode_split_names(artifact.split_names):
        files = sorted(str(path) for path in _split_dir(artifact, split).iterdir())
        records = tf.data.TFRecordDataset(files, compression_type="GZIP" if files[0].endswith(".gz") else "")
        rows[split] = [_row(record) for record in records.as_numpy_iterator()]
    return rows


def read_statistics(artifact: Artifact) -> dict[str, statistics_pb2.DatasetFeatureStatistics]:
    """Returns split -> statistics."""
    values = {}
    for split in artifact_utils.decode_split_names(artifact.split_names):
        message = statistics_pb2.DatasetFeatureStatisticsList()
        message.ParseFromString((_split_dir(artifact, split) / "FeatureStats.pb").read_bytes())
        values[split] = message.datasets[0]
    return values


def read_schema(artifact: Artifact) -> schema_pb2.Schema:
    """Returns the schema."""
    return io_utils.SchemaReader().read(str(pathlib.Path(artifact.uri) / "schema.pbtxt"))


def read_anomalies(artifact: Artifact) -> dict[str, dict[str, str]]:
    """Returns split -> feature -> what is wrong with it."""
    values = {}
    for split in artifact_utils.decode_split_names(artifact.split_names):
        message = anomalies_pb2.Anomalies()
        message.ParseFromString((_split_dir(artifact, split) / "SchemaDiff.pb").read_bytes())
        values[split] = {feature: info.description for feature, info in message.anomaly_info.items()}
    return values


def read_verdict(artifact: Artifact) -> dict[str, Any]:
    """Returns the verdict of a ModelEvaluation."""
    return dict(json.loads((pathlib.Path(artifact.uri) / VERDICT_NAME).read_text(encoding="utf-8")))


def read_training(artifact: Artifact) -> dict[str, Any]:
    """Returns the training summary of a ModelRun."""
    return dict(json.loads((pathlib.Path(artifact.uri) / SUMMARY_NAME).read_text(encoding="utf-8")))


def read_blessing(artifact: Artifact) -> bool:
    """Returns whether a ModelBlessing blesses."""
    return int(artifact.get_int_custom_property("blessed")) == 1


def read_pushed(artifact: Artifact) -> pathlib.Path | str | None:
    """Returns the folder of the version that a PushedModel is served from; None if nothing was pushed.

    A folder of an object store is its URI.
    """
    destination = str(artifact.get_string_custom_property("pushed_destination"))
    if is_object_uri(destination):
        return destination
    return pathlib.Path(destination) if destination else None


def _split_dir(artifact: Artifact, split: str) -> pathlib.Path:
    return pathlib.Path(artifact_utils.get_split_uri([artifact], split))


def _row(record: bytes) -> dict[str, list[Any]]:
    example = tf.train.Example.FromString(record)
    row = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        if kind and getattr(feature, kind).value:
            row[name] = list(getattr(feature, kind).value)
    return row


_READERS: dict[str, Callable[[Artifact], Any]] = {
    "Examples": read_examples,
    "ExampleStatistics": read_statistics,
    "Schema": read_schema,
    "ExampleAnomalies": read_anomalies,
    "TransformGraph": lambda artifact: tft.TFTransformOutput(artifact.uri),
    "Model": lambda artifact: tf.saved_model.load(str(pathlib.Path(artifact.uri) / "Format-Serving")),
    "ModelRun": read_training,
    "ModelEvaluation": read_verdict,
    "ModelBlessing": read_blessing,
    "PushedModel": read_pushed,
}
