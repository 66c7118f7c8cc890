"""Folders as a run leaves them, written without running anything: the same files and formats, of any size."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

from lockstep.components.evaluator import plots
from lockstep.components.evaluator.class_counts import ClassCounts
from lockstep.pipelines import run_events

STEPS = {
    "ExampleGen": [],
    "StatisticsGen": ["ExampleGen"],
    "SchemaGen": ["StatisticsGen"],
    "ExampleValidator": ["SchemaGen", "StatisticsGen"],
    "Transform": ["ExampleGen", "SchemaGen"],
    "DistributedTrainer": ["SchemaGen", "Transform"],
    "Evaluator": ["DistributedTrainer", "ExampleGen", "SchemaGen"],
    "Pusher": ["DistributedTrainer", "Evaluator"],
}
OUTPUTS = {
    "ExampleGen": "examples",
    "StatisticsGen": "statistics",
    "SchemaGen": "schema",
    "ExampleValidator": "anomalies",
    "Transform": "transform_graph",
    "DistributedTrainer": "model_run",
    "Evaluator": "evaluation",
    "Pusher": "pushed_model",
}
DONE = run_events.RunFinished(exit_code=0, message="the model is pushed", pushed="/pushed/7")


class MadeRun:
    """A run under a root.

    Args:
      root: The pipeline's folder.
      until: The last step that ended well; None for all.
      name: The pipeline's name.
      finished: The run's last event; None for a run that ended without a word.
    """

    def __init__(
        self,
        root: pathlib.Path,
        *,
        until: str | None = None,
        name: str = "taxi",
        finished: run_events.RunFinished | None = DONE,
        cached: Sequence[str] = (),
    ) -> None:
        self.root, self.run_dir = root, root / "runs" / "20261130T120000"
        self.run_dir.mkdir(parents=True)
        config = {"name": name, "data": {"path": "/data/taxi.csv"}, "kubeflow": {"store": {"secret_key": "s3cr3t"}}}
        (self.run_dir / "request.json").write_text(json.dumps({"config": json.dumps(config), "root": str(root)}))
        (self.run_dir / "run.log").write_text("")
        self.properties: dict[str, dict[str, Any]] = {
            "ExampleGen": {"rows": json.dumps({"train": 800, "eval": 200}), "dropped": "{}"},
            "Pusher": {"pushed_version": "7", "pushed_destination": "/pushed/7"},
        }
        self._finished, self._cached = finished, cached
        self._names = list(STEPS)[: 1 + list(STEPS).index(until)] if until else list(STEPS)
        self._next = list(STEPS)[len(self._names)] if until and until != "Pusher" else None

    def dir(self, step: str) -> pathlib.Path:
        """Returns a step's only artifact's folder; made where missing."""
        folder = self.root / "artifacts" / step / OUTPUTS[step] / "1"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_events(self, cut: int = 0) -> None:
        """Writes ``events.jsonl``; the last ``cut`` bytes are lost."""
        events: list[run_events.RunEvent] = [
            run_events.RunStarted(steps=tuple(STEPS), versions="TFX 1, Python 3", upstream=STEPS)
        ]
        for number, step in enumerate(self._names):
            state: run_events.StepState = "cached" if step in self._cached else "done"
            record = {
                "id": number + 1,
                "type": "Any",
                "uri": str(self.dir(step)),
                "properties": self.properties.get(step, {}),
            }
            events += [
                run_events.StepChanged(step=step, state="running"),
                run_events.StepRecorded(
                    step=step, execution=number + 1, inputs={}, outputs={OUTPUTS[step]: [record]}, began=1796040000.0
                ),
                run_events.StepChanged(step=step, state=state, seconds=1.5 * number, figure=f"figure of {step}"),
            ]
        if self._next:
            figure = "step 30/200, loss 1.120, 6,720 examples/s"
            events += [
                run_events.StepChanged(step=self._next, state="running"),
                run_events.StepChanged(step=self._next, state="running", figure=figure, seconds=2.0),
            ]
            if self._finished:
                events.append(run_events.StepChanged(step=self._next, state="failed", seconds=3.0))
        if self._finished:
            events.append(self._finished)
        text = "".join(map(run_events.to_line, events))
        (self.run_dir / "events.jsonl").write_text(text[: len(text) - cut], encoding="utf-8")

    def write_statistics(self, names: Sequence[str], texts: Mapping[str, Sequence[str]] | None = None) -> None:
        """Writes both splits' statistics: columns of numbers, and columns of texts with their values."""
        for split, count in (("train", 800), ("eval", 200)):
            data = statistics_pb2.DatasetFeatureStatistics(num_examples=count)
            for name in names:
                stats = data.features.add(path={"step": [name]}, type="FLOAT").num_stats
                stats.common_stats.num_non_missing, stats.common_stats.num_missing = count - 8, 8
                stats.min, stats.max, stats.mean, stats.std_dev = 0.0, 10.0, 4.0, 2.5
                histogram = stats.histograms.add(type="STANDARD")
                for i in range(10):
                    histogram.buckets.add(low_value=i, high_value=i + 1, sample_count=(count - 8) * (10 - i) / 55)
            for name, values in (texts or {}).items():
                column = data.features.add(path={"step": [name]}, type="STRING").string_stats
                column.common_stats.num_non_missing = count
                column.unique = len(values)
                for i, value in enumerate(values):
                    column.rank_histogram.buckets.add(
                        low_rank=i, high_rank=i, label=value, sample_count=len(values) - i
                    )
            folder = self.dir("StatisticsGen") / f"Split-{split}"
            folder.mkdir()
            message = statistics_pb2.DatasetFeatureStatisticsList(datasets=[data])
            (folder / "FeatureStats.pb").write_bytes(message.SerializeToString())

    def write_anomalies(self, anomalies: Mapping[str, str]) -> None:
        """Writes the anomalies of the evaluation split, by column."""
        message = anomalies_pb2.Anomalies()
        for column, what in anomalies.items():
            message.anomaly_info[column].short_description = "Unexpected"
            message.anomaly_info[column].description = what
        folder = self.dir("ExampleValidator") / "Split-eval"
        folder.mkdir()
        (folder / "SchemaDiff.pb").write_bytes(message.SerializeToString())

    def write_curve(self, tag: str, values: Sequence[float], *, cut: int = 0) -> None:
        """Writes a scalar as TensorBoard reads it, a point every 10 steps; the last ``cut`` bytes are lost."""
        folder = self.dir("DistributedTrainer") / "tensorboard"
        folder.mkdir(exist_ok=True)
        records = [event_pb2.Event(file_version="brain.Event:2", wall_time=1796040000.0)]
        for i, value in enumerate(values):
            tensor = tensor_pb2.TensorProto(dtype=1, float_val=[value])
            summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, tensor=tensor)])
            records.append(event_pb2.Event(step=10 * (i + 1), wall_time=1796040000.0 + i, summary=summary))
        framed = b""
        for record in records:
            content = record.SerializeToString()
            framed += len(content).to_bytes(8, "little") + bytes(4) + content + bytes(4)
        path = folder / f"events.out.tfevents.{len(list(folder.iterdir()))}"
        path.write_bytes(framed[: len(framed) - cut])

    def write_summary(self, **values: Any) -> None:
        """Writes the training's summary: two workers, one of them killed once."""
        attempts = [
            {
                "attempt": 1,
                "start_s": 0.0,
                "training_s": 4.0,
                "end_s": 9.0,
                "resumed_step": 0,
                "last_step": 120,
                "num_workers": 2,
                "cause": "worker 1 was ended by SIGKILL",
            },
            {"attempt": 2, "start_s": 9.5, "training_s": 4.0, "end_s": 21.0, "resumed_step": 100, "last_step": 400},
        ]
        document: dict[str, Any] = {
            "steps": 400,
            "loss": 0.19,
            "examples_per_s": 110428.0,
            "restarts": 1,
            "num_workers": 2,
            "attempts": attempts,
            "records_per_worker": [40000, None],
            "evaluation": {"auc": 0.9495, "loss": 0.2},
            "options": {"workers": 2, "strategy": "multi_worker_mirrored", "batch_size": 240, "optimizer": "adam"},
            "seconds": {"total": 21.4},
            "versions": {"tensorflow": "2.16.2", "python": "3.10.13"},
        }
        (self.dir("DistributedTrainer") / "summary.json").write_text(json.dumps(document | values))

    def write_verdict(self, *, blessed: bool = True, slices: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Writes a verdict against version 3."""
        limit = 0.9 if blessed else 0.99
        document = {
            "blessed": blessed,
            "reason": f"{'' if blessed else 'not '}blessed: auc 0.9494 {'>=' if blessed else '<'} {limit}",
            "ungated": False,
            "checks": [
                {
                    "metric": "auc",
                    "slice": "overall",
                    "bound": "min",
                    "limit": limit,
                    "value": 0.9494,
                    "applied": True,
                    "passed": blessed,
                    "reason": "auc 0.9494",
                }
            ],
            "metrics": {"auc": 0.9494, "accuracy": None},
            "slices": slices or {},
            "baseline": {"state": "compared", "version": 3, "note": "", "metrics": {"auc": 0.9400}},
        }
        (self.dir("Evaluator") / "verdict.json").write_text(json.dumps(document))

    def write_curves(self, kind: str = "binary", classes: Sequence[str] = ()) -> None:
        """Writes the Evaluator's curves of a candidate and a baseline, as it counts them."""
        rng = np.random.default_rng(1)
        models: dict[str, Any] = {}
        for name, noise in (("candidate", 0.8), ("baseline", 1.5)):
            labels = (rng.random(5000) < 0.3).astype(np.float32)
            if kind == "multiclass":
                counts = ClassCounts(len(classes))
                logits = rng.normal(0, noise, (5000, len(classes)))
                chosen = rng.integers(0, len(classes), 5000)
                logits[np.arange(5000), chosen] += 1.5
                probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
                chosen[:3] = -1
                counts.update(chosen, probabilities)
                models[name] = counts.to_document(classes)
            elif kind == "binary":
                models[name] = plots.BinaryPlots()
                models[name].update(labels, 1 / (1 + np.exp(-rng.normal(2 * labels - 1.5, noise))))
            else:
                models[name] = plots.RegressionPlots()
                models[name].update(50 * labels, 50 * labels + rng.normal(0, 5 * noise, 5000))
        if kind == "multiclass":
            (self.dir("Evaluator") / plots.PLOTS_NAME).write_text(json.dumps({"models": models}))
        else:
            plots.write_plots(models, str(self.dir("Evaluator")))


def whole_run(root: pathlib.Path, **options: Any) -> MadeRun:
    """Returns a run with everything there."""
    run = MadeRun(root, **options)
    run.write_statistics(["fare", "miles"], {"company": ["Yellow", "Blue", "Red"]})
    run.write_anomalies({"company": "Examples contain values missing from the schema: Green (<1%)."})
    run.write_curve("train/loss", [0.7 / (i + 1) + 0.19 for i in range(40)])
    run.write_curve("train/examples_per_s", [1000.0 * i for i in range(1, 40)])
    run.write_curve("train/learning_rate", [0.1 * 0.9**i for i in range(40)])
    run.write_summary()
    run.write_verdict(slices={"hour=0": {"auc": 0.85}, "hour=1": {"auc": 0.97}})
    run.write_curves()
    run.write_events()
    return run
