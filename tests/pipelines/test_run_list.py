"""``lockstep runs`` on what runs left, whole or not."""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from lockstep.pipelines import cli, run_events, run_guards

STEPS = ("ExampleGen", "Transform", "DistributedTrainer")


def left(root: pathlib.Path, run: str, *events: run_events.RunEvent, cut: int = 0) -> None:
    """Writes what a run leaves, as the run itself does; the last ``cut`` bytes are lost."""
    folder = root / "runs" / run
    folder.mkdir(parents=True)
    text = "".join(map(run_events.to_line, (run_events.RunStarted(steps=STEPS, versions=""), *events)))
    (folder / "events.jsonl").write_text(text[: len(text) - cut])


def step(name: str, state: run_events.StepState, seconds: float = 1.0) -> run_events.StepChanged:
    """Returns a step's news."""
    return run_events.StepChanged(step=name, state=state, seconds=seconds)


def listed(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Returns what ``lockstep runs --json`` prints."""
    assert cli.main(["runs", str(folder), "--json"]) == 0
    runs: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return runs


def test_runs_of_several_pipelines_are_listed_by_time(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With how each ended, how far it came and how long its steps took."""
    done = run_events.RunFinished(exit_code=0, message="the model is pushed", pushed="/p/7")
    failed = run_events.RunFinished(exit_code=1, message="DistributedTrainer: loss is NaN at step 7")
    left(tmp_path / "taxi", "20261130T100000", *(step(name, "done", 2.0) for name in STEPS), done)
    left(tmp_path / "linear", "20261130T110000", step("ExampleGen", "cached"), step("Transform", "failed"), failed)
    assert cli.main(["runs", str(tmp_path)]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["PIPELINE", "BEGAN", "STATE", "STEPS", "TOOK"]
    assert first.split(maxsplit=7) == ["taxi", "2026-11-30", "10:00:00", "done", "3/3", "6", "s", "the model is pushed"]
    assert second.split()[:5] == ["linear", "2026-11-30", "11:00:00", "failed", "1/3"]
    assert "loss is NaN at step 7; " in second
    assert second.endswith("run.log")


@pytest.mark.parametrize(
    ("code", "state"), [(2, "wrong input"), (3, "stopped by data"), (4, "not blessed"), (1, "failed")]
)
def test_exit_codes_have_names(
    code: int, state: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that the command line ends with."""
    left(tmp_path, "20261130T100000", run_events.RunFinished(exit_code=code, message="m"))
    assert [(run["state"], run["exit_code"]) for run in listed(tmp_path, capsys)] == [(state, code)]


def test_a_killed_run_is_told_from_one_that_goes_on(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the lock that a process holds, and its death frees; a line that was cut counts for nothing."""
    left(tmp_path, "20261130T100000", step("ExampleGen", "done"), step("Transform", "running"), cut=20)
    left(tmp_path, "20261130T110000", step("ExampleGen", "done"), step("Transform", "running"))
    program = (
        "import pathlib, sys, time\nfrom lockstep.pipelines import run_guards\n"
        "with run_guards.locked(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert [(run["state"], run["step"]) for run in listed(tmp_path, capsys)] == [
            ("killed", "ExampleGen"),
            ("running", "Transform"),
        ]
        os.kill(holder.pid, signal.SIGKILL)
    assert [run["state"] for run in listed(tmp_path, capsys)] == ["killed", "killed"]
    assert cli.main(["runs", str(tmp_path)]) == 0
    assert "at Transform; " in capsys.readouterr().out.splitlines()[-1]


def test_a_list_never_keeps_a_run_from_its_root(tmp_path: pathlib.Path) -> None:
    """It looks at the lock for a moment; a run that begins in that moment waits for it."""
    with (tmp_path / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        timer = threading.Timer(0.03, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        timer.start()
        with run_guards.locked(tmp_path / "lock"):
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        timer.join()


@pytest.mark.parametrize("folder", ["", "nothing"])
def test_no_runs_is_a_mistake(folder: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another folder was meant."""
    assert cli.main(["runs", str(tmp_path / folder)]) == 2
    assert "no runs are there; give a pipeline's root" in capsys.readouterr().err
