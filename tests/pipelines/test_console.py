"""What a run looks like."""

import io
import pathlib

from lockstep.pipelines.console import Console
from lockstep.pipelines.run_events import RunFinished, RunStarted, StepChanged


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """A terminal."""
        return True


def show_all(stream: io.StringIO, finished: RunFinished) -> str:
    """Shows a small run and returns what was written."""
    console = Console(stream)
    console.run_begins("demo", pathlib.Path("/r/run.log"))
    console.show(RunStarted(steps=("ExampleGen", "Trainer"), versions="TFX 1"), 2.0)
    console.show(StepChanged(step="ExampleGen", state="running"), 2.0)
    console.show(StepChanged(step="ExampleGen", state="done", figure="3 rows", seconds=1.25), 3.0)
    console.show(StepChanged(step="Trainer", state="running", figure="step 1/2", seconds=0.5), 3.5)
    console.show(StepChanged(step="Trainer", state="failed", seconds=1.0), 4.0)
    console.run_ends(finished, pathlib.Path("/r/run.log"), 5.0, "rows.csv")
    return stream.getvalue()


def test_a_log_has_one_line_a_finished_step_and_names_the_log_file() -> None:
    """Without a terminal there are no control codes and no passing states."""
    text = show_all(io.StringIO(), RunFinished(exit_code=1, message="broken"))
    assert text.splitlines() == [
        "demo: loading TFX and TensorFlow; log in /r/run.log",
        "loaded in 2.0 s: TFX 1",
        "  ExampleGen  done        1.2 s  3 rows",
        "  Trainer     FAILED      1.0 s",
        "log:    /r/run.log",
    ]


def test_a_terminal_shows_the_running_step_live() -> None:
    """The running line is written anew in its place."""
    text = show_all(Terminal(), RunFinished(exit_code=0, message="all good"))
    assert "\r\x1b[K  Trainer     \x1b[0mrunning \x1b[0m    0.5 s  step 1/2" in text
    assert text.endswith("done in 5.0 s: all good\n\r\x1b[Klog:    /r/run.log\n")


def test_a_long_figure_does_not_wrap_a_live_line() -> None:
    """A wrapped line could not be written anew."""
    terminal = Terminal()
    console = Console(terminal)
    console.show(StepChanged(step="Trainer", state="running", figure="x" * 500), 0.0)
    assert len(terminal.getvalue()) < 120


def test_a_pushed_model_is_shown_with_the_command_that_tries_it() -> None:
    """Where it is served, and a line to copy."""
    stream = io.StringIO()
    finished = RunFinished(exit_code=0, message="the model is pushed", pushed="/r/pushed/7")
    Console(stream, command=".venv/bin/lockstep").run_ends(finished, pathlib.Path("/r/run.log"), 5.0, "a.csv")
    assert "served: /r/pushed/7\ntry:    .venv/bin/lockstep predict /r/pushed/7 --data a.csv\n" in stream.getvalue()


def test_the_line_to_copy_holds_for_folders_with_blanks() -> None:
    """As the shell takes it."""
    stream = io.StringIO()
    finished = RunFinished(exit_code=0, message="the model is pushed", pushed="/my r/pushed/7")
    Console(stream, command="/my venv/lockstep").run_ends(finished, pathlib.Path("/r/run.log"), 5.0, "'a b.csv'")
    assert "try:    '/my venv/lockstep' predict '/my r/pushed/7' --data 'a b.csv'\n" in stream.getvalue()
