"""Tests of `benchmarks.process_tree`, on real processes."""

import os
import subprocess
import sys

from benchmarks.process_tree import PeakMemory, memory_bytes, processor_s

# Holds 64 MB itself, and has a child that holds 64 MB more; says so, and ends with its standard input.
_CHILD = "import sys; held = bytearray(b'x') * 2**26; print('ready', flush=True); sys.stdin.read()"
_PARENT = (
    "import subprocess, sys\n"
    "held = bytearray(b'x') * 2**26\n"
    f"subprocess.run([sys.executable, '-c', {_CHILD!r}], check=True)\n"
)
_MB = 2**20


def _start() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_memory_is_that_of_the_process_and_its_descendants() -> None:
    """Twice 64 MB, one in a grandchild of this process; not the memory of this process itself."""
    with _start() as process:
        found = memory_bytes(process.pid)
        process.communicate()

    assert 128 * _MB < found < 192 * _MB
    assert memory_bytes(process.pid) == 0


def test_the_peak_outlives_the_processes() -> None:
    """The first sample is taken at once, and what ended since stays counted."""
    with _start() as process, PeakMemory(process.pid) as memory:
        while not memory.peak_bytes:
            os.sched_yield()
        process.communicate()

    assert memory.peak_bytes > 128 * _MB


def test_processor_time_is_that_of_the_living_and_of_those_waited_for() -> None:
    """A child that worked for half a second counts while it lives and after it ended."""
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint('worked', flush=True); input()"
    parent = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {work!r}])\n"
        "print('waited', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "worked\n"
        alive_s = processor_s(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "waited\n"
        ended_s = processor_s(process.pid)

    assert 0.4 < alive_s <= ended_s < 2.0
