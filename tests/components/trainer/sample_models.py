"""Model functions that the tests' specifications name, imported by the worker processes."""

from typing import Any

import keras


def small_model(inputs: Any) -> keras.Model:
    """Two features and one hidden layer; parameters: dropout, normalize, compile."""
    features = {
        "fare": keras.Input((1,), dtype="float32", name="fare"),
        "company": keras.Input((1,), dtype="int64", name="company"),
    }
    company = keras.layers.Flatten()(keras.layers.Embedding(4, 3)(features["company"]))
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()([features["fare"], company]))
    if "normalize" in inputs.parameters:
        hidden = keras.layers.BatchNormalization(synchronized=inputs.parameters["normalize"] == "synchronized")(hidden)
    if "dropout" in inputs.parameters:
        hidden = keras.layers.Dropout(inputs.parameters["dropout"])(hidden)
    return keras.Model(features, keras.layers.Dense(1, activation="sigmoid")(hidden))


def broken_model(inputs: Any) -> keras.Model:
    """Asks for a feature that is not there."""
    raise KeyError("distance")
