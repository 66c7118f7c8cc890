"""Where a training's checkpoints and logs live until it has succeeded: outside TFX's outputs, under a key."""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.trainer.step import TrainStep

__all__ = ["WorkFolder", "training_key"]

# What only says how the workers are watched, or where they keep what they read: a training goes on from its checkpoint
# although one of these changed.
_WATCHING_OPTIONS = (
    "base_port",
    "cache",
    "trace_steps",
    "max_restarts",
    "restart_window_s",
    "restart_delay_s",
    "max_restart_delay_s",
    "standby",
    "start_timeout_s",
    "heartbeat_timeout_s",
    "attempt_timeout_s",
)


def training_key(step: TrainStep, inputs: Mapping[str, Sequence[str]], code_fingerprint: str) -> str:
    """Returns a name for a training, which another one shares only if it would make the same model.

    Args:
      step: What is trained. Where its files are, how its workers are watched, and how many there are does not count:
        records and steps are the same for any number. It does beside a ``run_fn``, which sees to that itself.
      inputs: Name of the input -> what tells the data of its artifacts from others: URI and fingerprint.
      code_fingerprint: Of Lockstep and the user's modules; may be empty where nobody computes it.
    """
    document = dataclasses.asdict(step)
    del document["work_dir"]
    for name in _WATCHING_OPTIONS:
        del document["options"][name]
    if step.run_fn is None:
        del document["options"]["workers"]
    content = [document, {name: list(values) for name, values in inputs.items()}, code_fingerprint]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class WorkFolder:
    """The files of one training under ``<work_dir>/<key>``.

    Args:
      work_dir: Shared by all trainings.
      key: Of this one, see ``training_key``.
    """

    work_dir: Path
    key: str

    @property
    def checkpoint_dir(self) -> Path:
        """Belongs to the workers; what is in it lets a later run go on."""
        return self.work_dir / self.key / "checkpoints"

    @property
    def model_run_dir(self) -> Path:
        """A ``run_fn``'s own ``model_run_dir``: what it writes there survives a failed step too."""
        return self.work_dir / self.key / "model_run"

    @property
    def run_dir(self) -> Path:
        """Specification, workers' folders and logs of the last run; emptied at the start of the next."""
        return self.work_dir / self.key / "run"

    @property
    def lock_path(self) -> Path:
        """Locked by the run that uses the folder; holds its process id."""
        return self.work_dir / f"{self.key}.lock"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Makes the folder, with an empty ``run_dir``, and keeps every other run out of it meanwhile.

        Removed at the end, checkpoints and logs too; left for the next run if the body raises.

        Raises:
          StepFailed: Another run holds it now, or the disk is full.
          ConfigurationError: ``work_dir`` cannot be written.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.work_dir.mkdir(parents=True, exist_ok=True)
                stack.enter_context(self._lock())
                if self.run_dir.exists():  # the logs of a run that failed: this one's must not mix with them
                    shutil.rmtree(self.run_dir)
                self.run_dir.mkdir(parents=True)
            except OSError as e:
                if e.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise StepFailed(f"work_dir: no space is left for {self.work_dir}; make room") from e
                raise ConfigurationError(
                    f"work_dir: {self.work_dir}: {e.strerror}; give a folder that can be written"
                ) from e
            yield
            shutil.rmtree(self.work_dir / self.key)
            self.lock_path.unlink()

    def _lock(self) -> TextIO:
        while True:
            lock = self.lock_path.open("a+", encoding="utf-8")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel drops it with the process
            except BlockingIOError as e:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                lock.close()
                raise StepFailed(
                    f"another run (process {holder}) trains the same model on the same data in {self.work_dir}; wait "
                    "for it, or give another work_dir"
                ) from e
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(lock.fileno()).st_ino == self.lock_path.stat().st_ino:
                    lock.truncate(0)
                    lock.write(f"{os.getpid()}\n")
                    lock.flush()
                    return lock
            lock.close()  # the run before removed this file between our opening it and locking it
