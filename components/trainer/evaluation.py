"""What a model is worth on the evaluation split: counted by each process on its part of the records, then put together.

Nothing is asked of other processes while records are read, so none waits for a batch that another does not have.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lockstep.components.class_labels import LabelKind, unseen_message
from lockstep.components.errors import DataError
from lockstep.components.trainer import example_weights
from lockstep.components.trainer.loop import PerExampleLoss, model_columns
from lockstep.components.trainer.outputs import check_probabilities, improbable
from lockstep.components.trainer.records import Records

if TYPE_CHECKING:
    import keras
    import numpy.typing as npt
    import tensorflow as tf

_BATCH = 1024
_BATCH_BYTES = 64 << 20  # fewer of large records
# Of images, with as many comparisons as cells of the grid and boxes.
_BATCH_OF_BOXES = 64
# Points of the curve that the area is summed over: four digits of the AUC, and memory that does not grow with the data.
_AUC_THRESHOLDS = 2000


def evaluate(
    model: "keras.Model",
    records: Records,
    loss: PerExampleLoss,
    label_kind: LabelKind,
    *,
    on_batch: Callable[[], None],
    unseen: Literal["error", "leave_out"] = "error",
) -> dict[str, float]:
    """Returns the metrics of a split; reads it once, alone.

    Args:
      model: Its variables are read in place.
      records: The split.
      loss: Of each example.
      label_kind: See ``Evaluation``.
      on_batch: Called after each batch.
      unseen: See ``Evaluation``.

    Returns:
      See ``Evaluation.values``.

    Raises:
      ConfigurationError: The label is no regression's, and the model predicts what is no probability.
      DataError: A record's weight is negative or not finite; one is of a class that training has not.
    """
    evaluation = Evaluation(model, records, loss, label_kind, unseen=unseen)
    return evaluation.values(evaluation.sums(on_batch=on_batch))


class Evaluation:
    """Evaluates one model, whose variables may change in between, as often as wanted.

    Args:
      model: Its variables are read in place.
      records: The split.
      loss: Of each example.
      label_kind: ``binary``: loss, auc, accuracy (threshold 0.5); ``regression``: loss, mse, mae;
        ``multiclass``: loss, accuracy, macro_f1, over the records' classes; ``boxes``: loss.
      part: Which part of the records this process counts.
      num_parts: How many parts there are; each record is in one of them.
      unseen: Whether a record of a class that training has not fails, or is counted and left out.
    """

    def __init__(
        self,
        model: "keras.Model",
        records: Records,
        loss: PerExampleLoss,
        label_kind: LabelKind,
        *,
        part: int = 0,
        num_parts: int = 1,
        unseen: Literal["error", "leave_out"] = "error",
    ) -> None:
        import keras
        import tensorflow as tf

        self._model, self._records, self._loss, self._label_kind = model, records, loss, label_kind
        self._unseen = unseen
        self._loss_sum = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        metrics: list[keras.metrics.Metric]
        if label_kind == "binary":
            metrics = [
                keras.metrics.AUC(num_thresholds=_AUC_THRESHOLDS, name="auc"),
                keras.metrics.BinaryAccuracy(name="accuracy"),
            ]
        elif label_kind == "multiclass":
            from lockstep.components.trainer.macro_f1 import MacroF1

            metrics = [
                keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
                MacroF1(len(records.classes), name="macro_f1"),
            ]
        elif label_kind == "boxes":
            metrics = []  # those of boxes are the Evaluator's
        else:
            metrics = [keras.metrics.MeanSquaredError(name="mse"), keras.metrics.MeanAbsoluteError(name="mae")]
        self._metrics = metrics
        dataset = records.read()
        if num_parts > 1:
            dataset = dataset.shard(num_parts, part)
        most = _BATCH_OF_BOXES if label_kind == "boxes" else _BATCH
        batch = max(1, min(most, _BATCH_BYTES // max(1, records.bytes_per_decoded_record)))
        self._dataset = (
            dataset.batch(batch)
            .map(lambda serialised: records.decoded(records.parse(serialised)), num_parallel_calls=2)
            .prefetch(2)
        )
        self._update = tf.function(self._add, input_signature=[_any_batch(self._dataset.element_spec)], autograph=False)

    def sums(self, *, on_batch: Callable[[], None]) -> "npt.NDArray[np.float64]":
        """Reads this process's part of the records; asks nobody. Sums of several parts add up to those of the whole.

        Returns:
          float64 [n], the same n for any number of records, none too. What ``values`` takes.

        Raises:
          ConfigurationError: The label is no regression's, and the model predicts what is no probability.
          DataError: A record's weight is negative or not finite.
        """
        self._loss_sum.assign(0.0)
        for metric in self._metrics:
            metric.reset_state()
        num_examples = num_unseen = 0
        for columns in self._dataset:
            if self._records.weight is not None:
                example_weights.check(self._records.weight, columns[self._records.weight].numpy())
            wrong, seen = self._update(columns)
            if self._label_kind != "regression":
                what = "model.build: on the evaluation split the trained model"
                check_probabilities(wrong, what, self._label_kind)
            num_rows, num_seen = int(columns[self._records.label].shape[0]), int(seen)
            num_examples += num_seen
            num_unseen += num_rows - num_seen
            on_batch()
        states = [np.ravel(variable.numpy()).astype(np.float64) for variable in self._variables()]
        return np.concatenate([[num_examples, num_unseen, self._loss_sum.numpy()], *states])

    def values(self, sums: "npt.NDArray[np.float64]") -> dict[str, float]:
        """Returns metric name -> value, and ``examples``, their number; empty where there was none.

        With weights of records the loss is the mean of the weighted losses, as Keras' ``evaluate`` with
        ``sample_weight`` has it; the metrics are weighted means. Where records of unseen classes are left out,
        ``unseen`` is their number.

        Raises:
          DataError: Some are of a class that training has not, and that is an error.
        """
        num_examples, num_unseen, loss_sum, *states = sums.tolist()
        if num_unseen and self._unseen == "error":
            raise DataError(unseen_message(self._records.label, int(num_unseen), "the evaluation split"))
        if not num_examples:
            return {}
        start = 0
        for variable in self._variables():
            size = int(np.prod(variable.shape))
            variable.assign(np.reshape(states[start : start + size], variable.shape))
            start += size
        values = {metric.name: float(metric.result()) for metric in self._metrics}
        left_out = {"unseen": int(num_unseen)} if self._has_classes and self._unseen != "error" else {}
        return {"loss": loss_sum / num_examples, **values, "examples": int(num_examples), **left_out}

    @property
    def _has_classes(self) -> bool:
        return self._label_kind in ("multiclass", "boxes")

    def _variables(self) -> "list[keras.Variable]":
        return [variable for metric in self._metrics for variable in metric.variables]

    def _add(self, columns: "dict[str, tf.Tensor]") -> Any:
        """Adds one batch; returns what is no probability, see ``improbable``, and how many rows counted."""
        import tensorflow as tf

        features, weights = self._records.for_model(columns)
        label = tf.cast(features[self._records.label], tf.float32)
        # A loss in half precision would be too coarse.
        predictions = self._model(model_columns(self._model, features, self._records.label), training=False)
        predictions = tf.cast(predictions, tf.float32)
        num_seen = tf.shape(label)[0]
        if self._label_kind == "multiclass":
            seen = (label >= 0) & (label < len(self._records.classes))
            num_seen = tf.math.count_nonzero(seen)
            # A weight of 0 takes the record out of all sums; any class does then.
            label = tf.where(seen, label, 0.0)
            weights = tf.cast(seen, tf.float32) * (1.0 if weights is None else weights)
        if self._label_kind == "boxes":
            seen = tf.reduce_all(label[..., 4] >= 0, axis=1, keepdims=True)
            num_seen = tf.math.count_nonzero(seen)
            weights = tf.cast(seen, tf.float32) * (1.0 if weights is None else weights)
        losses = tf.cast(tf.reshape(self._loss(label, predictions), [-1]), tf.float64)
        if weights is not None:
            losses *= tf.cast(tf.reshape(weights, [-1]), tf.float64)
        self._loss_sum.assign_add(tf.reduce_sum(losses))
        for metric in self._metrics:
            metric.update_state(label, predictions, sample_weight=weights)
        return improbable(predictions, self._label_kind), num_seen


def _any_batch(spec: "dict[str, tf.TypeSpec]") -> "dict[str, tf.TypeSpec]":
    import tensorflow as tf

    return {
        name: column
        if isinstance(column, tf.RaggedTensorSpec)
        else tf.TensorSpec([None, *column.shape[1:]], column.dtype)
        for name, column in spec.items()
    }
