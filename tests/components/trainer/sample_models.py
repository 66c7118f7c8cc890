"""Model functions that the tests' specifications name, imported by the worker processes."""

import sys
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf


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


def exiting_model(inputs: Any) -> keras.Model:
    """Ends the process."""
    sys.exit("no data today")


def wide_model(inputs: Any) -> keras.Model:
    """Gives two values a record."""
    fare = keras.Input((1,), name="fare")
    return keras.Model({"fare": fare}, keras.layers.Dense(2, activation="sigmoid")(fare))


def flat_model(inputs: Any) -> keras.Model:
    """Gives a vector."""
    fare = keras.Input((1,), name="fare")
    return keras.Model({"fare": fare}, keras.ops.squeeze(keras.layers.Dense(1, activation="sigmoid")(fare), axis=1))


def logits_model(inputs: Any) -> keras.Model:
    """Gives -3 for any record until it is trained: no probability."""
    fare = keras.Input((1,), name="fare")
    layer = keras.layers.Dense(1, kernel_initializer="zeros", bias_initializer=keras.initializers.Constant(-3.0))
    return keras.Model({"fare": fare}, layer(fare))


class Exiting(keras.layers.Layer):
    """Ends the process when it trains."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns what it is given, unless it trains."""
        if training:
            sys.exit("enough")
        return inputs


def model_that_exits_later(inputs: Any) -> keras.Model:
    """Ends the process at its first step."""
    fare = keras.Input((1,), name="fare")
    return keras.Model({"fare": fare}, keras.layers.Dense(1, activation="sigmoid")(Exiting()(fare)))


def named_model(inputs: Any) -> keras.Model:
    """Two features and two hidden layers whose names a layout can give; parameters: normalize."""
    features = {
        "fare": keras.Input((1,), dtype="float32", name="fare"),
        "company": keras.Input((1,), dtype="int64", name="company"),
    }
    company = keras.layers.Flatten()(keras.layers.Embedding(4, 6, name="companies")(features["company"]))
    hidden = keras.layers.Concatenate()([features["fare"], company])
    hidden = keras.layers.Dense(8, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-3), name="hidden_1")(
        hidden
    )
    if inputs.parameters.get("normalize"):
        hidden = keras.layers.BatchNormalization(name="normalized")(hidden)
    hidden = keras.layers.Dense(8, activation="relu", name="hidden_2")(hidden)
    return keras.Model(features, keras.layers.Dense(1, activation="sigmoid")(hidden))


def double_model(inputs: Any) -> keras.Model:
    """Two features and one hidden layer, all in float64."""
    features = {
        "fare": keras.Input((1,), dtype="float32", name="fare"),
        "company": keras.Input((1,), dtype="int64", name="company"),
    }
    company = keras.layers.Flatten(dtype="float64")(keras.layers.Embedding(4, 3, dtype="float64")(features["company"]))
    joined = keras.layers.Concatenate(dtype="float64")([keras.ops.cast(features["fare"], "float64"), company])
    hidden = keras.layers.Dense(8, activation="relu", dtype="float64")(joined)
    return keras.Model(features, keras.layers.Dense(1, activation="sigmoid", dtype="float64")(hidden))


class Watched(keras.layers.Layer):
    """Notes the ids of the records of each step in the worker's own folder; obeys what a test asks for by a file.

    Args:
      pause_s: Seconds that each step takes at least.
      spin_file: Where this file is, worker 1 removes it and loops for ever, as a user's code might.
    """

    def __init__(self, pause_s: float, spin_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._pause_s, self._spin_file = pause_s, Path(spin_file)

    def call(self, record_id: Any, fare: Any, training: bool = False) -> Any:
        """Returns the fares."""
        import tensorflow as tf

        if not training:
            return fare
        with tf.control_dependencies([tf.numpy_function(self._note, [record_id], tf.int64)]):
            return tf.identity(fare)

    def _note(self, record_id: Any) -> Any:
        attempt = sys.argv[sys.argv.index("--attempt") + 1]
        with Path(f"attempt-{attempt}.ids").open("a", encoding="utf-8") as file:
            file.write(" ".join(str(one) for one in record_id.ravel()) + "\n")
        time.sleep(self._pause_s)
        if Path.cwd().name == "worker-1" and self._spin_file.exists():
            self._spin_file.unlink()
            while True:
                pass
        return record_id


def watched_model(inputs: Any) -> keras.Model:
    """One feature; parameters: those of `Watched`."""
    record_id = keras.Input((1,), dtype="int64", name="record_id")
    fare = keras.Input((1,), dtype="float32", name="fare")
    hidden = keras.layers.Dense(8, activation="relu")(Watched(**inputs.parameters)(record_id, fare))
    outputs = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Dropout(0.1)(hidden))
    return keras.Model({"record_id": record_id, "fare": fare}, outputs)


class MeanOfVectors(keras.layers.Layer):
    """The mean of the vectors of a record's values, of a sparse or a ragged feature; zeros for a record without any."""

    def __init__(self, num_values: int, dim: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.num_values, self.dim = num_values, dim

    def build(self, input_shape: Any) -> None:
        """Makes the table."""
        self.table = self.add_weight(shape=(self.num_values, self.dim), initializer="uniform", name="table")

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, int]:
        """One vector a record."""
        return (input_shape[0], self.dim)

    def call(self, inputs: Any) -> Any:
        """Looks up and averages."""
        ragged = tf.RaggedTensor.from_sparse(inputs) if isinstance(inputs, tf.SparseTensor) else inputs
        rows = ragged.value_rowids()
        vectors = tf.gather(tf.convert_to_tensor(self.table), ragged.flat_values)
        sums = tf.math.unsorted_segment_sum(vectors, rows, ragged.nrows())
        counts = tf.cast(tf.maximum(ragged.row_lengths(), 1), sums.dtype)
        return sums / counts[:, None]


def rich_model(inputs: Any) -> keras.Model:
    """Dense, sparse and ragged features, and a synchronised BatchNormalization; parameters: dtype, dropout."""
    dtype = inputs.parameters.get("dtype", "float32") or keras.config.dtype_policy()
    layouts = {name: feature.layout for name, feature in inputs.features.items()}
    assert layouts == {"fare": "dense", "company": "dense", "tags": "sparse", "stops": "ragged"}, layouts
    features = {
        "fare": keras.Input((1,), dtype="float32", name="fare"),
        "company": keras.Input((1,), dtype="int64", name="company"),
        "tags": keras.Input((None,), dtype="int64", sparse=True, name="tags"),
        "stops": keras.Input((None,), dtype="int64", ragged=True, name="stops"),
    }
    company = keras.layers.Flatten(dtype=dtype)(keras.layers.Embedding(4, 3, dtype=dtype)(features["company"]))
    tags = MeanOfVectors(6, 2, dtype=dtype, name="mean_of_tags")(features["tags"])
    stops = MeanOfVectors(9, 2, dtype=dtype, name="mean_of_stops")(features["stops"])
    fare = keras.layers.Identity(dtype=dtype)(features["fare"])
    hidden = keras.layers.Dense(8, dtype=dtype)(keras.layers.Concatenate(dtype=dtype)([fare, company, tags, stops]))
    hidden = keras.layers.BatchNormalization(synchronized=True, dtype=dtype)(hidden)
    hidden = keras.layers.Activation("tanh", dtype=dtype)(hidden)
    if "dropout" in inputs.parameters:
        hidden = keras.layers.Dropout(inputs.parameters["dropout"], dtype=dtype)(hidden)
    output = keras.layers.Dense(1, activation="sigmoid", dtype=dtype if dtype == "float64" else "float32")
    return keras.Model(features, output(hidden))
