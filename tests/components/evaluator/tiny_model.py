"""A SavedModel with the signatures of Lockstep's export, made in a second without training, and rows for it."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

RAW_FEATURES = {"x": "float", "kind": "string", "size": "int"}
SCHEMA = """
feature { name: "x" type: FLOAT }
feature { name: "kind" type: BYTES }
feature { name: "size" type: INT }
feature { name: "y" type: INT }
"""


class _TinyModel(tf.Module):
    def __init__(self, weight: float, bias: float, label: str, kind: str) -> None:
        super().__init__()
        self._weight = tf.Variable(weight)
        self._bias = bias
        self._label = label
        self._kind = kind

    def _parse(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        dtypes = {"x": tf.float32, self._label: tf.int64}
        parsed = tf.io.parse_example(examples, {name: tf.io.VarLenFeature(dtype) for name, dtype in dtypes.items()})
        return {
            name: tf.sparse.to_dense(tf.sparse.reset_shape(value, [value.dense_shape[0], 1]))
            for name, value in parsed.items()
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self._parse(examples)["x"] * self._weight + self._bias
        return {"predictions": tf.sigmoid(logits) if self._kind == "binary" else logits}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = self._parse(examples)
        return {"x": parsed["x"] / 2.0, self._label: tf.cast(parsed[self._label], tf.float32)}


def save_model(
    model_dir: Path, *, weight: float = 1.0, bias: float = 0.0, label: str = "y", label_kind: str = "binary"
) -> Path:
    """Saves a model that predicts sigmoid(weight * x + bias), or the same without sigmoid for a regression."""
    model = _TinyModel(weight, bias, label, label_kind)
    tf.saved_model.save(
        model, str(model_dir), signatures={"serving_default": model.serve, "transform_features": model.transform}
    )
    contract = {"raw_features": RAW_FEATURES, "label": label, "label_kind": label_kind}
    (model_dir / "assets.extra").mkdir(exist_ok=True)
    (model_dir / "assets.extra" / "lockstep.json").write_text(json.dumps(contract))
    return model_dir


def make_rows(num_rows: int, seed: int = 0, noise: float = 1.0) -> list[dict[str, object]]:
    """Makes rows in which y is 1 where x plus noise is positive; every tenth ``kind`` is missing."""
    generator = random.Random(seed)
    rows = []
    for number in range(num_rows):
        x = generator.gauss(0, 1)
        rows.append(
            {
                "x": x,
                "kind": None if number % 10 == 9 else "abc"[number % 3],
                "size": number % 2,
                "y": int(x + generator.gauss(0, noise) > 0),
            }
        )
    return rows


def serialize(row: dict[str, object]) -> bytes:
    """Serialises a row as ExampleGen does: a missing value leaves the feature out."""
    features = {}
    for name, value in row.items():
        if isinstance(value, float):
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
        elif isinstance(value, int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        elif isinstance(value, str):
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_examples(folder: Path, rows: Sequence[dict[str, object]], num_shards: int = 2) -> None:
    """Writes rows as the split ``eval`` of an Examples artifact."""
    split_dir = folder / "Split-eval"
    split_dir.mkdir(parents=True)
    for shard in range(num_shards):
        name = f"data_tfrecord-{shard:05d}-of-{num_shards:05d}.gz"
        with tf.io.TFRecordWriter(str(split_dir / name), options="GZIP") as writer:
            for row in rows[shard::num_shards]:
                writer.write(serialize(row))
