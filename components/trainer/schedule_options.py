"""The ``train.schedule`` block: how the learning rate changes while a training goes on. Standard library only."""

import dataclasses
import math
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """The ``train.schedule`` block.

    Args:
      kind: What the learning rate does after the warm-up. ``constant``: it stays ``learning_rate``. ``cosine``: falls
        to ``final`` of it along half a cosine within ``decay_steps``. ``exponential``: is multiplied by ``decay_rate``
        every ``decay_steps``, evenly over them, and never falls under ``final`` of it. ``piecewise``: from each step
        in ``boundaries`` on it is ``learning_rate`` times the factor at the same place.
      warmup_steps: Steps in which it rises evenly from near 0 to ``learning_rate`` at first, 0 or more.
      decay_steps: ``cosine`` and ``exponential`` only, 1 or more. None takes all steps after the warm-up.
      decay_rate: ``exponential`` only, and required there: above 0, 1 at most.
      final: ``cosine`` and ``exponential`` only: the share of ``learning_rate`` that stays, from 0 to 1.
      boundaries: ``piecewise`` only: steps in ascending order, counted from the start of the training.
      factors: ``piecewise`` only: one for each boundary, 0 or more.
    """

    kind: Literal["constant", "cosine", "exponential", "piecewise"] = "constant"
    warmup_steps: int = 0
    decay_steps: int | None = None
    decay_rate: float | None = None
    final: float = 0.0
    boundaries: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise _refused("warmup_steps", self.warmup_steps, "give 0 or more")
        own = {
            "decay_steps": ("cosine", "exponential"),
            "decay_rate": ("exponential",),
            "final": ("cosine", "exponential"),
            "boundaries": ("piecewise",),
            "factors": ("piecewise",),
        }
        for name, kinds in own.items():
            value = getattr(self, name)
            if self.kind not in kinds and value not in (None, 0, ()):
                raise _refused(name, value, f"kind {self.kind} has none; leave it out, or give kind: {kinds[0]}")
        if self.decay_steps is not None and self.decay_steps < 1:
            raise _refused("decay_steps", self.decay_steps, "give 1 or more")
        if self.kind == "exponential" and (self.decay_rate is None or not 0 < self.decay_rate <= 1):
            raise _refused("decay_rate", self.decay_rate, "give a number above 0, 1 at most")
        if not 0 <= self.final <= 1:
            raise _refused("final", self.final, "give a number from 0 to 1")
        if self.kind == "piecewise":
            self._check_pieces()

    @property
    def is_constant(self) -> bool:
        """Whether the learning rate never changes."""
        return self.kind == "constant" and not self.warmup_steps

    def _check_pieces(self) -> None:
        ascending = all(a < b for a, b in zip(self.boundaries, self.boundaries[1:], strict=False))
        if not self.boundaries or self.boundaries[0] < 1 or not ascending:
            raise _refused("boundaries", list(self.boundaries), "give steps in ascending order, the first 1 or more")
        if len(self.factors) != len(self.boundaries):
            raise _refused("factors", list(self.factors), f"give one for each of {len(self.boundaries)} boundaries")
        if not all(math.isfinite(factor) and factor >= 0 for factor in self.factors):
            raise _refused("factors", list(self.factors), "give numbers of 0 or more")


def _refused(name: str, value: object, remedy: str) -> ValueError:
    return ValueError(f"{name}: {value!r} is not allowed; {remedy}")
