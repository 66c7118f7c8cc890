"""The largest and the quickest batch size of a training on this machine, found by trying.

Each size trains for some seconds in a group of workers of its own, so that one without enough memory ends alone. Sizes
are doubled and halved from the configured one, then the gaps around what was found are looked into.
"""

import contextlib
import dataclasses
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lockstep.components.errors import StepFailed
from lockstep.components.trainer.executor import train
from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.launchers import WorkerGroup, WorkerStatus, memory
from lockstep.components.trainer.launchers.local import LocalLauncher
from lockstep.components.trainer.spec import TrainSpec

__all__ = ["Trial", "free_bytes", "quickest", "search", "try_batch"]

_ENDLESS = 2**31 - 1  # steps
_MEASURED_S = 3.0
_NUM_BEATS = 3  # after the first, whose call traces
_FREE_SHARE = 0.9  # of the free memory may be used: what is looked at ten times a second may grow meanwhile
_OUT_OF_MEMORY = ("SIGKILL", "ResourceExhausted", "MemoryError", "bad_alloc", "failed to allocate")
_MUCH_SLOWER = 0.7  # under this share of the best rate smaller sizes are not looked at
_AS_QUICK = 0.95  # a smaller size is preferred to one that is hardly quicker: it makes more steps of the same records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """How one size went.

    Args:
      batch_size: Over all workers.
      examples_per_s: Of all workers, tracing left out; None if it did not come so far.
      peak_bytes: Resident memory of all workers at its highest.
      problem: Why it cannot be used; None if it can.
    """

    batch_size: int
    examples_per_s: float | None
    peak_bytes: int
    problem: str | None = None


def search(
    measure: Callable[[int], Trial], *, configured: int, unit: int, limit: int, is_time_left: Callable[[], bool]
) -> list[Trial]:
    """Tries sizes until the largest and the quickest are known well enough; returns what was tried, by size.

    Args:
      measure: Tries a size.
      configured: The size to begin with.
      unit: All sizes are multiples of it, as the configured one is.
      limit: Sizes above it, but for the configured one, are not tried.
      is_time_left: Asked before each further size.
    """
    trials: dict[int, Trial] = {}

    def tried(size: float) -> Trial | None:
        """Tries a size, rounded down to a multiple; None if there is none, or no time, or it was tried."""
        size = int(size // unit) * unit
        if size < unit or size > limit or size in trials or not is_time_left():
            return None
        trials[size] = measure(size)
        return trials[size]

    trials[configured] = measure(configured)
    size = configured
    while (size := 2 * size) <= limit and not trials[max(trials)].problem:
        if tried(size) is None:
            break
    if not trials[max(trials)].problem:
        tried(limit)
    size = configured
    while (smaller := tried(size := size // 2)) is not None and _rate(smaller) >= _MUCH_SLOWER * _best(trials):
        pass
    for _ in range(2):  # a quarter of the gap is left
        failed = [t.batch_size for t in trials.values() if t.problem]
        largest = max((t.batch_size for t in trials.values() if not t.problem), default=0)
        if failed and largest:
            tried((largest + min(failed)) / 2)
    if any(not trial.problem for trial in trials.values()):
        sizes = sorted(trials)
        best = sizes.index(max(trials, key=lambda size: _rate(trials[size])))
        for neighbour in (best - 1, best + 1):
            if 0 <= neighbour < len(sizes):
                tried(math.sqrt(sizes[best] * sizes[neighbour]))
    return [trials[size] for size in sorted(trials)]


def quickest(trials: Sequence[Trial]) -> Trial | None:
    """Returns the smallest size that is as quick as the quickest, but for some per cent; None if none can be used."""
    usable = [trial for trial in trials if not trial.problem]
    best = max((_rate(trial) for trial in usable), default=0.0)
    return next((trial for trial in usable if _rate(trial) >= _AS_QUICK * best), None)


def try_batch(spec: TrainSpec, batch_size: int, *, budget_bytes: int, timeout_s: float) -> Trial:
    """Trains for some seconds with a batch size; blocks, and leaves neither a process nor a file.

    Args:
      spec: What is trained; its folders are not touched.
      batch_size: Of the trial.
      budget_bytes: The group is ended when it holds more memory.
      timeout_s: The group is ended after that long.

    Raises:
      ConfigurationError: The model, or the configuration, cannot be trained whatever the size.
      StepFailed: The training failed by something else than memory.
    """
    try:
        # No checkpoint and no end: the trial ends the group itself.
        options = dataclasses.replace(
            spec.options.with_workers(spec.options.most_workers),
            batch_size=batch_size,
            steps=_ENDLESS,
            epochs=None,
            checkpoint_every=_ENDLESS,
            max_restarts=0,
            validate_every=None,
            early_stopping=None,
            standby=False,
        )
    except ValueError as e:
        return Trial(batch_size=batch_size, examples_per_s=None, peak_bytes=0, problem=str(e))
    with tempfile.TemporaryDirectory(prefix="lockstep-tuning-") as folder:
        trial = dataclasses.replace(
            spec,
            options=options,
            eval_files=(),
            run_dir=folder,
            checkpoint_dir=f"{folder}/checkpoints",
            export_dir=f"{folder}/model",
            tensorboard_dir=f"{folder}/events",
        )
        watch = _Watch(budget_bytes=budget_bytes, timeout_s=timeout_s, devices_per_worker=options.num_devices)
        problem = None
        try:
            train(trial, launcher=watch)
        except _Ended as e:
            problem = e.problem
        except StepFailed as e:
            if not any(word in str(e) for word in _OUT_OF_MEMORY):
                raise
            problem = "out of memory"
    return Trial(
        batch_size=batch_size,
        examples_per_s=watch.rate,
        peak_bytes=watch.peak_bytes,
        problem=problem or (None if watch.rate else "no step was measured"),
    )


def free_bytes() -> int:
    """Returns how much memory new processes may take: what the kernel has, or less if a control group allows less."""
    return int(_FREE_SHARE * memory.free_bytes())


def _rate(trial: Trial) -> float:
    return 0.0 if trial.problem else trial.examples_per_s or 0.0


def _best(trials: dict[int, Trial]) -> float:
    return max(_rate(trial) for trial in trials.values())


class _Ended(Exception):
    """The trial has seen enough, or cannot go on."""

    def __init__(self, problem: str | None) -> None:
        super().__init__(problem)
        self.problem = problem


class _Watch(LocalLauncher):
    """Ends the training once its rate is known, or its memory or time is over."""

    def __init__(self, *, budget_bytes: int, timeout_s: float, devices_per_worker: int) -> None:
        super().__init__(devices_per_worker=devices_per_worker)
        self._budget_bytes = budget_bytes
        self._deadline_s = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._beats: list[WorkerEvent] = []
        self.peak_bytes = 0

    @property
    def rate(self) -> float | None:
        """Records of all workers a second, between the first heartbeat and the last."""
        if len(self._beats) < 2:
            return None
        first, last = self._beats[0], self._beats[-1]
        num_records = (last.total_records or 0) - (first.total_records or 0)
        return num_records / (last.time - first.time) if last.time > first.time else None

    def start(self, group: WorkerGroup) -> None:
        """Starts the group; should memory end, the system shall end it and nothing else."""
        super().start(group)
        for pid in _children():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/oom_score_adj").write_text("1000", encoding="ascii")

    def poll(self) -> tuple[WorkerStatus, ...]:
        """Polls; ends the training if there is a reason."""
        statuses = super().poll()
        self.peak_bytes = max(self.peak_bytes, sum(_peak_bytes(pid) for pid in _children()))
        if self.peak_bytes > self._budget_bytes:
            raise _Ended(f"more than {self._budget_bytes / 2**30:.1f} GB of memory")
        for line in statuses[0].new_lines:
            event = WorkerEvent.from_line(line)
            if event is not None and event.event == "heartbeat" and event.total_records is not None:
                self._beats.append(event)
        measured_s = self._beats[-1].time - self._beats[0].time if self._beats else 0.0
        if measured_s >= _MEASURED_S and len(self._beats) > _NUM_BEATS:
            raise _Ended(None)
        if time.monotonic() > self._deadline_s:
            raise _Ended(None if self.rate else f"no step was measured within {self._timeout_s:.0f} s")
        return statuses


def _children() -> Iterator[int]:
    """Yields the processes that this one started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            # After the name, which may hold anything, in parentheses: state, parent.
            _, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                yield int(path.parent.name)


def _peak_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
