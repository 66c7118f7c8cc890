"""What a launcher writes to a process that waits to become a worker."""

import dataclasses
import os
from collections.abc import Mapping

from lockstep.components import documents

__all__ = ["Assignment"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assignment:
    """Which worker the process becomes.

    Args:
      command: As of ``spec.worker_command``.
      environment: All of it.
      folder: Its working directory; exists.
      log_path: Where its standard output and error go; exists.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    log_path: str

    def to_line(self) -> bytes:
        """Returns the line, with its end."""
        return documents.to_json(self).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Assignment":
        """Reads what ``to_line`` wrote.

        Raises:
          ValueError: It did not.
        """
        return documents.from_json(cls, line.decode(), "assignment")

    def take(self) -> None:
        """Makes the process what ``subprocess.Popen`` would have started."""
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        log = os.open(self.log_path, os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
