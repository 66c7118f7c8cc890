"""Validation and early stopping within a training, in one process; several are in test_equal_results."""

import io
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import DataError
from lockstep.components.trainer import loop
from lockstep.components.trainer.checkpoint import Checkpoints
from lockstep.components.trainer.early_stopping import EarlyStopping
from lockstep.components.trainer.evaluation import Evaluation
from lockstep.components.trainer.heartbeat import Reporter, WorkerEvent
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.schedule_options import ScheduleOptions
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.strategies import Built, make_engine
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter
from lockstep.components.trainer.validation import Validator
from tests.components.trainer.conftest import example, write_split

SPEC = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("fare", "tips", "weight")}


def split(folder: Path, count: int, **changed: float) -> Records:
    """Records whose label follows from their only feature; the last one may have other values."""
    rows = [{"fare": i / 10, "tips": float(i % 7 > 3), "weight": 0.5 + i % 3} for i in range(count)]
    if changed:
        rows[-1] |= changed
    return Records(write_split(folder, [example(row) for row in rows], 2), SPEC, "tips", "weight")


def small_model() -> keras.Model:
    """One hidden layer, some of which is dropped."""
    fare = keras.Input((1,), name="fare")
    hidden = keras.layers.Dropout(0.3)(keras.layers.Dense(8, activation="tanh")(fare))
    return keras.Model({"fare": fare}, keras.layers.Dense(1, activation="sigmoid")(hidden))


class Run:
    """A training with validations, as ``Training`` puts it together."""

    def __init__(self, folder: Path, name: str, evaluated: Records, **options: Any) -> None:
        values = {"strategy": "one_device", "workers": 1, "batch_size": 16, "num_virtual_shards": 8, "steps": 30}
        values |= {"checkpoint_every": 5, "validate_every": 3, "steps_per_call": 2, "learning_rate": 0.05}
        self.options = TrainOptions(**{**values, **options})
        self.meter = GroupMeter()
        engine = make_engine(self.options, Task(), self.meter)
        self.data = engine.input(split(folder / f"{name}-train", 45), folder / "cache")
        keras.utils.set_random_seed(7)
        with engine.scope():
            self.model = small_model()
            per_example = loop.per_example_loss(self.model, "binary")
            optimizer = loop.optimizer_of(self.model, self.options)
        engine.prepare(Built(model=self.model, optimizer=optimizer, loss=per_example, label="tips"))
        self.engine = engine
        evaluation = Evaluation(engine.validation_model(small_model), evaluated, per_example, "binary")
        self.validator = Validator(self.options, evaluation, engine, on_batch=lambda: None)
        variables = [*engine.variables(), *self.validator.variables()]
        self.checkpoint_dir = folder / name
        self.checkpoints = Checkpoints(self.checkpoint_dir, variables, is_chief=True, keep=99)
        self.stream = io.StringIO()
        self.weights_of: dict[int, list[np.ndarray[Any, Any]]] = {}

    def train(self) -> loop.TrainingResult:
        """Goes on from the newest checkpoint to the end."""
        first_step = self.checkpoints.restore()
        self.engine.resume(first_step)

        def keep(step: int, metrics: Any) -> None:
            self.weights_of[step] = [weight.numpy() for weight in self.engine.weights()]

        result = loop.train(
            self.engine,
            self.data,
            self.checkpoints,
            self.options,
            first_step=first_step,
            reporter=Reporter(0, self.stream, interval_s=0.0),
            before_save=self.engine.before_save,
            on_call=lambda step, losses, rate: None,
            meter=self.meter,
            validator=self.validator,
            on_validation=keep,
        )
        self.validator.restore_best()
        self.engine.trained_model(small_model)
        return result


# Nothing is ever better than the first validation by that much.
NEVER = {"early_stopping": EarlyStopping(min_delta=100.0, patience=4)}
ALL = {
    "accumulate": 2,
    "clip_norm": 0.5,
    "class_weights": {"1": 3.0},
    "schedule": ScheduleOptions(kind="cosine", warmup_steps=4),
}


# A mesh of one device is a mesh all the same.
SPLIT = {"strategy": "dtensor", "mesh": {"model": 1}, "class_weights": {"1": 3.0}}


@pytest.mark.parametrize("options", [{}, ALL, SPLIT], ids=["plain", "with-all", "dtensor"])
def test_a_training_stops_and_resumes_from_every_checkpoint_alike(tmp_path: Path, options: dict[str, Any]) -> None:
    """The fifth validation ends it, whose step is saved; the model has the first one's weights, wherever it was cut."""
    evaluated = split(tmp_path / "eval", 20)
    whole = Run(tmp_path, "whole", evaluated, **NEVER, **options)
    assert whole.train().step == 15
    course = whole.validator.course
    assert [validation.step for validation in course.validations] == [3, 6, 9, 12, 15]
    assert (course.best_step, course.has_stopped) == (3, True)
    for weight, best in zip(whole.model.weights, whole.weights_of[3], strict=True):
        np.testing.assert_array_equal(weight.numpy(), best)
    assert any(np.any(a != b) for a, b in zip(whole.weights_of[3], whole.weights_of[15], strict=True))
    events = filter(None, map(WorkerEvent.from_line, whole.stream.getvalue().splitlines()))
    assert [event.step for event in events if event.event == "checkpoint"] == [5, 10, 15]
    for step in (5, 10, 15):
        cut = Run(tmp_path, f"cut-{step}", evaluated, **NEVER, **options)
        for folder in sorted(whole.checkpoint_dir.iterdir()):
            if int(folder.name.removeprefix("step-")) <= step:
                shutil.copytree(folder, cut.checkpoint_dir / folder.name)
        result = cut.train()
        assert (result.first_step, result.step) == (step, 15)
        assert cut.validator.course == course
        assert loop.digest(cut.model) == loop.digest(whole.model)


def test_the_last_weights_stay_if_wanted(tmp_path: Path) -> None:
    """And no copy of them is kept."""
    stopping = EarlyStopping(min_delta=100.0, patience=1, restore_best=False)
    run = Run(tmp_path, "run", split(tmp_path / "eval", 20), early_stopping=stopping)
    assert run.train().step == 6
    assert len(run.validator.variables()) == 1
    for weight, last in zip(run.model.weights, run.weights_of[6], strict=True):
        np.testing.assert_array_equal(weight.numpy(), last)


def test_a_training_that_gets_better_goes_to_its_last_step(tmp_path: Path) -> None:
    """After which comes a validation too; validations alone change nothing in what is trained."""
    evaluated = split(tmp_path / "eval", 20)
    stopping = EarlyStopping(patience=99, restore_best=False)
    run = Run(tmp_path, "run", evaluated, early_stopping=stopping, steps=10)
    assert run.train().step == 10
    assert [validation.step for validation in run.validator.course.validations] == [3, 6, 9, 10]
    other = Run(tmp_path, "other", evaluated, validate_every=7, steps=10)
    other.train()
    assert loop.digest(other.model) == loop.digest(run.model)


def test_a_validation_that_is_no_number_names_the_step(tmp_path: Path) -> None:
    """As a loss of the training does."""
    run = Run(tmp_path, "run", split(tmp_path / "eval", 20, tips=float("nan")))
    with pytest.raises(loop.DivergedError, match="The validation's loss is nan after step 3;"):
        run.train()


def test_a_weight_that_is_none_and_an_empty_split_are_told(tmp_path: Path) -> None:
    """By the first validation."""
    run = Run(tmp_path, "run", split(tmp_path / "eval", 20, weight=-2.0))
    with pytest.raises(DataError, match=r"train\.weight_column: weight holds -2\.0; a weight is a finite number"):
        run.train()
    run = Run(tmp_path, "empty", split(tmp_path / "nothing", 0))
    with pytest.raises(DataError, match=r"train\.validate_every: the evaluation split has no records"):
        run.train()
