"""Starts the process that runs a pipeline, shows what it says, and ends it.

The pipeline runs in a child process: TensorFlow, Beam and user code write to file descriptors of their own will and may
crash at exit, so the child's output goes to a file, and what counts is the last event it sent, not its exit code.
"""

import contextlib
import dataclasses
import difflib
import json
import os
import pathlib
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, TextIO

from lockstep.components.errors import ConfigurationError
from lockstep.components.example_gen.files import split_path
from lockstep.components.example_gen.inputs import check_found
from lockstep.components.example_gen.options import CsvOptions, DataOptions
from lockstep.pipelines import beam_engines, reviewed_schema, run_events, run_guards
from lockstep.pipelines.config import ConfigSource
from lockstep.pipelines.console import Console, shorten
from lockstep.pipelines.run_files import RootFiles, RunFiles

STEPS = (
    "ExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "Transform",
    "DistributedTrainer",
    "Evaluator",
    "Pusher",
)

_STOP_TIMEOUT_S = 30.0
_REPORT_TIMEOUT_S = 120.0
_POLL_S = 0.2
_CHILD = (
    # The working folder leaves the import path: a user's own `keras.py` or `tests` must not stand in front.
    "import sys; sys.path.pop(0); from lockstep.pipelines.run_process import main; sys.exit(main(sys.argv[1:]))"
)
_REPORT = "import sys; sys.path.pop(0); from lockstep.pipelines.report.report import main; sys.exit(main(sys.argv[1:]))"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What the child process reads.

    Args:
      config: The configuration's JSON.
      folder: The user's folder, appended to the import path; None for an example.
      root: The pipeline's root folder.
      force: Steps that are not taken from the cache.
    """

    config: str
    folder: str | None
    root: str
    force: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Returns the JSON document that ``from_json`` turns into an equal request."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "RunRequest":
        """Returns the request of a JSON document."""
        document = json.loads(text)
        return cls(**{**document, "force": tuple(document["force"])})


def run_pipeline(
    source: ConfigSource, root: pathlib.Path, console: Console, force: Sequence[str] = ()
) -> run_events.RunFinished:
    """Runs a pipeline to its end and shows it; blocks.

    A second run on the same root is refused while one goes on. Interrupting (SIGINT, SIGTERM) ends the child and every
    process below it before this returns.

    Args:
      source: The configuration.
      root: Where runs, artifacts and metadata are kept; made where missing.
      console: What shows the events.
      force: Steps that run although nothing that they depend on has changed.

    Returns:
      How the run ended.

    Raises:
      DataError: there are no data files.
      ConfigurationError: the root cannot be written, or ``force`` names no step.
      StepFailed: another run uses the root.
    """
    check_steps(force, STEPS)
    check_data(source.config.data.path)
    beam_engines.check_options(source.config.beam)
    beam_engines.check_local(source.config.beam, root, source.config.data.path)
    files = RootFiles(root)
    if source.config.schema is not None:
        reviewed_schema.parse(source.config.schema)
    with contextlib.ExitStack() as stack:
        with run_guards.root_errors(root):
            files.runs_dir.mkdir(parents=True, exist_ok=True)
            stack.enter_context(run_guards.locked(files.lock_path))
            _check_root(files)
            run = RunFiles(run_guards.make_run_dir(files.runs_dir))
            request = RunRequest(
                config=source.config.to_json(),
                folder=str(source.folder) if source.folder else None,
                root=str(root),
                force=tuple(force),
            )
            run.request_path.write_text(request.to_json(), encoding="utf-8")
            log = stack.enter_context(run.log_path.open("ab"))
            record = stack.enter_context(run.events_path.open("a", encoding="utf-8"))
        console.run_begins(source.config.name, run.log_path)
        begin = time.monotonic()
        finished = _run_child(run, log, record, console, begin)
        elapsed_s = time.monotonic() - begin
        console.run_ends(finished, run.log_path, elapsed_s, _predict_data(source.config.data), report_run(run, log))
        return finished


def report_run(run: RunFiles, log: BinaryIO) -> pathlib.Path | str:
    """Writes a run's report by a process of its own: whatever goes wrong with it is no matter of the run's.

    Args:
      run: The run; it has ended.
      log: Where the process writes.

    Returns:
      The report, or why there is none.
    """
    command = [sys.executable, "-c", _REPORT, str(run.run_dir), str(run.report_path)]
    try:
        with run_guards.interruptible():  # the run's own message is yet to be told
            code = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=run.run_dir,
                timeout=_REPORT_TIMEOUT_S,
            ).returncode
    except subprocess.TimeoutExpired:
        return f"not written, since it took longer than {_REPORT_TIMEOUT_S:.0f} s"
    except KeyboardInterrupt:
        return "not written: interrupted"
    except OSError as e:
        return f"not written: {e.strerror}"
    return run.report_path if code == 0 else "not written; the log says why"


def _check_root(files: RootFiles) -> None:
    """Refuses artifacts whose metadata are gone: nobody knows what they are, and new ones would mix with them."""
    if not files.metadata_path.exists() and files.artifacts_dir.is_dir() and any(files.artifacts_dir.iterdir()):
        raise ConfigurationError(
            f"--root {files.root}: {files.metadata_path.name} is gone, and without it nothing under"
            f" {files.artifacts_dir} can be used; remove that folder, or give another --root"
        )


def _predict_data(data: DataOptions) -> str:
    """Returns the pipeline's own rows, and how they are read, as arguments of `lockstep predict`."""
    arguments = [shorten(data.path)]
    default = CsvOptions()
    if data.format is not None:
        arguments.append(f"--format={data.format}")
    if data.options.delimiter != default.delimiter:
        arguments.append(f"--delimiter={data.options.delimiter}")
    if data.options.quote != default.quote:
        arguments.append(f"--quote={data.options.quote}")
    if not data.options.header:
        arguments += ["--no-header", *(f"--column-name={name}" for name in data.options.column_names)]
    if data.options.encoding != default.encoding:
        arguments.append(f"--encoding={data.options.encoding}")
    if data.options.null_tokens != default.null_tokens:
        arguments += [f"--null-token={token}" for token in data.options.null_tokens or ("",)]
    if data.on_error == "quarantine":
        arguments.append("--skip-bad-rows")
    return shlex.join(arguments)


def check_steps(force: Iterable[str], steps: Sequence[str]) -> None:
    """Refuses to force a step that there is not.

    Raises:
      ConfigurationError: naming the nearest one, or all.
    """
    for step in force:
        if step not in steps:
            nearest = difflib.get_close_matches(step, steps, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"the steps are {', '.join(steps)}"
            raise ConfigurationError(f"--force {step}: no such step; {hint}")


def check_data(path: str) -> None:
    """Looks whether there are data files, before anything heavy is loaded.

    Raises:
      DataError: naming the path, and the nearest name there is.
    """
    if "{" not in path:  # TFX's {SPAN} and {VERSION} are resolved by ExampleGen's driver.
        check_found(*split_path(path))


def _run_child(run: RunFiles, log: BinaryIO, record: TextIO, console: Console, begin: float) -> run_events.RunFinished:
    read_fd, write_fd = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(run.run_dir), str(write_fd)],
        stdin=subprocess.PIPE,  # Never written to: its end tells the child that this process is gone.
        stdout=log,
        stderr=log,
        pass_fds=[write_fd],
        cwd=run.run_dir,
        start_new_session=True,
    )
    os.close(write_fd)
    finished: run_events.RunFinished | None = None
    was_interrupted = False
    try:
        with run_guards.interruptible():
            for line in _lines(read_fd, child):
                with run_guards.root_errors(run.run_dir):
                    record.write(line)
                    record.flush()
                event = run_events.from_line(line)
                if isinstance(event, run_events.RunFinished):
                    finished = event
                    break
                console.show(event, time.monotonic() - begin)
    except KeyboardInterrupt:
        finished = run_events.RunFinished(
            exit_code=1, message="interrupted; the same command takes finished steps from the cache and goes on"
        )
        was_interrupted = True
        console.interrupted()
        _stop(child, signal.SIGTERM)
    finally:
        os.close(read_fd)
        _stop(child, signal.SIGTERM if finished is None else None)
    if finished is None:
        finished = run_events.RunFinished(exit_code=1, message=_died(child.returncode))
    elif not was_interrupted:
        return finished
    with contextlib.suppress(OSError):  # a full disk; what the user sees counts
        record.write(run_events.to_line(finished))
        record.flush()
    return finished


def _lines(read_fd: int, child: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yields whole lines until the child has ended: a process that it forked may hold the pipe open for ever."""
    rest = b""
    while True:
        ready, _, _ = select.select([read_fd], [], [], _POLL_S)
        if not ready:
            if child.poll() is not None:
                return
            continue
        chunk = os.read(read_fd, 1 << 16)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() + "\n" for line in lines)


def _stop(child: subprocess.Popen[bytes], first: signal.Signals | None) -> None:
    """Waits for the child to end, asking it with ``first`` where given.

    Kills its whole session after a while, or at once when the user interrupts again: this never returns before the
    child has ended, since the root's lock goes with it.
    """
    if first is not None and child.poll() is None:
        child.send_signal(first)
    try:
        child.wait(timeout=_STOP_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    finally:
        # What it started and did not end, such as Beam's job server: nothing else is in its session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        if child.stdin is not None:
            child.stdin.close()


def _died(returncode: int) -> str:
    if returncode < 0:
        name = signal.Signals(-returncode).name
        hint = "; perhaps the machine ran out of memory" if name == "SIGKILL" else ""
        return f"the pipeline's process was ended by {name}{hint}"
    return f"the pipeline's process ended with exit code {returncode} before the pipeline did"
