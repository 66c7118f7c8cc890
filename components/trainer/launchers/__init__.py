"""Where worker processes run: one protocol, and one module for each place.

A launcher starts, polls and stops one group of workers, and decides nothing: when to restart, and why, is the
supervisor's. Launchers import neither TFX nor TensorFlow nor Beam.
"""

import dataclasses
from pathlib import Path
from typing import Protocol

__all__ = ["Launcher", "WorkerGroup", "WorkerStatus"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """One start of a group of workers.

    Args:
      command: Program and arguments, the same for each worker; ``TF_CONFIG`` in its environment tells a worker which
        one it is.
      num_workers: 1 or more.
      attempt: 1 for the first start of the training, one more for every restart.
      run_dir: Folder of the run; every launcher leaves the workers' logs in it.
    """

    command: tuple[str, ...]
    num_workers: int
    attempt: int
    run_dir: Path

    def log_path(self, worker: int) -> Path:
        """Everything that worker ``worker`` writes to its standard output and standard error in this attempt."""
        return self.run_dir / f"worker-{worker}.attempt-{self.attempt}.log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """What is known of one worker since the last poll.

    Args:
      worker: Its index; 0 is the chief.
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
          StepFailed: They cannot be started, and another try would not help.
        """

    def poll(self) -> tuple[WorkerStatus, ...]:
        """Returns the status of every worker of the group, in the order of their indices; does not block."""

    def stop(self) -> None:
        """Ends every worker of the group by force, with the processes it started, and waits until they are gone.

        Does nothing if there is no group; ``start`` may follow.
        """
