"""What a model is worth on the evaluation split: counted by each process on its part of the records, then put together.

Nothing is asked of other processes while records are read, so none waits for a batch that another does not have.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lockstep.components.trainer import example_weights
from lockstep.components.trainer.loop import PerExampleLoss, model_columns
from lockstep.components.trainer.outputs import check_probabilities, improbable
from lockstep.components.trainer.records import Records

if TYPE_CHECKING:
    import keras
    import numpy.typing as npt
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
    """Returns the metrics of a split; reads it once, alone.

    Args:
      model: Its variables are read in place.
      records: The split.
      loss: Of each example.
      label_kind: See ``Evaluation``.
      on_batch: Called after each batch.

    Returns:
      See ``Evaluation.values``.

    Raises:
      ConfigurationError: The label is binary, and the model predicts less than 0 or more than 1 for a record.
      DataError: A record's weight is negative or not finite.
    """
    evaluation = Evaluation(model, records, loss, label_kind)
    return evaluation.values(evaluation.sums(on_batch=on_batch))


class Evaluation:
    """Evaluates one model, whose variables may change in between, as often as wanted.

    Args:
      model: Its variables are read in place.
      records: The split.
      loss: Of each example.
      label_kind: ``binary``: loss, auc, accuracy (threshold 0.5); ``regression``: loss, mse, mae.
      part: Which part of the records this process counts.
      num_parts: How many parts there are; each record is in one of them.
    """

    def __init__(
        self,
        model: "keras.Model",
        records: Records,
        loss: PerExampleLoss,
        label_kind: Literal["binary", "regression"],
        *,
        part: int = 0,
        num_parts: int = 1,
    ) -> None:
        import keras
        import tensorflow as tf

        self._model, self._records, self._loss, self._label_kind = model, records, loss, label_kind
        self._loss_sum = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        metrics: list[keras.metrics.Metric]
        if label_kind == "binary":
            metrics = [
                keras.metrics.AUC(num_thresholds=_AUC_THRESHOLDS, name="auc"),
                keras.metrics.BinaryAccuracy(name="accuracy"),
            ]
        else:
            metrics = [keras.metrics.MeanSquaredError(name="mse"), keras.metrics.MeanAbsoluteError(name="mae")]
        self._metrics = metrics
        dataset = records.read()
        if num_parts > 1:
            dataset = dataset.shard(num_parts, part)
        self._dataset = dataset.batch(_BATCH).map(records.parse, num_parallel_calls=2).prefetch(2)
        self._update = tf.function(self._add, input_signature=[_any_batch(self._dataset.element_spec)], autograph=False)

    def sums(self, *, on_batch: Callable[[], None]) -> "npt.NDArray[np.float64]":
        """Reads this process's part of the records; asks nobody. Sums of several parts add up to those of the whole.

        Returns:
          float64 [n], the same n for any number of records, none too. What ``values`` takes.

        Raises:
          ConfigurationError: The label is binary, and the model predicts less than 0 or more than 1 for a record.
          DataError: A record's weight is negative or not finite.
        """
        self._loss_sum.assign(0.0)
        for metric in self._metrics:
            metric.reset_state()
        num_examples = 0
        for columns in self._dataset:
            if self._records.weight is not None:
                example_weights.check(self._records.weight, columns[self._records.weight].numpy())
            wrong = self._update(columns)
            if self._label_kind == "binary":
                check_probabilities(wrong, "model.build: on the evaluation split the trained model")
            num_examples += int(columns[self._records.label].shape[0])
            on_batch()
        states = [np.ravel(variable.numpy()).astype(np.float64) for variable in self._variables()]
        return np.concatenate([[num_examples, self._loss_sum.numpy()], *states])

    def values(self, sums: "npt.NDArray[np.float64]") -> dict[str, float]:
        """Returns metric name -> value, and ``examples``, their number; empty where there was none.

        With weights of records the loss is the mean of the weighted losses, as Keras' ``evaluate`` with
        ``sample_weight`` has it; the metrics are weighted means.
        """
        num_examples, loss_sum, *states = sums.tolist()
        if not num_examples:
            return {}
        start = 0
        for variable in self._variables():
            size = int(np.prod(variable.shape))
            variable.assign(np.reshape(states[start : start + size], variable.shape))
            start += size
        values = {metric.name: float(metric.result()) for metric in self._metrics}
        return {"loss": loss_sum / num_examples, **values, "examples": int(num_examples)}

    def _variables(self) -> "list[keras.Variable]":
        return [variable for metric in self._metrics for variable in metric.variables]

    def _add(self, columns: "dict[str, tf.Tensor]") -> Any:
        """Adds one batch; returns a prediction that is no probability, see ``improbable``."""
        import tensorflow as tf

        features, weights = self._records.for_model(columns)
        label = tf.cast(features[self._records.label], tf.float32)
        # A loss in half precision would be too coarse.
        predictions = self._model(model_columns(self._model, features, self._records.label), training=False)
        predictions = tf.cast(predictions, tf.float32)
        losses = tf.cast(tf.reshape(self._loss(label, predictions), [-1]), tf.float64)
        if weights is not None:
            losses *= tf.cast(tf.reshape(weights, [-1]), tf.float64)
        self._loss_sum.assign_add(tf.reduce_sum(losses))
        for metric in self._metrics:
            metric.update_state(label, predictions, sample_weight=weights)
        return improbable(predictions)


def _any_batch(spec: "dict[str, tf.TypeSpec]") -> "dict[str, tf.TypeSpec]":
    import tensorflow as tf

    return {
        name: column
        if isinstance(column, tf.RaggedTensorSpec)
        else tf.TensorSpec([None, *column.shape[1:]], column.dtype)
        for name, column in spec.items()
    }
