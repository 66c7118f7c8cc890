"""What a run answers to, in a process of its own."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
number = getattr(signal, sys.argv[1])
signal.signal(number, signal.SIG_IGN if sys.argv[2] == "ignored" else signal.SIG_DFL)
before = signal.getsignal(number)
from lockstep.pipelines.run_guards import interruptible
try:
    with interruptible():
        os.kill(os.getpid(), number)
    print("goes on")
except KeyboardInterrupt:
    print("interrupted")
assert signal.getsignal(number) is before
"""


@pytest.mark.parametrize(
    ("number", "before", "expected"),
    [
        (signal.SIGTERM, "default", "interrupted"),
        (signal.SIGHUP, "default", "interrupted"),
        (signal.SIGHUP, "ignored", "goes on"),
    ],
)
def test_a_run_ends_on_a_signal_unless_it_was_ignored(number: signal.Signals, before: str, expected: str) -> None:
    """A terminal that is closed ends the run, but not one under nohup, which ignores SIGHUP."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, number.name, before], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == expected
