"""What a training leaves for its reader: every attempt, the outcome, and ``summary.json``."""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.components.trainer.spec import TrainSpec

__all__ = [
    "SUMMARY_NAME",
    "Attempt",
    "TrainingOutcome",
    "WorkerFigures",
    "installed_versions",
    "training_summary",
    "write_summary",
]

SUMMARY_NAME = "summary.json"

_DISTRIBUTIONS = ("tfx-lockstep", "tfx", "tensorflow", "keras", "tensorflow-transform", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of the group of workers.

    Args:
      attempt: 1 for the first.
      start_s: Seconds from the start of the supervisor to the start of the processes.
      training_s: Seconds from there to the first step of all workers; None if it never came.
      end_s: Seconds from the start of the supervisor to the end of the attempt.
      resumed_step: The step at which it began; None if it did not come so far.
      last_step: The highest step that a worker reported.
      num_workers: Processes that train, in the group of this attempt.
      cause: Why it failed; None for the attempt that finished.
      worker: Whose failure it was; None if nobody's.
      signal_name: Of the signal that killed that worker, like ``SIGKILL``.
      replacements: Why workers were replaced alone, in order, while the attempt went on.
    """

    attempt: int
    start_s: float
    training_s: float | None
    end_s: float
    resumed_step: int | None
    last_step: int
    num_workers: int
    cause: str | None = None
    worker: int | None = None
    signal_name: str | None = None
    replacements: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerFigures:
    """What one worker did in the last attempt; what it did not say is None.

    Args:
      records: Training records that it read.
      read_mb: What it read from files, in MiB; little where records stayed in memory.
      peak_memory_mb: The most resident memory that it had, in MiB.
      input_share: Part of the time that it waited for its input, 0 to 1.
    """

    records: int | None
    read_mb: float | None
    peak_memory_mb: float | None
    input_share: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """A finished training.

    Args:
      attempts: All of them, in order; the last one finished.
      steps: Steps of the whole training.
      loss: Mean loss of the last steps that were done; None if no step was left to do.
      examples_per_s: Records of all workers a second, over the steps of the last attempt, without its start; None if
        it had fewer than two progress reports.
      workers: What each worker did in the last attempt.
      digest: SHA-256 of the final weights, the same on every worker; empty of a ``run_fn``.
      seconds: From the start of the supervisor to the end of the last process.
    """

    attempts: tuple[Attempt, ...]
    steps: int
    loss: float | None
    examples_per_s: float | None
    workers: tuple[WorkerFigures, ...]
    digest: str
    seconds: float

    @property
    def records(self) -> tuple[int | None, ...]:
        """Training records that each worker read in the last attempt, by worker; None where it did not say."""
        return tuple(worker.records for worker in self.workers)

    @property
    def num_workers(self) -> int:
        """Processes that trained in the last attempt: fewer than at first where some could not be had again."""
        return self.attempts[-1].num_workers

    @property
    def restarts(self) -> int:
        """How often the group, or a worker of it alone, was started again."""
        return len(self.attempts) - 1 + sum(len(attempt.replacements) for attempt in self.attempts)


def training_summary(
    spec: TrainSpec, outcome: TrainingOutcome, report: Mapping[str, Any], *, versions: Mapping[str, str], seconds: float
) -> dict[str, Any]:
    """Returns the content of ``summary.json``.

    Args:
      spec: What was trained.
      outcome: How the supervisor saw it.
      report: The chief's ``loop.TrainingReport``.
      versions: Name -> version.
      seconds: Of the whole step.

    Returns:
      ``options``, ``model``, ``run_fn``, ``steps``, ``num_workers`` (of the last attempt), ``restarts``, ``attempts``
      (as ``Attempt``), ``loss``, ``evaluation`` (metric -> value), ``validation`` (``early_stopping.Course``; null
      without ``validate_every``), ``examples_per_s``, ``workers`` (as ``WorkerFigures``), ``records_per_worker`` and
      ``input_share`` (their records, and their mean), ``records_per_epoch``, ``steps_per_epoch``, ``weights_digest``,
      ``seconds`` (``total``, ``supervised``, and the chief's by phase) and ``versions``. ``loss`` is null if no attempt
      had a step left to do, ``examples_per_s`` and ``input_share`` if the last had none.
    """
    return {
        "options": dataclasses.asdict(spec.options),
        "model": dataclasses.asdict(spec.model),
        "run_fn": spec.run_fn and spec.run_fn.function,
        "steps": outcome.steps,
        "num_workers": outcome.num_workers,
        "restarts": outcome.restarts,
        "attempts": [dataclasses.asdict(attempt) for attempt in outcome.attempts],
        # The chief's own is of the last call alone; a heartbeat's may be of a whole short training.
        "loss": outcome.loss if report["loss"] is None else report["loss"],
        "evaluation": dict(report["evaluation"]),
        "examples_per_s": report["examples_per_s"] or outcome.examples_per_s,
        "records_per_worker": list(outcome.records),
        "workers": [dataclasses.asdict(worker) for worker in outcome.workers],
        "input_share": _mean([worker.input_share for worker in outcome.workers]),
        "validation": report.get("validation"),
        "records_per_epoch": report["records_per_epoch"],
        "steps_per_epoch": report["steps_per_epoch"],
        "weights_digest": outcome.digest or None,
        "seconds": {"total": round(seconds, 3), "supervised": outcome.seconds, **report["seconds"]},
        "versions": dict(versions),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def installed_versions() -> dict[str, str]:
    """Returns the versions of Python and of what the training depends on, by name; what is not installed is absent."""
    versions = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # run from a source tree
            versions[name] = importlib.metadata.version(name)
    return versions


def write_summary(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON document, whole or not at all; replaces an older one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(values, stream, indent=2, sort_keys=True, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
