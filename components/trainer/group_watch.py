"""What the output and the exits of one group of workers say about it: running, done, or failed, and by whose fault.

A pure state machine, without processes and without a clock of its own. A worker is

- ``starting`` until its first heartbeat with a step (tracing is part of the start), for ``start_timeout_s`` at most;
- ``training`` from then on, evaluation and export included; silent for ``heartbeat_timeout_s`` at most;
- ``done`` after its event ``done``: everything is written. What its process does afterwards is no fault of training;
- ``failed`` after its event ``failed``, or when its process ends before ``done``, whatever its exit code.

When one worker fails, TensorFlow makes its peers fail too, within seconds ("Collective ops is aborted"). Such an echo
is no cause: when there are only echoes, the group is watched a little longer for the failure behind them, and if none
shows, the worker that says nothing is it (a stopped process).
"""

import collections
import dataclasses
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lockstep.components.trainer.heartbeat import ERROR_LINE, PREFIX, WorkerEvent, one_line
from lockstep.components.trainer.launchers import WorkerStatus

__all__ = ["Failure", "GroupWatch"]

_ECHO = re.compile(
    r"Collective ops is aborted|UnavailableError|CancelledError|AbortedError|DeadlineExceeded|DEADLINE_EXCEEDED"
    r"|UNAVAILABLE|Socket closed|Connection reset by peer|failed to connect to all addresses"
    r"|[Cc]oordination service|Barrier"
)
_ECHO_WAIT_S = 3.0  # how long a failure may show later than its echo: a dying process first writes its traceback
_BEATS_APART_S = 2.0  # a training worker beats at least so often, if it makes steps
_USER_ERROR_EXIT_CODE = 2
_DISK_FULL = "No space left on device"
_NUM_TAIL_LINES = 15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a group failed: the first cause, not what followed from it.

    Args:
      worker: Whose failure it is; None if all workers together are stuck.
      cause: One sentence, with the number of the worker and the step.
      log_path: The worker's log.
      signal_name: Of the signal that killed it, like ``SIGKILL``.
      kind: ``user``: configuration or code of the user, another attempt would fail too. ``disk_full``: likewise until
        somebody makes room. ``too_few``: the launcher has no place for so many workers. ``fault``: anything else,
        worth another attempt.
      is_own_error: The worker itself told an error, and it is not the echo of a peer's.
      signature: What another failure of the same way has too: the error's type, the signal, the exit code, or
        ``silence``; None for an echo, which may follow from anything.
      step: The last one that is known to be done; None while starting.
      traceback: The worker's own.
      num_lost: Of workers that ended, without an error of their own, or were never heard before their first step.
    """

    worker: int | None
    cause: str
    log_path: Path
    signal_name: str | None = None
    kind: Literal["user", "disk_full", "too_few", "fault"] = "fault"
    is_own_error: bool = False
    signature: str | None = None
    step: int | None = None
    traceback: str | None = None
    num_lost: int = 0


class GroupWatch:
    """Watches one attempt.

    Args:
      names: What each process is called, the chief first.
      servers: Numbers of those that only do what the chief asks: they are never done, and know no step.
      replaceable: Numbers of those whose place another process may take while the rest goes on.
      now_s: The clock at its start; every ``now_s`` is of the same clock, in seconds.
      start_timeout_s: See ``TrainOptions``.
      heartbeat_timeout_s: See ``TrainOptions``.
      together: Whether only the silence of all that are not done counts: a ``run_fn``'s worker is silent while it waits
        for a peer that works.
    """

    def __init__(
        self,
        *,
        names: Sequence[str],
        now_s: float,
        start_timeout_s: float,
        heartbeat_timeout_s: float,
        servers: frozenset[int] = frozenset(),
        replaceable: frozenset[int] = frozenset(),
        together: bool = False,
    ) -> None:
        self._together = together
        self._start_timeout_s = start_timeout_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._start_s = now_s
        self._servers, self._replaceable = servers, replaceable
        chief = _Worker(0, names[0], now_s)
        rest = enumerate(names[1:], start=1)
        self._workers = [chief, *(_Worker(i, name, now_s, chief=chief if i in servers else None) for i, name in rest)]
        self.training_since_s: float | None = None

    @property
    def chief(self) -> WorkerEvent | None:
        """The chief's last heartbeat of a training step; None before the first."""
        return self._workers[0].progress

    @property
    def is_exporting(self) -> bool:
        """Whether the steps are over, and the chief evaluates and exports."""
        return self._workers[0].is_exporting

    @property
    def last_step(self) -> int:
        """The highest step that any worker reported; 0 before the first."""
        return max(worker.step for worker in self._workers)

    @property
    def last_checkpoint_step(self) -> int | None:
        """The step of the last checkpoint of this attempt."""
        return max((w.checkpoint_step for w in self._workers if w.checkpoint_step is not None), default=None)

    @property
    def resumed_step(self) -> int | None:
        """The step at which this attempt began; None before the chief knows."""
        return self._workers[0].resumed_step

    @property
    def is_done(self) -> bool:
        """Whether every worker is done, servers left out."""
        return all(worker.done is not None for worker in self._trainers)

    @property
    def has_ended(self) -> bool:
        """Whether every process has ended, servers left out."""
        return all(worker.exit_code is not None for worker in self._trainers)

    @property
    def done_events(self) -> tuple[WorkerEvent, ...]:
        """The ``done`` events there are, by worker."""
        return tuple(worker.done for worker in self._workers if worker.done is not None)

    @property
    def _trainers(self) -> "list[_Worker]":
        return [worker for worker in self._workers if worker.index not in self._servers]

    def can_replace(self, failure: Failure) -> bool:
        """Whether the group goes on without the process that failed, as soon as another one takes its place."""
        chief = self._workers[0]
        return failure.worker in self._replaceable and chief.failed_s is None and not chief.is_starting

    def replaced(self, worker: int, now_s: float) -> None:
        """Takes in that another process has taken the place of ``worker``."""
        old = self._workers[worker]
        self._workers[worker] = _Worker(worker, old.name, now_s, chief=self._workers[0])

    def observe(self, statuses: Sequence[WorkerStatus], now_s: float) -> None:
        """Takes in one poll."""
        for status in statuses:
            self._workers[status.worker].observe(status, now_s)
        if self.training_since_s is None and not any(worker.is_starting for worker in self._workers):
            self.training_since_s = now_s

    def failure(self, now_s: float) -> Failure | None:
        """Returns why the group failed, as soon as the first cause is known; None while it is well."""
        failed = [worker for worker in self._workers if worker.failed_s is not None]
        if not failed:
            return self._stuck(now_s)
        first = min(failed, key=_Worker.rank)
        if not first.is_echo:
            return first.failure()
        silent = [w for w in self._trainers if w.failed_s is None and w.done is None]
        if silent and now_s - min(w.failed_s for w in failed if w.failed_s is not None) < _ECHO_WAIT_S:
            return None
        if not silent:
            return first.failure()
        culprit = min(silent, key=lambda w: w.last_sign_s or 0.0)
        since_s = now_s - (culprit.last_sign_s or self._start_s)
        return culprit.stuck(
            f"{culprit.name} stopped answering {culprit.at_step}, {since_s:.0f} s ago: {first.name} "
            "gave up waiting for it"
        )

    def _stuck(self, now_s: float) -> Failure | None:
        starting = [w for w in self._workers if w.is_starting and now_s - w.start_s > self._start_timeout_s]
        if starting:
            # A worker that was never heard keeps the others waiting: it is the cause.
            late = [w for w in starting if w.last_sign_s is None] or starting
            unheard = sum(w.last_sign_s is None for w in late)
            return late[0].stuck(
                f"{_names(late)} did not come to a first step within start_timeout_s: {self._start_timeout_s:g}",
                num_lost=unheard,
            )
        silent = [w for w in self._workers if w.silence_s(now_s) > self._heartbeat_timeout_s]
        if not silent or (self._together and len(silent) < sum(w.done is None for w in self._workers)):
            return None
        # One that is stuck silences its peers at once: which beat last before that is chance, so all are named.
        least_s = self._heartbeat_timeout_s - min(_BEATS_APART_S, 0.5 * self._heartbeat_timeout_s)
        silent = [w for w in self._workers if w.silence_s(now_s) > least_s]
        silent.sort(key=lambda w: w.last_sign_s or 0.0)
        return silent[0].stuck(
            f"{_names(silent)} gave no sign of life for heartbeat_timeout_s: {self._heartbeat_timeout_s:g}, "
            f"{silent[0].at_step}"
        )


class _Worker:
    """What is known of one process; ``chief``: whose steps it serves, None if it makes its own."""

    def __init__(self, index: int, name: str, start_s: float, *, chief: "_Worker | None" = None) -> None:
        self.index = index
        self.name = name
        self.start_s = start_s
        self._chief = chief
        self.exit_code: int | None = None
        self.last_sign_s: float | None = None
        self.failed_s: float | None = None
        self.step = 0
        self.resumed_step: int | None = None
        self.checkpoint_step: int | None = None
        self.is_starting = True
        self.is_exporting = False
        self.progress: WorkerEvent | None = None
        self.done: WorkerEvent | None = None
        self._failed: WorkerEvent | None = None
        self._tail: collections.deque[str] = collections.deque(maxlen=_NUM_TAIL_LINES)
        self._log_path = Path()

    def observe(self, status: WorkerStatus, now_s: float) -> None:
        self._log_path = status.log_path
        for line in status.new_lines:
            # The user's code may have printed something without a line end: the event is behind it.
            printed, _, rest = line.partition(PREFIX)
            event = WorkerEvent.from_line(PREFIX + rest) if rest else None
            if event is not None:
                self._take(event, now_s)
            if event is None or printed:
                self._tail.append(line if event is None else printed)
        if status.exit_code is not None and self.exit_code is None:
            self.exit_code = status.exit_code
            self.is_starting = False
            if self.done is None and self.failed_s is None:
                self.failed_s = now_s

    def _take(self, event: WorkerEvent, now_s: float) -> None:
        self.last_sign_s = now_s
        if event.step is not None:
            self.step = max(self.step, event.step)
        if event.event == "training":
            self.resumed_step = event.step
        elif event.event == "checkpoint":
            self.checkpoint_step = event.step
        elif event.event == "heartbeat" and event.step is not None and not self.is_exporting:
            self.is_starting = False
            self.progress = event
        elif event.event == "exporting":
            self.is_starting, self.is_exporting = False, True
        elif event.event == "done":
            self.is_starting, self.done = False, event
        elif event.event == "failed":
            self.is_starting, self._failed, self.failed_s = False, event, now_s

    @property
    def at_step(self) -> str:
        if self.known_step is None:
            return "while starting"
        if (self._chief or self).is_exporting:
            return f"while evaluating and exporting after step {self.known_step}"
        return f"at step {self.known_step}"

    @property
    def known_step(self) -> int | None:
        """Steps that are done for certain; None while starting."""
        if self._chief is not None:
            return None if self.is_starting else self._chief.known_step
        told = self._failed is not None and self._failed.step is not None
        return self.step if told or self.progress is not None or self.is_exporting else None

    @property
    def is_echo(self) -> bool:
        if self._failed is not None:
            if self._failed.user_error:
                return False
            # The last lines alone: a traceback "during handling" of another error may quote anything before.
            return bool(
                _ECHO.search("\n".join((self._failed.traceback or self._failed.message or "").splitlines()[-8:]))
            )
        # TensorFlow aborts a process whose peers are gone.
        return self.exit_code in (1, -signal.SIGABRT) and bool(_ECHO.search("\n".join(self._tail)))

    def rank(self) -> tuple[bool, float, float]:
        """Orders failures: causes before echoes, then by time."""
        return (self.is_echo, self.failed_s or 0.0, self._failed.time if self._failed else 0.0)

    def silence_s(self, now_s: float) -> float:
        if self.is_starting or self.done is not None or self.last_sign_s is None:
            return 0.0
        return now_s - self.last_sign_s

    def stuck(self, cause: str, *, num_lost: int = 0) -> Failure:
        return Failure(
            worker=self.index,
            cause=cause,
            log_path=self._log_path,
            signature="silence",
            step=self.known_step,
            num_lost=num_lost,
        )

    def failure(self) -> Failure:
        details = (self._failed and (self._failed.traceback or self._failed.message)) or "\n".join(self._tail)
        signal_name = _signal_name(self.exit_code)
        if self._failed is not None:
            cause = f"{self.name} failed {self.at_step}: {one_line(self._failed.message or 'no message')}"
        elif signal_name is not None:
            cause = f"{self.name} was killed by {signal_name} {self.at_step}"
        else:
            cause = f"{self.name} ended with exit code {self.exit_code} {self.at_step}, without being done"
            if self._tail and ERROR_LINE.match(self._tail[-1]):
                cause += f": {self._tail[-1]}"
        is_own_error = self._failed is not None and not _ECHO.search(details)
        kind: Literal["user", "disk_full", "fault"] = "fault"
        if (self._failed is not None and self._failed.user_error) or self.exit_code == _USER_ERROR_EXIT_CODE:
            kind = "user"
            cause = (self._failed and self._failed.message) or cause
        elif _DISK_FULL in details:
            kind = "disk_full"
        return Failure(
            worker=self.index,
            cause=cause,
            log_path=self._log_path,
            signal_name=signal_name,
            kind=kind,
            is_own_error=is_own_error,
            signature=self._signature(is_own_error=is_own_error),
            step=self.known_step,
            traceback=self._failed.traceback if self._failed else None,
            num_lost=int(self.known_step is None and self._failed is None and not self.is_echo),
        )

    def _signature(self, *, is_own_error: bool) -> str | None:
        if is_own_error and self._failed is not None:
            return (self._failed.message or "").partition(":")[0]
        return None if self.is_echo else _signal_name(self.exit_code) or f"exit code {self.exit_code}"


def _signal_name(exit_code: int | None) -> str | None:
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:  # a real-time signal has no name
        return f"signal {-exit_code}"


def _names(workers: Sequence[_Worker]) -> str:
    names = [worker.name for worker in workers]
    if len(names) == 1:
        return names[0]
    if all(name.startswith("worker ") for name in names):
        names = ["workers " + names[0].removeprefix("worker "), *(name.removeprefix("worker ") for name in names[1:])]
    return f"{', '.join(names[:-1])} and {names[-1]}"
