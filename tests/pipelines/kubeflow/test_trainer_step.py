"""The trainer as a step: what a run sets, and what becomes of its workers when the step is cancelled."""

import contextlib
import dataclasses
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.trainer.spec import ModelOptions, TrainOptions
from lockstep.components.trainer.step import TrainStep
from tests.components.trainer.conftest import TrainingData
from tests.components.trainer.conftest import training_data as training_data  # noqa: PLC0414 - a fixture of this module
from tests.pipelines.kubeflow.launcher_double import Cluster, Task

OPTIONS = TrainOptions(
    workers=1, steps=100_000, batch_size=64, num_virtual_shards=8, checkpoint_every=50, steps_per_call=5
)
TRAINER = Task(
    node_id="DistributedTrainer",
    code=("--executor_class_path", "lockstep.components.trainer.executor.Executor"),
    inputs={"examples": "Examples", "transform_graph": "TransformGraph"},
    outputs={"model": "Model", "model_run": "ModelRun"},
    parameters={"spec": "STRING", "steps": "NUMBER_INTEGER", "workers": "NUMBER_INTEGER"},
)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """With nothing run yet."""
    return Cluster(tmp_path / "cluster")


@pytest.fixture
def inputs(cluster: Cluster, training_data: TrainingData) -> dict[str, Any]:
    """Transform's outputs in the store."""
    root = "minio://bucket/root/run/Transform/1"
    for split, files in (("train", training_data.train_files), ("eval", training_data.eval_files)):
        folder = cluster.stored(f"{root}/examples/Split-{split}")
        folder.mkdir(parents=True)
        for file in files:
            shutil.copy(file, folder)
    shutil.copytree(training_data.transform_graph_dir, cluster.stored(f"{root}/transform_graph"))
    return {
        key: {"name": "1", "type": {"instanceSchema": ""}, "uri": f"{root}/{key}", "metadata": metadata}
        for key, metadata in (("examples", {"split_names": '["train", "eval"]'}), ("transform_graph", {}))
    }


def spec(tmp_path: Path, **options: Any) -> str:
    """The trainer's JSON."""
    return TrainStep(
        options=dataclasses.replace(OPTIONS, **options),
        model=ModelOptions(build="tests.components.trainer.sample_models:small_model"),
        label="tips",
        label_kind="binary",
        work_dir=str(tmp_path / "work"),
    ).to_json()


def workers_below(folder: Path) -> list[int]:
    """Workers of trainings whose folders are somewhere below."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            place = path.readlink()
            if place.is_relative_to(folder) and place.name.startswith("worker-"):
                found.append(int(path.parts[2]))
    return found


@pytest.mark.slow
def test_a_run_sets_steps_and_workers(cluster: Cluster, inputs: dict[str, Any], tmp_path: Path) -> None:
    """Kubeflow Pipelines gives them as parameters of the run, beside the specification that was compiled."""
    execution = cluster.run(TRAINER, inputs, {"spec": spec(tmp_path), "steps": 20.0, "workers": 2})
    assert execution.exit_code == 0, execution.log
    summary = json.loads((cluster.stored(execution.artifacts["model_run"]["uri"]) / "summary.json").read_text())
    assert (summary["steps"], summary["options"]["workers"]) == (20, 2)
    assert execution.artifacts["model"]["metadata"]["steps"] == 20
    assert (cluster.stored(execution.artifacts["model"]["uri"]) / "Format-Serving" / "saved_model.pb").exists()


@pytest.mark.slow
def test_what_a_run_must_not_set_is_told(cluster: Cluster, inputs: dict[str, Any], tmp_path: Path) -> None:
    """The last line of the log names the parameter."""
    execution = cluster.run(TRAINER, inputs, {"spec": spec(tmp_path), "workers": 3})
    assert execution.exit_code == 2
    assert execution.last_line.startswith("DistributedTrainer: workers: 3 is not allowed with batch_size: 64")


@pytest.mark.slow
def test_a_cancelled_training_leaves_no_worker(cluster: Cluster, inputs: dict[str, Any], tmp_path: Path) -> None:
    """The group is ended before the step is."""
    execution, executor_input = cluster.prepare(TRAINER, inputs, {"spec": spec(tmp_path)})
    with cluster.start(TRAINER.arguments(executor_input), execution) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "lockstep.progress: step " in line)
        assert workers_below(tmp_path), line
        process.send_signal(signal.SIGTERM)
        log, _ = process.communicate(timeout=25)
    assert process.returncode == 1
    assert log.rstrip().splitlines()[-1].startswith("DistributedTrainer: training was interrupted by SIGTERM")
    assert workers_below(tmp_path) == []
