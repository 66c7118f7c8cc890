"""One run of one pipeline in a fresh process and a fresh folder: seconds a step, and memory."""

import dataclasses
import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from benchmarks.process_tree import PeakMemory, processor_s
from lockstep.pipelines import run_events
from lockstep.pipelines.config import load_config

Side = Literal["stock", "lockstep"]

_REPOSITORY = Path(__file__).resolve().parent.parent
# A line of either's standard output.
_STEP_DONE = re.compile(r"\s+(\w+)\s+done\b")
# Names of steps in the table, where the two differ.
_ROWS = {"CsvExampleGen": "ExampleGen", "DistributedTrainer": "Trainer"}


class RunFailedError(Exception):
    """A pipeline did not end well; the message holds the end of its log."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one run took.

    Args:
      side: Whose pipeline.
      steps: Name of the step, as in the table -> seconds of driver, executor and publisher.
      steps_processor: Likewise, user and system time of all processes.
      import_s: From the start of the process until all is imported and the pipeline is built.
      import_processor_s: Processor time until then.
      total_s: From the start of the process to its end.
      processor_s: Processor time to its end.
      peak_bytes: Peak of the proportional set size of the process tree.
      load: Load average over one minute when it began.
    """

    side: Side
    steps: Mapping[str, float]
    steps_processor: Mapping[str, float]
    import_s: float
    import_processor_s: float
    total_s: float
    processor_s: float
    peak_bytes: int
    load: float


def measure(side: Side, *, data: Path, root: Path, overrides: Sequence[str] = ()) -> Measurement:
    """Runs the taxi pipeline on a CSV file and measures it; blocks.

    Args:
      side: Whose pipeline.
      data: The CSV file, alone in its folder.
      root: A new folder, for everything that the run writes.
      overrides: ``key=value`` of the configuration, for both.

    Raises:
      RunFailedError: The run failed, or its model was not pushed.
    """
    overrides = [f"data.path={data}", *overrides]
    root.mkdir(parents=True)
    command, folder, events_glob = _command(side, root, overrides)
    load = os.getloadavg()[0]
    used = _waited_for_s()
    begin = time.monotonic()
    import_s = None
    marks: list[tuple[str, float]] = []
    with (root / "stderr.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, cwd=folder, text=True, start_new_session=True
        )
        try:
            with PeakMemory(process.pid) as memory:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith("loaded") and import_s is None:
                        import_s = time.monotonic() - begin
                        marks.append(("", processor_s(process.pid)))
                    elif done := _STEP_DONE.match(line):
                        marks.append((done[1], processor_s(process.pid)))
                process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    total_s = time.monotonic() - begin
    events = [path for path in root.glob(events_glob) if path.stat().st_size]
    if import_s is None or not events:
        raise _failure(side, root)
    try:
        steps = step_seconds(events[0].read_text(encoding="utf-8").splitlines())
    except RunFailedError as e:
        raise _failure(side, root) from e
    return Measurement(
        side=side,
        steps=steps,
        steps_processor=differences(marks),
        import_s=import_s,
        import_processor_s=marks[0][1],
        total_s=total_s,
        processor_s=_waited_for_s() - used,
        peak_bytes=memory.peak_bytes,
        load=load,
    )


def step_seconds(lines: Iterable[str]) -> dict[str, float]:
    """Returns name of step, as in the table -> seconds, from the events of a whole run, in their order.

    Raises:
      RunFailedError: The run did not end with a pushed model.
    """
    steps: dict[str, float] = {}
    finished = None
    for line in lines:
        event = run_events.from_line(line)
        if isinstance(event, run_events.StepChanged) and event.state == "done":
            steps[_ROWS.get(event.step, event.step)] = event.seconds
        elif isinstance(event, run_events.RunFinished):
            finished = event
    if finished is None or finished.exit_code != 0:
        raise RunFailedError(finished.message if finished else "the run ended before the pipeline did")
    return steps


def differences(marks: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Returns name of step, as in the table -> what a counter grew by until the step's end since the mark before.

    Args:
      marks: Step and counter at its end; the first one is where the steps begin.
    """
    values = [value for _, value in marks]
    grown = [after - before for before, after in itertools.pairwise(values)]
    return {_ROWS.get(step, step): growth for (step, _), growth in zip(marks[1:], grown, strict=True)}


def _command(side: Side, root: Path, overrides: Sequence[str]) -> tuple[list[str], Path, str]:
    """Returns the command, its working folder, and where it leaves its events below the root."""
    if side == "lockstep":
        program = "import sys; from lockstep.pipelines.cli import main; sys.exit(main())"
        settings = [part for override in overrides for part in ("--set", override)]
        command = [sys.executable, "-c", program, "run", "taxi", "--root", str(root), *settings]
        return command, root, "runs/*/events.jsonl"
    source, _ = load_config("taxi", overrides=overrides, root=root)
    config_path = root / "config.json"
    config_path.write_text(source.config.to_json(), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.stock_run", str(config_path), str(root)]
    # Where `benchmarks` can be imported: it is not installed.
    return command, _REPOSITORY, "events.jsonl"


def _waited_for_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _failure(side: Side, root: Path) -> RunFailedError:
    logs = [*sorted(root.glob("runs/*/run.log")), root / "stderr.log"]
    ends = [path.read_text(encoding="utf-8", errors="replace")[-2000:] for path in logs]
    return RunFailedError(f"{side}: the run failed; its files are in {root}. Its log ends with\n{''.join(ends)}")
