"""The one table from a metric's name in the configuration to the TFMA metric that computes it.

A new metric is one line here; from then on it touches only YAML. No TFMA import: the configuration is validated
with this table before anything heavy is loaded.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

LabelKind = Literal["binary", "regression"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """How TFMA computes one metric.

    Args:
      tfma_class: Name of a class that TFMA registers, without its module.
      kinds: Kinds of label that it makes sense for.
      settings: Its constructor's arguments, beside ``name``.
      needs: The labels that must occur for a binary label's metric to be defined; without them TFMA may give 0.
    """

    tfma_class: str
    kinds: tuple[LabelKind, ...]
    settings: Mapping[str, float] = dataclasses.field(default_factory=dict)
    needs: tuple[Literal[0, 1], ...] = ()


_BINARY: tuple[LabelKind, ...] = ("binary",)
_REGRESSION: tuple[LabelKind, ...] = ("regression",)
_BOTH: tuple[LabelKind, ...] = ("binary", "regression")

METRICS: Mapping[str, Metric] = {
    "auc": Metric(tfma_class="AUC", kinds=_BINARY, needs=(0, 1)),
    "auc_precision_recall": Metric(tfma_class="AUCPrecisionRecall", kinds=_BINARY, needs=(1,)),
    "accuracy": Metric(tfma_class="BinaryAccuracy", kinds=_BINARY),
    "balanced_accuracy": Metric(
        tfma_class="BalancedAccuracy", kinds=_BINARY, settings={"thresholds": 0.5}, needs=(0, 1)
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
    "example_count": Metric(tfma_class="ExampleCount", kinds=_BOTH),
}

DEFAULTS: Mapping[LabelKind, tuple[str, ...]] = {"binary": ("auc", "accuracy"), "regression": ("mse", "mae")}


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
