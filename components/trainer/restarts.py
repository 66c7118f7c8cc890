"""Whether a training that failed is tried again, and after which wait. A pure state machine without a clock of its own.

It is given up when

- ``max_restarts`` are over within the last ``restart_window_s``, so a fault a day never ends a training of months;
- it failed oftener than ``max_restarts`` in a row without getting on, however long that took;
- it fails in the same way again: a worker told the same error at the same step twice, or an error of the same type at
  the same step three times; or the same worker died, or fell silent, in the same way three times in a row and the
  group did not get on in between.

A training gets on when it has written a checkpoint further than any before.
"""

import dataclasses
from collections.abc import Callable

from lockstep.components.trainer.group_watch import Failure
from lockstep.components.trainer.spec import TrainOptions

__all__ = ["RestartPolicy"]

_EQUAL_ERRORS = 2
_ALIKE_FAILURES = 3
_LOST_STARTS = 2
_NUM_TRACEBACK_LINES = 20


@dataclasses.dataclass(frozen=True)
class _Fault:
    """A failed attempt; ``got_on``: a checkpoint was written in it."""

    failure: Failure
    got_on: bool


class RestartPolicy:
    """Remembers the failures of one training.

    Args:
      options: Its bounds.
    """

    def __init__(self, options: TrainOptions) -> None:
        self._options = options
        self._faults: list[_Fault] = []
        self._restarts_s: list[float] = []
        self._in_a_row = 0

    def failed(self, failure: Failure, *, got_on: bool) -> None:
        """Takes in how an attempt ended.

        Args:
          failure: What ended it.
          got_on: Whether it had written a checkpoint further than any before.
        """
        self._faults.append(_Fault(failure, got_on))
        self._in_a_row = 1 if got_on else self._in_a_row + 1

    def restarted(self, now_s: float) -> None:
        """Takes in that the group, or one process of it, is started again; ``now_s`` only grows."""
        self._restarts_s.append(now_s)

    def resized(self) -> None:
        """Takes in that the group goes on with another number of workers: what was before says nothing about it."""
        self._faults.clear()
        self._restarts_s.clear()
        self._in_a_row = 0

    def num_recent(self, now_s: float) -> int:
        """Returns how many restarts there were in the window that ends now."""
        return sum(now_s - at_s < self._options.restart_window_s for at_s in self._restarts_s)

    def may_restart(self, now_s: float) -> bool:
        """Returns whether the window has room for another restart."""
        return self.num_recent(now_s) < self._options.max_restarts

    @property
    def delay_s(self) -> float:
        """Seconds to wait before the next start: none for the first in a row, then twice as long each time."""
        if self._in_a_row < 2 or not self._options.restart_delay_s:
            return 0.0
        # Bounded before it is raised to a power: it may have failed a thousand times.
        doublings = min(self._in_a_row - 2, 60)
        return min(self._options.restart_delay_s * 2.0**doublings, self._options.max_restart_delay_s)

    @property
    def num_lost(self) -> int:
        """How many workers cannot be had: they ended, or were never heard, before a first step, again and again."""
        last = self._faults[-_LOST_STARTS:]
        if len(last) < _LOST_STARTS or not all(fault.failure.num_lost for fault in last):
            return 0
        return last[-1].failure.num_lost

    def reason_to_stop(self, attempt: int, now_s: float) -> str | None:
        """Returns why the last failure is the end, as the beginning of a sentence; None if it is not.

        Args:
          attempt: Its number.
          now_s: The clock.
        """
        alike = self._alike()
        if alike is not None:
            return f"training failed {alike} in the same way, so it is not tried again"
        bound = f"max_restarts: {self._options.max_restarts} allows no more"
        if not self.may_restart(now_s):
            if self._options.max_restarts:
                bound += f" within restart_window_s: {self._options.restart_window_s:g}"
            return f"training failed in attempt {attempt}, and {bound}"
        if self._in_a_row > self._options.max_restarts:
            return f"training failed {self._in_a_row} times in a row without a new checkpoint, and {bound}"
        return None

    def traceback(self) -> str:
        """Returns the last lines that the failed worker's own traceback has, each after a line end; may be empty."""
        lines = (self._faults[-1].failure.traceback or "").splitlines()[-_NUM_TRACEBACK_LINES:]
        return "".join(f"\n  {line}" for line in lines)

    def _alike(self) -> str | None:
        last = self._faults[-1].failure
        if last.signature is None:
            return None
        place = "while starting" if last.step is None else f"at step {last.step}"
        if last.is_own_error:
            if self._num_alike(lambda one, _: one.failure.cause == last.cause) >= _EQUAL_ERRORS:
                return f"twice {place}"
            same_place = self._num_alike(lambda one, _: _place(one) == _place(self._faults[-1]))
            return f"{same_place} times in a row {place}" if same_place >= _ALIKE_FAILURES else None
        # Only its heartbeats tell the step of a process that was killed: it may be some steps further.
        count = self._num_alike(
            lambda one, after: (
                one.failure.worker == last.worker
                and one.failure.signature == last.signature
                and (one.failure.step is None) == (last.step is None)
                and (one.failure.step == after.failure.step or not after.got_on)
            )
        )
        return f"{count} times in a row {place}" if count >= _ALIKE_FAILURES else None

    def _num_alike(self, is_alike: "Callable[[_Fault, _Fault], bool]") -> int:
        """Returns how many of the last failures are alike; ``is_alike`` is asked of one and the one after it."""
        count = 1
        for one, after in zip(reversed(self._faults[:-1]), reversed(self._faults), strict=False):
            if not is_alike(one, after):
                break
            count += 1
        return count


def _place(fault: _Fault) -> tuple[str | None, int | None]:
    return fault.failure.signature, fault.failure.step
