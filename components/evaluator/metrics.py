"""The one table from a metric's name in the configuration to the TFMA metric that computes it.

A new metric is one line here; from then on it touches only YAML. Those of a multiclass label are counted by
`class_counts` instead, those of boxes by `box_matches`.
No TFMA import: the configuration is validated with this table before anything heavy is loaded.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

from lockstep.components.class_labels import LabelKind

__all__ = ["DEFAULTS", "METRICS", "LabelKind", "Metric", "undefined", "unknown_name"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """How one metric is computed.

    Args:
      tfma_class: Name of a class that TFMA registers, without its module; for a multiclass label it is not asked.
      kinds: Kinds of label that it makes sense for.
      settings: Its constructor's arguments, beside ``name``.
      needs: The labels that must occur for a binary label's metric to be defined; without them TFMA may give 0.
    """

    tfma_class: str | None = None
    kinds: tuple[LabelKind, ...]
    settings: Mapping[str, float] = dataclasses.field(default_factory=dict)
    needs: tuple[Literal[0, 1], ...] = ()


_BINARY: tuple[LabelKind, ...] = ("binary",)
_REGRESSION: tuple[LabelKind, ...] = ("regression",)
_BOTH: tuple[LabelKind, ...] = ("binary", "regression")
_CLASSES: tuple[LabelKind, ...] = ("multiclass",)
_BOXES: tuple[LabelKind, ...] = ("boxes",)
_CLASSIFIED = _BINARY + _CLASSES
_ALL = _BOTH + _CLASSES + _BOXES

METRICS: Mapping[str, Metric] = {
    "auc": Metric(tfma_class="AUC", kinds=_BINARY, needs=(0, 1)),
    "auc_precision_recall": Metric(tfma_class="AUCPrecisionRecall", kinds=_BINARY, needs=(1,)),
    "accuracy": Metric(tfma_class="BinaryAccuracy", kinds=_CLASSIFIED),
    "balanced_accuracy": Metric(
        tfma_class="BalancedAccuracy", kinds=_CLASSIFIED, settings={"thresholds": 0.5}, needs=(0, 1)
    ),
    "precision": Metric(tfma_class="Precision", kinds=_BINARY),
    "recall": Metric(tfma_class="Recall", kinds=_BINARY, needs=(1,)),
    "specificity": Metric(tfma_class="Specificity", kinds=_BINARY, settings={"thresholds": 0.5}, needs=(0,)),
    "f1": Metric(tfma_class="F1Score", kinds=_BINARY, settings={"thresholds": 0.5}, needs=(1,)),
    "true_positives": Metric(tfma_class="TruePositives", kinds=_BINARY),
    "true_negatives": Metric(tfma_class="TrueNegatives", kinds=_BINARY),
    "false_positives": Metric(tfma_class="FalsePositives", kinds=_BINARY),
    "false_negatives": Metric(tfma_class="FalseNegatives", kinds=_BINARY),
    "binary_crossentropy": Metric(tfma_class="BinaryCrossEntropy", kinds=_BINARY),
    "mse": Metric(tfma_class="MeanSquaredError", kinds=_BOTH),
    "mae": Metric(tfma_class="MeanAbsoluteError", kinds=_BOTH),
    "rmse": Metric(tfma_class="RootMeanSquaredError", kinds=_REGRESSION),
    "mape": Metric(tfma_class="MeanAbsolutePercentageError", kinds=_REGRESSION),
    "squared_correlation": Metric(tfma_class="SquaredPearsonCorrelation", kinds=_REGRESSION),
    "calibration": Metric(tfma_class="Calibration", kinds=_BOTH),
    "mean_label": Metric(tfma_class="MeanLabel", kinds=_BOTH),
    "mean_prediction": Metric(tfma_class="MeanPrediction", kinds=_BOTH),
    "example_count": Metric(tfma_class="ExampleCount", kinds=_ALL),
    "categorical_crossentropy": Metric(kinds=_CLASSES),
    "macro_precision": Metric(kinds=_CLASSES),
    "macro_recall": Metric(kinds=_CLASSES),
    "macro_f1": Metric(kinds=_CLASSES),
    "weighted_f1": Metric(kinds=_CLASSES),
    "top_3_accuracy": Metric(kinds=_CLASSES),
    "top_5_accuracy": Metric(kinds=_CLASSES),
    "unseen_count": Metric(kinds=_CLASSES + _BOXES),
    "map": Metric(kinds=_BOXES),
    "average_precision_50": Metric(kinds=_BOXES),
    "precision_50": Metric(kinds=_BOXES),
    "recall_50": Metric(kinds=_BOXES),
    "mean_iou": Metric(kinds=_BOXES),
    "box_count": Metric(kinds=_BOXES),
}

DEFAULTS: Mapping[LabelKind, tuple[str, ...]] = {
    "binary": ("auc", "accuracy"),
    "regression": ("mse", "mae"),
    "multiclass": ("accuracy", "macro_f1", "categorical_crossentropy"),
    "boxes": ("map", "average_precision_50", "mean_iou"),
}


def undefined(names: Iterable[str], only_label: float, where: str) -> Mapping[str, str]:
    """Returns name -> why, for the metrics that have no value as every row has the same label.

    Args:
      names: Metrics.
      only_label: That label.
      where: What the rows are called.
    """
    why = f"every label of {where} is {only_label:g}"
    return {name: why for name in names if any(needed != only_label for needed in METRICS[name].needs)}


def unknown_name(key: str, name: str, known: Iterable[str], what: str = "known") -> str:
    """Returns the message for a name that is not known: the value, the nearest known name, all known names."""
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f", did you mean {nearest[0]!r}?" if nearest else "."
    return f"{key}: {name!r} is not {what}{hint} Known are {', '.join(names) or 'none'}"
