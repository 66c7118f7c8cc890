"""What the trained model is worth on the evaluation split, computed by one process without any peer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from lockstep.components.trainer.loop import PerExampleLoss, model_columns
from lockstep.components.trainer.outputs import check_probabilities, improbable
from lockstep.components.trainer.records import Records

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_BATCH = 1024
# Points of the curve that the area is summed over: four digits of the AUC, and memory that does not grow with the data.
_AUC_THRESHOLDS = 2000


def evaluate(
    model: "keras.Model",
    records: Records,
    loss: PerExampleLoss,
    label_kind: Literal["binary", "regression"],
    *,
    on_batch: Callable[[], None],
) -> dict[str, float]:
    """Returns the metrics of a split; reads it once.

    Args:
      model: Its variables are read in place.
      records: The split.
      loss: Of each example.
      label_kind: ``binary``: loss, auc, accuracy (threshold 0.5); ``regression``: loss, mse, mae.
      on_batch: Called after each batch.

    Returns:
      Metric name -> value, and ``examples``, their number; empty for a split without records.

    Raises:
      ConfigurationError: The label is binary, and the model predicts less than 0 or more than 1 for a record.
    """
    import keras
    import tensorflow as tf

    means = {"loss": keras.metrics.Mean(name="loss")}
    metrics: dict[str, keras.metrics.Metric] = {}
    if label_kind == "binary":
        metrics["auc"] = keras.metrics.AUC(num_thresholds=_AUC_THRESHOLDS, name="auc")
        metrics["accuracy"] = keras.metrics.BinaryAccuracy(name="accuracy")
    else:
        metrics["mse"] = keras.metrics.MeanSquaredError(name="mse")
        metrics["mae"] = keras.metrics.MeanAbsoluteError(name="mae")
    dataset = records.read().batch(_BATCH).map(records.parse, num_parallel_calls=2).prefetch(2)

    @tf.function(input_signature=[_any_batch(dataset.element_spec)], autograph=False)
    def update(columns: "dict[str, tf.Tensor]") -> "tf.Tensor":
        label = tf.cast(columns[records.label], tf.float32)
        # A loss in half precision would be too coarse.
        predictions = tf.cast(model(model_columns(model, columns, records.label), training=False), tf.float32)
        means["loss"].update_state(loss(label, predictions))
        for metric in metrics.values():
            metric.update_state(label, predictions)
        return improbable(predictions)

    num_examples = 0
    for columns in dataset:
        wrong = update(columns)
        if label_kind == "binary":
            check_probabilities(wrong, "model.build: on the evaluation split the trained model")
        num_examples += int(columns[records.label].shape[0])
        on_batch()
    if not num_examples:
        return {}
    values = {name: float(metric.result()) for name, metric in {**means, **metrics}.items()}
    return {**values, "examples": num_examples}


def _any_batch(spec: "dict[str, tf.TensorSpec]") -> "dict[str, tf.TensorSpec]":
    import tensorflow as tf

    return {name: tf.TensorSpec([None, *column.shape[1:]], column.dtype) for name, column in spec.items()}
