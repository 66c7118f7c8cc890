"""What the pipeline tells the trainer's step, and what a run changes of it."""

import dataclasses
from typing import Any

import pytest
from tfx import types
from tfx.orchestration import data_types
from tfx.types import standard_artifacts

from lockstep.components.artifact_uris import STORE_URI_PROPERTY
from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer import executor
from lockstep.components.trainer.component import DistributedTrainer
from lockstep.components.trainer.spec import ModelOptions, TrainOptions
from lockstep.components.trainer.step import TrainStep
from lockstep.components.trainer.work_folder import training_key

STEP = TrainStep(options=TrainOptions(), model=ModelOptions(), label="y", label_kind="binary", work_dir="/w")


def with_options(**options: Any) -> TrainStep:
    """The step with other options."""
    return dataclasses.replace(STEP, options=dataclasses.replace(STEP.options, **options))


@pytest.mark.parametrize(
    ("steps", "workers", "options"),
    [(None, None, {}), (300, None, {"steps": 300}), (300.0, 4.0, {"steps": 300, "workers": 4})],
)
def test_a_run_may_set_steps_and_workers(steps: Any, workers: Any, options: dict[str, Any]) -> None:
    """They take the place of the specification's, also as the floats that JSON makes of them."""
    changed = STEP.at_run_time(steps=steps, workers=workers)
    assert changed == with_options(**options)
    assert isinstance(changed.options.steps, int)
    assert isinstance(changed.options.workers, int)


def test_steps_of_a_run_take_the_place_of_epochs() -> None:
    """Only one of the two can hold."""
    options = with_options(steps=None, epochs=3).at_run_time(steps=300, workers=None).options
    assert (options.steps, options.epochs) == (300, None)


def test_epochs_beside_run_fn_are_refused() -> None:
    """A stock module is told steps."""
    with pytest.raises(ValueError, match="epochs: 3 is not allowed beside run_fn; give steps"):
        dataclasses.replace(with_options(steps=None, epochs=3), run_fn="module:run_fn")


def test_what_the_run_sets_is_in_the_key() -> None:
    """A run with more steps must not take an old one's checkpoints, and one that says the same goes on from them."""
    key = training_key(with_options(steps=300), {}, "")
    assert training_key(STEP.at_run_time(steps=300.0, workers=None), {}, "") == key
    assert training_key(STEP.at_run_time(steps=301.0, workers=None), {}, "") != key


@pytest.mark.parametrize(
    ("steps", "workers", "message"),
    [
        (2.5, None, "steps: 2.5 is not allowed; give a whole number"),
        (float("nan"), None, "steps: nan is not allowed; give a whole number"),
        (float("inf"), None, "steps: inf is not allowed; give a whole number"),
        ("300", None, "steps: '300' is not allowed; give a whole number"),
        (None, True, "workers: True is not allowed; give a whole number"),
        (0, None, "steps: 0 is not allowed; give 1 or more"),
        (None, 7.0, "workers: 7 is not allowed with batch_size: 240"),
    ],
)
def test_what_a_run_sets_is_checked_again(steps: Any, workers: Any, message: str) -> None:
    """A run is not held back by the checks of the compiling machine, so the step makes them."""
    with pytest.raises(ValueError, match=message):
        STEP.at_run_time(steps=steps, workers=workers)


def test_the_executor_tells_a_wrong_number_in_the_user_s_terms() -> None:
    """It ends with a message and no traceback."""
    with pytest.raises(ConfigurationError, match=r"^workers: 7 is not allowed with batch_size"):
        executor.Executor().Do(
            {}, {"model": [], "model_run": []}, {"spec": STEP.to_json(), "steps": 10.0, "workers": 7.0}
        )


def trainer(**properties: Any) -> DistributedTrainer:
    """The component, on channels without a producer."""
    return DistributedTrainer(
        examples=types.Channel(type=standard_artifacts.Examples),
        transform_graph=types.Channel(type=standard_artifacts.TransformGraph),
        spec=STEP.to_json(),
        **properties,
    )


def test_the_component_has_none_of_them_unless_given() -> None:
    """Locally nothing is set, and the cache key of a pipeline stays what it was."""
    assert set(trainer().exec_properties) == {"spec"}


def test_the_component_takes_parameters_of_the_run() -> None:
    """They reach the execution properties as they are."""
    steps = data_types.RuntimeParameter(name="train_steps", ptype=int, default=10)
    assert trainer(steps=steps, workers=4).exec_properties["workers"] == 4
    assert trainer(steps=steps).exec_properties["steps"] is steps


def test_the_component_refuses_a_wrong_number() -> None:
    """It is told where the pipeline is written."""
    with pytest.raises(ValueError, match="workers: 7 is not allowed"):
        trainer(workers=7)


def test_data_are_the_same_by_their_place_in_the_object_store() -> None:
    """A retry reads them in a container of its own, and goes on from the checkpoint all the same."""
    identities = []
    for path in ("/attempt-0/minio/b/examples", "/attempt-1/minio/b/examples"):
        examples = standard_artifacts.Examples()
        examples.uri = path
        examples.set_string_custom_property(STORE_URI_PROPERTY, "minio://b/examples")
        identities.append(executor._identities({"examples": [examples]}))
    assert identities[0] == identities[1] == {"examples": ["minio://b/examples "]}
