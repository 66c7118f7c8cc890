"""The only thing that restarts: runs a group of workers until the training is done, or cannot be.

States of a training, and what leads from one to the next::

    STARTING --every worker has reported a step---------------------> TRAINING
    STARTING --start_timeout_s is over------------------------------> FAILED
    STARTING --the launcher has fewer places, fewer are allowed-----> FAILED
    STARTING, TRAINING --a worker fails, or ends before it is done--> FAILED
    TRAINING --a worker is silent for heartbeat_timeout_s-----------> FAILED
    TRAINING --a worker that can be replaced alone fails, and a restart is left--> TRAINING  (it alone started again)
    TRAINING --every worker is done---------------------------------> DONE
    FAILED   --a restart is left------------------------------------> WAITING    (all killed)
    FAILED   --a worker cannot be had, and fewer are allowed--------> WAITING    (all killed, the group is smaller)
    FAILED   --no restart is left, or the disk is full--------------> StepFailed
    FAILED   --it fails in the same way again and again-------------> StepFailed
    WAITING  --the restart's delay is over--------------------------> STARTING   (all started again)
    FAILED   --the user's configuration or code is the cause--------> ConfigurationError
    DONE     --the weights of the workers are the same--------------> returns
    DONE     --they differ------------------------------------------> StepFailed
    any      --SIGTERM, or SIGINT-----------------------------------> StepFailed, KeyboardInterrupt

Whatever leads out, every worker is killed before this returns or raises. What makes a worker fail is told by
``group_watch``, whether it is tried again by ``restarts``; a group started again goes on from its last complete
checkpoint by itself.
"""

import contextlib
import dataclasses
import logging
import shutil
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.trainer.group_watch import Failure, GroupWatch
from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.launchers import Launcher, TooFewPlaces, WorkerGroup
from lockstep.components.trainer.restarts import RestartPolicy
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.summary import Attempt, TrainingOutcome, WorkerFigures

__all__ = ["Supervisor"]

_POLL_S = 0.1
_PROGRESS_S = 0.5
_FULL_BYTES = 16 << 10  # where the logs are: on a full disk a worker cannot even say why it ends
_NAMES = {"worker": "worker {}", "chief": "the coordinator", "ps": "parameter server {}"}
_NUM_EARLIER = 3  # attempts told beside the last one
_READY_AFTER_S = 30.0  # of training: a short one does not pay for processes that it never needs
_EXIT_GRACE_S = 10.0  # from the last worker's `done` to the end of its process: more is a hang at interpreter exit

_logger = logging.getLogger(__name__)
_progress = logging.getLogger("lockstep.progress")


class Supervisor:
    """Runs one training.

    Args:
      launcher: Where the workers run.
      options: Of the training.
      run_dir: Folder of the run, for logs.
      command: Gives the command of a worker for an attempt's number.
      silent_together: Whether workers count as stuck only if all of them are silent.
      clock: Seconds that only grow.
      sleep: Waits that many seconds of ``clock``.
    """

    def __init__(
        self,
        *,
        launcher: Launcher,
        options: TrainOptions,
        run_dir: Path,
        command: Callable[[int], tuple[str, ...]],
        silent_together: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._launcher = launcher
        self._options = options
        self._run_dir = run_dir
        self._command = command
        self._silent_together = silent_together
        self._clock = clock
        self._sleep = sleep
        self._begin_s = 0.0
        self._loss: float | None = None
        self._attempts: list[Attempt] = []
        self._replacements: list[str] = []
        self._num_workers = options.most_workers
        self._policy = RestartPolicy(options)
        self._furthest_step = 0

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that are over, also after ``run`` raised."""
        return tuple(self._attempts)

    def run(self) -> TrainingOutcome:
        """Trains to the end; blocks. No worker is left when it returns or raises.

        From the main thread it takes SIGTERM and SIGINT while it runs.

        Raises:
          ConfigurationError: A worker says that the user's configuration or code cannot work.
          StepFailed: The group failed for good, see ``restarts``; the disk is full, the launcher cannot start it, the
            workers' final weights differ, or SIGTERM came.
          KeyboardInterrupt: SIGINT came.
        """
        self._begin_s, self._loss, self._attempts = self._clock(), None, []
        self._num_workers, self._policy = self._options.most_workers, RestartPolicy(self._options)
        self._furthest_step = 0
        with _caught_signals() as signals, contextlib.closing(_Readiness(self._launcher, self._options)) as readiness:
            while True:
                number = len(self._attempts) + 1
                self._replacements = []
                try:
                    outcome = self._run_attempt(number, signals, readiness)
                finally:
                    self._launcher.stop()
                signals.raise_if_caught(self._run_dir)  # it came in the last moment
                if isinstance(outcome, _Finished):
                    return self._outcome(outcome)
                _logger.warning("attempt %d failed: %s", number, _described(outcome))
                if not self._shrinks(outcome):
                    self._raise_unless_worth_another(outcome)
                    self._note_restart(outcome, delay_s=self._policy.delay_s)
                self._wait(self._policy.delay_s, signals)

    def _run_attempt(self, number: int, signals: "_Signals", readiness: "_Readiness") -> "_Finished | Failure":
        start_s = self._clock()
        group = WorkerGroup(
            command=self._command(number),
            num_workers=self._num_workers,
            attempt=number,
            run_dir=self._run_dir,
            num_parameter_servers=self._options.processes.get("ps", 0),
        )
        watch = GroupWatch(
            names=[_NAMES[role].format(index) for role, index in group.members],
            servers=frozenset(range(1, len(group.members))) if group.num_parameter_servers else frozenset(),
            replaceable=frozenset(range(1, 1 + group.num_workers)) if group.num_parameter_servers else frozenset(),
            now_s=start_s,
            start_timeout_s=self._options.start_timeout_s,
            heartbeat_timeout_s=self._options.heartbeat_timeout_s,
            together=self._silent_together,
        )
        progress = _ProgressReport(options=self._options, changes=self._changes)
        if number == 1:
            _progress.info("starting %d worker%s", self._num_workers, "" if self._num_workers == 1 else "s")
        failure = self._start(group) or self._watch(watch, progress, signals, readiness)
        if watch.chief is not None:
            self._loss = watch.chief.loss
        self._attempts.append(
            Attempt(
                attempt=number,
                start_s=round(start_s - self._begin_s, 3),
                training_s=None if watch.training_since_s is None else round(watch.training_since_s - start_s, 3),
                end_s=round(self._clock() - self._begin_s, 3),
                resumed_step=watch.resumed_step,
                last_step=watch.last_step,
                num_workers=self._num_workers,
                cause=failure.cause if failure else None,
                worker=failure.worker if failure else None,
                signal_name=failure.signal_name if failure else None,
                replacements=tuple(self._replacements),
            )
        )
        self._replacements = []
        if failure is not None:
            self._policy.failed(failure, got_on=self._got_on(watch))
        return failure or _Finished(done=watch.done_events, examples_per_s=progress.mean_per_s)

    def _start(self, group: WorkerGroup) -> Failure | None:
        try:
            self._launcher.start(group)
        except TooFewPlaces as e:
            if not any(size <= e.available for size in self._options.sizes):
                raise e.error from e
            lost = group.num_workers - e.available
            return Failure(worker=None, cause=str(e), log_path=group.run_dir, kind="too_few", num_lost=lost)
        return None

    def _got_on(self, watch: GroupWatch) -> bool:
        """Whether the attempt is further than any before, as far as a restart will see."""
        # Only a `run_fn` itself knows its checkpoints.
        step = watch.last_step if self._silent_together else watch.last_checkpoint_step or 0
        got_on = step > self._furthest_step
        self._furthest_step = max(step, self._furthest_step)
        return got_on

    def _watch(
        self, watch: GroupWatch, progress: "_ProgressReport", signals: "_Signals", readiness: "_Readiness"
    ) -> Failure | None:
        """Returns when the group is done (None) or has failed."""
        done_s: float | None = None
        while True:
            signals.raise_if_caught(self._run_dir)
            now_s = self._clock()
            watch.observe(self._launcher.poll(), now_s)
            failure = None if watch.is_done else watch.failure(now_s)
            if failure is not None and not self._replaces(failure, watch):
                return failure
            progress.report(watch, now_s)
            readiness.update(watch, self._num_workers, now_s)
            if watch.is_done:
                done_s = now_s if done_s is None else done_s
                if watch.has_ended:
                    return None
                if now_s - done_s > _EXIT_GRACE_S:
                    _logger.warning("workers that are done do not end; they are killed %.0f s later", _EXIT_GRACE_S)
                    return None
            self._sleep(_POLL_S)

    @property
    def _num_restarts(self) -> int:
        """Starts of the group, or of a worker of it alone, beside the first."""
        return len(self._attempts) + sum(len(a.replacements) for a in self._attempts) + len(self._replacements)

    def _changes(self) -> str:
        """Returns what is not as at the first start, for the line that tells the progress."""
        count = self._num_restarts
        text = "" if not count else f", {count} restart{'s' if count > 1 else ''}"
        if self._num_workers < self._options.most_workers:
            text += f", {self._num_workers} of {self._options.most_workers} workers"
        return text

    def _replaces(self, failure: Failure, watch: GroupWatch) -> bool:
        """Starts another process in the place of one that failed, if the rest can go on meanwhile."""
        if failure.worker is None or not watch.can_replace(failure):
            return False
        if not self._policy.may_restart(self._clock()):
            return False
        self._replacements.append(failure.cause)
        self._launcher.replace(failure.worker)
        watch.replaced(failure.worker, self._clock())
        _logger.warning("process %d is replaced: %s", failure.worker, _described(failure))
        self._note_restart(failure)
        return True

    def _note_restart(self, failure: Failure, *, delay_s: float = 0.0) -> None:
        now_s = self._clock()
        self._policy.restarted(now_s)
        wait = f" in {delay_s:g} s" if delay_s else ""
        number, most = self._policy.num_recent(now_s), self._options.max_restarts
        _progress.info("restart %d of %d%s: %s", number, most, wait, failure.cause)

    def _wait(self, seconds: float, signals: "_Signals") -> None:
        end_s = self._clock() + seconds
        while self._clock() < end_s:
            signals.raise_if_caught(self._run_dir)
            self._sleep(_POLL_S)

    def _shrinks(self, failure: Failure) -> bool:
        """Goes on with fewer workers, if some cannot be had and that is allowed."""
        lost = failure.num_lost if failure.kind == "too_few" else self._policy.num_lost
        if not lost:
            return False
        smaller = [size for size in self._options.sizes if size < self._num_workers]
        if not smaller:
            return False
        before = self._num_workers
        self._num_workers = max((size for size in smaller if size <= before - lost), default=smaller[0])
        self._policy.resized()
        _logger.warning("the group goes on with %d of %d workers", self._num_workers, before)
        _progress.info("going on with %d of %d workers: %s", self._num_workers, before, failure.cause)
        return True

    def _outcome(self, finished: "_Finished") -> TrainingOutcome:
        digests = {event.worker: event.digest for event in finished.done}
        if len(set(digests.values())) != 1 or None in digests.values():
            raise StepFailed(
                "the final weights of the workers differ, so the model cannot be trusted: "
                + ", ".join(f"worker {worker}: {digest}" for worker, digest in digests.items())
                + "; a model whose layers change variables outside the optimizer, like BatchNormalization without "
                f"synchronized=True, does that. Logs: {self._run_dir}"
            )
        return TrainingOutcome(
            attempts=self.attempts,
            steps=max(event.step or 0 for event in finished.done),  # fewer than asked for, where validations end it
            loss=self._loss,
            examples_per_s=finished.examples_per_s,
            workers=tuple(
                WorkerFigures(
                    records=event.records,
                    read_mb=event.read_mb,
                    peak_memory_mb=event.peak_memory_mb,
                    input_share=event.input_share,
                )
                for event in finished.done
            ),
            digest=str(digests[0]),
            seconds=round(self._clock() - self._begin_s, 3),
        )

    def _raise_unless_worth_another(self, failure: Failure) -> None:
        if failure.kind == "user":
            raise ConfigurationError(f"{failure.cause}\nThe worker's log: {failure.log_path}")
        if failure.kind == "disk_full" or shutil.disk_usage(self._run_dir).free < _FULL_BYTES:
            raise StepFailed(
                f"the disk is full: {_described(failure)}\nMake room, or give another --root, and run the same "
                "command again: training goes on from its last complete checkpoint."
            )
        reason = self._policy.reason_to_stop(len(self._attempts), self._clock())
        if reason is not None:
            earlier = "".join(f"\nAttempt {a.attempt}: {a.cause}" for a in self._attempts[-1 - _NUM_EARLIER : -1])
            raise StepFailed(f"{reason}: {_described(failure)}{self._policy.traceback()}{earlier}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Finished:
    """What the group that finished said last."""

    done: tuple[WorkerEvent, ...]
    examples_per_s: float | None


class _Readiness:
    """Has the launcher keep processes ready for the next start, as soon as training has gone on for a while."""

    def __init__(self, launcher: Launcher, options: TrainOptions) -> None:
        self._launcher = launcher
        self._options = options
        self._next_s = 0.0

    def update(self, watch: GroupWatch, num_workers: int, now_s: float) -> None:
        since_s = watch.training_since_s
        if not self._options.standby or since_s is None or watch.is_exporting or watch.is_done:
            return
        if now_s < max(self._next_s, since_s + _READY_AFTER_S):
            return
        self._next_s = now_s + _READY_AFTER_S
        # Under parameter_server a worker alone is what is replaced most often.
        self._launcher.prepare(1 if self._options.strategy == "parameter_server" else num_workers)

    def close(self) -> None:
        self._launcher.prepare(0)


class _ProgressReport:
    """Tells how far an attempt is, when there is news, at most twice a second."""

    def __init__(self, *, options: TrainOptions, changes: Callable[[], str]) -> None:
        self._options = options
        self._changes = changes
        self._next_s = 0.0
        self._said = ""
        self._first: WorkerEvent | None = None
        self._first_s = 0.0
        self._last: WorkerEvent | None = None

    @property
    def mean_per_s(self) -> float | None:
        """Records that all workers read a second between the first and the last heartbeat of the attempt."""
        if self._first is None or self._last is None or self._last.time <= self._first.time:
            return None
        num_records = (self._last.total_records or 0) - (self._first.total_records or 0)
        return round(num_records / (self._last.time - self._first.time), 1) or None

    def report(self, watch: GroupWatch, now_s: float) -> None:
        self._last = watch.chief
        if self._first is None and self._last is not None:
            self._first, self._first_s = self._last, now_s
        if now_s < self._next_s:
            return
        text = "evaluating and exporting" + self._changes() if watch.is_exporting else self._line(self._last, now_s)
        if text and text != self._said:
            _progress.info(text)
            self._said, self._next_s = text, now_s + _PROGRESS_S

    def _left_s(self, event: WorkerEvent, now_s: float) -> float | None:
        """Returns seconds to the last step at the pace of this attempt so far, its first call (tracing) left out."""
        if self._first is None or event.step is None or self._first.step is None or event.step <= self._first.step:
            return None
        pace_s = (now_s - self._first_s) / (event.step - self._first.step)
        return pace_s * (self._options.num_steps - event.step)

    def _line(self, event: WorkerEvent | None, now_s: float) -> str:
        if event is None:
            return ""
        if not event.step:
            return "run_fn trains" + self._changes()
        parts = [f"step {event.step}/{self._options.num_steps}"]
        if event.loss is not None:
            parts.append(f"loss {event.loss:.3f}")
        if event.validation_loss is not None:
            parts.append(f"validation loss {event.validation_loss:.3f}")
        if event.examples_per_s is not None:
            parts.append(f"{event.examples_per_s:,.0f} examples/s")
        if (left_s := self._left_s(event, now_s)) is not None:
            parts.append(f"{_duration(left_s)} left")
        return ", ".join(parts) + self._changes()


class _Signals:
    """SIGTERM and SIGINT that came; acted upon between two polls, never between a process and its bookkeeping."""

    def __init__(self) -> None:
        self.caught: int | None = None

    def handle(self, number: int, _frame: types.FrameType | None) -> None:
        self.caught = number

    def raise_if_caught(self, run_dir: Path) -> None:
        if self.caught == signal.SIGINT:
            raise KeyboardInterrupt
        if self.caught is not None:
            # Not SystemExit: only an ordinary exception makes TFX record the step as failed.
            raise StepFailed(
                f"training was interrupted by {signal.Signals(self.caught).name}, its workers are stopped; run the "
                f"same command again: it goes on from the last complete checkpoint. Logs: {run_dir}"
            )


@contextlib.contextmanager
def _caught_signals() -> Iterator[_Signals]:
    signals = _Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals  # Python gives signals to the main thread alone
        return
    # A shell starts what runs in its background with SIGINT ignored: it stays so.
    numbers = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signals.handle) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _described(failure: Failure) -> str:
    memory = " (the system does that when memory runs out)" if failure.signal_name == "SIGKILL" else ""
    return f"{failure.cause}{memory}; log: {failure.log_path}"


def _duration(seconds: float) -> str:
    """Returns seconds as a person says them: ``40 s``, ``3 min 20 s``, ``2 h 5 min``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
