"""Where worker processes run: one protocol, and one module for each place.

A launcher starts, polls and stops one group of workers, and decides nothing: when to restart, and why, is the
supervisor's. Launchers import neither TFX nor TensorFlow nor Beam.
"""

import dataclasses
from pathlib import Path
from typing import Protocol

__all__ = ["Launcher", "TooFewPlaces", "WorkerGroup", "WorkerStatus"]


class TooFewPlaces(Exception):
    """There is room for a part of a group.

    Args:
      error: To be raised where a smaller group is not allowed.
      available: For so many workers there is room, 1 or more.
    """

    def __init__(self, error: Exception, *, available: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.available = available


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """One start of a group of workers.

    Args:
      command: Program and arguments, the same for each process; ``TF_CONFIG`` in its environment tells a process which
        one it is.
      num_workers: 1 or more.
      attempt: 1 for the first start of the training, one more for every restart.
      run_dir: Folder of the run; every launcher leaves the processes' logs in it.
      num_parameter_servers: Above 0 the group is a coordinator, the workers and so many parameter servers.
    """

    command: tuple[str, ...]
    num_workers: int
    attempt: int
    run_dir: Path
    num_parameter_servers: int = 0

    @property
    def members(self) -> tuple[tuple[str, int], ...]:
        """Role and index, as of ``TF_CONFIG``, of each process; their order numbers the processes, 0 is the chief."""
        workers = [("worker", index) for index in range(self.num_workers)]
        if not self.num_parameter_servers:
            return tuple(workers)
        return (("chief", 0), *workers, *(("ps", index) for index in range(self.num_parameter_servers)))

    def log_path(self, worker: int, start: int = 1) -> Path:
        """Everything that process ``worker`` writes to its standard output and standard error in this attempt.

        Args:
          worker: Its number.
          start: 1 for its start with the group, one more for every time that it was replaced alone.
        """
        role, index = self.members[worker]
        replaced = f".{start}" if start > 1 else ""
        return self.run_dir / f"{role}-{index}.attempt-{self.attempt}{replaced}.log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """What is known of one process since the last poll.

    Args:
      worker: Its number; 0 is the chief.
      exit_code: None while it runs; its exit code, or ``-n`` if signal ``n`` killed it.
      new_lines: Whole lines of output since the last poll, without line ends. An ended worker's last status holds
        everything that it still wrote.
      log_path: Where all its output is.
    """

    worker: int
    exit_code: int | None
    new_lines: tuple[str, ...]
    log_path: Path


class Launcher(Protocol):
    """Runs one group of workers at a time."""

    def start(self, group: WorkerGroup) -> None:
        """Starts every worker, or none; returns without waiting for them.

        Raises:
          TooFewPlaces: There is room for fewer workers.
          StepFailed: They cannot be started, and another try would not help.
        """

    def poll(self) -> tuple[WorkerStatus, ...]:
        """Returns the status of every worker of the group, in the order of their indices; does not block."""

    def replace(self, worker: int) -> None:
        """Ends one process of the group by force and starts it again, alone, at the same address.

        Raises:
          StepFailed: It cannot be started.
        """

    def prepare(self, count: int) -> None:
        """Keeps up to ``count`` processes ready that later starts take, so that those come sooner; 0 ends them.

        Does not block; may do nothing.
        """

    def stop(self) -> None:
        """Ends every worker of the group by force, with the processes it started, and waits until they are gone.

        Does nothing if there is no group; ``start`` may follow.
        """
