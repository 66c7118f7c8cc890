"""Asynchronous training with a coordinator, workers and parameter servers as processes, and what a killed one costs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.early_stopping import EarlyStopping
from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.launchers import WorkerStatus
from lockstep.components.trainer.launchers.local import LocalLauncher
from lockstep.components.trainer.spec import RunFiles, TrainSpec, worker_command
from lockstep.components.trainer.summary import TrainingOutcome
from lockstep.components.trainer.supervisor import Supervisor
from tests.components.trainer.conftest import MakeSpec, TrainingData, example
from tests.components.trainer.worker_processes import free_ports

pytestmark = pytest.mark.slow

OPTIONS = {"strategy": "parameter_server", "workers": 2, "parameter_servers": 2, "steps_per_call": 3}
COORDINATOR, WORKER, PS = 0, 1, 3  # numbers of processes


class KillingLauncher(LocalLauncher):
    """Kills one process of the first attempt as soon as the coordinator tells of a checkpoint, and keeps events."""

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._number = number
        self.events: list[WorkerEvent] = []

    def poll(self) -> tuple[WorkerStatus, ...]:
        """Polls; kills in between."""
        statuses = super().poll()
        self.events += filter(None, map(WorkerEvent.from_line, statuses[COORDINATOR].new_lines))
        if self._number is not None and any(event.event == "checkpoint" for event in self.events):
            os.kill(self._workers[self._number].process.pid, signal.SIGKILL)
            self._number = None
        return statuses


def supervised(spec: TrainSpec, launcher: KillingLauncher) -> TrainingOutcome:
    """Runs a training to its end; no process of it is left."""
    files = RunFiles(Path(spec.run_dir))
    files.spec_path.write_text(spec.to_json())
    return Supervisor(
        launcher=launcher,
        options=spec.options,
        run_dir=files.run_dir,
        command=lambda attempt: worker_command(spec_path=files.spec_path, attempt=attempt),
    ).run()


def final_variables(spec: TrainSpec) -> list[np.ndarray[Any, Any]]:
    """Weights and optimizer variables of the last checkpoint, in order."""
    path = Path(spec.checkpoint_dir) / f"step-{spec.options.steps:08d}" / "checkpoint"
    reader = tf.train.load_checkpoint(str(path))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    return [reader.get_tensor(name) for name in sorted(names, key=lambda name: int(name.split("/")[1]))]


def check_result(spec: TrainSpec) -> None:
    """Asserts that exactly the steps were counted, by Keras too, and that the model has learned and serves raw rows."""
    report = json.loads(RunFiles(Path(spec.run_dir)).training_path.read_text())
    assert report["steps"] == spec.options.steps
    assert report["evaluation"]["auc"] > 0.7
    counts = [int(value) for value in final_variables(spec) if value.dtype == np.int64 and value.shape == ()]
    assert counts == [spec.options.steps]
    served = tf.saved_model.load(spec.export_dir).signatures["serving_default"]
    low, high = served(tf.constant([example({"fare": fare, "company": "blue"}) for fare in (2.0, 30.0)]))[
        "predictions"
    ].numpy()
    assert low < high


def test_an_asynchronous_training_counts_its_steps_exactly(make_spec: MakeSpec) -> None:
    """With two workers that update the same variables without locks, Keras' embedding among them."""
    spec = make_spec(**OPTIONS, steps=100, checkpoint_every=40)
    launcher = KillingLauncher(None)
    outcome = supervised(spec, launcher)
    assert outcome.restarts == 0
    assert [event.step for event in launcher.events if event.event == "checkpoint"] == [40, 80, 100]
    read = launcher.events[-1].records
    assert (launcher.events[-1].event, launcher.events[-1].step) == ("done", 100)
    assert outcome.records == (read,)
    assert sorted(path.name for path in Path(spec.run_dir).glob("*.log")) == [
        f"{name}.attempt-1.log" for name in ("chief-0", "ps-0", "ps-1", "worker-0", "worker-1")
    ]
    check_result(spec)


def test_validations_end_an_asynchronous_training(make_spec: MakeSpec, training_data: TrainingData) -> None:
    """At the step of a validation, with the weights of the best one. A record's own number is its weight, in the
    training, where that of its class is multiplied with it and each worker's step is clipped, and in validations.
    """
    stopping = EarlyStopping(min_delta=1e6, patience=2)  # none is better than the first by that much
    options = {"validate_every": 40, "early_stopping": stopping, "weight_column": "record_id"}
    options |= {"class_weights": {"1": 2.0}, "clip_norm": 1.0}
    spec = make_spec(**OPTIONS, **options, steps=400, checkpoint_every=60)
    assert supervised(spec, KillingLauncher(None)).restarts == 0
    report = json.loads(RunFiles(Path(spec.run_dir)).training_path.read_text())
    course = report["validation"]
    assert report["evaluation"]["auc"] > 0.7
    assert [validation["step"] for validation in course["validations"]] == [40, 80, 120]
    assert (report["steps"], course["best_step"], course["has_stopped"]) == (120, 40, True)
    found = course["validations"][0]["metrics"]
    assert report["evaluation"] == pytest.approx(found, rel=1e-6)
    assert course["validations"][2]["metrics"]["loss"] != pytest.approx(found["loss"], rel=1e-6)

    served = tf.saved_model.load(spec.export_dir).signatures["serving_default"]
    rows = training_data.eval_rows
    raw = [example({name: value for name, value in row.items() if name not in ("tips", "record_id")}) for row in rows]
    chances = served(tf.constant(raw))["predictions"].numpy().ravel().astype(float)
    is_generous = np.array([row["tips"] > 0.2 * row.get("fare", 0.0) for row in rows])
    losses = -np.log(np.where(is_generous, chances, 1 - chances))
    weights = np.array([row["record_id"] for row in rows])
    assert found["loss"] == pytest.approx(float(np.sum(losses * weights)) / len(rows), rel=1e-4)
    accuracy = float(np.sum(weights * ((chances > 0.5) == is_generous)) / np.sum(weights))
    assert found["accuracy"] == pytest.approx(accuracy, rel=1e-5)


def test_a_killed_worker_is_replaced_alone(make_spec: MakeSpec) -> None:
    """The coordinator and the parameter servers go on; another process takes its address; the steps are exact."""
    spec = make_spec(**OPTIONS, steps=3000, checkpoint_every=600)
    outcome = supervised(spec, KillingLauncher(WORKER))
    (attempt,) = outcome.attempts
    assert [cause.partition(" at step ")[0] for cause in attempt.replacements] == ["worker 0 was killed by SIGKILL"]
    check_result(spec)


def test_the_only_worker_is_replaced_while_the_coordinator_waits(make_spec: MakeSpec) -> None:
    """Nobody else could make the steps meanwhile."""
    spec = make_spec(**{**OPTIONS, "workers": 1}, steps=400, checkpoint_every=100)
    (attempt,) = supervised(spec, KillingLauncher(WORKER)).attempts
    assert len(attempt.replacements) == 1
    check_result(spec)


@pytest.mark.parametrize(("number", "name"), [(PS, "parameter server 0"), (COORDINATOR, "the coordinator")])
def test_a_killed_parameter_server_or_coordinator_restarts_the_group(
    make_spec: MakeSpec, number: int, name: str
) -> None:
    """It goes on from the last checkpoint, to exactly the steps."""
    spec = make_spec(**OPTIONS, steps=2000, checkpoint_every=500)
    first, second = supervised(spec, KillingLauncher(number)).attempts
    assert str(first.cause).startswith(f"{name} was killed by SIGKILL at step")
    assert (second.cause, second.replacements) == (None, ())
    assert (second.resumed_step or 0) >= 500
    check_result(spec)


# A whole cluster in one process, which only this one may have: TensorFlow joins one cluster in its life.
PLACEMENT = """
import json, os, sys
import keras, tensorflow as tf
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
servers = [
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=role, task_index=index, protocol="grpc")
    for role in ("worker", "ps") for index in range(len(cluster[role]))
]
from lockstep.components.trainer.asynchronous import Asynchronous
from lockstep.components.trainer.embeddings import SplitEmbedding
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter
options = TrainOptions(strategy="parameter_server", workers=1, parameter_servers=2)
meter = GroupMeter(0, 1, has_gpu=False)
engine = Asynchronous(options, Task.from_tf_config(os.environ["TF_CONFIG"], options), meter)
with engine.scope():
    layer = SplitEmbedding(9, 2, num_parts=options.table_parts)
    layer.build((None,))
print([part.value.device for part in layer.parts], flush=True)
os._exit(0)
"""


def test_a_split_table_lies_on_all_parameter_servers() -> None:
    """A part on each."""
    addresses = [f"localhost:{port}" for port in free_ports(4)]
    cluster = {"chief": addresses[:1], "worker": addresses[1:2], "ps": addresses[2:]}
    config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    done = subprocess.run(
        [sys.executable, "-c", PLACEMENT],
        env={**os.environ, "TF_CONFIG": json.dumps(config)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    device = "/job:ps/replica:0/task:{}/device:CPU:0"
    assert done.stdout.splitlines()[-1] == str([device.format(0), device.format(1)])
