"""What a run left, read without TensorFlow, TFX or the metadata: it may be cut anywhere, or be going on."""

import dataclasses
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines import run_events, run_list
from lockstep.pipelines.run_files import RootFiles, RunFiles

STATES = {
    "done": "done",
    "failed": "failed",
    "wrong input": "failed",
    "stopped by data": "stopped",
    "not blessed": "stopped",
    "killed": "failed",
    "running": "running",
}
"""What ``lockstep runs`` calls a run's state -> one of the four that the page has a colour for."""


@dataclasses.dataclass(frozen=True)
class Artifact:
    """An artifact as the run recorded it.

    Args:
      id: ML Metadata's number.
      type: TFX's name of the type.
      uri: Where it is.
      properties: Name -> text or number.
    """

    id: int
    type: str
    uri: str
    properties: Mapping[str, Any]

    @property
    def dir(self) -> pathlib.Path:
        """Its folder, which may be gone."""
        return pathlib.Path(self.uri)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One step, as far as it came.

    Args:
      name: Its id.
      state: ``waiting`` before it began; ``killed`` where it ran when the run ended without a word.
      seconds: How long it ran, or has run.
      figure: What the console showed last.
      upstream: Steps whose outputs it takes.
      execution: ML Metadata's number; None where it was not recorded.
      outputs: Output key -> artifacts; empty where it was not recorded.
      began: Seconds since the epoch; None where unknown.
    """

    name: str
    state: str = "waiting"
    seconds: float = 0.0
    figure: str = ""
    upstream: tuple[str, ...] = ()
    execution: int | None = None
    outputs: Mapping[str, tuple[Artifact, ...]] = dataclasses.field(default_factory=dict)
    began: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run.

    Args:
      root: The pipeline's folder.
      files: The run's own files.
      name: The pipeline's name.
      state: As ``lockstep runs`` says it.
      message: The run's last word; empty where it had none.
      began: Its time, for a reader.
      steps: In the order of running; empty where it did not come so far.
      config: The configuration; None where it cannot be read.
      versions: Of what it ran with, in one line; may be empty.
      pushed: The folder that is served since; empty where nothing was pushed.
      progress: Step -> figures shown while it ran, with the seconds since it began.
    """

    root: pathlib.Path
    files: RunFiles
    name: str
    state: str
    message: str
    began: str
    steps: tuple[Step, ...]
    config: Mapping[str, Any] | None
    versions: str
    pushed: str
    progress: Mapping[str, tuple[tuple[float, str], ...]]

    @property
    def seconds(self) -> float:
        """How long its steps took together."""
        return sum(step.seconds for step in self.steps)

    @property
    def has_records(self) -> bool:
        """Whether any step's artifacts are known: versions before the report recorded none."""
        return any(step.outputs for step in self.steps)

    def step(self, name: str) -> Step:
        """Returns the step of that name; one that waits if there is none."""
        return next((step for step in self.steps if step.name == name), Step(name=name))

    def artifact(self, step: str, key: str) -> Artifact | None:
        """Returns a step's first output under a key, or None."""
        return next(iter(self.step(step).outputs.get(key, ())), None)

    def first_moment(self) -> float | None:
        """Returns when the run began, in seconds since the epoch, from the name of its folder."""
        try:
            return time.mktime(time.strptime(self.files.run_dir.name.split("-")[0], "%Y%m%dT%H%M%S"))
        except ValueError:
            return None


def find_run(folder: pathlib.Path) -> RunFiles:
    """Returns a run's files: of a run's folder itself, or of the newest run under a root, or under several.

    Raises:
      ConfigurationError: There is no run.
    """
    run = RunFiles(folder)
    if run.events_path.exists() or run.request_path.exists():
        return run
    newest = run_list.describe_runs(folder)[-1]
    return RunFiles(RootFiles(pathlib.Path(newest["root"])).runs_dir / newest["run"])


def read_run(files: RunFiles) -> RunRecord:
    """Returns what is known of a run; lines that were cut, and files that are not there, count for nothing.

    Raises:
      ConfigurationError: There is no such folder.
    """
    if not files.run_dir.is_dir():
        raise ConfigurationError(f"{files.run_dir}: no such run; lockstep runs lists them")
    root = files.run_dir.parent.parent
    described = _described(root, files)
    events = list(run_list.read_events(files.events_path))
    started = [event for event in events if isinstance(event, run_events.RunStarted)]
    upstream = started[0].upstream if started else {}
    names = started[0].steps if started else ()
    steps = {name: Step(name=name, upstream=tuple(upstream.get(name, ()))) for name in names}
    progress: dict[str, list[tuple[float, str]]] = {}
    for event in events:
        if isinstance(event, run_events.StepChanged):
            step = steps.get(event.step, Step(name=event.step))
            steps[event.step] = dataclasses.replace(
                step, state=event.state, seconds=event.seconds, figure=event.figure or step.figure
            )
            if event.state == "running" and event.figure:
                progress.setdefault(event.step, []).append((event.seconds, event.figure))
        elif isinstance(event, run_events.StepRecorded):
            steps[event.step] = dataclasses.replace(
                steps.get(event.step, Step(name=event.step)),
                execution=event.execution,
                outputs=_artifacts(event.outputs),
                began=event.began,
            )
    if described["state"] != "running":
        steps = {
            name: dataclasses.replace(step, state="killed") if step.state == "running" else step
            for name, step in steps.items()
        }
    config = _config(files)
    return RunRecord(
        root=root,
        files=files,
        name=str((config or {}).get("name") or described["pipeline"]),
        state=described["state"],
        message=described["message"],
        began=described["began"],
        steps=tuple(steps.values()),
        config=config,
        versions=started[0].versions if started else "",
        pushed=described["pushed"],
        progress={name: tuple(figures) for name, figures in progress.items()},
    )


def _described(root: pathlib.Path, files: RunFiles) -> dict[str, Any]:
    if RootFiles(root).runs_dir == files.run_dir.parent:
        for run in run_list.describe_runs(root):
            if run["run"] == files.run_dir.name:
                return run
    return run_list.describe_run(files, root)  # a run's folder that was copied away from its root


def _artifacts(recorded: Mapping[str, Any]) -> dict[str, tuple[Artifact, ...]]:
    return {
        key: tuple(Artifact(item["id"], item["type"], item["uri"], item.get("properties", {})) for item in items)
        for key, items in recorded.items()
    }


def _config(files: RunFiles) -> Mapping[str, Any] | None:
    try:
        request = json.loads(files.request_path.read_text(encoding="utf-8"))
        config = json.loads(request["config"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return config if isinstance(config, dict) else None
