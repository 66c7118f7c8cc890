"""A model split over logical CPUs: the same as the unsharded one."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.early_stopping import EarlyStopping
from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.sharded import axes_of
from lockstep.components.trainer.spec import RunFiles, TrainSpec
from lockstep.components.trainer.worker import EXIT_USER_ERROR
from tests.components.trainer.conftest import MakeSpec, example
from tests.components.trainer.worker_processes import run_group, start_group

LAYOUT = {
    "companies/*": (None, "model"),
    "hidden_1/kernel": (None, "model"),
    "hidden_1/bias": ("model",),
    "hidden_2/kernel": ("model", None),
}
MESH = {"strategy": "dtensor", "workers": 1, "mesh": {"batch": 2, "model": 2}, "layout": LAYOUT}
MODEL: dict[str, Any] = {"build": "sample_models:named_model", "workers": 1}
# A record's own number is its weight. No validation is better than the first by that much: the fourth one ends the
# training, whose model then has the first one's weights.
VALIDATED = {
    "steps": 99,
    "learning_rate": 2e-4,  # the mean weight is 500, and so many times larger are gradients
    "weight_column": "record_id",
    "validate_every": 10,
    "early_stopping": EarlyStopping(min_delta=1e6, patience=3),
}


def final_variables(spec: TrainSpec) -> list[np.ndarray[Any, Any]]:
    """Weights, optimizer variables and best weights of the last checkpoint, in order; not what is text."""
    path = max(Path(spec.checkpoint_dir).glob("step-*")) / "checkpoint"
    reader = tf.train.load_checkpoint(str(path))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    values = [reader.get_tensor(name) for name in sorted(names, key=lambda name: int(name.split("/")[1]))]
    return [np.asarray(value) for value in values if not isinstance(value, bytes)]


def check_equal(spec: TrainSpec, whole: TrainSpec) -> None:
    """Asserts that both ended with the same weights, optimizer states and predictions."""
    for got, expected in zip(final_variables(spec), final_variables(whole), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)
    examples = tf.constant([example({"fare": fare, "company": "blue"}) for fare in (2.0, 8.0, 30.0)])
    served = [
        tf.saved_model.load(one.export_dir).signatures["serving_default"](examples)["predictions"]
        for one in (spec, whole)
    ]
    np.testing.assert_allclose(*served, rtol=0, atol=1e-6)


def check_validations(spec: TrainSpec, whole: TrainSpec) -> None:
    """Asserts that both found the same, and that the model has the weights of the best validation."""
    report, other = (json.loads(RunFiles(Path(each.run_dir)).training_path.read_text()) for each in (spec, whole))
    course = report["validation"]
    assert (course["best_step"], course["has_stopped"]) == (10, True)
    for got, expected in zip(course["validations"], other["validation"]["validations"], strict=True):
        assert got["step"] == expected["step"]
        assert got["metrics"] == pytest.approx(expected["metrics"], rel=1e-5)
    assert report["evaluation"] == pytest.approx(course["validations"][0]["metrics"], rel=1e-6)
    assert report["evaluation"]["loss"] != pytest.approx(course["validations"][3]["metrics"]["loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "options"), [("adam", {}), ("sgd", VALIDATED)])
def test_a_split_model_equals_the_whole_one(make_spec: MakeSpec, optimizer: str, options: dict[str, Any]) -> None:
    """On a mesh of two by two, over two and a half epochs, regularised: weights, optimizer states, predictions.

    With weights of records and validations, these find the same, end the training at the same step, and give the same
    weights back.
    """
    whole = make_spec("whole", **{**MODEL, "strategy": "one_device", "optimizer": optimizer, **options})
    split = make_spec("split", **{**MODEL, **MESH, "optimizer": optimizer, **options})
    for spec in (whole, split):
        (worker,) = run_group(spec)
        assert worker.code == 0, worker.events[-1]
        assert worker.last("done").step == 40
    check_equal(split, whole)
    if options:
        check_validations(split, whole)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"model": 2}, {"batch": 2}])
def test_each_axis_works_alone(make_spec: MakeSpec, mesh: dict[str, int]) -> None:
    """Variables split and batches whole, or the other way round; BatchNormalization sees the whole batch either way."""
    model = {**MODEL, "parameters": {"normalize": True}}
    whole = make_spec("whole", **model, strategy="one_device")
    split = make_spec("split", **{**model, **MESH, "mesh": mesh, "layout": LAYOUT if "model" in mesh else {}})
    for spec in (whole, split):
        (worker,) = run_group(spec)
        assert worker.code == 0, worker.events[-1]
    check_equal(split, whole)


@pytest.mark.slow
def test_a_split_training_goes_on_bit_for_bit(make_spec: MakeSpec) -> None:
    """Killed after a checkpoint and started again: the weights of a run that was never disturbed."""
    options = {**MODEL, **MESH, "steps": 120, "checkpoint_every": 20}
    (undisturbed,) = run_group(make_spec("undisturbed", **options))
    spec = make_spec("killed", **options)
    (process,) = start_group(spec)
    assert process.stdout is not None
    for line in process.stdout:
        event = WorkerEvent.from_line(line)
        if event is not None and event.event == "checkpoint":
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.communicate()
    (resumed,) = run_group(spec, attempt=2)
    assert resumed.code == 0, resumed.events[-1]
    assert 0 < (resumed.last("training").step or 0) < 120
    assert resumed.last("done").digest == undisturbed.last("done").digest


@pytest.mark.slow
def test_a_layout_that_does_not_fit_is_the_users_to_mend(make_spec: MakeSpec) -> None:
    """Told before the first step, by the pattern."""
    (worker,) = run_group(make_spec(**{**MODEL, **MESH, "layout": {"hidden_3/*": ("model",)}}))
    assert worker.code == EXIT_USER_ERROR
    assert "train.layout.hidden_3/*: no variable of the model is called so; there are companies/embeddings" in str(
        worker.last("failed").message
    )


def variables() -> list[keras.Variable]:
    """Of a dense layer."""
    layer = keras.layers.Dense(6, name="dense")
    layer.build((None, 4))
    return layer.weights  # type: ignore[no-any-return]


def test_the_first_pattern_that_fits_counts() -> None:
    """What none fits is not split."""
    layout = {"dense/k*": (None, "model"), "*/kernel": ("model", None), "*el": ("model", None)}
    with pytest.raises(ConfigurationError, match=r"train.layout.\*/kernel: no variable of the model is called so"):
        axes_of(variables(), layout, {"model": 2})
    found = axes_of(variables(), {"dense/k*": (None, "model")}, {"model": 2})
    assert found == {"dense/kernel": (None, "model"), "dense/bias": (None,)}


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            {"dense/*": (None, "model")},
            r"train.layout.dense/\*: \[None, 'model'\] .* dense/bias has 1 dimensions, \[6\]",
        ),
        (
            {"dense/kernel": ("model", None)},
            r"dense/kernel \[4, 6\] cannot be split evenly: axis 'model' has 3 devices",
        ),
    ],
)
def test_a_pattern_that_does_not_fit_is_named(layout: dict[str, Any], message: str) -> None:
    """With the variable, its shape and what is allowed."""
    with pytest.raises(ConfigurationError, match=message):
        axes_of(variables(), layout, {"model": 3})
