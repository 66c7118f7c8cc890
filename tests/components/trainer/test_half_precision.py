"""float16 with a scaled loss, weights and parts of a batch, against the same training written in NumPy in float64."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer import loop
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.strategies import Built, make_engine
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter
from tests.components.trainer.conftest import example, write_split

SPEC = {name: tf.io.FixedLenFeature([1], tf.float32) for name in ("fare", "miles", "tips", "weight")}
CLASS_WEIGHTS = {"1": 3.0, "0": 0.5}
RATE = 0.1
# Of the largest change of a weight in a step: float16 has a precision of 1/2048, and several roundings add up.
TOLERANCE = 4e-3
# Eight halvings above what does not overflow.
SCALE = 2.0**24


def records(folder: Path) -> Records:
    """45 records of two features, each with a weight: the last batch of an epoch is not full."""
    rows = [
        {"fare": i / 20, "miles": (i * 7 % 45) / 30 - 0.5, "tips": float(i % 7 > 3), "weight": 0.5 + i % 3}
        for i in range(45)
    ]
    return Records(write_split(folder, [example(row) for row in rows], 2), SPEC, "tips", "weight")


def model() -> keras.Model:
    """A logistic regression, in the precision that is set."""
    inputs = {name: keras.Input((1,), name=name) for name in ("fare", "miles")}
    joined = keras.layers.Concatenate()(list(inputs.values()))
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(joined))


def expected_gradients(batch: Any, weights: "np.ndarray[Any, Any]", options: TrainOptions) -> "np.ndarray[Any, Any]":
    """The gradient of a batch for [fare, miles, 1], by hand: sum of weight * (chance - label) * feature / records."""
    columns, weight_or_padding, _ = batch
    is_record = np.ravel(weight_or_padding) > 0
    fare, miles, label = (np.ravel(columns[name]).astype(float)[is_record] for name in ("fare", "miles", "tips"))
    number = np.round(fare * 20)
    weight = (0.5 + number % 3) * np.where(label > 0.5, CLASS_WEIGHTS["1"], CLASS_WEIGHTS["0"])
    features = np.stack([fare, miles, np.ones_like(fare)], axis=1)
    chance = 1 / (1 + np.exp(-features @ weights))
    gradient: np.ndarray[Any, Any] = (weight * (chance - label)) @ features / len(label)
    if options.clip_norm is not None:
        gradient *= min(1.0, options.clip_norm / float(np.linalg.norm(gradient)))
    if options.clip_value is not None:
        gradient = np.clip(gradient, -options.clip_value, options.clip_value)
    return gradient


def check(folder: Path, **given: Any) -> None:
    """Trains step by step; each is left out, and nothing but the scale changes, or is what NumPy says."""
    common: dict[str, Any] = {"workers": 1, "batch_size": 16, "num_virtual_shards": 4, "steps": 20}
    common |= {"precision": "mixed_float16", "optimizer": "sgd", "learning_rate": RATE, "class_weights": CLASS_WEIGHTS}
    options = TrainOptions(**common, weight_column="weight", accumulate=2, **given)
    meter = GroupMeter()
    engine = make_engine(options, Task(), meter)
    source = records(folder / "records")
    data = engine.input(source, folder / "cache")
    keras.utils.set_random_seed(1)
    with engine.scope():
        built = model()
        optimizer = loop.optimizer_of(built, options)
        loss = loop.per_example_loss(built, "binary")
    engine.prepare(Built(model=built, optimizer=optimizer, loss=loss, label="tips"))
    engine.resume(0)
    optimizer.dynamic_scale.assign(SCALE)

    def variables() -> "np.ndarray[Any, Any]":
        return np.concatenate([weight.numpy().ravel() for weight in built.trainable_variables]).astype(float)

    def calls() -> Iterator[loop.Call]:
        for _ in range(options.num_steps):
            yield loop.Call(1, is_last=True)

    alone = TrainOptions(**{**common, "precision": "float32"}, weight_column="weight", strategy="one_device")
    reference = iter(make_engine_input(alone, source, folder))
    weights, scale, applied = variables(), SCALE, 0
    for losses in engine.run(iter(data.batches(0)), calls()):
        assert np.isfinite(losses).all()
        now, gradient = variables(), expected_gradients(next(reference), weights, options)
        if float(optimizer.dynamic_scale.numpy()) == scale / 2:
            np.testing.assert_array_equal(now, weights)
            scale /= 2
        else:
            assert float(optimizer.dynamic_scale.numpy()) == scale
            applied += 1
            step = RATE * gradient
            np.testing.assert_allclose(now, weights - step, rtol=0, atol=TOLERANCE * float(np.max(np.abs(step))))
        weights = now
    assert applied >= 5
    assert options.num_steps - applied >= 5
    assert int(optimizer.iterations.numpy()) == applied


def make_engine_input(options: TrainOptions, source: Records, folder: Path) -> Any:
    """The batches of one process, in order."""
    from lockstep.components.trainer.input_pipeline import worker_input

    return worker_input(source, options, worker=0, num_workers=1, cache_dir=folder / "other").batches(0)


@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.2}, {"clip_value": 0.1}], ids=["free", "clip_norm", "clip_value"])
def test_a_weighted_step_in_parts_is_that_of_full_precision_or_left_out(tmp_path: Path, clip: dict[str, Any]) -> None:
    """Weights of records and classes, two parts; a step that overflows changes nothing and halves the scale."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        check(tmp_path, strategy="one_device", **clip)
    finally:
        keras.config.set_dtype_policy(before)


PROGRAM = """
import pathlib, sys, keras
from tests.components.trainer import test_half_precision
keras.config.set_dtype_policy("mixed_float16")
folder = pathlib.Path(sys.argv[1])
test_half_precision.check(folder, strategy="mirrored", devices_per_worker=2, clip_value=0.1)
"""


@pytest.mark.slow
def test_two_devices_leave_out_the_same_steps(tmp_path: Path) -> None:
    """Those that overflow on either, in a process of its own, whose processor is split."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
