"""Trainings that are watched: how quick they are, and what a fault and the insurance against it cost."""

import dataclasses
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable

from benchmarks.process_tree import processor_s
from lockstep.components.trainer.executor import train
from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.launchers import WorkerStatus
from lockstep.components.trainer.launchers.local import LocalLauncher
from lockstep.components.trainer.spec import TrainSpec
from lockstep.components.trainer.standby import standby_command

_TIMEOUT_S = 600.0
_MEASURED_S = 5.0
_NUM_BEATS = 4
_CHECKPOINTS = 8
_LOADING_S = 1.0  # of processor time that the import of TensorFlow takes at the least
_IDLE_S = 3.0  # without any: a process that only waits
_ENDLESS = 10**8


class _Over(Exception):
    """All is measured."""


class _Watch(LocalLauncher):
    """Hands the chief's events on, which may end the training."""

    def __init__(self, on_event: Callable[["_Watch", WorkerEvent], None], *, standby: bool = False) -> None:
        super().__init__(standby_command=standby_command() if standby else None)
        self._on_event = on_event
        self._standbys_used_s: list[float] = []
        self._since_s = 0.0
        self._deadline_s = time.monotonic() + _TIMEOUT_S

    def poll(self) -> tuple[WorkerStatus, ...]:
        statuses = super().poll()
        for line in statuses[0].new_lines:
            event = WorkerEvent.from_line(line)
            if event is not None:
                self._on_event(self, event)
        if time.monotonic() > self._deadline_s:
            raise TimeoutError(f"nothing was measured within {_TIMEOUT_S:.0f} s")
        return statuses

    def kill(self, worker: int) -> None:
        os.kill(self._workers[worker].process.pid, signal.SIGKILL)

    def is_ready(self, count: int) -> bool:
        """Whether so many processes have loaded all that they load; has them started at the first question."""
        self.prepare(count)
        used_s, now_s = [processor_s(pid) for pid in self._standbys.waiting], time.monotonic()
        if used_s != self._standbys_used_s:
            self._standbys_used_s, self._since_s = used_s, now_s
        return min(used_s) > _LOADING_S and now_s - self._since_s > _IDLE_S

    def processor_s(self) -> float:
        return sum(processor_s(worker.process.pid) for worker in self._workers)


def rates(spec: TrainSpec) -> tuple[float, float]:
    """Returns examples a second, and a second of all workers' processor time, without start and tracing."""
    marks: list[tuple[WorkerEvent, float]] = []

    def on_event(watch: _Watch, event: WorkerEvent) -> None:
        if event.event != "heartbeat":
            return
        marks.append((event, watch.processor_s()))
        if len(marks) > _NUM_BEATS and event.time - marks[0][0].time > _MEASURED_S:
            raise _Over

    _train(spec, on_event, checkpoint_every=_ENDLESS)
    (first, begin_s), (last, end_s) = marks[0], marks[-1]
    num_examples = (last.total_records or 0) - (first.total_records or 0)
    return num_examples / (last.time - first.time), num_examples / (end_s - begin_s)


def recovery_s(spec: TrainSpec, *, standby: bool) -> float:
    """Returns the seconds from the SIGKILL of the last worker to the end of the next step of the whole group.

    Args:
      spec: What is trained.
      standby: Whether processes are kept ready, and have loaded all, when it is killed.
    """
    workers = spec.options.most_workers
    killed_s: list[float] = []
    found: list[float] = []
    seen: set[str] = set()

    def on_event(watch: _Watch, event: WorkerEvent) -> None:
        if killed_s and event.event == "started":
            seen.add("restarted")
        elif event.event == "checkpoint":
            seen.add("checkpoint")
        elif event.event == "heartbeat" and "restarted" in seen:
            found.append(event.time - killed_s[0])
            raise _Over
        elif event.event != "heartbeat" or "checkpoint" not in seen or killed_s:
            return
        elif not standby or watch.is_ready(workers):
            killed_s.append(time.time())
            watch.kill(workers - 1)

    _train(spec, on_event, standby=standby)
    return found[0]


def checkpoint_s(spec: TrainSpec, *, every: int) -> float:
    """Returns the median seconds from the end of a step to the end of the checkpoint after it.

    Args:
      spec: What is trained.
      every: Steps in a call, and between two checkpoints; they must take more than a second.
    """
    costs: list[float] = []
    last: list[WorkerEvent] = []

    def on_event(watch: _Watch, event: WorkerEvent) -> None:
        del watch
        if event.event == "checkpoint" and last and last[-1].event == "heartbeat" and last[-1].step == event.step:
            costs.append(event.time - last[-1].time)
            if len(costs) == _CHECKPOINTS:
                raise _Over
        last.append(event)

    _train(spec, on_event, checkpoint_every=every, steps_per_call=every)
    return statistics.median(costs)


def _train(
    spec: TrainSpec, on_event: Callable[[_Watch, WorkerEvent], None], *, standby: bool = False, **changes: int
) -> None:
    options = dataclasses.replace(spec.options, steps=_ENDLESS, **changes)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        watched = dataclasses.replace(
            spec,
            options=options,
            eval_files=(),
            run_dir=folder,
            checkpoint_dir=f"{folder}/checkpoints",
            export_dir=f"{folder}/model",
            tensorboard_dir=f"{folder}/events",
        )
        try:
            train(watched, launcher=_Watch(on_event, standby=standby))
        except _Over:
            return
    raise RuntimeError("the training ended before all was measured")
