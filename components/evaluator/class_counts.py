"""Metrics of a label of several classes, counted on whole batches; what is merged gives what one pass gives.

Memory: a few numbers a class, and a confusion matrix of the most frequent classes, whatever the number of rows.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]

MAX_CONFUSION = 30
"""Classes that a confusion matrix tells apart; the others are one more row and column."""

_TOP = (3, 5)
_LEAST_PROBABILITY = 1e-7  # Keras' epsilon: a class of probability 0 has a finite loss


class ClassCounts:
    """What one model says of some rows.

    Args:
      num_classes: How many classes there are; their indices are in the order of training's frequency.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._shown = min(num_classes, MAX_CONFUSION)
        # Hits, labels and predictions of each class.
        self._counts = np.zeros((3, num_classes))
        self._confusion = np.zeros((self._shown + 1, self._shown + 1))
        self._loss = self._weight = 0.0
        self._top = np.zeros(len(_TOP))
        self.num_rows = self.num_unseen = self.num_broken = 0

    def update(self, labels: Values, predictions: Values, weights: Values | None = None) -> None:
        """Counts a batch.

        Args:
          labels: [batch], indices of classes; a row of another value is of a class that training has not: it is left
            out, and counted as such.
          predictions: [batch, classes], probabilities. A row with one that is not finite is a wrong answer of no class,
            and makes the cross-entropy NaN.
          weights: [batch], of the rows; None counts each once.
        """
        classes = self.num_classes
        seen = (labels >= 0) & (labels < classes)
        self.num_unseen += int((~seen).sum())
        self.num_rows += int(seen.sum())
        label = labels[seen].astype(np.int64)
        probabilities = predictions[seen].astype(np.float64)
        weight = np.ones(len(label)) if weights is None else weights[seen].astype(np.float64)
        usable = np.isfinite(probabilities).all(axis=1)
        self.num_broken += int((~usable).sum())
        predicted = np.where(usable, probabilities.argmax(axis=1), classes) if len(label) else label
        hit = predicted == label
        of_label = probabilities[np.arange(len(label)), label]
        self._counts[0] += np.bincount(label[hit], weight[hit], minlength=classes)
        self._counts[1] += np.bincount(label, weight, minlength=classes)
        self._counts[2] += np.bincount(predicted[usable], weight[usable], minlength=classes)
        shown = np.minimum(label[usable], self._shown), np.minimum(predicted[usable], self._shown)
        np.add.at(self._confusion, shown, weight[usable])
        with np.errstate(invalid="ignore"):
            losses = np.where(usable, -np.log(np.clip(of_label, _LEAST_PROBABILITY, 1.0)), math.nan)
            better = (probabilities > of_label[:, np.newaxis]).sum(axis=1)
        self._loss += float((weight * losses).sum())
        self._weight += float(weight.sum())
        self._top += [float(weight[usable & (better < most)].sum()) for most in _TOP]

    def merge(self, other: "ClassCounts") -> None:
        """Adds what another one counted."""
        self._counts += other._counts
        self._confusion += other._confusion
        self._top += other._top
        self._loss += other._loss
        self._weight += other._weight
        self.num_rows += other.num_rows
        self.num_unseen += other.num_unseen
        self.num_broken += other.num_broken

    def values(self) -> dict[str, float]:
        """Returns metric -> value, as scikit-learn has them with ``zero_division=0``; NaN without any weight.

        ``macro_*`` are means over the classes that occur among labels or predictions, ``balanced_accuracy`` over those
        among the labels.
        """
        hits, labels, predicted = self._counts
        occurs, has_label = (labels + predicted) > 0, labels > 0
        precision, recall, f1 = self._by_class()
        return {
            "accuracy": _ratio(hits.sum(), self._weight),
            "balanced_accuracy": _mean(recall[has_label]),
            "categorical_crossentropy": _ratio(self._loss, self._weight),
            "macro_precision": _mean(precision[occurs]),
            "macro_recall": _mean(recall[occurs]),
            "macro_f1": _mean(f1[occurs]),
            "weighted_f1": _ratio((f1 * labels).sum(), labels.sum()),
            **{f"top_{most}_accuracy": _ratio(top, self._weight) for most, top in zip(_TOP, self._top, strict=True)},
            "example_count": self._weight,
            "unseen_count": float(self.num_unseen),
        }

    def to_document(self, classes: Sequence[str]) -> dict[str, Any]:
        """Returns what can be shown: see ``class_report``.

        ``rows``, ``left_out`` (of unseen classes), ``broken`` (predictions that are not finite): numbers of rows.
        ``by_class``: for each class ``class``, ``count``, ``predicted``, ``precision``, ``recall``, ``f1``.
        ``matrix``: ``classes`` [n], of which the last is None where it stands for all others, and ``counts``
        [label][prediction], [n][n].
        """
        _, labels, predicted = self._counts
        columns = (labels, predicted, *self._by_class())
        names = ("count", "predicted", "precision", "recall", "f1")
        by_class = [
            {"class": name, **dict(zip(names, map(float, values), strict=True))}
            for name, values in zip(classes, zip(*columns, strict=True), strict=True)
        ]
        has_others = self.num_classes > self._shown
        size = self._shown + has_others
        return {
            "kind": "multiclass",
            "rows": self.num_rows,
            "left_out": self.num_unseen,
            "broken": self.num_broken,
            "by_class": by_class,
            "matrix": {
                "classes": [*classes[: self._shown], *([None] if has_others else [])],
                "counts": self._confusion[:size, :size].tolist(),
            },
        }

    def _by_class(self) -> tuple[Values, Values, Values]:
        hits, labels, predicted = self._counts

        def share(of: Values) -> Values:
            return np.divide(hits, of, out=np.zeros(self.num_classes), where=of > 0)

        f1 = np.divide(2 * hits, labels + predicted, out=np.zeros(self.num_classes), where=labels + predicted > 0)
        return share(predicted), share(labels), f1


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else math.nan


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else math.nan
