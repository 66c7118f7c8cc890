"""What ``lockstep runs`` prints: the runs under a folder, from the files that each left. Nothing is written."""

import contextlib
import fcntl
import pathlib
import time
from collections.abc import Iterable
from typing import Any

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines import run_events
from lockstep.pipelines.console import shorten
from lockstep.pipelines.run_files import RootFiles, RunFiles

_COLUMNS = ("PIPELINE", "BEGAN", "STATE", "STEPS", "TOOK", "")
_STATES = {0: "done", 2: "wrong input", 3: "stopped by data", 4: "not blessed"}  # and 1: failed
_MESSAGE_CHARS = 90


def list_runs(folder: pathlib.Path) -> str:
    """Returns a table of the runs, oldest first.

    Raises:
      ConfigurationError: There are none.
    """
    table = [_COLUMNS, *(_cells(run) for run in describe_runs(folder))]
    widths = [max(len(row[i]) for row in table) for i in range(len(_COLUMNS) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]).rstrip()
        for row in table
    )


def describe_runs(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Returns one mapping a run, oldest first.

    ``state``: ``done``, ``failed``, ``wrong input``, ``stopped by data``, ``not blessed``, ``running``, or ``killed``
    where the run ended without a word. ``steps``: how many are done or cached. ``step``: the one that runs, or ran
    last. ``seconds``: how long the steps took. ``log``: its file.

    Args:
      folder: A pipeline's root, or a folder that holds such.

    Raises:
      ConfigurationError: There are no runs.
    """
    roots = [folder] if RootFiles(folder).runs_dir.is_dir() else sorted(p.parent for p in folder.glob("*/runs"))
    folders = [(root, run) for root in roots for run in RootFiles(root).runs_dir.iterdir() if run.is_dir()]
    runs = [describe_run(RunFiles(run), root) for root, run in folders]
    if not runs:
        raise ConfigurationError(
            f"{folder}: no runs are there; give a pipeline's root, as lockstep run --root names it"
        )
    runs = sorted(runs, key=lambda run: (run["run"], run["pipeline"]))
    for root in roots:  # only the newest of a root can be the one that goes on
        newest = [run for run in runs if run["root"] == str(root)][-1:]
        for run in newest:
            if run["state"] == "killed" and _is_locked(RootFiles(root).lock_path):
                run["state"] = "running"
    return runs


def describe_run(run: RunFiles, root: pathlib.Path) -> dict[str, Any]:
    """Returns one run as ``describe_runs`` does, but ``killed`` for one that goes on."""
    states: dict[str, str] = {}
    seconds: dict[str, float] = {}
    step, number, finished = "", 0, None
    for event in read_events(run.events_path):
        if isinstance(event, run_events.RunStarted):
            number = len(event.steps)
        elif isinstance(event, run_events.StepChanged):
            states[event.step], seconds[event.step] = event.state, event.seconds
            if event.state not in ("skipped",):
                step = event.step
        elif isinstance(event, run_events.RunFinished):
            finished = event
    return {
        "pipeline": root.name,
        "run": run.run_dir.name,
        "root": str(root),
        "began": _began(run.run_dir),
        "state": "killed" if finished is None else _STATES.get(finished.exit_code, "failed"),
        "steps": sum(state in ("done", "cached") for state in states.values()),
        "of_steps": number,
        "step": step,
        "seconds": round(sum(seconds.values()), 1),
        "exit_code": None if finished is None else finished.exit_code,
        "message": "" if finished is None else finished.message,
        "pushed": "" if finished is None else finished.pushed,
        "log": str(run.log_path),
    }


def read_events(path: pathlib.Path) -> Iterable[run_events.RunEvent]:
    """Gives the events that were written whole: a full disk or a killed machine cuts the last line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            yield run_events.from_line(line)


def _began(run_dir: pathlib.Path) -> str:
    """Returns the time that names the run's folder, in this machine's zone."""
    stamp = run_dir.name.split("-")[0]
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.strptime(stamp, "%Y%m%dT%H%M%S"))
    except ValueError:
        return run_dir.name


def _is_locked(path: pathlib.Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _cells(run: dict[str, Any]) -> tuple[str, ...]:
    if run["state"] in ("running", "killed"):
        told = f"at {run['step']}" if run["step"] else "before the first step"
    else:
        told = run["message"].splitlines()[0] if run["message"] else ""
    if run["state"] in ("failed", "killed"):
        told += f"; {shorten(run['log'])}"
    cut = told if len(told) <= _MESSAGE_CHARS or run["state"] == "failed" else told[: _MESSAGE_CHARS - 1] + "…"
    return (
        run["pipeline"],
        run["began"],
        run["state"],
        f"{run['steps']}/{run['of_steps']}" if run["of_steps"] else "-",
        f"{run['seconds']:.0f} s",
        cut,
    )
