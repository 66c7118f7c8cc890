"""The one telling figure of each step, and the sentence that closes a run."""

import dataclasses
import importlib.metadata
import json
import pathlib
import platform
import re
from collections.abc import Callable, Mapping
from typing import Any

from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from lockstep.components.example_gen.executor import DROPPED_PROPERTY, QUARANTINED_PROPERTY, ROWS_PROPERTY
from lockstep.components.transform.config_resolution import FEATURES_NAME
from lockstep.pipelines import artifact_values
from lockstep.pipelines.local import StepFinished
from lockstep.pipelines.run_events import RunFinished, StepRecorded

Outputs = Mapping[str, list[Artifact]]

# Lines of `lockstep.transforms.auto`, which gives a reason for what it picked only.
_PICKED = re.compile(r"  (?:# (?P<left>.+): left out, .+|(?P<name>.+): \{kind: (?P<kind>\w+).*\}  # .+)")
_MAX_PICKED = 8


def versions() -> str:
    """Returns what the run is made with, in one line."""
    tfx, tensorflow, keras = (importlib.metadata.version(name) for name in ("tfx", "tensorflow", "keras"))
    return f"TFX {tfx}, TensorFlow {tensorflow}, Keras {keras}, Python {platform.python_version()}"


def telling_figure(event: StepFinished) -> str:
    """Returns what a user wants to know of a step, in a few words; empty for a step that is not known here."""
    figure = _FIGURES.get(event.step)
    return figure(event.outputs) if figure else ""


def record(event: StepFinished, *, began: float) -> StepRecorded:
    """Returns what a run's own files keep of a step: its execution, and the artifacts that it took and made."""
    inputs, outputs = (
        {key: [_artifact(item) for item in artifacts] for key, artifacts in of_event.items()}
        for of_event in (event.inputs, event.outputs)
    )
    return StepRecorded(step=event.step, execution=event.execution_id, inputs=inputs, outputs=outputs, began=began)


def _artifact(item: Artifact) -> dict[str, Any]:
    properties = {}
    for name, value in (*item.mlmd_artifact.properties.items(), *item.mlmd_artifact.custom_properties.items()):
        kind = value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            properties[name] = getattr(value, kind)
    return {"id": item.id, "type": item.type_name, "uri": item.uri, "properties": properties}


@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """What a run has come to so far.

    Args:
      verdict: The Evaluator's verdict; None before.
      pushed_dir: The version that is served; None where nothing was pushed.
      new: Some step was not taken from the cache.
      pushed_now: The Pusher was not taken from the cache.
    """

    verdict: Mapping[str, object] | None = None
    pushed_dir: pathlib.Path | str | None = None
    new: bool = False
    pushed_now: bool = False

    @property
    def refused(self) -> bool:
        """The model was not blessed: what comes after must not run."""
        return self.verdict is not None and not self.verdict["blessed"]

    def after(self, event: StepFinished) -> "RunOutcome":
        """Returns the outcome once a step has finished."""
        outcome = dataclasses.replace(self, new=self.new or not event.cached)
        if "evaluation" in event.outputs:
            outcome = dataclasses.replace(outcome, verdict=artifact_values.read_verdict(event.outputs["evaluation"][0]))
        if "pushed_model" in event.outputs:
            pushed = event.outputs["pushed_model"][0]
            outcome = dataclasses.replace(
                outcome,
                pushed_dir=artifact_values.read_pushed(pushed),
                pushed_now=not event.cached and pushed.get_int_custom_property("created") == 1,
            )
        return outcome

    def finished(self) -> RunFinished:
        """Returns the run's last event."""
        if self.refused and self.verdict is not None:
            return RunFinished(exit_code=4, message=f"not pushed: {self.verdict['reason']}")
        if not self.new:
            message = "nothing changed: every step was taken from the cache, nothing was evaluated or pushed again"
        elif not self.pushed_now:
            message = "nothing new to push: this model is served already"
        else:
            message = "the model is pushed"
        return RunFinished(exit_code=0, message=message, pushed=str(self.pushed_dir or ""))


def _rows(outputs: Outputs) -> str:
    [examples] = outputs["examples"]
    rows = json.loads(examples.get_string_custom_property(ROWS_PROPERTY))
    dropped = json.loads(examples.get_string_custom_property(DROPPED_PROPERTY))
    splits = ", ".join(f"{split} {count:,}" for split, count in rows.items())
    reasons = "".join(f"; dropped {count:,}: {reason}" for reason, count in dropped.items())
    quarantined = examples.get_int_custom_property(QUARANTINED_PROPERTY)
    reasons += f"; {quarantined:,} in quarantine" if quarantined else ""
    return f"{sum(rows.values()):,} rows: {splits}{reasons}"


def _statistics(outputs: Outputs) -> str:
    statistics = artifact_values.read_statistics(outputs["statistics"][0])
    columns = max(len(split.features) for split in statistics.values())
    return f"{columns} columns in {len(statistics)} splits"


def _schema(outputs: Outputs) -> str:
    schema = artifact_values.read_schema(outputs["schema"][0])
    counts: dict[str, int] = {}
    for feature in schema.feature:
        name = {1: "string", 2: "int", 3: "float"}.get(feature.type, "other")
        counts[name] = counts.get(name, 0) + 1
    return f"{len(schema.feature)} columns: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _anomalies(outputs: Outputs) -> str:
    anomalies = artifact_values.read_anomalies(outputs["anomalies"][0])
    found = [f"{split}: {name}" for split, by_feature in anomalies.items() for name in sorted(by_feature)]
    if not found:
        return "no anomalies"
    plural = "anomaly" if len(found) == 1 else "anomalies"
    return f"{len(found)} {plural} ({', '.join(found[:3])}{', ...' if len(found) > 3 else ''})"


def _transformed(outputs: Outputs) -> str:
    graph = artifact_values.read(outputs["transform_graph"][0])
    splits = artifact_utils.decode_split_names(outputs["transformed_examples"][0].split_names)
    figure = f"{len(graph.transformed_feature_spec())} transformed features in {len(splits)} splits"
    path = pathlib.Path(outputs["transform_graph"][0].uri, FEATURES_NAME)
    if not path.exists():
        return figure
    found = filter(None, map(_PICKED.fullmatch, path.read_text(encoding="utf-8").splitlines()))
    picked = [f"{each['left']}: left out" if each["left"] else f"{each['name']}: {each['kind']}" for each in found]
    return f"{figure}; picked {', '.join(picked[:_MAX_PICKED])}{', ...' if picked[_MAX_PICKED:] else ''} ({path})"


def _training(outputs: Outputs) -> str:
    summary = artifact_values.read_training(outputs["model_run"][0])
    workers, restarts = summary["num_workers"], summary["restarts"]
    most = summary["attempts"][0]["num_workers"]
    number = f"{workers} of {most}" if workers < most else f"{workers}"
    parts = [f"{summary['steps']:,} steps on {number} worker{'s' if most > 1 else ''}"]
    course = summary.get("validation")
    if course and course["has_stopped"]:
        parts[0] += f", stopped early of {summary['options']['steps']:,}"
    # Both are unknown of a training that had no step left to do.
    if summary["loss"] is not None:
        parts.append(f"loss {summary['loss']:.4g}")
    if summary["examples_per_s"] is not None:
        parts.append(f"{summary['examples_per_s']:,.0f} examples/s")
    if restarts:
        parts.append(f"{restarts} restart{'s' if restarts > 1 else ''}")
    return ", ".join(parts)


def _verdict(outputs: Outputs) -> str:
    return str(artifact_values.read_verdict(outputs["evaluation"][0])["summary"])


def _pushed(outputs: Outputs) -> str:
    version = outputs["pushed_model"][0].get_string_custom_property("pushed_version")
    return f"version {version}" if version else "nothing pushed"


_FIGURES: dict[str, Callable[[Outputs], str]] = {
    "ExampleGen": _rows,
    "StatisticsGen": _statistics,
    "SchemaGen": _schema,
    "ExampleValidator": _anomalies,
    "Transform": _transformed,
    "DistributedTrainer": _training,
    "Evaluator": _verdict,
    "Pusher": _pushed,
}
