"""Processes that have loaded what every worker loads, and fork into the workers of a test.

A forked worker is a process like one that is started by ``spec.worker_command``, with its own folder, environment,
standard streams and id, and runs the same program; it only does not import TensorFlow once more, which is most of a
small training. Nothing of TensorFlow runs yet when it forks. That the command works is shown by all tests that start a
launcher.
"""

import atexit
import contextlib
import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

_SERVER_NAME = "loaded_worker_server"
_MAX_REQUEST_BYTES = 1 << 17
# The import path is the one that `spec.worker_command` leaves.
_PROGRAM = f"""
import sys; sys.path[:] = [folder for folder in sys.path if folder]
import runpy; runpy.run_path({str(Path(__file__).absolute())!r}, run_name={_SERVER_NAME!r})
"""


class ForkedWorker:
    """A worker that was forked, with what the tests use of ``subprocess.Popen``."""

    def __init__(self, pid: int, status: socket.socket, stdin: IO[str], stdout: IO[str]) -> None:
        self.pid, self.returncode = pid, None
        self.stdin: IO[str] | None = stdin
        self.stdout: IO[str] = stdout
        self._status = status

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, of a signal its negative number; raises ``subprocess.TimeoutExpired``."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                told = self._status.recv(64)
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0) from None
            if not told:
                raise RuntimeError(f"the process that waits for worker {self.pid} has ended")
            self.returncode = int(told)
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it is known to have ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Closes the standard input, if any; returns the rest of the standard output once the worker has ended."""
        if self.stdin is not None:
            self.stdin.close()
        output: list[str] = []
        reader = threading.Thread(target=lambda: output.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0)
        self.stdout.close()
        self.wait(timeout)
        return output[0], None


def fork_worker(
    number: int, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], log_path: Path
) -> ForkedWorker:
    """Starts a worker with the arguments of ``worker.main``; its standard error goes to the log."""
    request = json.dumps({"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)})
    status, their_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    their_stdin, stdin = os.pipe()
    stdout, their_stdout = os.pipe()
    with log_path.open("wb") as log, their_status:
        descriptors = [their_stdin, their_stdout, log.fileno(), their_status.fileno()]
        socket.send_fds(_parent(number), [request.encode()], descriptors)
    os.close(their_stdin)
    os.close(their_stdout)
    return ForkedWorker(int(status.recv(64)), status, os.fdopen(stdin, "w"), os.fdopen(stdout))


@functools.cache
def _parent(number: int) -> socket.socket:
    """The parent of all workers of that number: each number has its own hash seed, as if started by its command."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> None:
    from lockstep.components.trainer import worker

    worker.end_with_parent()
    from lockstep.components.trainer import asynchronous, sharded, synchronous, training

    del asynchronous, sharded, synchronous, training
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for workers
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 4)
        if not data:
            return
        if os.fork() == 0:
            requests.close()
            _wait_for_worker(json.loads(data), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _wait_for_worker(request: dict[str, Any], stdin: int, stdout: int, stderr: int, status: int) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        for target, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, target)
            os.close(descriptor)
        _be_worker(request)
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    with socket.socket(fileno=status) as told:
        told.send(str(pid).encode())
        _, code = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # the test has ended
            told.send(str(os.waitstatus_to_exitcode(code)).encode())
    os._exit(0)


def _be_worker(request: dict[str, Any]) -> NoReturn:
    import numpy as np

    from lockstep.components.trainer import worker

    try:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        # No two draw the same by being forked alike.
        random.seed()
        np.random.seed()
        sys.argv = ["-c", *request["arguments"]]
        worker.main(sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(1)


if __name__ == _SERVER_NAME:
    _serve(socket.socket(fileno=int(sys.argv[1])))
