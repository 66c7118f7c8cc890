"""Metrics of boxes, as COCO measures them: detections matched to true boxes image by image, then put together.

Memory: for each detection its score and at which thresholds it is right; for each true box nothing but a count.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]

THRESHOLDS: Values = np.arange(50, 100, 5) / 100
"""Least IoU of a detection that is right: those that the mean average precision is a mean over."""

_MIN_SCORE = 0.5  # of what precision, recall and the mean IoU count as found
_RECALLS: Values = np.arange(101) / 100


class BoxMatches:
    """What one model says of some images.

    Args:
      num_classes: How many classes there are.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        # True boxes of each class, by weight; rows, weighed.
        self._truths = np.zeros(num_classes)
        self._weight = 0.0
        # Of all detections, in parts: class, score, weight, IoU with its true box at 0.5, and whether it is right at
        # each threshold.
        self._found: list[Values] = []
        self._right: list[Values] = []
        self.num_rows = self.num_unseen = 0

    def update(self, labels: Values, predictions: Values, weights: Values | None = None) -> None:
        """Counts a batch.

        Args:
          labels: [batch, boxes, 5]: x_min, y_min, x_max, y_max and the class; zeros are no box. An image with a box of
            a class that training has not, a negative one, is left out, and counted as such.
          predictions: [batch, n, 6]: the same four, the score (0 for no box), and the class.
          weights: [batch], of the images; None counts each once.
        """
        for row, (of_label, of_model) in enumerate(zip(labels, predictions, strict=True)):
            truths = of_label[(of_label[:, :4] != 0).any(axis=1)]
            if (truths[:, 4] < 0).any():
                self.num_unseen += 1
                continue
            weight = 1.0 if weights is None else float(weights[row])
            self.num_rows += 1
            self._weight += weight
            self._truths += weight * np.bincount(truths[:, 4].astype(np.int64), minlength=self.num_classes)
            order = np.argsort(-of_model[:, 4], kind="stable")
            found = of_model[order[of_model[order, 4] > 0]].astype(np.float64)
            right = np.zeros((len(found), len(THRESHOLDS)), bool)
            overlap = np.full(len(found), math.nan)
            for of_class in np.unique(found[:, 5]):
                mine = found[:, 5] == of_class
                right[mine], overlap[mine] = _matched(found[mine, :4], truths[truths[:, 4] == of_class, :4])
            weights_of_row = np.full(len(found), weight)
            self._found.append(np.stack([found[:, 5], found[:, 4], weights_of_row, overlap], axis=1))
            self._right.append(right)

    def merge(self, other: "BoxMatches") -> None:
        """Adds what another one counted."""
        self._truths += other._truths
        self._weight += other._weight
        self._found += other._found
        self._right += other._right
        self.num_rows += other.num_rows
        self.num_unseen += other.num_unseen

    def values(self) -> dict[str, float]:
        """Returns metric -> value; NaN where there is nothing to measure.

        ``map`` is the mean over classes that occur and the thresholds of the average precision at 101 recalls,
        ``average_precision_50`` that at 0.5 alone, as pycocotools has them. ``precision_50``, ``recall_50`` and
        ``mean_iou`` (of detections with their true boxes, those that are right at IoU 0.5) are of detections with a
        score of 0.5 or more.
        """
        found, right = self._together()
        precisions = self._average_precisions(found, right)
        sure = found[:, 1] >= _MIN_SCORE
        weight, hit = found[sure, 2], right[sure, 0]
        hits = float(weight[hit].sum())
        return {
            "map": _mean(precisions),
            "average_precision_50": _mean(precisions[:, 0]),
            "precision_50": _ratio(hits, float(weight.sum())),
            "recall_50": _ratio(hits, float(self._truths.sum())),
            "mean_iou": _ratio(float((weight[hit] * found[sure, 3][hit]).sum()), hits),
            "box_count": float(self._truths.sum()),
            "example_count": self._weight,
            "unseen_count": float(self.num_unseen),
        }

    def to_document(self, classes: Sequence[str]) -> dict[str, Any]:
        """Returns what can be shown: numbers of images, and for each class its boxes and average precisions."""
        found, right = self._together()
        occurs = np.flatnonzero(self._truths > 0)
        by_class = [
            {
                "class": classes[index],
                "count": float(self._truths[index]),
                "average_precision": float(precisions.mean()),
                "average_precision_50": float(precisions[0]),
            }
            for index, precisions in zip(occurs, self._average_precisions(found, right), strict=True)
        ]
        return {"kind": "boxes", "rows": self.num_rows, "left_out": self.num_unseen, "by_class": by_class}

    def _together(self) -> tuple[Values, Values]:
        if not self._found:
            return np.zeros((0, 4)), np.zeros((0, len(THRESHOLDS)), bool)
        return np.concatenate(self._found), np.concatenate(self._right)

    def _average_precisions(self, found: Values, right: Values) -> Values:
        """Returns those of each class that has true boxes, at each threshold."""
        occurs = np.flatnonzero(self._truths > 0)
        rows = [
            [
                _average_precision(found[mine], right[mine, number], self._truths[of_class])
                for number in range(len(THRESHOLDS))
            ]
            for of_class in occurs
            for mine in [found[:, 0] == of_class]
        ]
        return np.array(rows, float).reshape(len(occurs), len(THRESHOLDS))


def _matched(found: Values, truths: Values) -> tuple[Values, Values]:
    """Returns whether each detection of a class in an image is right at each threshold, and its IoU at the first.

    The surest come first; each takes, of the true boxes that are left, the one it overlaps most.
    """
    right = np.zeros((len(found), len(THRESHOLDS)), bool)
    overlap = np.full(len(found), math.nan)
    if not len(truths):
        return right, overlap
    ious = box_ious(found, truths)
    columns = np.arange(len(THRESHOLDS))
    is_left = np.ones((len(THRESHOLDS), len(truths)), bool)
    for number, row in enumerate(ious):
        left = np.where(is_left, row, -1.0)
        best = left.argmax(axis=1)
        value = left[columns, best]
        right[number] = value >= THRESHOLDS
        is_left[columns[right[number]], best[right[number]]] = False
        if right[number, 0]:
            overlap[number] = value[0]
    return right, overlap


def box_ious(a: Values, b: Values) -> Values:
    """Returns the areas that boxes share by those that they cover together, [len(a), len(b)].

    Args:
      a: [n, 4]: x_min, y_min, x_max, y_max.
      b: [m, 4].
    """
    a, b = a.astype(np.float64)[:, np.newaxis], b.astype(np.float64)
    shared = np.prod(np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None), axis=-1)
    covered = np.prod(a[..., 2:] - a[..., :2], axis=-1) + np.prod(b[..., 2:] - b[..., :2], axis=-1) - shared
    return np.asarray(np.divide(shared, covered, out=np.zeros_like(shared), where=covered > 0))


def _average_precision(found: Values, right: Values, num_truths: float) -> float:
    order = np.argsort(-found[:, 1], kind="stable")
    weight, hit = found[order, 2], right[order]
    hits, misses = np.cumsum(weight * hit), np.cumsum(weight * ~hit)
    seen = hits + misses
    precision = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
    # The best that can be had at a recall or a greater one.
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(hits / num_truths, _RECALLS, side="left")
    return float(np.append(precision, 0.0)[places].mean())


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _mean(values: Values) -> float:
    return float(values.mean()) if values.size else math.nan
