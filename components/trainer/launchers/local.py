"""Workers as processes of this machine."""

import contextlib
import dataclasses
import errno
import json
import logging
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from lockstep.components.errors import StepFailed
from lockstep.components.trainer.launchers import TooFewPlaces, WorkerGroup, WorkerStatus, gpus
from lockstep.components.trainer.launchers.assignment import Assignment
from lockstep.components.trainer.launchers.standbys import Standbys
from lockstep.components.trainer.spec import RunFiles

__all__ = ["LocalLauncher"]

_HOST = "127.0.0.1"
_STOP_TIMEOUT_S = 30.0  # only a process that hangs inside the kernel outlives SIGKILL for so long
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM)  # what fork says of too many processes, and of too little memory
_MAX_LINE_BYTES = 1 << 20  # output without line ends must not fill the supervisor's memory

_logger = logging.getLogger(__name__)


class LocalLauncher:
    """Runs a group as processes of this machine; see ``Launcher`` for the methods.

    Every worker leads a session of its own, works in its own folder ``worker-<i>`` under the run's folder (a file in
    the user's folder shadows nothing there), and inherits the environment but for ``TF_CONFIG``. Its standard input is
    a pipe that this process holds open and never writes to: it closes when this process ends, by SIGKILL too, and the
    worker ends then. Standard output and error go to the log straight, so that no output is lost with this process.

    Args:
      base_port: The workers listen on this TCP port and the ones after it; None takes free ones, others at every
        start. A port that somebody else takes between the choice and its use costs an attempt.
      devices_per_worker: So many of the machine's GPUs each worker sees, none shared; all of the CPU without any GPU.
      standby_command: Of the processes that ``prepare`` keeps, see ``standby``; None keeps none.
    """

    def __init__(
        self,
        *,
        base_port: int | None = None,
        devices_per_worker: int = 1,
        standby_command: tuple[str, ...] | None = None,
    ) -> None:
        self._base_port = base_port
        self._devices_per_worker = devices_per_worker
        self._workers: list[_Worker] = []
        self._standbys = Standbys(standby_command)

    def start(self, group: WorkerGroup) -> None:
        """Starts every worker, or none.

        Raises:
          StepFailed: A port from ``base_port`` is in use, or the system refuses a file or a process.
          ConfigurationError: The machine has GPUs, but too few.
          TooFewPlaces: It has GPUs, memory or processes left for fewer workers.
        """
        if self._workers:
            raise RuntimeError("start: the group of the last start still runs; stop it first")
        dealt = gpus.deal_gpus(
            gpus.visible_gpus(os.environ),
            num_workers=group.num_workers,
            devices_per_worker=self._devices_per_worker,
        )
        ports = self._choose_ports(len(group.members))
        try:
            for number in range(len(group.members)):
                self._workers.append(_start_worker(_Place(group, number, tuple(ports), dealt), self._standbys))
        except OSError as e:
            started = len(self._workers)
            self.stop()
            error = StepFailed(f"workers cannot be started on this machine: {e}")
            if started and e.errno in _NO_ROOM:
                raise TooFewPlaces(error, available=started) from e
            raise error from e
        except BaseException:
            self.stop()
            raise

    def poll(self) -> tuple[WorkerStatus, ...]:
        """Returns what happened since the last poll."""
        return tuple(worker.status() for worker in self._workers)

    def replace(self, worker: int) -> None:
        """Kills one worker's session and starts it again at the same port, with a log of its own.

        Raises:
          StepFailed: The old one does not go, or the system refuses a file or a process.
        """
        old = self._workers[worker]
        _kill([old])
        try:
            place = dataclasses.replace(old.place, start=old.place.start + 1)
            self._workers[worker] = _start_worker(place, self._standbys)
        except OSError as e:
            raise StepFailed(f"workers cannot be started on this machine: {e}") from e

    def prepare(self, count: int) -> None:
        """Keeps so many processes ready, fewer where memory is short."""
        self._standbys.keep(count)

    def stop(self) -> None:
        """Kills the sessions of all workers with SIGKILL: TensorFlow swallows SIGTERM.

        Raises:
          StepFailed: A process is still there half a minute after SIGKILL, stuck inside the kernel.
        """
        workers, self._workers = self._workers, []
        _kill(workers)

    def _choose_ports(self, count: int) -> list[int]:
        if self._base_port is None:
            return _free_ports(count)
        ports = list(range(self._base_port, self._base_port + count))
        for port in ports:
            _check_port(port, self._base_port, count)
        return ports


@dataclasses.dataclass(frozen=True)
class _Place:
    """Which process of which group it is, and how often it was started; ports of all, GPUs of the workers."""

    group: WorkerGroup
    number: int
    ports: tuple[int, ...]
    gpus: tuple[tuple[str, ...], ...]
    start: int = 1

    @property
    def environment(self) -> dict[str, str]:
        members = self.group.members
        cluster: dict[str, list[str]] = {}
        for (role, _), port in zip(members, self.ports, strict=True):
            cluster.setdefault(role, []).append(f"{_HOST}:{port}")
        role, index = members[self.number]
        config = {"cluster": cluster, "task": {"type": role, "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        if any(self.gpus):
            environment[gpus.VARIABLE] = ",".join(self.gpus[index]) if role == "worker" else "-1"
        return environment


@dataclasses.dataclass
class _Worker:
    """One running process, and how far its log has been read."""

    place: _Place
    process: subprocess.Popen[bytes]
    log_path: Path
    log_offset: int = 0
    partial_line: bytes = b""

    def status(self) -> WorkerStatus:
        exit_code = self._exit_code()  # before the log is read: an ended worker writes nothing more
        return WorkerStatus(
            worker=self.place.number,
            exit_code=exit_code,
            new_lines=self._read_lines(ended=exit_code is not None),
            log_path=self.log_path,
        )

    def _exit_code(self) -> int | None:
        if self.process.returncode is not None:
            return self.process.returncode
        # The process stays a zombie until `reap`, so that no other can get its id before its session is killed.
        state = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status

    def _read_lines(self, *, ended: bool) -> tuple[str, ...]:
        with self.log_path.open("rb") as log:
            log.seek(self.log_offset)
            new = log.read()
        self.log_offset += len(new)
        *lines, self.partial_line = (self.partial_line + new).split(b"\n")
        if self.partial_line and (ended or len(self.partial_line) > _MAX_LINE_BYTES):
            lines.append(self.partial_line)
            self.partial_line = b""
        return tuple(line.decode(errors="replace") for line in lines)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self, deadline: float) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as e:
            raise StepFailed(
                f"process {self.process.pid} of the group is still there {_STOP_TIMEOUT_S:g} s after SIGKILL; "
                "it hangs inside the kernel, often on a network file system; restart the machine if it stays"
            ) from e


def _start_worker(place: _Place, standbys: Standbys) -> _Worker:
    worker_dir = RunFiles(place.group.run_dir).worker_dir(place.number)
    worker_dir.mkdir(parents=True, exist_ok=True)
    log_path = place.group.log_path(place.number, place.start)
    log_path.unlink(missing_ok=True)  # events of an earlier run would be taken for this one's
    with log_path.open("ab") as log:  # appending: standard output and error must not overwrite each other
        assignment = Assignment(
            command=place.group.command,
            environment=place.environment,
            folder=str(worker_dir.absolute()),
            log_path=str(log_path.absolute()),
        )
        if (ready := standbys.take(assignment)) is not None:
            return _Worker(place, ready, log_path)
        process = subprocess.Popen(
            place.group.command,
            cwd=worker_dir,
            env=place.environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return _Worker(place, process, log_path)


def _kill(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.kill()
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    _end_sessions({worker.process.pid for worker in workers}, deadline)
    for worker in workers:
        worker.reap(deadline)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:  # all are held until the last is chosen, so that they differ
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def _check_port(port: int, base_port: int, count: int) -> None:
    with socket.socket() as probe:
        # As TensorFlow's server binds: what a killed worker leaves in TIME_WAIT does not count, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as e:
            raise StepFailed(
                f"base_port: {base_port} cannot be used: port {port} of {base_port} to {base_port + count - 1}, one "
                f"for each worker, is taken or not allowed ({e.strerror}); end the program that listens there, give "
                "another base_port, or leave base_port out to take free ports"
            ) from e


def _end_sessions(session_ids: set[int], deadline: float) -> None:
    """Kills what is left of these sessions: a worker's child may have left the group of its parent."""
    while rest := _session_members(session_ids):
        for pid in rest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise StepFailed(f"processes {sorted(rest)} of workers are still there {_STOP_TIMEOUT_S:g} s after SIGKILL")
        time.sleep(0.005)


def _session_members(session_ids: set[int]) -> set[int]:
    """Returns the living processes of these sessions; none where the system has no /proc."""
    members = set()
    for stat_path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            # After the name, which may hold anything, in parentheses: state, parent, group, session.
            state, _, _, session = stat_path.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(session) in session_ids and state not in "ZX":
                members.add(int(stat_path.parent.name))
    return members
