"""When a training ends by what its validations show: the options, and the decision. Standard library only."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from lockstep.components import documents

METRICS: Mapping[str, tuple[str, ...]] = {
    "binary": ("loss", "auc", "accuracy"),
    "regression": ("loss", "mse", "mae"),
    "multiclass": ("loss", "accuracy", "macro_f1"),
    "boxes": ("loss",),
}
"""What a validation measures, by kind of label."""

_MORE_IS_BETTER = ("auc", "accuracy", "macro_f1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """The ``train.early_stopping`` block; needs ``train.validate_every``.

    Args:
      monitor: What counts: ``loss``; for a binary label ``auc`` or ``accuracy`` (more is better), for a regression
        ``mse`` or ``mae``; for a multiclass one ``accuracy`` or ``macro_f1``, the mean of the classes' F1 (more is
        better).
      patience: Validations in a row without a better value after which the training ends, 1 or more.
      min_delta: How much better a value must be to count, 0 or more.
      restore_best: Whether the model gets the weights of the best validation, also where the training went to its last
        step; else it keeps the last ones. Takes memory for one more copy of the weights in each worker, and in each
        checkpoint.
    """

    monitor: Literal["loss", "auc", "accuracy", "macro_f1", "mse", "mae"] = "loss"
    patience: int = 3
    min_delta: float = 0.0
    restore_best: bool = True

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience: {self.patience} is not allowed; give 1 or more")
        if not (math.isfinite(self.min_delta) and self.min_delta >= 0):
            raise ValueError(f"min_delta: {self.min_delta} is not allowed; give a number of 0 or more")

    def is_better(self, value: float, best: float) -> bool:
        """Returns whether a value counts as better than the best one so far."""
        if self.monitor in _MORE_IS_BETTER:
            return value > best + self.min_delta
        return value < best - self.min_delta


@dataclasses.dataclass(frozen=True, kw_only=True)
class Validation:
    """One validation.

    Args:
      step: Steps of the training that were done.
      metrics: Name -> value, as of ``evaluation.Evaluation.values``.
    """

    step: int
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """All validations of a training, and what they say; the same in every worker, and in the checkpoint.

    Args:
      validations: In order.
      best_step: Of the best one; 0 before the first, and where nothing is monitored.
      num_worse: Validations since the best one.
      has_stopped: Whether the training is to end.
    """

    validations: tuple[Validation, ...] = ()
    best_step: int = 0
    num_worse: int = 0
    has_stopped: bool = False

    def after(self, validation: Validation, stopping: EarlyStopping | None) -> "Course":
        """Returns the course with one validation more; its metrics are finite."""
        validations = (*self.validations, validation)
        if stopping is None:
            return dataclasses.replace(self, validations=validations)
        best = next((v.metrics[stopping.monitor] for v in self.validations if v.step == self.best_step), None)
        if best is None or stopping.is_better(validation.metrics[stopping.monitor], best):
            return Course(validations=validations, best_step=validation.step)
        num_worse = self.num_worse + 1
        return dataclasses.replace(
            self, validations=validations, num_worse=num_worse, has_stopped=num_worse >= stopping.patience
        )

    def to_json(self) -> str:
        """Returns the document that ``from_json`` reads."""
        return json.dumps(self.to_document(), sort_keys=True)

    def to_document(self) -> dict[str, Any]:
        """Returns the same as JSON's types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, text: str) -> "Course":
        """Returns the course of a document; of an empty one that of a training before its first validation."""
        return documents.from_json(cls, text, "course") if text else cls()
