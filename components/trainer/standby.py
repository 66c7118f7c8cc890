"""A process that has loaded what every worker loads, and waits to become one.

Most of a worker's start is the import of TensorFlow. A launcher keeps such processes while a training goes on; when the
group is started again they take its places. The launcher writes one line to such a process' standard input, an
``Assignment`` as JSON; the pipe then stays open, and means what it means for any worker. Nothing of the user's is
loaded before.
"""

import os
import sys
from typing import NoReturn

from lockstep.components.loading import collector_off
from lockstep.components.trainer.launchers.assignment import Assignment

__all__ = ["main", "standby_command"]


def standby_command(python: str = sys.executable) -> tuple[str, ...]:
    """Returns the command of such a process; its standard output and error go nowhere until it has a place."""
    program = (
        "import sys; sys.path[:] = [folder for folder in sys.path if folder]; "
        "from lockstep.components.trainer.standby import main; main()"
    )
    return (python, "-c", program)


def main() -> NoReturn:
    """Loads, waits, and becomes a worker; ends when standard input does."""
    from lockstep.components.trainer import worker

    worker.end_with_parent()
    with collector_off():
        from lockstep.components.trainer import asynchronous, sharded, synchronous, training

    del asynchronous, sharded, synchronous, training
    line = read_line(0)
    if not line.endswith(b"\n"):
        os._exit(worker.EXIT_ORPHANED)
    assignment = Assignment.from_line(line)
    assignment.take()
    # After the interpreter, its option and the program, as the interpreter itself leaves out.
    sys.argv = ["-c", *assignment.command[3:]]
    worker.main(sys.argv[1:])


def read_line(descriptor: int) -> bytes:
    """Reads up to the end of a line, and nothing that is behind it; shorter where the input ends."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    return bytes(line)
