"""The program of one worker process: reads the specification, trains with its peers, and the chief exports.

How it is started and what it says is in ``spec.py`` and ``heartbeat.py``.
"""

import argparse
import ctypes
import dataclasses
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from lockstep.components.errors import UserError
from lockstep.components.loading import collector_off
from lockstep.components.trainer.heartbeat import EventName, Reporter
from lockstep.components.trainer.spec import TrainOptions, TrainSpec
from lockstep.components.trainer.task import Task

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_ORPHANED = 3

_DUMP_SHARE = 0.8
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(arguments: Sequence[str]) -> NoReturn:
    """Runs one worker and ends the process; ``arguments`` are those of ``spec.worker_command`` after the program."""
    parser = argparse.ArgumentParser(prog="lockstep-worker")
    parser.add_argument("spec_path", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--stop-at-eof", action="store_true")
    options = parser.parse_args(arguments)
    if options.stop_at_eof:
        end_with_parent()
        end_at_eof(sys.stdin.buffer)
    spec = TrainSpec.from_json(options.spec_path.read_text(encoding="utf-8"))
    task = Task.from_tf_config(os.environ.get("TF_CONFIG"), spec.options)
    spec = dataclasses.replace(spec, options=spec.options.with_workers(task.num_workers))
    # Appended: a folder of the user's called `components` or `tests` must not shadow an installed package.
    sys.path.extend(path for path in spec.import_paths if path not in sys.path)
    reporter = Reporter(task.number, sys.stdout, on_line=StackDump(spec.options).heard)
    if task.is_server:
        from lockstep.components.trainer.server import serve

        serve(task, reporter)
    code = run(spec, task, reporter, attempt=options.attempt)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not `sys.exit`: TensorFlow's destructors may hang or crash once everything is written.
    os._exit(code)


def run(spec: TrainSpec, task: Task, reporter: Reporter, *, attempt: int) -> int:
    """Trains, and says how it went; returns the exit code. What goes wrong is reported, never raised."""
    reporter.say("started")
    if spec.options.attempt_timeout_s is not None:
        end_after(spec.options.attempt_timeout_s, reporter)
    try:
        done = _run_function(spec, task, reporter, attempt) if spec.run_fn else _train(spec, task, reporter, attempt)
    except UserError as e:
        traceback.print_exc()
        reporter.say("failed", message=str(e), traceback=traceback.format_exc(), user_error=True)
        return EXIT_USER_ERROR
    except SystemExit as e:  # nobody but the user's code calls sys.exit, in a layer for instance
        traceback.print_exc()
        message = f"the user's code ended the training: SystemExit: {e}"
        reporter.say("failed", step=reporter.step, message=message, traceback=traceback.format_exc(), user_error=True)
        return EXIT_USER_ERROR
    except Exception as e:  # noqa: BLE001  the boundary of the process: the supervisor gets the cause
        traceback.print_exc()
        reporter.say("failed", step=reporter.step, message=f"{type(e).__name__}: {e}", traceback=traceback.format_exc())
        return EXIT_FAILED
    reporter.say("done", **done)
    return 0


def _train(spec: TrainSpec, task: Task, reporter: Reporter, attempt: int) -> dict[str, Any]:
    with collector_off():
        from lockstep.components.trainer.training import Training

    training = Training(spec, task, reporter, attempt=attempt)
    result = training.train()
    weights_digest = training.digest()
    if task.is_chief:
        training.finish(result)
    usage = training.usage()
    return {
        "step": result.step,
        "digest": weights_digest,
        "records": result.records,
        "input_share": result.input_share,
        **usage,
    }


def _run_function(spec: TrainSpec, task: Task, reporter: Reporter, attempt: int) -> dict[str, Any]:
    with collector_off():
        from lockstep.components.trainer import run_function

    run_function.run(spec, task, reporter, attempt=attempt)
    return {"step": spec.options.num_steps, "digest": ""}


class StackDump:
    """Writes the stack of each thread to standard error shortly before a silent worker counts as stuck.

    The supervisor sees that it is stuck, and only the process itself can say where. A thread of the interpreter's own
    writes, so that code which never gives the interpreter to others is seen too.

    Args:
      options: Of the training.
    """

    def __init__(self, options: TrainOptions) -> None:
        self._starting_s = _DUMP_SHARE * options.start_timeout_s
        self._training_s = _DUMP_SHARE * options.heartbeat_timeout_s
        self._is_starting = True

    def heard(self, event: EventName) -> None:
        """Takes in that the worker is alive."""
        if event in ("done", "failed"):
            faulthandler.cancel_dump_traceback_later()
            return
        self._is_starting = self._is_starting and event not in ("heartbeat", "exporting")
        faulthandler.dump_traceback_later(self._starting_s if self._is_starting else self._training_s)


def end_after(seconds: float, reporter: Reporter) -> None:
    """Ends the process as failed when it still runs after that many seconds; returns at once."""

    def wait() -> None:
        time.sleep(seconds)
        reporter.say("failed", message=f"the attempt took longer than attempt_timeout_s: {seconds:g}")
        os._exit(EXIT_FAILED)

    threading.Thread(target=wait, name="attempt-timeout", daemon=True).start()


def end_with_parent() -> None:
    """Has the kernel kill this process with SIGKILL when the thread that started it ends; does nothing but on Linux.

    A process stopped by SIGSTOP does not see the end of its standard input; this reaches it too.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(EXIT_ORPHANED)


def end_at_eof(stream: BinaryIO) -> None:
    """Ends the process with `EXIT_ORPHANED` as soon as the other end of ``stream`` is closed; returns at once."""

    def wait() -> None:
        # By the descriptor: a thread that holds the stream's lock would block the interpreter's exit.
        while os.read(stream.fileno(), 1024):
            pass
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=wait, name="supervisor-watch", daemon=True).start()
