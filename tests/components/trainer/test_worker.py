"""Real worker processes, from a specification to an exported model."""

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.heartbeat import Reporter, WorkerEvent
from lockstep.components.trainer.spec import RunFiles, TrainSpec
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.worker import EXIT_ORPHANED, EXIT_USER_ERROR, run
from tests.components.trainer.conftest import NUM_TRAIN, MakeSpec, TrainingData, example
from tests.components.trainer.worker_processes import Finished, run_group, start_group

pytestmark = pytest.mark.slow


def final_variables(spec: TrainSpec) -> list[np.ndarray[Any, Any]]:
    """Weights and optimizer variables of the last checkpoint, in order."""
    path = Path(spec.checkpoint_dir) / f"step-{spec.options.steps:08d}" / "checkpoint"
    reader = tf.train.load_checkpoint(str(path))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    return [reader.get_tensor(name) for name in sorted(names, key=lambda name: int(name.split("/")[1]))]


def report(spec: TrainSpec) -> dict[str, Any]:
    """What the chief left."""
    loaded: dict[str, Any] = json.loads(RunFiles(Path(spec.run_dir)).training_path.read_text())
    return loaded


def succeeded(*workers: Finished) -> None:
    """Asserts that all ended well, and with equal weights."""
    assert [worker.code for worker in workers] == [0] * len(workers), workers[0].events[-1]
    assert len({worker.last("done").digest for worker in workers}) == 1


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_two_workers_equal_one_process(make_spec: MakeSpec, training_data: TrainingData, optimizer: str) -> None:
    """Same global batch, over two and a half epochs with their uneven ends: equal weights on both workers, bit for bit,
    equal to one process to 1e-5, and each record of the training read by exactly one worker.
    """
    one_spec = make_spec("one", optimizer=optimizer)
    two_spec = make_spec("two", optimizer=optimizer, workers=2)
    (one,) = run_group(one_spec)
    two = run_group(two_spec)
    succeeded(one)
    succeeded(*two)
    for alone, together in zip(final_variables(one_spec), final_variables(two_spec), strict=True):
        np.testing.assert_allclose(alone, together, atol=1e-5)
    records = [worker.last("done").records for worker in two]
    assert sum(filter(None, records)) == one.last("done").records
    assert (one.last("done").records or 0) > 2 * NUM_TRAIN
    assert [event.event for event in two[1].events if event.event != "heartbeat"] == [
        "started",
        "training",
        "checkpoint",
        "checkpoint",
        "done",
    ]
    check_chief(two_spec, two[0], training_data)


def check_chief(spec: TrainSpec, chief: Finished, training_data: TrainingData) -> None:
    """Asserts what the chief alone says and leaves: report, TensorBoard events and a model that serves."""
    names = [event.event for event in chief.events if event.event != "heartbeat"]
    assert names == ["started", "training", "checkpoint", "checkpoint", "exporting", "done"]
    last = [event for event in chief.events if event.event == "heartbeat" and event.loss is not None][-1]
    assert last.step == 40
    assert last.examples_per_s
    told = report(spec)
    assert (told["steps"], told["attempt"], told["resumed_from"]) == (40, 1, 0)
    assert told["records_per_epoch"] == NUM_TRAIN
    assert told["evaluation"]["examples"] == len(training_data.eval_rows)
    assert told["evaluation"]["auc"] > 0.7
    tags = event_tags(Path(spec.tensorboard_dir))
    assert {
        "train/loss",
        "train/learning_rate",
        "train/examples_per_s",
        "eval/auc",
        "eval/accuracy",
        "eval/loss",
    } <= tags
    served = tf.saved_model.load(spec.export_dir).signatures["serving_default"]
    rows = [{"fare": fare, "company": "blue"} for fare in (2.0, 30.0)]
    low, high = served(tf.constant([example(row) for row in rows]))["predictions"].numpy().ravel()
    assert low < high


def event_tags(folder: Path) -> set[str]:
    """Names of all scalars in TensorBoard's event files."""
    tags = set()
    for path in folder.iterdir():
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            tags |= {value.tag for value in event.summary.value}
    return tags


def test_a_killed_group_goes_on_bit_for_bit(make_spec: MakeSpec) -> None:
    """A worker is killed after a checkpoint, then its group; another attempt ends with the weights of a run that was
    never disturbed. Dropout and BatchNormalization without synchronisation make it hard.
    """
    options = {"workers": 2, "steps": 600, "checkpoint_every": 50, "steps_per_call": 7}
    model = {"parameters": {"dropout": 0.2, "normalize": "local"}}
    undisturbed = run_group(make_spec("undisturbed", **model, **options))
    succeeded(*undisturbed)

    spec = make_spec("killed", **model, **options)
    processes = start_group(spec)
    assert processes[0].stdout is not None
    for line in processes[0].stdout:
        event = WorkerEvent.from_line(line)
        if event is not None and event.event == "checkpoint":
            break
    os.kill(processes[1].pid, signal.SIGKILL)
    processes[0].kill()
    for process in processes:
        assert process.wait() == -signal.SIGKILL
        process.communicate()
    assert not Path(spec.export_dir).exists()

    resumed = run_group(spec, attempt=2)
    succeeded(*resumed)
    assert 0 < report(spec)["resumed_from"] < 600
    assert resumed[1].last("training").step == report(spec)["resumed_from"]
    assert report(spec)["attempt"] == 2
    assert resumed[0].last("done").digest == undisturbed[0].last("done").digest


def test_workers_end_with_their_supervisor_and_on_sigterm(make_spec: MakeSpec) -> None:
    """A closed standard input ends a worker that trains, and so does SIGTERM, which TensorFlow would swallow."""
    processes = start_group(make_spec(workers=2, steps=10_000_000, checkpoint_every=10_000_000))
    for process in processes:
        assert process.stdout is not None
        for line in process.stdout:
            event = WorkerEvent.from_line(line)
            if event is not None and event.event == "heartbeat":
                break
    assert processes[1].stdin is not None
    processes[0].send_signal(signal.SIGTERM)
    processes[1].stdin.close()
    try:
        assert processes[0].wait(timeout=30) == -signal.SIGTERM
        assert processes[1].wait(timeout=30) == EXIT_ORPHANED
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        processes[0].stdin.close()  # type: ignore[union-attr]


def test_a_diverging_training_stops_and_names_the_step(make_spec: MakeSpec) -> None:
    """It is the user's to mend, no model appears, and no checkpoint of broken weights."""
    spec = make_spec(optimizer="sgd", learning_rate=1e30, steps=200, checkpoint_every=200)
    (worker,) = run_group(spec)
    assert worker.code == EXIT_USER_ERROR
    failed = worker.last("failed")
    assert failed.user_error
    assert "at step" in (failed.message or "")
    assert "learning_rate" in (failed.message or "")
    assert not Path(spec.export_dir).exists()
    assert not Path(spec.checkpoint_dir).exists()


def test_a_model_function_that_fails_is_the_user_s_error(make_spec: MakeSpec) -> None:
    """The message is one line; the user's own traceback goes along."""
    (worker,) = run_group(make_spec(build="sample_models:broken_model"))
    assert worker.code == EXIT_USER_ERROR
    failed = worker.last("failed")
    assert failed.user_error
    path = Path(__file__).parent / "sample_models.py"
    line = path.read_text().splitlines().index('    raise KeyError("distance")') + 1
    assert failed.message == f"model.build: 'sample_models:broken_model' failed at {path}:{line}: KeyError: 'distance'"
    assert "sample_models.py" in (failed.traceback or "")
    assert worker.log.rstrip().endswith(failed.message)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("wide_model", "model.build: 'sample_models:wide_model' gives float32 [batch, 2]; it must give one float"),
        ("flat_model", "model.build: 'sample_models:flat_model' gives float32 [batch]; it must give one float"),
        ("logits_model", "model.build: 'sample_models:logits_model' gives -3.0; a binary label needs a probability"),
        ("exiting_model", "SystemExit: no data today"),
        ("model_that_exits_later", "the user's code ended the training: SystemExit: enough"),
    ],
)
def test_a_model_that_cannot_be_trained_is_told_before_the_first_step(
    make_spec: MakeSpec, build: str, message: str
) -> None:
    """One line that is the user's to mend, and no step and no model."""
    spec = make_spec(build=f"sample_models:{build}")
    (worker,) = run_group(spec)
    assert worker.code == EXIT_USER_ERROR
    failed = worker.last("failed")
    assert failed.user_error
    assert message in (failed.message or "")
    assert "\n" not in (failed.message or "")
    assert not [event for event in worker.events if event.event == "heartbeat"]
    assert not Path(spec.export_dir).exists()


def test_what_goes_wrong_is_reported(make_spec: MakeSpec) -> None:
    """A failure that is not the user's ends with 1, its own traceback, and is worth another attempt."""
    stream = io.StringIO()
    # Threads cannot be limited any more once TensorFlow runs, as it does in this process.
    assert run(make_spec(), Task(), Reporter(0, stream), attempt=1) == 1
    events = [WorkerEvent.from_line(line) for line in stream.getvalue().splitlines()]
    assert [event.event for event in events if event] == ["started", "failed"]
    assert events[-1] is not None
    assert not events[-1].user_error
    assert "limit_threads" in (events[-1].traceback or "")
