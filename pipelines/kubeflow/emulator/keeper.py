"""A process that runs one command and leaves nothing behind: started by file name, on the standard library alone.

What a container's end does to its processes, this does to the command's: when the command ends, when the emulator
interrupts it, and when the emulator is gone, by SIGKILL too, every process below is ended. The emulator holds this
process' standard input open and never writes to it: its end is the sign.

Arguments: a JSON document ``{"command": [...], "cleanup": [...], "grace_s": 10.0}``; ``cleanup`` is a command to run
after the command was ended before its time, none where empty. Exits as the command did, with 128 and the signal's
number where a signal ended it, with 127 where it cannot be started.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05
_NOT_STARTED = 127


def main(document: str) -> int:
    """Runs a command to its end, or to this process' standard input's."""
    request = json.loads(document)
    # The emulator's interrupt reaches the whole foreground group; it tells by closing the standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    adopt_orphans()
    parent = os.getpid()

    def prepare() -> None:
        _restore_signals()
        _die_with(parent)

    try:
        child = subprocess.Popen(
            request["command"],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
        )
    except (OSError, ValueError) as e:
        sys.stderr.write(f"cannot start {request['command'][0]!r}: {e}\n")
        return _NOT_STARTED
    interrupted = _wait(child, request["grace_s"])
    end_descendants()
    if interrupted and request["cleanup"]:
        subprocess.run(request["cleanup"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    code = child.returncode
    return code if code >= 0 else 128 - code


def _restore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _wait(child: "subprocess.Popen[bytes]", grace_s: float) -> bool:
    """Returns when the child has ended, and whether it was told to before its time."""
    deadline: float | None = None
    watched = [sys.stdin.fileno()]
    while child.poll() is None:
        ended, _, _ = select.select(watched, [], [], _POLL_S)
        if ended:
            watched = []  # at its end it is readable for ever
            deadline = time.monotonic() + grace_s
            os.killpg(child.pid, signal.SIGTERM)
        if deadline is not None and time.monotonic() > deadline:
            os.killpg(child.pid, signal.SIGKILL)
    return deadline is not None


def adopt_orphans() -> None:
    """Makes this process the parent of every process below whose own parent ends (Linux; elsewhere nothing)."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)


def _die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent is gone, by SIGKILL too."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_NOT_STARTED)


def _control(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_descendants(spared: Collection[int] = ()) -> None:
    """Kills what the command left, until there is nothing: a killed process hands its children to this one.

    Args:
      spared: Children that had nothing to do with it.
    """
    while True:
        left = [pid for pid in children() if pid not in spared]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def children() -> list[int]:
    """Returns the processes that this one's main thread is the parent of."""
    try:
        text = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
