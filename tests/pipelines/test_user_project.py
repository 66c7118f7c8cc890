"""A user's own project, end to end: a cache that can be trusted, verdicts, bad input, predictions."""

import contextlib
import csv
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time

import pytest

from tests.pipelines.conftest import Project, make_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_COMPLETE, _FAILED = 3, 4  # ML Metadata's numbers for states of executions

STEPS = [
    "ExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "Transform",
    "DistributedTrainer",
    "Evaluator",
    "Pusher",
]


def test_what_changed_runs_again_and_nothing_else(project: Project) -> None:
    """A first run does everything, a second nothing; an edit in the model's imports redoes what depends on it."""
    first = project.run()
    assert first.returncode == 0, first.stderr
    assert project.states() == dict.fromkeys(STEPS, "done")
    assert len(project.versions()) == 1

    second = project.run()
    assert second.returncode == 0, second.stderr
    assert project.states() == dict.fromkeys(STEPS, "cached")
    assert "nothing was evaluated or pushed again" in second.stdout
    assert len(project.versions()) == 1

    layers = project.folder / "my_hills" / "layers.py"
    layers.write_text(layers.read_text().replace("relu", "tanh"))
    third = project.run()
    assert third.returncode == 0, third.stderr
    redone = ("DistributedTrainer", "Evaluator", "Pusher")
    assert project.states() == {step: "done" if step in redone else "cached" for step in STEPS}
    assert len(project.versions()) == 2

    data = project.folder / "data" / "hills.csv"
    times = data.stat()
    data.write_text(data.read_text().replace("north", "norte", 1))
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    fourth = project.run()
    assert fourth.returncode == 0, fourth.stderr
    assert project.states()["ExampleGen"] == "done", "same size, same time, other bytes"


def test_a_deleted_push_folder_is_pushed_to_again(project: Project) -> None:
    """The cache does not claim that a model is served which is gone."""
    assert project.run().returncode == 0
    pushed = project.root / "pushed"
    pushed.rename(project.root / "moved-away")
    again = project.run()
    assert again.returncode == 0, again.stderr
    assert project.states()["Pusher"] == "done"
    assert len(project.versions()) == 1


def test_a_model_below_its_threshold_is_not_pushed(project: Project) -> None:
    """Exit code 4, the metric and the bound in one message, the Pusher skipped, the served version untouched."""
    assert project.run().returncode == 0
    before = project.versions()
    result = project.run("--set", "evaluate.thresholds={accuracy: {min: 1.0}}")
    assert result.returncode == 4
    assert project.states()["Pusher"] == "skipped"
    assert "accuracy" in result.stderr
    assert "Traceback" not in result.stderr
    assert project.versions() == before


def test_raw_rows_are_predicted_in_their_order(project: Project, tmp_path: pathlib.Path) -> None:
    """One prediction a row, without the label's column, with a missing and an unseen value."""
    assert project.run().returncode == 0
    rows = tmp_path / "rows.csv"
    rows.write_text("height,width,region\n90,5,north\n5,90,never seen\n,50,\n")
    result = project.lockstep("predict", str(project.root / "pushed"), "--data", str(rows))
    assert result.returncode == 0, result.stderr
    table = list(csv.DictReader(result.stdout.splitlines()))
    assert len(table) == 3
    assert float(table[0]["prediction"]) > 0.5 > float(table[1]["prediction"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "label.column=step"], "step"),
        (["--set", "features.heigth={kind: numeric}"], "heigth"),
        (["--set", "model.build=my_hills.modle:build_model"], "no module 'my_hills.modle'"),
        (["--set", "model.build=my_hills.model:make_model"], "make_model"),
    ],
)
def test_a_mistake_that_only_a_step_can_see_is_one_short_message(
    project: Project, arguments: list[str], message: str
) -> None:
    """Exit code 2, the name that is wrong, no traceback on the terminal, the log named."""
    result = project.run(*arguments)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 3
    assert "run.log" in result.stdout


def test_a_file_with_a_header_only_has_no_rows(tmp_path: pathlib.Path) -> None:
    """No rows is an error of the data, told as such."""
    project = make_project(tmp_path / "p", rows=0)
    result = project.run()
    assert result.returncode == 2
    assert "no rows" in result.stderr


def test_a_run_that_is_interrupted_or_killed_leaves_no_process_and_goes_on(tmp_path: pathlib.Path) -> None:
    """SIGTERM and then SIGKILL in mid-training: no process stays, nothing half written counts, and the same command
    goes on from the checkpoint. The metadata and the list of runs say what became of each.
    """
    project = make_project(tmp_path / "p")
    more = ("train.steps=6000", "train.checkpoint_every=200", "train.steps_per_call=1")
    arguments = [argument for setting in more for argument in ("--set", setting)]
    seen = [
        _end_after_a_checkpoint(project, arguments, signal.SIGTERM, exit_code=1),
        _end_after_a_checkpoint(project, arguments, signal.SIGKILL, exit_code=-signal.SIGKILL),
    ]
    again = project.run(*arguments)
    assert again.returncode == 0, again.stderr
    assert project.states()["Transform"] == "cached"
    [path] = (project.root / "artifacts" / "DistributedTrainer").glob("model_run/*/summary.json")
    [attempt] = json.loads(path.read_text())["attempts"]
    assert seen[0] < seen[1] <= attempt["resumed_step"] < 6000
    listed = json.loads(project.lockstep("runs", str(project.root), "--json").stdout)
    assert [run["state"] for run in listed] == ["failed", "killed", "done"]
    with contextlib.closing(sqlite3.connect(project.root / "metadata.sqlite")) as store:
        found = store.execute(
            "SELECT last_known_state FROM Execution JOIN Type ON Type.id = type_id"
            " WHERE Type.name LIKE '%DistributedTrainer' ORDER BY Execution.id"
        ).fetchall()
    assert [state for (state,) in found] == [_FAILED, _FAILED, _COMPLETE]


def _end_after_a_checkpoint(project: Project, arguments: list[str], number: signal.Signals, *, exit_code: int) -> int:
    """Runs the pipeline until it has a new checkpoint and sends a signal; returns the newest checkpoint's step."""
    before = _newest_checkpoint(project)
    command = project.command("run", "hills.yaml", "--root", str(project.root), *arguments)
    with subprocess.Popen(command, cwd=project.folder, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None and _newest_checkpoint(project) == before:
            time.sleep(0.05)  # There is nothing to wait on: workers of another process write it.
        step = _newest_checkpoint(project)
        process.send_signal(number)
        assert process.wait(timeout=120) == exit_code, "the run ended before it trained"
    deadline_s = time.monotonic() + 60
    while _processes_with(str(project.root)):  # after SIGKILL they need a moment to notice
        assert time.monotonic() < deadline_s, _processes_with(str(project.root))
        assert number == signal.SIGKILL
        time.sleep(0.1)
    return step


def _newest_checkpoint(project: Project) -> int:
    folders = (project.root / "training").glob("*/checkpoints/step-*")
    return max((int(folder.name.removeprefix("step-")) for folder in folders), default=0)


def _processes_with(text: str) -> list[str]:
    """Returns the command lines of running processes that hold a text."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in command:
            found.append(command)
    return found


def test_a_closed_output_ends_the_run(tmp_path: pathlib.Path) -> None:
    """`lockstep run ... | head -1`: no traceback, nothing said of the root, no process left."""
    project = make_project(tmp_path / "p")
    process = subprocess.Popen(
        project.command("run", "hills.yaml", "--root", str(project.root)),
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 1
    error = process.stderr.read()
    assert "Traceback" not in error
    assert "--root" not in error
    assert not _processes_with(str(project.root))


_SCHEMA = """
feature { name: "height" type: FLOAT float_domain { min: 0 max: 90 } }
feature { name: "width" type: FLOAT }
feature { name: "region" type: BYTES string_domain { value: "north" value: "south" } }
feature { name: "steep" type: INT }
"""


def test_anomalies_stop_the_run_with_the_rows_that_show_them(tmp_path: pathlib.Path) -> None:
    """Before anything is made of the data, by a reviewed schema; the message has the key that lets them pass."""
    project = make_project(tmp_path)
    header, *rows = (project.folder / "data" / "hills.csv").read_text().splitlines()
    for name, lines in (("train", rows[:400]), ("eval", [*rows[400:], "2,1,moon,1"])):
        (project.folder / "data" / f"{name}.csv").write_text("\n".join([header, *lines, ""]))
    (project.folder / "data" / "hills.csv").unlink()
    arguments = ["data.path=data", "data.split_by={paths: {train: train.csv, eval: eval.csv}}", "data.keep_origin=true"]
    options = [word for argument in arguments for word in ("--set", argument)]
    (project.folder / "hills.schema.pbtxt").write_text(_SCHEMA)
    stopped = project.run(*options, "--set", "schema=hills.schema.pbtxt")
    assert stopped.returncode == 3, stopped.stderr
    assert "3 anomalies in the data" in stopped.stderr
    assert "eval, column 'region'" in stopped.stderr
    assert "train, column 'height'" in stopped.stderr
    assert "expected: numbers, from 0 to 90" in stopped.stderr
    assert f"{project.folder}/data/eval.csv:{len(rows) - 400 + 2} ('moon')" in stopped.stderr
    assert "validate.allow: [enum_type_unexpected_string_values, float_type_big_float]" in stopped.stderr
    assert project.states()["ExampleValidator"] == "failed"
    assert "Transform" not in project.states()
