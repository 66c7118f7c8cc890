"""Processes that work on pieces of a job: in order, and gone when their caller is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep.components.errors import DataError, StepFailed
from lockstep.components.example_gen import process_pool
from lockstep.components.example_gen.process_pool import ProcessPool

_PARENT = """
import sys
from lockstep.components.example_gen.process_pool import ProcessPool
from tests.components.example_gen.test_process_pool import sleep

pool = ProcessPool(2)
tasks = pool.map(sleep, sys.argv[1], [0.0, 0.0, 60.0, 60.0])
next(tasks)
print("started", flush=True)
next(tasks), next(tasks)
"""


def scaled(factor: int, number: int) -> int:
    """Multiplies; 13 is not allowed."""
    if number == 13:
        raise DataError("13 is not allowed")
    return factor * number


def large(size: int, number: int) -> bytes:
    """Returns a large result of a large task."""
    return bytes([number % 256]) * size


def length(_: None, content: bytes) -> int:
    """Returns the length of a task."""
    return len(content)


def killed(_: None, number: int) -> int:
    """Is killed at task 3, as the kernel does when memory is short."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def failing(_: None, number: int) -> int:
    """Has a fault of its own."""
    return number // 0


def sleep(folder: str, seconds: float) -> None:
    """Says which process it is, and sleeps."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(seconds)


@pytest.fixture
def pool() -> "ProcessPool":
    """A pool of two, which is ended by the test."""
    return ProcessPool(2)


def test_results_come_in_the_order_of_the_tasks_for_one_job_after_another(pool: ProcessPool) -> None:
    """The processes are the same."""
    try:
        assert list(pool.map(scaled, 2, range(20, 60))) == list(range(40, 120, 2))
        first = {worker.process.pid for worker in pool._workers}
        assert list(pool.map(scaled, 3, [1, 2])) == [3, 6]
        assert {worker.process.pid for worker in pool._workers} == first
        assert list(pool.map(scaled, 3, [])) == []
    finally:
        pool.close()
    assert not any(psutil.pid_exists(pid) for pid in first)


def test_large_tasks_and_large_results_do_not_wait_for_each_other(pool: ProcessPool) -> None:
    """Far more than a pipe holds goes both ways at once."""
    try:
        assert [len(each) for each in pool.map(large, 3 << 20, range(8))] == [3 << 20] * 8
        assert list(pool.map(length, None, [b"x" * (3 << 20)] * 8)) == [3 << 20] * 8
    finally:
        pool.close()


def test_the_first_failing_task_is_told(pool: ProcessPool) -> None:
    """What is before it is given."""
    try:
        results = pool.map(scaled, 1, [1, 13, 2])
        assert next(results) == 1
        with pytest.raises(DataError, match="13 is not allowed"):
            next(results)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            list(pool.map(failing, None, [1]))
    finally:
        pool.close()


def test_a_killed_process_fails_the_step(pool: ProcessPool) -> None:
    """At once, with the signal's name."""
    try:
        with pytest.raises(StepFailed, match=r"was ended by SIGKILL; the system may have run out of memory"):
            list(pool.map(killed, None, range(10)))
    finally:
        pool.close()


def _runs(pid: int) -> bool:
    """Not one that has ended and that the system's first process has not heard of yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_no_process_outlives_a_caller_that_is_killed(tmp_path: Path) -> None:
    """Though it is in the middle of its work."""
    caller = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    try:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"started\n"
        workers = {int(path.name) for path in tmp_path.iterdir()}
        assert workers
    finally:
        caller.kill()
        caller.wait()
    deadline = time.monotonic() + 30
    while any(_runs(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stopped(_: None, number: int) -> int:
    """Stops itself at task 3."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    return number


def test_a_process_that_was_stopped_ends_the_job_after_a_while(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for it for ever; one that goes on in time is none."""
    monkeypatch.setattr(process_pool, "_POLL_S", 0.05)
    try:
        results = pool.map(stopped, None, [1, 3, 5])
        assert next(results) == 1
        monkeypatch.setattr(process_pool, "_STOPPED_S", 0.2)
        with pytest.raises(StepFailed, match=r"a process that reads rows \(\d+\) has been stopped by a signal"):
            list(results)
    finally:
        pool.close()


def test_a_process_that_goes_on_in_time_gives_its_result(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short stop, as by a debugger, is no fault."""
    monkeypatch.setattr(process_pool, "_POLL_S", 0.05)
    check = process_pool._Worker.check_running

    def check_and_continue(worker: process_pool._Worker) -> None:
        check(worker)
        if worker._stopped_at is not None:
            worker.process.send_signal(signal.SIGCONT)

    monkeypatch.setattr(process_pool._Worker, "check_running", check_and_continue)
    try:
        assert list(pool.map(stopped, None, [1, 3, 5])) == [1, 3, 5]
    finally:
        pool.close()
