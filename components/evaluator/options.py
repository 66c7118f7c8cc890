"""The ``evaluate`` block of a pipeline's configuration, and the one JSON property of the Evaluator component."""

import dataclasses
import math
from collections.abc import Mapping

from lockstep.components import documents
from lockstep.components.class_labels import ClassOptions, check_classes
from lockstep.components.evaluator import metrics as metrics_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Threshold:
    """What a metric, over the whole eval split, must reach; a bound itself passes.

    Args:
      min: The value must be at least this; None sets no such bound.
      max: The value must be at most this.
      min_change: Value minus the baseline's value must be at least this: 0.0 for "not worse" where more is better,
        -0.01 to tolerate a little. Not applied while nothing is served yet.
      max_change: Value minus the baseline's value must be at most this; for metrics where less is better.

    Raises:
      ValueError: No bound at all, a bound that is not finite, or a lower bound above the upper one.
    """

    min: float | None = None
    max: float | None = None
    min_change: float | None = None
    max_change: float | None = None

    def __post_init__(self) -> None:
        bounds = dataclasses.asdict(self)
        if all(value is None for value in bounds.values()):
            raise ValueError("min: required, or one of max, min_change, max_change; a threshold needs a bound")
        for name, value in bounds.items():
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name}: {value} is not allowed; give a finite number")
        for low, high in (("min", "max"), ("min_change", "max_change")):
            if bounds[low] is not None and bounds[high] is not None and bounds[low] > bounds[high]:
                raise ValueError(
                    f"{low}: {bounds[low]} is above {high}: {bounds[high]}, so no value passes; swap or drop one"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is measured on the eval split, and what a model must reach to be pushed.

    Args:
      metrics: Names out of the list below; None takes those that the list says for the kind of label. A metric
        with a threshold is always computed too.
      thresholds: Name of metric -> its bounds.
      slices: Raw columns; the metrics are also computed for every value of each. Thresholds apply to the whole split.
      ungated: True blesses every model. Must be said, so that forgotten thresholds do not push a bad model.

    Raises:
      ValueError: An unknown metric, no threshold without ``ungated``, thresholds with it, or a column named twice.
    """

    metrics: tuple[str, ...] | None = None
    thresholds: Mapping[str, Threshold] = dataclasses.field(default_factory=dict)
    slices: tuple[str, ...] = ()
    ungated: bool = False

    def __post_init__(self) -> None:
        for key, names in (("metrics", self.metrics or ()), ("thresholds", tuple(self.thresholds))):
            for name in names:
                if name not in metrics_lib.METRICS:
                    raise ValueError(metrics_lib.unknown_name(key, name, metrics_lib.METRICS))
        if not self.thresholds and not self.ungated:
            raise ValueError(
                "thresholds: none is given, so nothing would stop a bad model; give one, for example "
                "{auc: {min: 0.8}}, or say ungated: true"
            )
        if self.thresholds and self.ungated:
            raise ValueError("ungated: true is not allowed beside thresholds; drop one of the two")
        for key, names in (("metrics", self.metrics or ()), ("slices", self.slices)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{key}: {twice[0]!r} is given twice; give it once")

    def computed_metrics(self, label_kind: metrics_lib.LabelKind) -> tuple[str, ...]:
        """Returns the metrics to compute, in the order given, then those that only a threshold names.

        Raises:
          ValueError: A metric that does not suit the kind of label.
        """
        chosen = metrics_lib.DEFAULTS[label_kind] if self.metrics is None else self.metrics
        names = tuple(dict.fromkeys((*chosen, *self.thresholds)))
        suiting = sorted(name for name, metric in metrics_lib.METRICS.items() if label_kind in metric.kinds)
        for name in names:
            if name not in suiting:
                raise ValueError(f"metrics: {name!r} does not suit a {label_kind} label; give {', '.join(suiting)}")
        return names


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSpec:
    """Everything that the Evaluator needs beside its channels.

    Args:
      options: The ``evaluate`` block.
      label: Name of the label, raw and transformed.
      label_kind: ``binary``, ``regression`` or ``multiclass``.
      classes: For a multiclass label.
      weight: Name of the transformed weights of rows, which the metrics are weighted by; None counts all rows alike.
      push_dir: Local folder where the served model is, the baseline; None compares with nothing.
      split: The split of the examples that is evaluated.

    Raises:
      ValueError: A metric that does not suit the kind of label.
    """

    options: EvaluateOptions
    label: str
    label_kind: metrics_lib.LabelKind = "binary"
    classes: ClassOptions | None = None
    weight: str | None = None
    push_dir: str | None = None
    split: str = "eval"

    def __post_init__(self) -> None:
        check_classes(self.label_kind, self.classes)
        self.options.computed_metrics(self.label_kind)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics to compute; where rows of unseen classes are left out, with their number."""
        names = self.options.computed_metrics(self.label_kind)
        leaves_out = self.classes is not None and self.classes.unseen == "leave_out"
        return tuple(dict.fromkeys((*names, "unseen_count"))) if leaves_out else names

    def to_json(self) -> str:
        """Returns the specification as JSON, equal for equal specifications."""
        return documents.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "EvaluateSpec":
        """Returns what ``to_json`` wrote.

        Raises:
          ValueError: Another document; the key is named.
        """
        return documents.from_json(cls, text, "spec")
