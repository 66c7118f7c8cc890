"""What a run looks like on a terminal: one line a step, the running one live."""

import pathlib
import shlex
import shutil
import sys
import time
from typing import TextIO

from lockstep.components.object_store import is_object_uri
from lockstep.pipelines import run_events

_STATES = {"done": "done", "cached": "cached", "failed": "FAILED", "skipped": "skipped", "running": "running"}
_COLOURS = {"done": "32", "cached": "36", "failed": "31", "skipped": "33", "running": "0"}
_SILENCE_S = 15.0


class Console:
    """Writes a run's events as lines.

    On a terminal the running step's line is written anew with each event; elsewhere a line appears when a step ends,
    and about every 15 s while one runs.

    Args:
      stream: Where to write.
      command: How the user calls the command line.
    """

    def __init__(self, stream: TextIO = sys.stdout, *, command: str = "lockstep") -> None:
        self._stream = stream
        self._command = command
        self._live = stream.isatty()
        self._width = 18
        self._last_written = time.monotonic()
        self._states: list[run_events.StepState] = []

    def run_begins(self, name: str, log_path: pathlib.Path, doing: str = "loading TFX and TensorFlow") -> None:
        """Says what runs and where its log is."""
        self._write(f"{name}: {doing}; log in {shorten(log_path)}")

    def show(self, event: run_events.RunEvent, elapsed_s: float) -> None:
        """Shows one event.

        Args:
          event: What happened.
          elapsed_s: Seconds since the run began.
        """
        if isinstance(event, run_events.RunStarted):
            self._width = max(map(len, event.steps), default=0) + 2
            if event.versions:
                self._write(f"loaded in {elapsed_s:.1f} s: {event.versions}")
        elif isinstance(event, run_events.StepChanged):
            self._show_step(event)

    def warn(self, message: str) -> None:
        """Says what goes on although it is not as it should be."""
        self._write(f"  warning: {message}")

    def interrupted(self) -> None:
        """Says that the run is being ended."""
        self._write("interrupted: ending the run's processes")

    def run_ends(
        self,
        finished: run_events.RunFinished,
        log_path: pathlib.Path,
        elapsed_s: float,
        data: str = "",
        report: pathlib.Path | str = "",
    ) -> None:
        """Writes the closing summary; the message of a run that failed is the command line's to print.

        Args:
          finished: How the run ended.
          log_path: Its log.
          elapsed_s: Seconds that it took.
          data: Rows that the model can be tried on, as `lockstep predict` takes them.
          report: Its report, or in words why there is none; empty where none was asked for.
        """
        self._clear()
        if finished.exit_code == 0:
            self._write("")
            self._write(f"done in {elapsed_s:.1f} s: {finished.message}")
            if finished.pushed:
                served = shorten(finished.pushed)
                self._write(f"served: {served}")
                self._write(f"try:    {shlex.join([self._command, 'predict', served])} --data {data}")
        if report:
            self._write(f"report: {shorten(report)}")
        self._write(f"log:    {shorten(log_path)}")

    def _show_step(self, event: run_events.StepChanged) -> None:
        state = f"{_STATES[event.state]:<8}"
        if self._live:
            state = f"\x1b[{_COLOURS[event.state]}m{state}\x1b[0m"
        line = f"  {event.step:<{self._width}}{state}{event.seconds:7.1f} s  {event.figure}".rstrip()
        if event.state != "running":
            self._write(line)
        elif self._live:
            width = shutil.get_terminal_size().columns
            self._stream.write("\r\x1b[K" + _fit(line, width))
            self._stream.flush()
        elif time.monotonic() - self._last_written > _SILENCE_S:
            self._write(line)

    def _write(self, line: str) -> None:
        self._clear()
        self._stream.write(line + "\n")
        self._stream.flush()
        self._last_written = time.monotonic()

    def _clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")


def _fit(line: str, width: int) -> str:
    """Cuts a line with colour codes so that it does not wrap; the codes take no room."""
    codes = len("\x1b[32m") + len("\x1b[0m")
    return line if len(line) - codes < width else line[: width + codes - 2] + "…"


def shorten(path: pathlib.Path | str) -> str:
    """Returns a path relative to the working folder where it is below it, else absolute; a URI as it is."""
    if isinstance(path, str) and is_object_uri(path):
        return path
    try:
        return str(pathlib.Path(path).relative_to(pathlib.Path.cwd()))
    except ValueError:
        return str(path)
