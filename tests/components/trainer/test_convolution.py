"""The built-in network for images."""

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.models import BUILT_IN, FeatureInput, ModelInputs

IMAGE = FeatureInput(dtype="float32", shape=(16, 12, 3))
NUMBER = FeatureInput(dtype="float32")
PLACE = FeatureInput(dtype="int64", num_values=5)


def conv(features: dict[str, FeatureInput], **parameters: Any) -> Any:
    """The model for three classes."""
    inputs = ModelInputs(features=features, label_kind="multiclass", num_classes=3, parameters=parameters)
    return BUILT_IN["conv"](inputs)


@pytest.mark.parametrize("pool", ["average", "flatten"])
def test_images_and_other_features_give_classes(pool: str) -> None:
    """Probabilities; every feature counts."""
    model = conv({"photo": IMAGE, "size": NUMBER, "place": PLACE}, filters=[4, 8], pool=pool, hidden=[6])
    random = np.random.default_rng(0)
    batch = {
        "photo": tf.constant(random.random((2, 16, 12, 3)), tf.float32),
        "size": tf.constant([[1.0], [2.0]]),
        "place": tf.constant([[0], [4]], tf.int64),
    }
    predictions = model(batch).numpy()
    np.testing.assert_allclose(predictions.sum(axis=1), [1, 1], rtol=1e-6)
    for name, value in batch.items():
        changed = model({**batch, name: value[::-1]}).numpy()
        assert not np.allclose(changed, predictions), name
    width = {"average": 8, "flatten": 4 * 3 * 8}[pool]
    assert model.get_layer("hidden_1").kernel.shape[0] == width + 1 + 2


@pytest.mark.parametrize(
    ("features", "parameters", "message"),
    [
        ({"size": NUMBER}, {}, "model.build: conv needs an image"),
        ({"photo": IMAGE}, {"filters": [4] * 4}, "model.parameters.filters: 4 blocks halve 16 x 12 pixels"),
        ({"photo": IMAGE}, {"filters": []}, "model.parameters.filters: [] is not allowed"),
        ({"photo": IMAGE}, {"filters": [0]}, "model.parameters.filters: (0,) is not allowed"),
        ({"photo": IMAGE}, {"pool": "max"}, "model.parameters.pool: 'max' is not allowed; give average or flatten"),
        ({"photo": IMAGE}, {"dropout": 1}, "model.parameters.dropout: 1 is not allowed"),
        ({"photo": IMAGE}, {"layers": 1}, "model.parameters.layers: 'conv' has no such parameter"),
    ],
)
def test_what_conv_cannot_do_is_refused(features: Any, parameters: dict[str, Any], message: str) -> None:
    """Named by its key."""
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}"):
        conv(features, **parameters)
