"""The process that shows a run: its root, its lock, and the end of the child."""

import fcntl
import io
import os
import pathlib
import subprocess
import sys
import time

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.example_gen.options import CsvOptions, DataOptions
from lockstep.pipelines import run
from lockstep.pipelines.config import ConfigSource, load_config
from lockstep.pipelines.console import Console
from lockstep.pipelines.run_files import RunFiles


@pytest.fixture
def source(tmp_path: pathlib.Path) -> ConfigSource:
    """The taxi example, which is there wherever TFX is."""
    return load_config("taxi", root=tmp_path / "root")[0]


def run_it(source: ConfigSource, root: pathlib.Path, *force: str) -> None:
    """Runs; none of the tests here comes so far that a process starts."""
    run.run_pipeline(source, root, Console(io.StringIO()), force)


def test_a_root_in_use_is_refused_with_the_process_that_uses_it(source: ConfigSource, tmp_path: pathlib.Path) -> None:
    """Two runs never write to one root."""
    (tmp_path / "root").mkdir()
    with (tmp_path / "root" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        with pytest.raises(StepFailed, match=r"another run \(process 4711\) uses .*root; wait for it, or give another"):
            run_it(source, tmp_path / "root")


def test_a_root_that_is_a_file_is_the_users_mistake(source: ConfigSource, tmp_path: pathlib.Path) -> None:
    """Said with the flag's name, before anything is loaded."""
    (tmp_path / "root").write_text("")
    with pytest.raises(ConfigurationError, match=r"--root .*root: "):
        run_it(source, tmp_path / "root")


def test_a_step_that_there_is_not_is_refused_before_anything_is_made(
    source: ConfigSource, tmp_path: pathlib.Path
) -> None:
    """It took twenty seconds, the load of TFX, to be told."""
    with pytest.raises(ConfigurationError, match=r"--force Evalator: no such step; did you mean Evaluator\?"):
        run_it(source, tmp_path / "root", "Pusher", "Evalator")
    assert not (tmp_path / "root").exists()


def test_artifacts_without_their_metadata_are_refused(source: ConfigSource, tmp_path: pathlib.Path) -> None:
    """New artifacts would get the numbers, and so the folders, of the old ones."""
    (tmp_path / "root" / "artifacts" / "ExampleGen").mkdir(parents=True)
    with pytest.raises(
        ConfigurationError, match=r"metadata\.sqlite is gone.*remove that folder, or give another --root"
    ):
        run_it(source, tmp_path / "root")


def test_reading_ends_with_the_child_though_a_fork_holds_the_pipe() -> None:
    """User code may fork, and the fork inherits the pipe: the run ends all the same, with every whole line."""
    read_fd, write_fd = os.pipe()
    program = (
        "import os, sys, time\n"
        "os.write(int(sys.argv[1]), b'one\\ntwo\\nhal')\n"
        "if os.fork() == 0:\n    time.sleep(60)\n"
        "os._exit(0)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(write_fd)], pass_fds=[write_fd], start_new_session=True
    )
    os.close(write_fd)
    begin = time.monotonic()
    try:
        assert list(run._lines(read_fd, child)) == ["one\n", "two\n"]
        assert time.monotonic() - begin < 30
    finally:
        os.killpg(child.pid, 9)
        os.close(read_fd)


def test_a_child_that_dies_is_told_by_its_signal() -> None:
    """Out of memory looks like SIGKILL; an exit code is no success without the last event."""
    assert run._died(-9).startswith("the pipeline's process was ended by SIGKILL; perhaps")
    assert "exit code 0" in run._died(0)


def test_the_closing_line_reads_the_rows_as_the_pipeline_did() -> None:
    """What `lockstep predict` needs to know of the data is part of the line to copy."""
    data = DataOptions(path="/d/a b.data", format="csv", options=CsvOptions(delimiter=";", null_tokens=("?",)))
    assert run._predict_data(data) == "'/d/a b.data' --format=csv '--delimiter=;' '--null-token=?'"
    options = CsvOptions(quote="'", header=False, column_names=("x", "y"))
    data = DataOptions(path="/d/a", options=options, on_error="quarantine")
    quote = "'--quote='\"'\"''"
    assert run._predict_data(data) == f"/d/a {quote} --no-header --column-name=x --column-name=y --skip-bad-rows"


def test_a_report_that_fails_is_told_and_is_no_matter_of_the_run(tmp_path: pathlib.Path) -> None:
    """Whatever goes wrong, the run's end stays what it was; the log has the reason."""
    log_path = tmp_path / "run.log"
    with log_path.open("ab") as log:
        told = run.report_run(RunFiles(tmp_path / "gone"), log)
        assert str(told).startswith("not written: No such file")
        (tmp_path / "report.html").mkdir()  # in the report's place
        (tmp_path / "events.jsonl").write_text("")
        assert run.report_run(RunFiles(tmp_path), log) == "not written; the log says why"
    assert "Is a directory" in log_path.read_text()


def test_a_run_that_left_nothing_has_a_report(tmp_path: pathlib.Path) -> None:
    """The path comes back, for the closing lines."""
    run_dir = tmp_path / "runs" / "20261130T120000"
    run_dir.mkdir(parents=True)
    with (tmp_path / "run.log").open("ab") as log:
        assert run.report_run(RunFiles(run_dir), log) == run_dir / "report.html"
    assert "ended without a word" in (run_dir / "report.html").read_text()


def test_a_run_that_is_ended_while_its_report_is_written_still_says_how_it_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM ends the report alone."""
    monkeypatch.setattr(run, "_REPORT", "import os, time; os.kill(os.getppid(), 15); time.sleep(60)")
    with (tmp_path / "run.log").open("ab") as log:
        assert run.report_run(RunFiles(tmp_path), log) == "not written: interrupted"
