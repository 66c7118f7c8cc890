"""What the process that runs a pipeline tells the one that shows it: JSON lines over a pipe."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

StepState = Literal["running", "done", "cached", "failed", "skipped"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStarted:
    """The pipeline is built; ``steps`` are the names of its steps in the order of running.

    ``versions`` is empty where nothing was loaded. ``upstream``: step -> the steps whose outputs it takes; empty where
    nobody said.
    """

    steps: tuple[str, ...]
    versions: str
    upstream: Mapping[str, list[str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepChanged:
    """A step has a new state, or a running one has news.

    Args:
      figure: The one telling figure, such as ``step 300/1000, loss 0.41``.
      seconds: Time since the step began.
    """

    step: str
    state: StepState
    figure: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRecorded:
    """What the metadata say of a step that ended well, for who reads the run's files when they are gone or in use.

    Args:
      execution: ML Metadata's number.
      inputs: Input key -> the artifacts taken, each with ``id``, ``type``, ``uri`` and ``properties`` (name -> text
        or number).
      outputs: Output key -> the artifacts made, or found in the cache.
      began: When, in seconds since the epoch.
    """

    step: str
    execution: int
    inputs: Mapping[str, list[dict[str, Any]]]
    outputs: Mapping[str, list[dict[str, Any]]]
    began: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFinished:
    """The last event of a run that could still speak.

    Args:
      exit_code: 0 done, 1 failed, 2 wrong configuration or data, 3 anomalies in the data, 4 not blessed.
      message: What the user reads; for a failure what, where and what to do.
      pushed: The folder of the model that is served now; empty where none was pushed.
    """

    exit_code: int
    message: str
    pushed: str = ""


RunEvent = RunStarted | StepChanged | StepRecorded | RunFinished
_TYPES: dict[str, type[RunEvent]] = {cls.__name__: cls for cls in (RunStarted, StepChanged, StepRecorded, RunFinished)}


def to_line(event: RunEvent) -> str:
    """Returns an event as one line of JSON, newline included."""
    return json.dumps({"type": type(event).__name__, **dataclasses.asdict(event)}) + "\n"


def from_line(line: str) -> RunEvent:
    """Returns the event of a line; raises ValueError for a line that ``to_line`` did not write whole."""
    document = json.loads(line)
    cls = _TYPES.get(document.pop("type", None))
    if cls is None:
        raise ValueError(f"not a run event: {line!r}")
    if "steps" in document:
        document["steps"] = tuple(document["steps"])
    return cls(**document)
