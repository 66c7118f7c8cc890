"""The local launcher with real processes, small ones of plain Python."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.components.errors import StepFailed
from lockstep.components.trainer.launchers import WorkerGroup, WorkerStatus, memory
from lockstep.components.trainer.launchers.local import LocalLauncher

# What every worker of these tests does: it ends when its standard input is closed, as a real one does.
WATCH_STDIN = """
import os, sys, threading
def watch():
    os.read(0, 1)
    os._exit(3)
threading.Thread(target=watch, daemon=True).start()
"""
PID_FOREVER = WATCH_STDIN + "print(os.getpid(), flush=True)\nthreading.Event().wait()"


def group(run_dir: Path, program: str, *, num_workers: int = 1, attempt: int = 1) -> WorkerGroup:
    """A group whose workers run a few lines of Python."""
    return WorkerGroup(
        command=(sys.executable, "-I", "-S", "-c", program), num_workers=num_workers, attempt=attempt, run_dir=run_dir
    )


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    """A launcher that leaves no process behind, whatever the test does."""
    launcher = LocalLauncher()
    yield launcher
    launcher.stop()


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Waits until something that another process does has happened."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def ended(launcher: LocalLauncher) -> tuple[list[WorkerStatus], list[list[str]]]:
    """Polls until all have ended; returns the last statuses and all lines of each worker."""
    lines: list[list[str]] = []
    statuses: list[WorkerStatus] = []

    def poll() -> bool:
        statuses[:] = launcher.poll()
        lines.extend([] for _ in range(len(statuses) - len(lines)))
        for status in statuses:
            lines[status.worker].extend(status.new_lines)
        return all(status.exit_code is not None for status in statuses)

    until(poll)
    return statuses, lines


def lines_of(launcher: LocalLauncher, worker: int, count: int) -> list[str]:
    """Polls until a worker has written so many lines."""
    lines: list[str] = []

    def poll() -> bool:
        lines.extend(launcher.poll()[worker].new_lines)
        return len(lines) >= count

    until(poll)
    return lines


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_each_worker_gets_its_place_in_the_cluster(launcher: LocalLauncher, tmp_path: Path) -> None:
    """TF_CONFIG names as many different local addresses as there are workers, and which one this is."""
    launcher.start(group(tmp_path, "import os; print(os.environ['TF_CONFIG'])", num_workers=3))
    _, lines = ended(launcher)
    configs = [json.loads(line) for (line,) in lines]
    assert [config["task"] for config in configs] == [{"type": "worker", "index": index} for index in range(3)]
    addresses = configs[0]["cluster"]["worker"]
    assert all(config["cluster"] == {"worker": addresses} for config in configs)
    assert len({address.removeprefix("127.0.0.1:") for address in addresses}) == 3


def test_the_environment_is_passed_on(launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of this process reaches the worker; an outer TF_CONFIG does not."""
    monkeypatch.setenv("TF_CONFIG", "outer")
    monkeypatch.setenv("A_CREDENTIAL", "x")
    launcher.start(group(tmp_path, "import os; print(os.environ['A_CREDENTIAL'], os.environ['TF_CONFIG'])"))
    _, lines = ended(launcher)
    assert lines[0][0].startswith("x {")


def test_a_worker_works_in_its_own_folder_and_session(launcher: LocalLauncher, tmp_path: Path) -> None:
    """The working directory is the worker's own under the run's folder, and the worker leads its session."""
    launcher.start(group(tmp_path, "import os; print(os.getcwd()); print(os.getsid(0) == os.getpid())", num_workers=2))
    _, lines = ended(launcher)
    assert lines == [[str(tmp_path / f"worker-{index}"), "True"] for index in range(2)]


def test_exit_codes_are_told(launcher: LocalLauncher, tmp_path: Path) -> None:
    """0 and 7 are told as they are, for as long as one asks."""
    program = "import json, os, sys; sys.exit(7 * json.loads(os.environ['TF_CONFIG'])['task']['index'])"
    launcher.start(group(tmp_path, program, num_workers=2))
    statuses, _ = ended(launcher)
    assert [status.exit_code for status in statuses] == [0, 7]
    assert [status.exit_code for status in launcher.poll()] == [0, 7]


def test_a_kill_by_a_signal_is_told(launcher: LocalLauncher, tmp_path: Path) -> None:
    """``kill -9`` of a worker from outside shows as -9, and the other one runs on."""
    launcher.start(group(tmp_path, PID_FOREVER, num_workers=2))
    pid = int(lines_of(launcher, 1, 1)[0])
    os.kill(pid, signal.SIGKILL)
    until(lambda: launcher.poll()[1].exit_code is not None)
    assert [status.exit_code for status in launcher.poll()] == [None, -signal.SIGKILL]


def test_output_and_errors_are_one_log_an_attempt(launcher: LocalLauncher, tmp_path: Path) -> None:
    """Standard output and error are in the attempt's own file, and polled whole, an unfinished last line too."""
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr, flush=True); print('end', end='')"
    for attempt in (1, 2):
        launcher.start(group(tmp_path, program, attempt=attempt))
        statuses, lines = ended(launcher)
        assert lines == [["out", "err", "end"]]
        assert statuses[0].log_path == tmp_path / f"worker-0.attempt-{attempt}.log"
        assert statuses[0].log_path.read_text() == "out\nerr\nend"
        launcher.stop()


def test_half_a_line_is_kept_until_it_is_whole(launcher: LocalLauncher, tmp_path: Path) -> None:
    """A line is told once and whole, however its bytes arrive."""
    program = WATCH_STDIN + (
        "sys.stdout.write('LOCK'); sys.stdout.flush()\n"
        "while not os.path.exists('go'): pass\n"
        "print('STEP \\u00fc', flush=True)\nthreading.Event().wait()"
    )
    launcher.start(group(tmp_path, program))
    until(lambda: (tmp_path / "worker-0.attempt-1.log").read_text() == "LOCK")
    assert launcher.poll()[0].new_lines == ()
    (tmp_path / "worker-0" / "go").touch()
    assert lines_of(launcher, 0, 1) == ["LOCKSTEP ü"]
    assert launcher.poll()[0].new_lines == ()


def test_stop_ends_workers_that_ignore_sigterm_and_stopped_ones(launcher: LocalLauncher, tmp_path: Path) -> None:
    """A worker deaf to SIGTERM, and one frozen by SIGSTOP, are gone after ``stop``: neither alive nor zombies."""
    program = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)" + PID_FOREVER
    launcher.start(group(tmp_path, program, num_workers=2))
    logs = [status.log_path for status in launcher.poll()]
    until(lambda: all(log.read_text().endswith("\n") for log in logs))
    pids = [int(log.read_text()) for log in logs]
    os.kill(pids[1], signal.SIGSTOP)
    launcher.stop()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert launcher.poll() == ()


def test_stop_ends_the_children_of_workers(launcher: LocalLauncher, tmp_path: Path) -> None:
    """Nothing of a worker's session survives, not even a child in a group of its own whose parent is gone."""
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'],"
        " preexec_fn=lambda: os.setpgid(0, 0))\n"
        "print(child.pid, flush=True)\nos._exit(1)"
    )
    launcher.start(group(tmp_path, program))
    _, lines = ended(launcher)
    pid = int(lines[0][0])
    assert is_alive(pid)
    launcher.stop()
    assert not is_alive(pid)


def free_port_pair() -> int:
    """Returns a port that is free, as is the next; below the ports that the system gives to any connection."""
    for first in random.sample(range(20_000, 32_000, 2), 100):
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("", first))
            other.bind(("", first + 1))
            return first
    raise AssertionError("no two neighbouring ports are free")


def test_a_port_in_use_fails_at_once(tmp_path: Path) -> None:
    """With ``base_port`` given, a listener on one of its ports is named, and no process is started."""
    first = free_port_pair()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", first + 1))
        listener.listen()
        launcher = LocalLauncher(base_port=first)
        with pytest.raises(
            StepFailed, match=f"base_port: {first} cannot be used: port {first + 1} .*leave base_port out"
        ):
            launcher.start(group(tmp_path, PID_FOREVER, num_workers=2))
    assert launcher.poll() == ()
    assert list(tmp_path.iterdir()) == []


def test_base_port_gives_the_ports(tmp_path: Path) -> None:
    """The workers get ``base_port`` and the ones after it."""
    port = free_port_pair()
    launcher = LocalLauncher(base_port=port)
    launcher.start(group(tmp_path, "import os; print(os.environ['TF_CONFIG'])"))
    _, lines = ended(launcher)
    launcher.stop()
    assert json.loads(lines[0][0])["cluster"]["worker"] == [f"127.0.0.1:{port}"]


def test_a_program_that_is_not_there_leaves_nothing(launcher: LocalLauncher, tmp_path: Path) -> None:
    """A start that fails is an error of the step, and no group is left."""
    missing = WorkerGroup(command=("/no/such/python",), num_workers=2, attempt=1, run_dir=tmp_path)
    with pytest.raises(StepFailed, match=r"workers cannot be started on this machine: .*/no/such/python"):
        launcher.start(missing)
    assert launcher.poll() == ()


def test_a_second_start_needs_a_stop(launcher: LocalLauncher, tmp_path: Path) -> None:
    """Two groups at once would train into one checkpoint."""
    launcher.start(group(tmp_path, PID_FOREVER))
    with pytest.raises(RuntimeError, match="stop it first"):
        launcher.start(group(tmp_path, PID_FOREVER))


def test_no_worker_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    """SIGKILL of the supervising process closes the workers' standard input, which ends them."""
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from lockstep.components.trainer.launchers import WorkerGroup\n"
        "from lockstep.components.trainer.launchers.local import LocalLauncher\n"
        "launcher = LocalLauncher()\n"
        "launcher.start(WorkerGroup(command=(sys.executable, '-I', '-S', '-c', sys.argv[2]), num_workers=2, attempt=1,"
        " run_dir=Path(sys.argv[1])))\n"
        "time.sleep(600)"
    )
    logs = [tmp_path / f"worker-{index}.attempt-1.log" for index in (0, 1)]
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path), PID_FOREVER]) as supervisor:
        until(lambda: all(log.exists() and log.read_text().endswith("\n") for log in logs))
        pids = [int(log.read_text()) for log in logs]
        assert all(is_alive(pid) for pid in pids)
        supervisor.kill()
    until(lambda: not any(is_alive(pid) for pid in pids), timeout_s=5)


def test_no_stopped_worker_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    """A worker stopped by SIGSTOP cannot read that its standard input is closed: the kernel kills it."""
    spec_path = tmp_path / "spec.json"
    os.mkfifo(spec_path)  # the real worker waits here, before it imports TensorFlow
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from lockstep.components.trainer.launchers import WorkerGroup\n"
        "from lockstep.components.trainer.launchers.local import LocalLauncher\n"
        "from lockstep.components.trainer.spec import worker_command\n"
        "run_dir = Path(sys.argv[1])\n"
        "command = worker_command(spec_path=run_dir / 'spec.json', attempt=1)\n"
        "launcher = LocalLauncher()\n"
        "launcher.start(WorkerGroup(command=command, num_workers=1, attempt=1, run_dir=run_dir))\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as supervisor:
        writers: list[int] = []
        try:
            # Held open with nothing written, so that the worker, once it reads, goes on waiting.
            until(lambda: open_for_reader(spec_path, writers))
            (pid,) = map(int, Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split())
            os.kill(pid, signal.SIGSTOP)
            until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
            supervisor.kill()
            supervisor.wait()
            until(lambda: not is_alive(pid), timeout_s=5)
        finally:
            supervisor.kill()
            for writer in writers:
                os.close(writer)


def open_for_reader(fifo: Path, writers: list[int]) -> bool:
    """Opens a FIFO for writing if a process reads from it, and adds the descriptor."""
    try:
        writers.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_each_worker_sees_the_gpus_dealt_to_it(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By CUDA's variable; what it says to this process is shared out."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    launcher.start(group(tmp_path, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", num_workers=2))
    assert ended(launcher)[1] == [["3"], ["5"]]


def test_a_replaced_process_has_its_place_and_a_log_of_its_own(tmp_path: Path, launcher: LocalLauncher) -> None:
    """Same role, index and address; the old process is gone, the others are not touched."""
    program = WATCH_STDIN + "print(os.getpid(), os.environ['TF_CONFIG'], flush=True)\nthreading.Event().wait()"
    launcher.start(
        WorkerGroup(
            command=(sys.executable, "-I", "-S", "-c", program),
            num_workers=2,
            attempt=1,
            run_dir=tmp_path,
            num_parameter_servers=1,
        )
    )
    before = lines_of(launcher, 2, 1)[0]
    launcher.replace(2)
    assert not Path(f"/proc/{before.split()[0]}").exists()
    after = lines_of(launcher, 2, 1)[0]
    assert after.split(" ", 1)[1] == before.split(" ", 1)[1]
    config = json.loads(after.split(" ", 1)[1])
    assert config["task"] == {"type": "worker", "index": 1}
    assert {role: len(addresses) for role, addresses in config["cluster"].items()} == {"chief": 1, "worker": 2, "ps": 1}
    statuses = launcher.poll()
    assert [status.exit_code for status in statuses] == [None] * 4
    assert statuses[2].log_path == tmp_path / "worker-1.attempt-1.2.log"
    assert statuses[3].log_path == tmp_path / "ps-0.attempt-1.log"


# Waits as a real one does, but has nothing to load; becomes what the assignment says by running its program.
STANDBY = """
import os, sys
from lockstep.components.trainer.launchers.assignment import Assignment
line = b""
while not line.endswith(b"\\n"):
    byte = os.read(0, 1)
    if not byte:
        os._exit(3)
    line += byte
assignment = Assignment.from_line(line)
assignment.take()
print("ready since before", flush=True)
exec(assignment.command[-1])
"""
PLACE = WATCH_STDIN + (
    "print(os.getpid(), os.getsid(0), os.getcwd(), os.environ['TF_CONFIG'], flush=True)\nthreading.Event().wait()"
)


@pytest.fixture
def prepared() -> Iterator[LocalLauncher]:
    """A launcher that keeps two processes ready."""
    launcher = LocalLauncher(standby_command=(sys.executable, "-c", STANDBY))
    launcher.prepare(2)
    yield launcher
    launcher.stop()
    launcher.prepare(0)


def standby_pids(launcher: LocalLauncher) -> list[int]:
    """The processes that are ready."""
    return list(launcher._standbys.waiting)


def test_a_process_that_is_ready_becomes_a_worker(prepared: LocalLauncher, tmp_path: Path) -> None:
    """With its place, folder, session, log and environment as any other; those that are left over stay ready."""
    first, second = standby_pids(prepared)
    prepared.start(group(tmp_path, PLACE, attempt=2))
    lines = lines_of(prepared, 0, 2)
    pid, session, folder, config = lines[1].split(maxsplit=3)
    assert lines[0] == "ready since before"
    assert int(pid) == int(session) == first
    assert folder == str(tmp_path / "worker-0")
    assert json.loads(config)["task"] == {"type": "worker", "index": 0}
    assert (tmp_path / "worker-0.attempt-2.log").read_text().splitlines() == lines
    assert standby_pids(prepared) == [second]
    prepared.stop()
    assert not is_alive(first)
    assert is_alive(second)
    prepared.prepare(0)
    assert not is_alive(second)


def test_what_is_not_ready_is_started_anew(prepared: LocalLauncher, tmp_path: Path) -> None:
    """One that ended while it waited is passed over, and none are kept any more: perhaps memory ran out."""
    first, second = standby_pids(prepared)
    os.kill(first, signal.SIGKILL)
    until(lambda: not is_alive(first))
    prepared.start(group(tmp_path, PLACE, num_workers=2))
    assert lines_of(prepared, 0, 2)[1].split()[0] == str(second)
    log_path = tmp_path / "worker-1.attempt-1.log"
    until(lambda: log_path.read_text().endswith("\n"))
    assert int(log_path.read_text().split()[0]) not in (first, second)
    prepared.prepare(1)
    os.kill(standby_pids(prepared)[0], signal.SIGKILL)
    until(lambda: not is_alive(standby_pids(prepared)[0]))
    prepared.prepare(1)
    assert standby_pids(prepared) == []


def test_a_replaced_process_takes_a_ready_one(prepared: LocalLauncher, tmp_path: Path) -> None:
    """Alone, with a log of its own."""
    prepared.prepare(0)
    prepared.start(group(tmp_path, PLACE))
    prepared.prepare(1)
    (ready,) = standby_pids(prepared)
    prepared.replace(0)
    assert lines_of(prepared, 0, 2)[1].split()[0] == str(ready)
    assert (tmp_path / "worker-0.attempt-1.2.log").exists()


def test_none_are_kept_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart that is seconds slower is better than a worker that the system kills."""
    for free in (100 << 20, OSError("no /proc")):

        def free_bytes(free: int | OSError = free) -> int:
            if isinstance(free, OSError):
                raise free
            return free

        monkeypatch.setattr(memory, "free_bytes", free_bytes)
        launcher = LocalLauncher(standby_command=(sys.executable, "-c", STANDBY))
        launcher.prepare(2)
        assert standby_pids(launcher) == []
    assert LocalLauncher().prepare(2) is None
