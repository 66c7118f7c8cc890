"""What a worker tells its supervisor: one line of JSON an event, on the worker's standard output.

A line is ``LOCKSTEP {"event": "heartbeat", "worker": 0, ...}``. In order, a worker says ``started`` (before it imports
TensorFlow), ``training`` (strategy, data and model are built; ``step`` is where it resumes), then ``heartbeat`` at
least once a call of the training function and once a second while it waits for nothing else, ``checkpoint`` after each
complete one, ``exporting`` (evaluation and export, heartbeats go on), and ``done``, or ``failed`` from anywhere. Until
the first ``heartbeat`` with a step the worker is starting: ``start_timeout_s`` covers it, since tracing is part of it.

Standard library only: the supervisor imports it.
"""

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, TextIO

PREFIX = "LOCKSTEP "

ERROR_LINE = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit)\b.*: ")
"""The line of a traceback that has the error."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_KERAS_PREFACE = "Exception encountered when calling"

EventName = Literal["started", "training", "heartbeat", "checkpoint", "exporting", "done", "failed"]
_NAMES = ("started", "training", "heartbeat", "checkpoint", "exporting", "done", "failed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerEvent:
    """One thing that happened in a worker.

    Args:
      event: What happened.
      worker: Index of the worker; 0 is the chief.
      time: Seconds since the epoch, by the worker's clock.
      step: Global step reached: steps of the whole training that are done; 0 of a ``run_fn`` that does not tell.
      loss: Mean training loss of the steps since the last heartbeat; None where it is not finite or there was no step.
      examples_per_s: Records of all workers a second since the last heartbeat.
      validation_loss: Of the last validation in this attempt (``heartbeat``); None before there was one.
      records: Training records that this worker has read in this attempt (``heartbeat`` and ``done``).
      total_records: The same of all workers, which each knows (``heartbeat``).
      cpu: Processor seconds a second that the worker uses: 1.0 is a core (``heartbeat``).
      memory_mb: Its resident memory in MiB (``heartbeat``).
      gpu_memory_mb: Memory in use of its first GPU in MiB (``heartbeat``); None without one.
      input_share: Part of the time that it waited for its input, 0 to 1: since the last heartbeat, or (``done``) since
        the first call.
      peak_memory_mb: The most resident memory that it had, in MiB (``done``).
      read_mb: What it read from files since the training began, in MiB (``done``).
      digest: ``done``: SHA-256 (hex) of the final weights; must be the same on every worker. Empty where nobody knows
        the weights but a ``run_fn``.
      message: ``failed``: the error, one line if it is the user's.
      traceback: ``failed``: the worker's own traceback.
      user_error: ``failed``: the user's configuration or code is the cause, so another attempt would fail too.
    """

    event: EventName
    worker: int
    time: float = dataclasses.field(default_factory=time.time)
    step: int | None = None
    loss: float | None = None
    examples_per_s: float | None = None
    validation_loss: float | None = None
    records: int | None = None
    total_records: int | None = None
    cpu: float | None = None
    memory_mb: float | None = None
    gpu_memory_mb: float | None = None
    input_share: float | None = None
    peak_memory_mb: float | None = None
    read_mb: float | None = None
    digest: str | None = None
    message: str | None = None
    traceback: str | None = None
    user_error: bool = False

    def to_line(self) -> str:
        """Returns the line, without a line end."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        return PREFIX + json.dumps(values, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> "WorkerEvent | None":
        """Reads one line of a worker's output.

        Returns:
          None for a line that is not an event as ``to_line`` writes it: the user's code may print anything, and a
          killed worker may leave half a line. Such a line is log.
        """
        if not line.startswith(PREFIX):
            return None
        try:
            values = json.loads(line[len(PREFIX) :])
            event = cls(**values)
        except (ValueError, TypeError):
            return None
        return event if event.event in _NAMES and isinstance(event.worker, int) else None


def one_line(message: str) -> str:
    """Returns the line of an error that says most: TensorFlow's begin with "in user code:", Keras' with the layer.

    Args:
      message: As ``KeyError: 'fare'``, of any number of lines.
    """
    lines = [line.strip() for line in _COLOUR.sub("", message).splitlines() if line.strip()]
    if not lines:
        return message
    kind, preface, _ = lines[0].partition(_KERAS_PREFACE)
    if preface and len(lines) > 1:
        return kind + lines[1]
    if not lines[0].endswith(":"):
        return lines[0]
    return ([line for line in lines[1:] if ERROR_LINE.match(line)] or lines)[-1]


class Reporter:
    """Writes a worker's events to its standard output, each as one whole line at once; any thread may call it.

    Args:
      worker: Index of the worker.
      stream: Where the lines go.
      interval_s: Heartbeats that come sooner than that after the last line are dropped, unless they are urgent.
      clock: Returns seconds; not set back while the process lives.
      on_line: Called after each line with its event.

    Attributes:
      step: Steps that are done, told with a failure; the loop sets it oftener than it beats. None before training.
    """

    def __init__(
        self,
        worker: int,
        stream: TextIO,
        *,
        interval_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        on_line: Callable[[EventName], None] = lambda event: None,
    ) -> None:
        self._worker = worker
        self._stream = stream
        self._interval_s = interval_s
        self._clock = clock
        self._on_line = on_line
        self._last_s = float("-inf")
        self.step: int | None = None
        self._lock = threading.Lock()

    @property
    def is_due(self) -> bool:
        """Whether the next heartbeat would be written."""
        return self._clock() - self._last_s >= self._interval_s

    def say(self, event: EventName, **values: Any) -> None:
        """Writes an event; ``values`` are fields of `WorkerEvent`."""
        line = WorkerEvent(event=event, worker=self._worker, **values).to_line()
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()
            self._last_s = self._clock()
            self._on_line(event)

    def beat(self, *, urgent: bool = False, **values: Any) -> None:
        """Writes a heartbeat if one is due, or if it is urgent."""
        if urgent or self.is_due:
            self.say("heartbeat", **values)
