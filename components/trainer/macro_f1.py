"""The mean of the classes' F1, as scikit-learn's ``f1_score(average="macro")`` has it, from sums that add up."""

from typing import Any

import keras


class MacroF1(keras.metrics.Metric):
    """F1 of each class that occurs among labels or predictions, and their mean; 0 before the first record.

    Args:
      num_classes: How many classes there are.
      name: Of the metric.
    """

    def __init__(self, num_classes: int, name: str = "macro_f1") -> None:
        super().__init__(name=name, dtype="float32")
        self._num_classes = num_classes
        self._hits, self._labels, self._predicted = (
            self.add_variable(shape=(num_classes,), initializer="zeros", name=kind)
            for kind in ("hits", "labels", "predicted")
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Counts a batch: classes [batch, 1], probabilities [batch, classes], weights [batch, 1] or None."""
        ops = keras.ops
        label, predicted = ops.reshape(ops.cast(y_true, "int32"), (-1,)), ops.argmax(y_pred, axis=-1)
        weight = 1.0 if sample_weight is None else ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1))
        labels, chosen = (ops.one_hot(index, self._num_classes) * weight for index in (label, predicted))
        hits = labels * ops.one_hot(predicted, self._num_classes)
        for variable, counts in ((self._hits, hits), (self._labels, labels), (self._predicted, chosen)):
            variable.assign_add(ops.sum(counts, axis=0))

    def result(self) -> Any:
        """Returns the mean F1, a scalar."""
        ops = keras.ops
        both = self._labels + self._predicted
        f1 = ops.where(both > 0, 2 * self._hits / ops.maximum(both, 1e-12), 0.0)
        return ops.sum(f1) / ops.maximum(ops.sum(ops.cast(both > 0, "float32")), 1.0)
