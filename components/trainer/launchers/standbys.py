"""Processes of this machine that are ready to become workers."""

import contextlib
import logging
import subprocess

from lockstep.components.trainer.launchers import memory
from lockstep.components.trainer.launchers.assignment import Assignment

__all__ = ["Standbys"]

_BYTES_EACH = 1 << 30  # what must be free for each: one that waits takes a third of it
_STOP_TIMEOUT_S = 30.0

_logger = logging.getLogger(__name__)


class Standbys:
    """Keeps a number of them; none any more once one of them ended by itself, as when memory runs out.

    Each leads a session of its own, and its standard input is a pipe that this process holds, as of any worker.

    Args:
      command: Of each; None keeps none.
    """

    def __init__(self, command: tuple[str, ...] | None) -> None:
        self._command = command
        self._ready: list[subprocess.Popen[bytes]] = []

    @property
    def waiting(self) -> tuple[int, ...]:
        """Process ids of those that have no place, the next one to be taken first."""
        return tuple(process.pid for process in self._ready)

    def keep(self, count: int) -> None:
        """Starts or ends processes until there are so many; fewer where memory is short. Does not block but to end."""
        if any(process.poll() is not None for process in self._ready):
            _logger.warning("a process that was kept ready has ended; none are kept any more")
            self._command = None
        while len(self._ready) > (count if self._command else 0):
            _end(self._ready.pop())
        while self._command and len(self._ready) < count and _has_memory():
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as e:  # the next start tells, if it is still so then
                _logger.warning("no process is kept ready: %s", e)
                self._command = None
                return
            self._ready.append(process)

    def take(self, assignment: Assignment) -> "subprocess.Popen[bytes] | None":
        """Gives a process its place in a group; None if there is none that takes it."""
        while self._ready:
            process = self._ready.pop(0)
            with contextlib.suppress(BrokenPipeError):
                if process.poll() is None and process.stdin is not None:
                    process.stdin.write(assignment.to_line())
                    process.stdin.flush()
                    return process
            _end(process)
        return None


def _has_memory() -> bool:
    try:
        return memory.free_bytes() >= _BYTES_EACH
    except OSError:
        return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # of what could not be written
            process.stdin.close()
    process.wait(_STOP_TIMEOUT_S)
