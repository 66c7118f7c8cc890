"""What a killed run leaves in ML Metadata."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata

from lockstep.components.errors import StepFailed
from lockstep.pipelines import local, run_guards
from lockstep.pipelines.leftovers import fail_leftovers
from tests.pipelines.test_local import Runs

# Two pipelines in one store, each in the middle of its step.
PROGRAM = """
import os, pathlib, sys, time
from tests.pipelines import test_local

class Waiting(test_local.CountingExecutor):
    def Do(self, *arguments):
        print("working", flush=True)
        time.sleep(600)

test_local.Counting.EXECUTOR_SPEC.executor_class = Waiting
runs = test_local.Runs(pathlib.Path(sys.argv[1]))
runs.run("a", "a", pipeline=sys.argv[2])
"""


def kill_in_the_middle(folder: pathlib.Path, pipeline: str) -> None:
    """Runs a step in a process of its own and kills that while the step works."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), pipeline],
        cwd=pathlib.Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=(folder / f"{pipeline}.txt").open("w"),
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert said == "working\n", (folder / f"{pipeline}.txt").read_text()


def states(folder: pathlib.Path) -> dict[int, str]:
    """The state of each execution."""
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite"))) as handle:
        return {
            execution.id: metadata_store_pb2.Execution.State.Name(execution.last_known_state)
            for execution in handle.store.get_executions()
        }


def test_an_execution_of_a_killed_run_is_marked_as_failed(tmp_path: pathlib.Path) -> None:
    """Never as complete; once; not another pipeline's, whose run may be alive; and the step runs anew."""
    kill_in_the_middle(tmp_path, "p")
    kill_in_the_middle(tmp_path, "other")
    assert states(tmp_path) == {1: "RUNNING", 2: "RUNNING"}
    connection = metadata.Metadata(metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.sqlite")))
    assert fail_leftovers(connection, "p") == (1,)
    assert states(tmp_path) == {1: "FAILED", 2: "RUNNING"}
    with connection as handle, pytest.raises(StepFailed, match=r"(?s)state FAILED: .*the run was killed before"):
        local._execution(handle, 1, "Counting")
    assert fail_leftovers(connection, "p") == ()
    assert fail_leftovers(connection, "never run") == ()
    finished = Runs(tmp_path).run("a", "a")
    assert not finished.cached
    assert states(tmp_path) == {1: "FAILED", 2: "RUNNING", finished.execution_id: "COMPLETE"}


HOLDER = """
import os, pathlib, sys, time
from lockstep.pipelines import run_guards
with run_guards.after_predecessor(pathlib.Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        time.sleep(600)
    print(child, flush=True)
    time.sleep(600)
"""


def test_steps_wait_for_the_process_of_a_killed_run_but_not_for_what_it_forked(tmp_path: pathlib.Path) -> None:
    """It is named where it does not end."""
    path = tmp_path / "steps.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        forked = int(holder.stdout.readline())
        with (
            pytest.raises(StepFailed, match=f"process {holder.pid} of a run that was killed still works in"),
            run_guards.after_predecessor(path, timeout_s=0.2),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert pathlib.Path(f"/proc/{forked}").exists()
        with run_guards.after_predecessor(path):
            pass
        os.kill(forked, signal.SIGKILL)
