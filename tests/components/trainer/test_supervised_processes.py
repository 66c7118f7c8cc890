"""Supervisor and local launcher together, with real processes that speak as workers do but import nothing."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.errors import StepFailed
from lockstep.components.trainer.launchers.local import LocalLauncher
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.supervisor import Supervisor

# Fails at step 2 of the first attempt as its last argument says, if it is the worker that the argument names.
WORKER = """
import json, os, signal, socket, sys, threading, time
attempt, who, fault = sys.argv[1:4]
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
def watch():
    os.read(0, 1)
    os._exit(3)
threading.Thread(target=watch, daemon=True).start()
def say(event, **values):
    print("LOCKSTEP " + json.dumps({"event": event, "worker": index, "time": time.time(), **values}), flush=True)
say("started")
faulty = attempt == "1" and str(index) == who
address = config["cluster"]["worker"][index].split(":")
print(address[1], flush=True)
server = socket.create_server((address[0], int(address[1])))
if fault == "port" and faulty:
    socket.create_server((address[0], int(address[1])))
if fault == "never" and faulty:
    threading.Event().wait()
say("training", step=0)
for step in range(1, 4):
    say("heartbeat", step=step, loss=0.5)
    if step == 2 and faulty:
        if fault == "hang":
            threading.Event().wait()
        if fault == "raise":
            say("failed", message="RuntimeError: no", traceback="RuntimeError: no")
            sys.exit(1)
        os.kill(os.getpid(), getattr(signal, fault))
say("done", step=3, digest="d", records=3)
os._exit(0)
"""


def supervised(
    tmp_path: Path, fault: str, *, worker: int = 1, base_port: int | None = None, **options: Any
) -> Supervisor:
    """A training of two workers, one of which has a fault in its first attempt."""
    values = {"workers": 2, "steps": 3, "start_timeout_s": 20.0, "heartbeat_timeout_s": 20.0, **options}
    return Supervisor(
        launcher=LocalLauncher(base_port=base_port),
        options=TrainOptions(**values),
        run_dir=tmp_path,
        command=lambda attempt: (sys.executable, "-I", "-S", "-c", WORKER, str(attempt), str(worker), fault),
    )


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("SIGKILL", "was killed by SIGKILL at step 2"),
        ("SIGSEGV", "was killed by SIGSEGV at step 2"),
        ("raise", "failed at step 2: RuntimeError: no"),
    ],
)
def test_a_worker_that_dies_costs_one_attempt(tmp_path: Path, fault: str, cause: str, worker: int) -> None:
    """Killed by a signal or by its own error, chief or not: the second attempt finishes."""
    outcome = supervised(tmp_path, fault, worker=worker).run()
    assert [attempt.cause for attempt in outcome.attempts] == [f"worker {worker} {cause}", None]


@pytest.mark.parametrize("fault", ["hang", "SIGSTOP"])
def test_a_worker_that_stands_still_costs_one_attempt(tmp_path: Path, fault: str) -> None:
    """A worker stuck in Python and one stopped by SIGSTOP are found by their silence, and killed."""
    outcome = supervised(tmp_path, fault, heartbeat_timeout_s=0.5).run()
    assert outcome.attempts[0].cause == "worker 1 gave no sign of life for heartbeat_timeout_s: 0.5, at step 2"
    assert outcome.restarts == 1


def test_a_worker_that_never_starts_costs_one_attempt(tmp_path: Path) -> None:
    """The start has a deadline."""
    outcome = supervised(tmp_path, "never", start_timeout_s=1.5).run()
    assert outcome.attempts[0].cause == "worker 1 did not come to a first step within start_timeout_s: 1.5"
    assert outcome.restarts == 1


def test_a_port_taken_after_it_was_chosen_costs_one_attempt(tmp_path: Path) -> None:
    """Between the choice of a free port and its use somebody may take it: the next attempt has others."""
    outcome = supervised(tmp_path, "port").run()
    cause = "worker 1 ended with exit code 1 while starting, without being done: OSError: [Errno 98] Address already in"
    assert str(outcome.attempts[0].cause).startswith(cause)
    assert outcome.restarts == 1
    logs = [(tmp_path / f"worker-1.attempt-{attempt}.log").read_text() for attempt in (1, 2)]
    assert "Address already in use" in logs[0]
    assert logs[0].splitlines()[1] != logs[1].splitlines()[1]


def test_a_base_port_in_use_ends_at_once(tmp_path: Path) -> None:
    """No attempt is spent on a port that the user chose and somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        supervisor = supervised(tmp_path, "none", base_port=port)
        with pytest.raises(StepFailed, match=f"base_port: {port} cannot be used"):
            supervisor.run()
    assert supervisor.attempts == ()
    assert not list(tmp_path.glob("*.log"))
