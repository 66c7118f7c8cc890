"""Curves of a model over any number of rows, whole batches at a time in memory of a fixed size: ``curves.json``.

A binary label's ROC, calibration and confusion matrix all come from one histogram of the predictions by label, a
regression's from histograms whose bins double in width until the values fit. Neither depends on the order of the rows
or on how they are dealt to processes; what is merged gives what one pass gives.
"""

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lockstep.components.evaluator.histograms import DoublingHistogram

PLOTS_NAME = "curves.json"  # not plots.*: TFMA takes files of that name for its own

Values = npt.NDArray[Any]

_NUM_EDGES = 4097  # odd, so that one edge is 0.5 itself
_MAX_LOGIT = 16.0
_EDGES: npt.NDArray[np.float64] = 1 / (1 + np.exp(-np.linspace(-_MAX_LOGIT, _MAX_LOGIT, _NUM_EDGES)))
_NUM_CALIBRATION_GROUPS = 10
_MAX_ROC_POINTS = 200
_NUM_SCORE_BINS = 20
_DECISION = 0.5
_LARGEST = 1e140  # so that the squares of any number of residuals have a sum


class BinaryPlots:
    """ROC, calibration, scores by label, and the confusion matrix at 0.5, of a binary label.

    Predictions are counted in 4,098 bins of even width in log-odds, so that those of a rare label are told apart too;
    a prediction equal to an edge belongs to the bin below, as TFMA's thresholds have it. A point of the ROC is exact:
    it is the rates at one of the edges.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((2, _NUM_EDGES + 1))
        self._sums = np.zeros(_NUM_EDGES + 1)
        self._num_rows = self._num_left_out = 0

    def update(self, labels: Values, predictions: Values, weights: Values | None = None) -> None:
        """Counts a batch.

        Args:
          labels: [batch], 0 or 1; a row whose label or prediction is not finite is left out, and counted as such.
          predictions: [batch], probabilities.
          weights: [batch], of the rows; None counts each once.
        """
        rows = _finite_rows(labels, predictions, weights)
        self._num_rows += len(rows.labels)
        self._num_left_out += rows.num_left_out
        bins = np.searchsorted(_EDGES, rows.predictions, side="left")
        for label in (0, 1):
            of_label = (rows.labels > _DECISION) == bool(label)
            self._counts[label] += np.bincount(bins[of_label], rows.weights[of_label], minlength=_NUM_EDGES + 1)
        self._sums += np.bincount(bins, rows.weights * rows.predictions, minlength=_NUM_EDGES + 1)

    def merge(self, other: "BinaryPlots") -> None:
        """Adds what another one counted."""
        self._counts += other._counts
        self._sums += other._sums
        self._num_rows += other._num_rows
        self._num_left_out += other._num_left_out

    def to_document(self) -> dict[str, Any]:
        """Returns what can be drawn.

        ``rows``, ``left_out``: numbers of rows. ``roc``: about 200 points ``fpr``, ``tpr`` and ``threshold`` (None at
        the ends), rising; empty without both labels. ``auc``: the area under all points. ``calibration``: up to 10
        groups of rows of about equal number by prediction, with ``count``, ``prediction`` (mean) and ``label`` (mean).
        ``scores``: 20 even bins of the predictions, ``negatives`` and ``positives`` in each. ``confusion``: at 0.5.
        """
        negatives, positives = self._counts
        document: dict[str, Any] = {"kind": "binary", "rows": self._num_rows, "left_out": self._num_left_out}
        half = int(np.searchsorted(_EDGES, _DECISION)) + 1
        document["confusion"] = {
            "threshold": _DECISION,
            "true_negatives": float(negatives[:half].sum()),
            "false_positives": float(negatives[half:].sum()),
            "false_negatives": float(positives[:half].sum()),
            "true_positives": float(positives[half:].sum()),
        }
        document |= _roc(negatives, positives)
        document["calibration"] = _calibration(negatives + positives, positives, self._sums)
        document["scores"] = {"negatives": _by_score(negatives), "positives": _by_score(positives)}
        return document


def _roc(negatives: npt.NDArray[np.float64], positives: npt.NDArray[np.float64]) -> dict[str, Any]:
    if not negatives.sum() or not positives.sum():
        return {"roc": [], "auc": None}
    # Over edge i lie the bins from i + 1; the first threshold that all are over is none of the edges.
    over = [np.cumsum(counts[::-1]) / counts.sum() for counts in (negatives, positives)]
    fpr, tpr = (np.concatenate([[0.0], rates]) for rates in over)
    auc = float(np.sum((fpr[1:] - fpr[:-1]) * (tpr[1:] + tpr[:-1])) / 2)
    thresholds: list[float | None] = [None, *(float(edge) for edge in _EDGES[::-1]), None]
    points = [{"fpr": float(fpr[i]), "tpr": float(tpr[i]), "threshold": thresholds[i]} for i in _thinned(fpr, tpr)]
    return {"roc": points, "auc": auc}


def _thinned(fpr: npt.NDArray[np.float64], tpr: npt.NDArray[np.float64]) -> list[int]:
    """Returns the points to keep: both ends, and one a step of equal length along the curve."""
    along = fpr + tpr  # from 0 to 2, never falling
    steps = np.linspace(0.0, 2.0, _MAX_ROC_POINTS)
    kept = np.unique(np.searchsorted(along, steps - 1e-12).clip(0, len(along) - 1))
    return [0, *(int(i) for i in kept if 0 < i < len(along) - 1), len(along) - 1]


def _calibration(counts: Values, positives: Values, sums: Values) -> list[dict[str, float]]:
    total = counts.sum()
    if not total:
        return []
    # The group of a bin is that of its middle row, so that groups are as even as the bins allow.
    middles = (np.cumsum(counts) - counts / 2) / total
    groups = np.minimum((middles * _NUM_CALIBRATION_GROUPS).astype(int), _NUM_CALIBRATION_GROUPS - 1)
    columns = [np.bincount(groups, values, minlength=_NUM_CALIBRATION_GROUPS) for values in (counts, sums, positives)]
    return [
        {"count": float(count), "prediction": float(predicted / count), "label": float(positive / count)}
        for count, predicted, positive in zip(*columns, strict=True)
        if count
    ]


def _by_score(counts: Values) -> list[float]:
    """Returns the counts in even bins of the prediction; a fine bin goes where its middle lies."""
    middles = np.concatenate([[0.0], (_EDGES[1:] + _EDGES[:-1]) / 2, [1.0]])
    bins = np.minimum((middles * _NUM_SCORE_BINS).astype(int), _NUM_SCORE_BINS - 1)
    return [float(count) for count in np.bincount(bins, counts, minlength=_NUM_SCORE_BINS)]


class RegressionPlots:
    """Residuals (label minus prediction): how they are spread, and over what prediction."""

    def __init__(self) -> None:
        self._residuals = DoublingHistogram(1024, 1)
        self._grid = DoublingHistogram(32, 2)
        self._num_rows = self._num_left_out = 0
        self._moments = np.zeros(3)  # weight, residual, its square

    def update(self, labels: Values, predictions: Values, weights: Values | None = None) -> None:
        """Counts a batch; see ``BinaryPlots.update``. Labels and predictions are any floats."""
        rows = _finite_rows(labels, predictions, weights)
        self._num_rows += len(rows.labels)
        self._num_left_out += rows.num_left_out
        residuals = np.clip(rows.labels - rows.predictions, -_LARGEST, _LARGEST)
        self._residuals.update(residuals[:, None], rows.weights)
        self._grid.update(np.stack([rows.predictions, residuals], axis=1), rows.weights)
        self._moments += [
            rows.weights.sum(),
            (rows.weights * residuals).sum(),
            (rows.weights * residuals * residuals).sum(),
        ]

    def merge(self, other: "RegressionPlots") -> None:
        """Adds what another one counted."""
        self._residuals.merge(other._residuals)
        self._grid.merge(other._grid)
        self._moments += other._moments
        self._num_rows += other._num_rows
        self._num_left_out += other._num_left_out

    def to_document(self) -> dict[str, Any]:
        """Returns what can be drawn.

        ``rows``, ``left_out``: numbers of rows. ``mean``, ``std`` of the residuals; None where they are no numbers.
        ``residuals``: ``edges`` [n + 1] and ``counts`` [n], n at most 1,024. ``grid``: the same in two directions,
        ``prediction_edges``, ``residual_edges`` and ``counts`` [predictions][residuals], at most 32 by 32.
        """
        document: dict[str, Any] = {"kind": "regression", "rows": self._num_rows, "left_out": self._num_left_out}
        weight, total, squares = (float(value) for value in self._moments)
        mean = total / weight if weight else None
        variance = math.nan if mean is None else squares / weight - mean * mean
        document["mean"] = mean if mean is not None and math.isfinite(mean) else None
        document["std"] = math.sqrt(max(variance, 0.0)) if math.isfinite(variance) else None
        [edges], counts = self._residuals.bins()
        document["residuals"] = {"edges": edges, "counts": counts}
        [prediction_edges, residual_edges], grid = self._grid.bins()
        document["grid"] = {"prediction_edges": prediction_edges, "residual_edges": residual_edges, "counts": grid}
        return document


Plots = BinaryPlots | RegressionPlots


def new_plots(label_kind: Literal["binary", "regression"]) -> Plots:
    """Returns the curves that suit a kind of label, still without rows."""
    return BinaryPlots() if label_kind == "binary" else RegressionPlots()


def merge_plots(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the curves of several parts of the rows together, by model's name; the parts stay as they are.

    Its types are what Beam, which reads annotations, understands: each value is a ``Plots``.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        for name, plots in part.items():
            merged.setdefault(name, type(plots)()).merge(plots)
    return merged


def write_plots(models: dict[str, Any], output_dir: str) -> None:
    """Writes ``curves.json`` in a local folder: ``models``: name -> what its ``to_document`` gives."""
    document = {"models": {name: plots.to_document() for name, plots in models.items()}}
    (Path(output_dir) / PLOTS_NAME).write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class _Rows:
    labels: npt.NDArray[np.float64]
    predictions: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    num_left_out: int


def _finite_rows(labels: Values, predictions: Values, weights: Values | None) -> _Rows:
    columns = [labels, predictions, np.ones(len(labels)) if weights is None else weights]
    as_floats = [np.asarray(column, dtype=np.float64).reshape(-1) for column in columns]
    finite = np.isfinite(as_floats).all(axis=0)
    finite_labels, finite_predictions, finite_weights = (column[finite] for column in as_floats)
    return _Rows(finite_labels, finite_predictions, finite_weights, int((~finite).sum()))
