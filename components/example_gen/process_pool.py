"""A few processes that work on the pieces of one job, each on one piece at a time.

Python's own pools import the caller's main module again, which starts an unguarded script of a user's a second time,
and leave processes behind when the caller is killed. Here a process ends as soon as its connection does.
"""

import collections
import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lockstep.components.errors import StepFailed, UserError

_J = TypeVar("_J")
_T = TypeVar("_T")
_R = TypeVar("_R")

_MAX_PROCESSES = 8
_MAX_QUEUED = 2  # pieces sent to a process: one that it works on, one that waits
_END_S = 10.0
_POLL_S = 1.0
_STOPPED_S = 60.0  # a process that was stopped and goes on sooner costs only that time
# Not `-m`: that puts the current folder first on the path, where a user's own files may have any name.
_START = "import sys; sys.path[:] = sys.argv[2:]; from {module} import serve; serve(int(sys.argv[1]))"


class Workers(Protocol):
    """Whatever works on the pieces of a job."""

    def map(self, function: Callable[[_J, _T], _R], job: _J, tasks: Sequence[_T]) -> Iterator[_R]:
        """Gives ``function(job, task)`` for each task, in their order.

        Args:
          function: Of a module, so that it can be pickled by name.
          job: What all tasks have in common; pickled once a process.
          tasks: Pickled one by one.

        Raises:
          Exception: What the function raised, for the first task for which it did.
          StepFailed: A process ended before its work was done, or was stopped for a minute.
        """

    def within(self, folder: Path) -> "Workers":
        """Returns the same workers; what they write for each other's use goes to ``folder``."""

    def close(self) -> None:
        """Ends all that was started; nothing is left running."""


class ThisProcess:
    """Works by itself: for little input."""

    def map(self, function: Callable[[_J, _T], _R], job: _J, tasks: Sequence[_T]) -> Iterator[_R]:
        """See ``Workers``."""
        for task in tasks:
            yield function(job, task)

    def within(self, folder: Path) -> "ThisProcess":
        """See ``Workers``."""
        return self

    def close(self) -> None:
        """Does nothing."""


class ProcessPool:
    """Works in other processes of this machine, which start with the first job.

    Args:
      num_processes: How many; 1 or more.
    """

    def __init__(self, num_processes: int) -> None:
        self.num_processes = num_processes
        self._workers: list[_Worker] = []
        self._num_jobs = 0

    def map(self, function: Callable[[_J, _T], _R], job: _J, tasks: Sequence[_T]) -> Iterator[_R]:
        """See ``Workers``. At most two tasks a process are under way, and as many results wait for their turn."""
        while len(self._workers) < min(self.num_processes, len(tasks)):
            self._workers.append(_Worker())
        self._num_jobs += 1  # results of an earlier job that was left are not taken for this one's
        for worker in self._workers:
            worker.send(("job", self._num_jobs, function, job))
        results: dict[int, tuple[bool, Any]] = {}
        sent, given = 0, 0
        while given < len(tasks):
            while sent < len(tasks) and sent < given + 2 * _MAX_QUEUED * len(self._workers):
                free = min(self._workers, key=lambda worker: len(worker.tasks))
                if len(free.tasks) >= _MAX_QUEUED:
                    break
                free.tasks.append((self._num_jobs, sent))
                free.send(("task", sent, tasks[sent]))
                sent += 1
            while given in results:
                done, result = results.pop(given)
                if not done:
                    raise result
                given += 1
                yield result
                break
            else:
                self._receive(results)

    def within(self, folder: Path) -> "ProcessPool":
        """See ``Workers``."""
        return self

    def close(self) -> None:
        """See ``Workers``."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()
        self._workers = []

    def _receive(self, results: dict[int, tuple[bool, Any]]) -> None:
        by_connection = {worker.connection: worker for worker in self._workers if worker.tasks}
        ready = wait(list(by_connection), _POLL_S)
        if not ready:
            for worker in by_connection.values():
                worker.check_running()
        for connection in ready:
            assert isinstance(connection, Connection)
            worker = by_connection[connection]
            job_number, number, done, result = worker.receive()
            worker.tasks.remove((job_number, number))
            if job_number == self._num_jobs:
                results[number] = done, result


class _Worker:
    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        self.tasks: collections.deque[tuple[int, int]] = collections.deque()
        self._stopped_at: float | None = None
        start = _START.format(module=__name__)
        fd = theirs.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-c", start, str(fd), *filter(None, sys.path)], pass_fds=(fd,), stdin=subprocess.DEVNULL
        )
        theirs.close()

    def check_running(self) -> None:
        """Raises StepFailed when the process has been stopped (SIGSTOP) for a while: nobody else would end the wait."""
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return
        with contextlib.suppress(ChildProcessError):  # it has ended, which its connection tells
            if os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None:
                self._stopped_at = None
                return
            self._stopped_at = self._stopped_at or time.monotonic()
            if time.monotonic() - self._stopped_at >= _STOPPED_S:
                raise StepFailed(
                    f"a process that reads rows ({self.process.pid}) has been stopped by a signal for"
                    f" {_STOPPED_S:g} s; run again"
                )

    def send(self, message: Any) -> None:
        try:
            self.connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except (BrokenPipeError, ConnectionError) as e:
            raise self._gone() from e

    def receive(self) -> Any:
        try:
            return pickle.loads(self.connection.recv_bytes())  # noqa: S301 - from a process of our own
        except (EOFError, ConnectionError) as e:
            raise self._gone() from e

    def _gone(self) -> StepFailed:
        try:
            code = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return StepFailed("a process that reads rows closed its connection")
        if code >= 0:
            return StepFailed(f"a process that reads rows ended with exit code {code}; its own messages are above")
        name = signal.Signals(-code).name
        reason = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return StepFailed(f"a process that reads rows was ended by {name}{reason}; run again")


def num_processors() -> int:
    """Returns how many processors this process may use, at most 8, as each takes memory of its own."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MAX_PROCESSES)


def serve(fd: int) -> None:
    """Works on what comes through a connection until it ends; the main function of a pool's process."""
    import pyarrow as pa

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is asked as well, and ends us
    pa.set_cpu_count(1)
    connection = Connection(fd)
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive_all, args=(connection, messages), daemon=True).start()
    function: Callable[[Any, Any], Any] | None = None
    job: Any = None
    job_number = 0
    while True:
        message = messages.get()
        if message[0] == "job":
            _, job_number, function, job = message
            continue
        assert function is not None
        _, number, task = message
        try:
            content = pickle.dumps((job_number, number, True, function(job, task)), pickle.HIGHEST_PROTOCOL)
        except Exception as e:  # noqa: BLE001 - it is raised in the parent
            content = pickle.dumps((job_number, number, False, portable_error(e)), pickle.HIGHEST_PROTOCOL)
        connection.send_bytes(content)
        del message, task, content
        pa.default_memory_pool().release_unused()


def _receive_all(connection: Connection, messages: "queue.SimpleQueue[Any]") -> None:
    """Takes messages in at any time, so that neither side waits for the other to read; ends the process with them."""
    while True:
        try:
            content = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # whatever it works on: nobody wants the result
        try:
            messages.put(pickle.loads(content))  # noqa: S301 - from our own parent
        except Exception:  # noqa: BLE001 - the parent is told by our end
            traceback.print_exc()
            os._exit(1)


def portable_error(error: Exception) -> Exception:
    """Returns an error that can be pickled; what is no fault of the user's keeps its traceback as text."""
    if isinstance(error, UserError | StepFailed | OSError):
        return error
    return RuntimeError("in a process that reads rows:\n" + "".join(traceback.format_exception(error)))
