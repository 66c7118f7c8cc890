"""Real workers that are killed, stopped and stuck at every stage of a training, and one that cannot be had again."""

import dataclasses
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.trainer.executor import check_servable, train
from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.launchers import WorkerGroup, WorkerStatus
from lockstep.components.trainer.launchers.local import LocalLauncher
from lockstep.components.trainer.spec import RunFiles, TrainSpec
from lockstep.components.trainer.standby import standby_command
from lockstep.components.trainer.summary import TrainingOutcome
from lockstep.components.trainer.worker_range import WorkerRange
from tests.components.trainer.conftest import NUM_TRAIN, MakeSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS, STEPS_PER_EPOCH = 48, 16
OPTIONS: dict[str, Any] = {
    "steps": STEPS,
    "checkpoint_every": 5,
    "steps_per_call": 2,
    "max_restarts": 9,
    "restart_delay_s": 0.0,
    "heartbeat_timeout_s": 20.0,
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """What a saboteur does in one attempt.

    Args:
      worker: Whose event it waits for.
      event: The first event of this name.
      step: ... that tells at least this step.
      action: Does it, given the process ids of the workers.
    """

    worker: int
    event: str
    action: Callable[[Sequence[int]], None]
    step: int = 0


def send(worker: int, number: signal.Signals) -> Callable[[Sequence[int]], None]:
    """Sends a signal to a worker."""
    return lambda pids: os.kill(pids[worker], number)


class Saboteur(LocalLauncher):
    """Does one fault in each attempt, in their order, and none when all are done."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(standby_command=standby_command())
        self._faults = list(faults)
        self.pids: list[int] = []

    def start(self, group: WorkerGroup) -> None:
        """Starts as usual; the next start takes processes that are kept ready from now on."""
        super().start(group)
        self.pids += [worker.process.pid for worker in self._workers]
        if self._faults:
            self.prepare(group.num_workers)
            self.pids += self._standbys.waiting
        self._fault = self._faults.pop(0) if self._faults else None

    def poll(self) -> tuple[WorkerStatus, ...]:
        """Polls as usual; does the fault as soon as its event is there."""
        statuses = super().poll()
        fault = self._fault
        if fault is not None:
            events = map(WorkerEvent.from_line, statuses[fault.worker].new_lines)
            if any(event and event.event == fault.event and (event.step or 0) >= fault.step for event in events):
                self._fault = None
                fault.action([worker.process.pid for worker in self._workers])
        return statuses


def trained(spec: TrainSpec, launcher: LocalLauncher) -> TrainingOutcome:
    """Trains to a servable model."""
    outcome = train(spec, launcher=launcher)
    check_servable(Path(spec.export_dir))
    return outcome


def watched(make_spec: MakeSpec, tmp_path: Path, name: str, **options: Any) -> TrainSpec:
    """A training that notes its records; each step takes some time."""
    parameters = {"pause_s": 0.03, "spin_file": str(tmp_path / "spin")}
    return make_spec(name, build="sample_models:watched_model", parameters=parameters, **{**OPTIONS, **options})


def ids_of(spec: TrainSpec, attempt: int, num_workers: int) -> list[list[int]]:
    """The ids of the records of each step of an attempt, of all its workers; padding has id 0."""
    per_worker = [
        (RunFiles(Path(spec.run_dir)).worker_dir(worker) / f"attempt-{attempt}.ids").read_text().splitlines()
        for worker in range(num_workers)
    ]
    return [[int(one) for line in lines for one in line.split()] for lines in zip(*per_worker, strict=False)]


def check_epochs(steps: Sequence[Sequence[int]]) -> None:
    """Asserts that whole epochs were trained on, each with every record exactly once, all batches of one size."""
    assert len(steps) == STEPS
    assert {len(ids) for ids in steps} == {64}
    for first in range(0, STEPS, STEPS_PER_EPOCH):
        ids = [one for step in steps[first : first + STEPS_PER_EPOCH] for one in step if one != 0]
        assert sorted(ids) == list(range(1, NUM_TRAIN))


def test_a_training_survives_every_fault_with_the_same_weights(make_spec: MakeSpec, tmp_path: Path) -> None:
    """One after the other: a worker killed at its start, the chief killed when the group has come together, a worker
    stopped, one whose own code loops for ever, and the chief killed while it exports. Each costs one restart; the model
    is that of a training that nobody disturbed, and no process is left.
    """
    undisturbed = trained(watched(make_spec, tmp_path, "undisturbed", workers=2), Saboteur())
    assert undisturbed.restarts == 0
    spec = watched(make_spec, tmp_path, "disturbed", workers=2)
    saboteur = Saboteur(
        Fault(1, "started", send(1, signal.SIGKILL)),
        Fault(0, "training", send(0, signal.SIGKILL)),
        Fault(0, "checkpoint", send(1, signal.SIGSTOP)),
        Fault(0, "checkpoint", lambda pids: (tmp_path / "spin").touch()),
        Fault(0, "exporting", send(0, signal.SIGKILL)),
    )
    outcome = trained(spec, saboteur)
    starting, together, stopped, spinning, exporting, last = outcome.attempts
    assert starting.cause == "worker 1 was killed by SIGKILL while starting"
    assert together.cause == "worker 0 was killed by SIGKILL while starting"
    assert str(stopped.cause).startswith("worker 1 stopped answering at step")
    assert "gave no sign of life for heartbeat_timeout_s: 20, at step" in str(spinning.cause)
    log = (Path(spec.run_dir) / "worker-1.attempt-4.log").read_text()
    assert re.search(r'sample_models\.py", line \d+ in _note', log), "the log tells where it is stuck"
    assert exporting.cause == f"worker 0 was killed by SIGKILL while evaluating and exporting after step {STEPS}"
    assert (last.resumed_step, last.cause) == (STEPS, None)
    assert outcome.digest == undisturbed.digest
    assert not [pid for pid in saboteur.pids if Path(f"/proc/{pid}").exists()]
    check_epochs(
        [
            *ids_of(spec, 3, 2)[: spinning.resumed_step],
            *ids_of(spec, 4, 2)[: (exporting.resumed_step or 0) - (spinning.resumed_step or 0)],
            *ids_of(spec, 5, 2),
        ]
    )


class Shrinking(Saboteur):
    """Kills worker 1 in the middle, and from then on at each start of two workers."""

    def __init__(self) -> None:
        super().__init__(Fault(0, "checkpoint", self._lose, step=20))
        self._is_lost = False

    def _lose(self, pids: Sequence[int]) -> None:
        self._is_lost = True
        os.kill(pids[1], signal.SIGKILL)

    def start(self, group: WorkerGroup) -> None:
        """Starts as usual; the lost worker ends at once."""
        super().start(group)
        if self._is_lost and group.num_workers > 1:
            os.kill(self._workers[1].process.pid, signal.SIGKILL)


def test_a_smaller_group_reads_what_is_left_of_the_epoch(make_spec: MakeSpec, tmp_path: Path) -> None:
    """A worker that dies at each start is given up: the other one goes on in the middle of an epoch, with the same
    batches. Every record of each epoch is trained on exactly once.
    """
    spec = watched(make_spec, tmp_path, "elastic", workers=WorkerRange(min=1, max=2))
    outcome = trained(spec, Shrinking())
    assert [attempt.num_workers for attempt in outcome.attempts] == [2, 2, 2, 1]
    resumed = outcome.attempts[-1].resumed_step
    assert resumed is not None
    assert 20 <= resumed < STEPS
    assert resumed % STEPS_PER_EPOCH
    check_epochs([*ids_of(spec, 1, 2)[:resumed], *ids_of(spec, 4, 1)])
