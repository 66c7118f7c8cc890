"""A SavedModel of a label of several classes, with the signatures of Lockstep's export, made without training."""

import json
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

RAW_FEATURES = {"x": "float", "kind": "string", "size": "int"}


class _ClassModel(tf.Module):
    def __init__(self, slopes: Sequence[float], classes: Sequence[str]) -> None:
        super().__init__()
        self._slopes = tf.Variable([list(slopes)])
        keys, values = tf.constant(list(classes)), tf.range(len(classes), dtype=tf.int64)
        self._table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        x = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]
        return {"predictions": tf.nn.softmax(x * self._slopes)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        y = tf.io.parse_example(examples, {"y": tf.io.FixedLenFeature([1], tf.string, "")})["y"]
        return {"y": self._table.lookup(y)}


def save_class_model(
    model_dir: Path, *, slopes: Sequence[float] = (-1.0, 0.1, 1.0), classes: Sequence[str] = ("low", "mid", "high")
) -> Path:
    """Saves a model that predicts softmax(x * slopes)."""
    model = _ClassModel(slopes, classes)
    tf.saved_model.save(
        model, str(model_dir), signatures={"serving_default": model.serve, "transform_features": model.transform}
    )
    contract = {"raw_features": RAW_FEATURES, "label": "y", "label_kind": "multiclass", "classes": list(classes)}
    (model_dir / "assets.extra").mkdir(exist_ok=True)
    (model_dir / "assets.extra" / "lockstep.json").write_text(json.dumps(contract))
    return model_dir
