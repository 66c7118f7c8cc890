"""The supervisor against a scripted group and a clock that only its own waiting moves."""

import dataclasses
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.launchers import TooFewPlaces, WorkerGroup, WorkerStatus
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.summary import TrainingOutcome
from lockstep.components.trainer.supervisor import Supervisor
from lockstep.components.trainer.worker_range import WorkerRange

ABORTED = (
    "Traceback (most recent call last):\n"
    "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: peer is gone"
)

# What one worker does: at a second after its start, a line of output or an exit code.
Script = list[tuple[float, str | int]]


class Clock:
    """Seconds that pass only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        self.now_s += seconds


class ScriptedLauncher:
    """Plays one script a worker and attempt; keeps what it was told to do."""

    def __init__(self, clock: Clock, *attempts: list[Script], replacements: Sequence[Script] = ()) -> None:
        self._clock = clock
        self._attempts = list(attempts)
        self._replacements = list(replacements)
        self._group: WorkerGroup | None = None
        self._scripts: list[Script] = []
        self._exit_codes: dict[int, int] = {}
        self._start_s = 0.0
        self.calls: list[str] = []
        self.prepared: list[tuple[float, int]] = []
        self.commands: list[tuple[str, ...]] = []

    def start(self, group: WorkerGroup) -> None:
        """Begins the next attempt's scripts."""
        assert self._group is None, "the last group was not stopped"
        self.calls.append("start")
        self.commands.append(group.command)
        self._group, self._exit_codes, self._start_s = group, {}, self._clock()
        self._scripts = [list(script) for script in self._attempts.pop(0)]

    def poll(self) -> tuple[WorkerStatus, ...]:
        """Returns what the scripts say until now."""
        assert self._group is not None
        elapsed_s = self._clock() - self._start_s
        statuses = []
        for worker, script in enumerate(self._scripts):
            lines = []
            while script and script[0][0] <= elapsed_s:
                what = script.pop(0)[1]
                if isinstance(what, int):
                    self._exit_codes[worker] = what
                else:
                    lines.append(what)
            statuses.append(
                WorkerStatus(
                    worker=worker,
                    exit_code=self._exit_codes.get(worker),
                    new_lines=tuple(lines),
                    log_path=self._group.log_path(worker),
                )
            )
        return tuple(statuses)

    def replace(self, worker: int) -> None:
        """Begins one worker's next script, the one after the attempt's others."""
        self.calls.append(f"replace {worker}")
        elapsed_s = self._clock() - self._start_s
        script = self._replacements.pop(0)
        self._scripts[worker] = [(elapsed_s + after_s, what) for after_s, what in script]
        self._exit_codes.pop(worker, None)

    def prepare(self, count: int) -> None:
        """Notes when it was called."""
        self.prepared.append((self._clock() - self._start_s, count))

    def stop(self) -> None:
        """Notes that it was called."""
        self.calls.append("stop")
        self._group = None


def command(attempt: int) -> tuple[str, ...]:
    """What an attempt's workers run."""
    return ("worker", str(attempt))


def event(name: Any, worker: int, **values: Any) -> str:
    """A line of a worker's output."""
    return WorkerEvent(event=name, worker=worker, **values).to_line()


def training(worker: int, *, first: int = 0, until_s: float = 4.0) -> Script:
    """A worker that starts in 2 s, resumes at a step, and does a step a second from then on."""
    script: Script = [(0.1, event("started", worker)), (2.0, event("training", worker, step=first))]
    seconds = 3.0
    while seconds <= until_s:
        step = first + int(seconds) - 2
        beat = {"step": step, "loss": 0.5, "examples_per_s": 3100.0, "total_records": 256 * (step - first)}
        script.append((seconds, event("heartbeat", worker, time=seconds, **beat)))
        seconds += 1.0
    return script


def saved(worker: int, at_s: float, *, step: int) -> tuple[float, str]:
    """A checkpoint that a worker tells of."""
    return at_s, event("checkpoint", worker, step=step)


def finishing(worker: int, *, first: int = 0, digest: str = "d") -> Script:
    """A worker that does two steps and exports."""
    return [
        *training(worker, first=first),
        (4.5, event("exporting", worker)),
        (4.7, event("heartbeat", worker, step=first + 2)),
        (5.0, event("done", worker, step=first + 2, digest=digest, records=128 + worker)),
        (5.5, 0),
    ]


@dataclasses.dataclass
class Run:
    """A training that has not begun."""

    clock: Clock
    launcher: ScriptedLauncher
    supervisor: Supervisor

    def run(self) -> TrainingOutcome:
        """Trains."""
        return self.supervisor.run()


def training_of(tmp_path: Path, *attempts: list[Script], replacements: Sequence[Script] = (), **options: Any) -> Run:
    """A training of two workers with one list of scripts an attempt."""
    clock = Clock()
    launcher = ScriptedLauncher(clock, *attempts, replacements=replacements)
    values = {"workers": 2, "steps": 1000, "start_timeout_s": 30.0, "heartbeat_timeout_s": 10.0, **options}
    supervisor = Supervisor(
        launcher=launcher,
        options=TrainOptions(**values),
        run_dir=tmp_path,
        command=command,
        clock=clock,
        sleep=clock.sleep,
    )
    return Run(clock, launcher, supervisor)


def test_a_group_that_finishes_is_one_attempt(tmp_path: Path) -> None:
    """All workers done with equal weights: the outcome holds one attempt, the loss, the digest and the records."""
    outcome = training_of(tmp_path, [finishing(0), finishing(1)]).run()
    assert outcome.restarts == 0
    assert (outcome.loss, outcome.digest, outcome.records) == (0.5, "d", (128, 129))
    assert outcome.examples_per_s == 256.0  # that many were read in a second, whatever a batch holds
    (attempt,) = outcome.attempts
    assert (attempt.resumed_step, attempt.last_step, attempt.cause) == (0, 2, None)
    assert attempt.training_s == pytest.approx(3.0, abs=0.11)
    assert attempt.end_s == pytest.approx(5.5, abs=0.11)


def test_a_killed_worker_restarts_the_whole_group(tmp_path: Path) -> None:
    """SIGKILL of one worker: all are stopped and started again, and the attempt names worker, signal and step."""
    run = training_of(
        tmp_path,
        [training(0, until_s=60), [*training(1, until_s=6), (6.2, -signal.SIGKILL)]],
        [finishing(0, first=30), finishing(1, first=30)],
    )
    outcome = run.run()
    assert run.launcher.calls == ["start", "stop", "start", "stop"]
    assert run.launcher.commands == [("worker", "1"), ("worker", "2")]
    first, second = outcome.attempts
    assert (first.worker, first.signal_name, first.last_step) == (1, "SIGKILL", 4)
    assert first.cause == "worker 1 was killed by SIGKILL at step 4"
    assert (second.resumed_step, second.cause) == (30, None)


@pytest.mark.parametrize("exit_code", [0, 1, 137])
def test_an_exit_before_done_is_a_failure_whatever_its_code(tmp_path: Path, exit_code: int) -> None:
    """A process that ends without the event ``done`` has not finished, with exit code 0 neither."""
    run = training_of(tmp_path, [training(0, until_s=60), [*training(1), (4.2, exit_code)]], max_restarts=0)
    with pytest.raises(StepFailed, match=f"worker 1 ended with exit code {exit_code} at step 2"):
        run.run()


def test_an_event_behind_other_output_is_heard(tmp_path: Path) -> None:
    """The user's code may print without a line end: the event that follows on the same line still counts."""
    gluing = [(at_s, f"epoch 3... {what}" if isinstance(what, str) else what) for at_s, what in finishing(1)]
    assert training_of(tmp_path, [finishing(0), gluing]).run().restarts == 0


def test_an_exit_code_after_done_does_not_matter(tmp_path: Path) -> None:
    """A crash at the interpreter's exit comes after everything was written: no restart."""
    crashing = [*finishing(1)[:-1], (5.5, -signal.SIGSEGV)]
    assert training_of(tmp_path, [finishing(0), crashing]).run().restarts == 0


def test_done_workers_that_do_not_end_are_killed(tmp_path: Path) -> None:
    """A process that hangs at its exit after ``done`` costs ten seconds, and no attempt."""
    run = training_of(tmp_path, [finishing(0), finishing(1)[:-1]])
    assert run.run().restarts == 0
    assert run.launcher.calls == ["start", "stop"]
    assert run.clock.now_s == pytest.approx(1015.1, abs=0.3)


def test_restarts_are_bounded(tmp_path: Path) -> None:
    """After ``max_restarts`` the step fails; the message has the last cause, its log, earlier causes, and no output."""
    dying: list[Script] = [training(0, until_s=60), [*training(1), (4.2, -signal.SIGKILL)]]
    broken: list[Script] = [training(0, until_s=60), [*training(1), (4.0, "Segmentation fault"), (4.2, -11)]]
    run = training_of(tmp_path, dying, dying, broken, max_restarts=2)
    with pytest.raises(StepFailed) as caught:
        run.run()
    message = str(caught.value)
    assert "failed in attempt 3, and max_restarts: 2 allows no more within restart_window_s: 3600" in message
    assert "worker 1 was killed by SIGSEGV at step 2" in message
    assert str(tmp_path / "worker-1.attempt-3.log") in message
    assert "Segmentation fault" not in message  # the log has it
    assert "Attempt 1: worker 1 was killed by SIGKILL" in message
    assert run.launcher.calls == ["start", "stop"] * 3
    assert len(run.supervisor.attempts) == 3


def test_only_the_last_attempts_are_told(tmp_path: Path) -> None:
    """Beside the last cause three earlier ones, a line each."""
    attempts: list[list[Script]] = [
        [training(0, until_s=60), [*training(1, until_s=3 + i), saved(1, 3.1 + i, step=1 + i), (3.2 + i, -9)]]
        for i in range(6)
    ]
    with pytest.raises(StepFailed) as caught:
        training_of(tmp_path, *attempts, max_restarts=5).run()
    _, *earlier = str(caught.value).splitlines()
    assert earlier == [f"Attempt {n}: worker 1 was killed by SIGKILL at step {n}" for n in (3, 4, 5)]


def serving(number: int, *, until_s: float = 60.0) -> Script:
    """A worker or parameter server that beats every second."""
    beats: Script = [(float(second), event("heartbeat", number, step=0)) for second in range(1, int(until_s) + 1)]
    return [(0.1, event("started", number)), *beats]


# The coordinator, two workers and a parameter server.
PARAMETER_SERVER = {"strategy": "parameter_server", "workers": 2, "parameter_servers": 1}


def coordinating(until_s: float = 8.0) -> Script:
    """A coordinator that does a step a second and exports."""
    return [
        *training(0, until_s=until_s),
        (until_s + 0.5, event("exporting", 0)),
        (until_s + 1.0, event("done", 0, step=int(until_s) - 2, digest="d", records=128)),
        (until_s + 1.2, 0),
    ]


def test_a_dead_server_of_steps_is_replaced_alone(tmp_path: Path) -> None:
    """The rest goes on; the attempt tells the cause, and it counts as a restart. Servers are never done: the launcher
    ends them when the coordinator has ended.
    """
    dying: Script = [*serving(1, until_s=5), (5.2, -signal.SIGKILL)]
    run = training_of(
        tmp_path, [coordinating(), dying, serving(2), serving(3)], replacements=[serving(1)], **PARAMETER_SERVER
    )
    outcome = run.run()
    assert run.launcher.calls == ["start", "replace 1", "stop"]
    (attempt,) = outcome.attempts
    assert attempt.replacements == ("worker 0 was killed by SIGKILL at step 3",)
    assert (attempt.cause, outcome.restarts, outcome.records, outcome.digest) == (None, 1, (128,), "d")


def test_a_silent_server_of_steps_is_replaced_too(tmp_path: Path) -> None:
    """A stopped worker gives no sign of life; nobody waits for it longer than for any other."""
    run = training_of(
        tmp_path,
        [coordinating(20), serving(1, until_s=4), serving(2), serving(3)],
        replacements=[serving(1)],
        **PARAMETER_SERVER,
    )
    (attempt,) = run.run().attempts
    assert attempt.replacements[0].startswith("worker 0 gave no sign of life for heartbeat_timeout_s: 10, at step")


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (3, "parameter server 0 was killed by SIGKILL at step 3"),
        (0, "the coordinator was killed by SIGKILL at step 3"),
    ],
)
def test_a_dead_parameter_server_or_coordinator_restarts_the_group(tmp_path: Path, number: int, cause: str) -> None:
    """What they hold is gone; nobody can take their place."""
    attempt = [training(0, until_s=60), serving(1), serving(2), serving(3)]
    attempt[number] = [*(item for item in attempt[number] if item[0] < 5.2), (5.2, -signal.SIGKILL)]
    run = training_of(tmp_path, attempt, [coordinating(), serving(1), serving(2), serving(3)], **PARAMETER_SERVER)
    outcome = run.run()
    assert run.launcher.calls == ["start", "stop", "start", "stop"]
    assert [attempt.cause for attempt in outcome.attempts] == [cause, None]


def test_replacements_are_bounded_as_restarts(tmp_path: Path) -> None:
    """Both together are at most ``max_restarts``."""
    dying: Script = [*serving(1, until_s=5), (5.2, -signal.SIGKILL)]
    again: Script = [(1.0, event("heartbeat", 1, step=0)), (1.5, -signal.SIGKILL)]
    run = training_of(
        tmp_path,
        [coordinating(30), dying, serving(2), serving(3)],
        replacements=[again],
        max_restarts=1,
        **PARAMETER_SERVER,
    )
    with pytest.raises(StepFailed, match=r"max_restarts: 1 allows no more within .*: worker 0 was killed by SIGKILL"):
        run.run()
    assert run.launcher.calls == ["start", "replace 1", "stop"]


def failing(worker: int, error: str) -> Script:
    """A worker that tells an error of its own at step 2."""
    text = f"Traceback (most recent call last):\n  File x.py, line 1\n{error}"
    return [*training(worker), (4.1, event("failed", worker, message=error, traceback=text)), (4.3, 1)]


def test_an_error_that_comes_again_is_not_tried_again(tmp_path: Path) -> None:
    """A worker's own error at the same step in two attempts: a third would end so too."""
    attempt: list[Script] = [training(0, until_s=60), failing(1, "RuntimeError: shard 7 is broken")]
    run = training_of(tmp_path, attempt, attempt, [finishing(0), finishing(1)])
    with pytest.raises(StepFailed) as caught:
        run.run()
    log_path = tmp_path / "worker-1.attempt-2.log"
    assert str(caught.value) == (
        "training failed twice at step 2 in the same way, so it is not tried again: "
        f"worker 1 failed at step 2: RuntimeError: shard 7 is broken; log: {log_path}\n"
        "  Traceback (most recent call last):\n    File x.py, line 1\n  RuntimeError: shard 7 is broken\n"
        "Attempt 1: worker 1 failed at step 2: RuntimeError: shard 7 is broken"
    )
    assert len(run.supervisor.attempts) == 2


def test_another_error_is_worth_another_attempt(tmp_path: Path) -> None:
    """Two different errors, and one that only follows from a peer's end, say nothing about a third attempt."""
    echo: Script = [*training(0), (4.1, event("failed", 0, message="lost", traceback=ABORTED)), (4.3, 1)]
    run = training_of(
        tmp_path,
        [training(0, until_s=60), failing(1, "OSError: a")],
        [training(0, until_s=60), failing(1, "OSError: b")],
        [echo, [*echo]],
        [echo, [*echo]],
        [finishing(0), finishing(1)],
        max_restarts=4,
    )
    assert run.run().restarts == 4


def test_the_first_cause_is_told_and_not_its_echo(tmp_path: Path) -> None:
    """A worker fails by itself; its peer only sees that the collective is aborted, and says so first."""
    own = "Traceback (most recent call last):\nRuntimeError: shard 7 is broken"
    echoing = [*training(0), (4.1, event("failed", 0, message="UnavailableError", traceback=ABORTED)), (4.3, 1)]
    failing = [
        *training(1),
        (4.9, event("failed", 1, message="RuntimeError: shard 7 is broken", traceback=own)),
        (5, 1),
    ]
    run = training_of(tmp_path, [echoing, failing], max_restarts=0)
    with pytest.raises(StepFailed) as caught:
        run.run()
    assert "worker 1 failed at step 2: RuntimeError: shard 7 is broken" in str(caught.value)
    assert "Collective ops" not in str(caught.value)
    assert run.supervisor.attempts[0].worker == 1


def test_an_error_of_many_lines_is_told_by_its_telling_one(tmp_path: Path) -> None:
    """TensorFlow's errors from traced code begin with "in user code:"; the cause is one line further down."""
    message = "ValueError: in user code:\n\n    File loop.py, line 1\n\n    ValueError: destinations can not be empty\n"
    failing = [*training(1), (4.1, event("failed", 1, message=message, traceback=message))]
    run = training_of(tmp_path, [training(0), failing], [finishing(0), finishing(1)])
    cause = run.run().attempts[0].cause
    assert cause == "worker 1 failed at step 2: ValueError: destinations can not be empty"


def test_a_stopped_worker_is_found_behind_the_echo(tmp_path: Path) -> None:
    """Peers of a stopped process fail with "aborted"; the cause is the worker that says nothing."""
    echoing = [*training(0), (8.0, event("failed", 0, message="UnavailableError", traceback=ABORTED)), (8.1, 1)]
    run = training_of(tmp_path, [echoing, training(1)], max_restarts=0)
    with pytest.raises(StepFailed, match=r"worker 1 stopped answering at step 2, 7 s ago: worker 0 gave up"):
        run.run()


def test_only_echoes_are_told_when_nothing_else_is_known(tmp_path: Path) -> None:
    """When every worker reports an echo, the first one stands: something must be told."""
    scripts = [
        [*training(i), (4.1 + i, event("failed", i, message="lost", traceback=ABORTED)), (5.5, 1)] for i in (0, 1)
    ]
    run = training_of(tmp_path, scripts, max_restarts=0)
    with pytest.raises(StepFailed, match="worker 0 failed at step 2: lost"):
        run.run()


def test_the_start_has_a_deadline_that_names_who_is_late(tmp_path: Path) -> None:
    """A worker that never starts keeps its peers in TensorFlow's constructor for ever: it is named, not they."""
    waiting: Script = [(0.1, event("started", 0))]
    run = training_of(tmp_path, [waiting, []], [finishing(0), finishing(1)])
    outcome = run.run()
    assert outcome.attempts[0].cause == "worker 1 did not come to a first step within start_timeout_s: 30"
    assert outcome.attempts[0].end_s == pytest.approx(30.1, abs=0.15)
    assert outcome.attempts[0].training_s is None


def test_tracing_belongs_to_the_start(tmp_path: Path) -> None:
    """Between ``training`` and the first heartbeat with a step lies the compilation: the longer deadline holds."""
    slow: list[Script] = [
        [
            (0.5, event("training", i, step=0)),
            (25.0, event("heartbeat", i, step=2, loss=0.1, time=25.0)),
            (26.0, event("done", i, digest="d")),
            (26.1, 0),
        ]
        for i in (0, 1)
    ]
    assert training_of(tmp_path, slow).run().restarts == 0


def test_silence_is_a_failure(tmp_path: Path) -> None:
    """No worker says anything for ``heartbeat_timeout_s``: the group is stuck and starts again."""
    run = training_of(tmp_path, [training(0, until_s=7), training(1)], [finishing(0), finishing(1)])
    outcome = run.run()
    cause = "worker 1 gave no sign of life for heartbeat_timeout_s: 10, at step 2"
    assert (outcome.attempts[0].worker, outcome.attempts[0].cause) == (1, cause)
    assert outcome.attempts[0].end_s == pytest.approx(14.1, abs=0.15)


def test_the_export_is_watched_too(tmp_path: Path) -> None:
    """A chief that hangs in its export is found although its peers are done."""
    hanging = [*training(0), (4.5, event("exporting", 0))]
    outcome = training_of(tmp_path, [hanging, finishing(1)], [finishing(0), finishing(1)]).run()
    assert outcome.attempts[0].cause is not None
    assert "while evaluating and exporting after step 2" in outcome.attempts[0].cause


def test_a_finished_checkpoint_needs_no_more_steps(tmp_path: Path) -> None:
    """A group resumed after the last step only exports; there is no loss to tell."""
    scripts: list[Script] = [
        [
            (1.0, event("training", i, step=1000)),
            (1.1, event("exporting", i)),
            (2, event("done", i, digest="d")),
            (2.1, 0),
        ]
        for i in (0, 1)
    ]
    outcome = training_of(tmp_path, scripts).run()
    assert (outcome.loss, outcome.examples_per_s, outcome.attempts[0].last_step) == (None, None, 1000)


def test_an_error_of_the_user_is_not_tried_again(tmp_path: Path) -> None:
    """``user_error`` ends at once with the worker's own message."""
    message = "model.build: my_model:build raised NameError: name 'kears' is not defined (my_model.py, line 4)"
    failed = event("failed", 1, message=message, traceback="Traceback ...", user_error=True)
    run = training_of(tmp_path, [training(0), [(1.0, failed), (1.1, 2)]])
    with pytest.raises(ConfigurationError) as caught:
        run.run()
    assert str(caught.value) == f"{message}\nThe worker's log: {tmp_path / 'worker-1.attempt-1.log'}"
    assert run.launcher.calls == ["start", "stop"]


def test_a_full_disk_is_not_tried_again(tmp_path: Path) -> None:
    """No restart mends a full disk: the step says so, and that training will go on from its checkpoint."""
    text = "tensorflow...ResourceExhaustedError: /ckpt/x.data; No space left on device [Op:SaveV2]"
    run = training_of(tmp_path, [[*training(0), (4.2, event("failed", 0, message=text, traceback=text))], training(1)])
    with pytest.raises(
        StepFailed, match=r"(?s)the disk is full: worker 0 failed.*or give another --root, and.*goes on"
    ):
        run.run()
    assert run.launcher.calls == ["start", "stop"]


def test_different_weights_fail_the_step(tmp_path: Path) -> None:
    """Workers that end with different weights have no model to give."""
    run = training_of(tmp_path, [finishing(0, digest="aa"), finishing(1, digest="bb")])
    with pytest.raises(StepFailed, match=r"final weights of the workers differ.*worker 0: aa, worker 1: bb"):
        run.run()


def test_missing_digests_fail_the_step(tmp_path: Path) -> None:
    """Weights that nobody compared are not equal."""
    silent = [*training(1), (5.0, event("done", 1)), (5.5, 0)]
    with pytest.raises(StepFailed, match="worker 1: None"):
        training_of(tmp_path, [finishing(0), silent]).run()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, StepFailed), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_stops_the_group_and_raises(tmp_path: Path, number: int, error: type[BaseException]) -> None:
    """SIGTERM and SIGINT never look like success: the workers are stopped, and the handlers are as before."""
    before = signal.getsignal(number)
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now_s > 1004:
            os.kill(os.getpid(), number)

    launcher = ScriptedLauncher(clock, [training(0, until_s=60), training(1, until_s=60)])
    options = TrainOptions(workers=2)
    with pytest.raises(error):
        Supervisor(
            launcher=launcher, options=options, run_dir=tmp_path, command=command, clock=clock, sleep=sleep
        ).run()
    assert launcher.calls == ["start", "stop"]
    assert signal.getsignal(number) is before


def test_a_launcher_that_cannot_start_is_not_tried_again(tmp_path: Path) -> None:
    """What a launcher refuses, like a port in use, ends the step at once."""

    class Refusing(ScriptedLauncher):
        def start(self, group: WorkerGroup) -> None:
            self.calls.append("start")
            raise StepFailed("base_port: 5000 cannot be used")

    clock = Clock()
    launcher = Refusing(clock)
    with pytest.raises(StepFailed, match="base_port: 5000"):
        Supervisor(
            launcher=launcher, options=TrainOptions(), run_dir=tmp_path, command=command, clock=clock, sleep=clock.sleep
        ).run()
    assert launcher.calls == ["start", "stop"]


def killed_at_start(worker: int) -> list[Script]:
    """A group of which one worker is killed before its first step; its peers wait for it."""
    scripts: list[Script] = [[(0.1, event("started", index))] for index in range(worker + 1)]
    scripts[worker].append((1.0, -signal.SIGKILL))
    return scripts


def test_the_first_restart_is_at_once_and_the_next_ones_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Twice as long each time until a checkpoint is written; a person is told."""
    caplog.set_level(logging.INFO, logger="lockstep.progress")
    finished: list[Script] = [finishing(0), finishing(1)]
    got_on: list[Script] = [[*training(0, until_s=60), saved(0, 60.5, step=60)], [*training(1), (61.0, -9)]]
    attempts = [[*killed_at_start(0), []], killed_at_start(1), [training(0), [*training(1), (4.2, -9)]], got_on]
    run = training_of(
        tmp_path, *attempts, finished, max_restarts=9, restart_delay_s=8, max_restart_delay_s=12, heartbeat_timeout_s=99
    )
    outcome = run.run()
    pairs = zip(outcome.attempts, outcome.attempts[1:], strict=False)
    assert [round(after.start_s - before.end_s) for before, after in pairs] == [0, 8, 12, 0]
    messages = [record.message for record in caplog.records if record.message.startswith("restart")]
    assert messages[0] == "restart 1 of 9: worker 0 was killed by SIGKILL while starting"
    assert messages[1] == "restart 2 of 9 in 8 s: worker 1 was killed by SIGKILL while starting"


def test_a_signal_ends_the_wait_before_a_restart(tmp_path: Path) -> None:
    """Nobody waits an hour for a training that was told to end."""
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now_s > 1010:
            os.kill(os.getpid(), signal.SIGTERM)

    launcher = ScriptedLauncher(clock, killed_at_start(1), killed_at_start(1))
    options = TrainOptions(workers=2, restart_delay_s=3600, max_restart_delay_s=3600)
    with pytest.raises(StepFailed, match="interrupted by SIGTERM"):
        Supervisor(
            launcher=launcher, options=options, run_dir=tmp_path, command=command, clock=clock, sleep=sleep
        ).run()
    assert clock.now_s < 1011
    assert launcher.calls == ["start", "stop"] * 2


def test_a_process_that_dies_alike_is_not_tried_again(tmp_path: Path) -> None:
    """The same worker by the same signal at the same step, three times: restarts that are left are not used."""
    attempt: list[Script] = [training(0, until_s=60), [*training(1), (4.2, -signal.SIGSEGV)]]
    with pytest.raises(StepFailed) as caught:
        training_of(tmp_path, *[attempt] * 4, max_restarts=9).run()
    assert str(caught.value).startswith(
        "training failed 3 times in a row at step 2 in the same way, so it is not tried again: "
        f"worker 1 was killed by SIGSEGV at step 2; log: {tmp_path / 'worker-1.attempt-3.log'}"
    )


ELASTIC = {"workers": WorkerRange(min=1, max=3), "batch_size": 240, "max_restarts": 2}


def test_a_group_goes_on_without_a_worker_that_dies_at_every_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed before its first step twice running, it cannot be had: one fewer, and restarts are counted anew."""
    caplog.set_level(logging.INFO, logger="lockstep.progress")
    dying = [training(0, until_s=60), [*training(1), (4.2, -signal.SIGKILL)]]
    run = training_of(
        tmp_path, *[killed_at_start(2)] * 2, dying, [finishing(0, first=9), finishing(1, first=9)], **ELASTIC
    )
    outcome = run.run()
    assert [attempt.num_workers for attempt in outcome.attempts] == [3, 3, 2, 2]
    assert (outcome.num_workers, outcome.restarts) == (2, 3)
    messages = [record.message for record in caplog.records if record.name == "lockstep.progress"]
    assert messages[0] == "starting 3 workers"
    assert "going on with 2 of 3 workers: worker 2 was killed by SIGKILL while starting" in messages
    assert "restart 1 of 2: worker 1 was killed by SIGKILL at step 2" in messages
    assert messages[-1] == "evaluating and exporting, 3 restarts, 2 of 3 workers"


def test_a_group_loses_all_workers_that_are_never_heard(tmp_path: Path) -> None:
    """Two of three that stay silent until the start's deadline: one is left."""
    silent: list[Script] = [[(0.1, event("started", 0))], [], []]
    outcome = training_of(tmp_path, silent, silent, [finishing(0)], **ELASTIC).run()
    assert [attempt.num_workers for attempt in outcome.attempts] == [3, 3, 1]


def test_a_group_does_not_shrink_under_its_least(tmp_path: Path) -> None:
    """With ``min`` workers it is restarted as any group, and ends by its bounds."""
    attempts = [killed_at_start(2)] * 2 + [killed_at_start(1)] * 3
    with pytest.raises(StepFailed, match="failed 3 times in a row while starting in the same way"):
        training_of(tmp_path, *attempts, **{**ELASTIC, "workers": WorkerRange(min=2, max=3)}).run()


def test_an_error_of_a_worker_s_own_makes_no_group_smaller(tmp_path: Path) -> None:
    """A worker that tells why it fails is there."""
    told: list[Script] = [[], [], [(0.1, event("started", 2)), (1.0, event("failed", 2, message="OSError: x"))]]
    with pytest.raises(StepFailed, match="failed twice while starting in the same way"):
        training_of(tmp_path, told, told, **ELASTIC).run()


@pytest.mark.parametrize(("least", "expected"), [(1, [3, 2]), (3, None)])
def test_a_launcher_with_fewer_places_makes_the_group_smaller(
    tmp_path: Path, least: int, expected: list[int] | None
) -> None:
    """At once, where that is allowed; else the launcher's own error is the end."""

    class Small(ScriptedLauncher):
        def start(self, group: WorkerGroup) -> None:
            if group.num_workers > 2:
                raise TooFewPlaces(ConfigurationError("workers: 3 needs 3 GPUs"), available=2)
            super().start(group)

    clock = Clock()
    launcher = Small(clock, [finishing(0), finishing(1)])
    options = TrainOptions(**{**ELASTIC, "workers": WorkerRange(min=least, max=3)})
    supervisor = Supervisor(
        launcher=launcher, options=options, run_dir=tmp_path, command=command, clock=clock, sleep=clock.sleep
    )
    if expected is None:
        with pytest.raises(ConfigurationError, match="workers: 3 needs 3 GPUs"):
            supervisor.run()
    else:
        assert [attempt.num_workers for attempt in supervisor.run().attempts] == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"workers": 2}, [(33, 2), (63, 2), (0, 0)]),
        ({"workers": 2, "standby": False}, [(0, 0)]),
        (PARAMETER_SERVER, [(33, 1), (63, 1), (0, 0)]),
    ],
)
def test_processes_are_kept_ready_once_training_goes_on(
    tmp_path: Path, options: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    """After half a minute of it, topped up each half minute, and ended with it, whatever ends it."""
    scripts: list[Script] = [[*training(0, until_s=80), (80.2, event("failed", 0, message="x", user_error=True))]]
    scripts += [serving(1, until_s=90), serving(2, until_s=90), serving(3, until_s=90)]
    if "strategy" not in options:
        scripts = [scripts[0], training(1, until_s=90)]
    run = training_of(tmp_path, scripts, **options)
    with pytest.raises(ConfigurationError):
        run.run()
    times = [round(at_s) for at_s, _ in run.launcher.prepared]
    assert [(at_s if count else 0, count) for at_s, (_, count) in zip(times, run.launcher.prepared, strict=True)] == (
        expected
    )


def test_progress_is_told_at_most_twice_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The progress logger says where training is, and that and why it was restarted."""
    caplog.set_level(logging.INFO, logger="lockstep.progress")
    fast = [(4.0 + i / 10, event("heartbeat", 0, step=2 + i, loss=0.412, examples_per_s=3100.0)) for i in range(20)]
    dying = [*training(1), (5.95, -signal.SIGKILL)]
    training_of(tmp_path, [[*training(0), *fast], dying], [finishing(0, first=300), finishing(1, first=300)]).run()
    messages = [record.message for record in caplog.records if record.name == "lockstep.progress"]
    assert messages[0] == "starting 2 workers"
    expected = [(1, "0.500"), (2, "0.412"), (7, "0.412"), (12, "0.412"), (17, "0.412")]
    left = ["", ", 16 min 38 s left", ", 4 min 8 s left", ", 3 min 0 s left", ", 2 min 34 s left"]
    restart = messages.index("restart 1 of 3: worker 1 was killed by SIGKILL at step 2")
    assert messages[1:restart] == [
        f"step {n}/1000, loss {x}, 3,100 examples/s{end}" for (n, x), end in zip(expected, left, strict=True)
    ]
    assert messages[restart + 1] == "step 301/1000, loss 0.500, 3,100 examples/s, 1 restart"
    assert messages[-1] == "evaluating and exporting, 1 restart"
