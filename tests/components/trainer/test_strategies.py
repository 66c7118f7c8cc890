"""A worker's place in its group."""

import json
from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer import strategies
from lockstep.components.trainer.strategies import Task


def tf_config(index: Any, *addresses: str) -> str:
    """The variable as the launcher sets it."""
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def test_a_task_knows_its_place() -> None:
    """Index, number of workers, and how many of them share its machine."""
    task = Task.from_tf_config(tf_config(1, "a:1", "b:1", "b:2"), workers=3)
    assert (task.index, task.num_workers, task.num_neighbours, task.is_chief) == (1, 3, 2, False)
    assert Task.from_tf_config(None, workers=1) == Task()


@pytest.mark.parametrize(
    ("text", "workers"),
    [(None, 2), ("{}", 1), ("not JSON", 1), (tf_config(2, "a:1", "a:2"), 2), (tf_config(0, "a:1", "a:2"), 3)],
)
def test_a_group_that_is_not_the_specified_one_is_refused(text: str | None, workers: int) -> None:
    """The message names the variable."""
    with pytest.raises(ValueError, match="TF_CONFIG"):
        Task.from_tf_config(text, workers=workers)


def test_jit_compilation_is_refused_with_several_workers() -> None:
    """It would abort the process without a message."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(jit_compile=True)
    strategies.check_model(model, Task())
    with pytest.raises(ConfigurationError, match="jit_compile"):
        strategies.check_model(model, Task(index=0, addresses=("a:1", "a:2")))


def test_unsynchronised_batch_normalization_is_found() -> None:
    """Also in a model within the model."""
    inner = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(name="local")])
    synchronised = keras.layers.BatchNormalization(synchronized=True)
    model = keras.Sequential([keras.Input((3,)), synchronised, inner])
    names = ["/".join(variable.path.split("/")[-2:]) for variable in strategies.unsynchronised_statistics(model)]
    assert sorted(names) == ["local/moving_mean", "local/moving_variance"]


def test_each_worker_draws_dropout_masks_of_its_own() -> None:
    """The chief keeps the seeds that checkpoints hold, the others move away from them, and all keep their place."""
    states = []
    for index in range(3):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dropout(0.5)])
        model(tf.ones([1, 3]), training=True)
        before = [state.numpy().tolist() for state in strategies.seed_states(model)]
        task = Task(index=index, addresses=("a:1", "a:2", "a:3"))
        strategies.separate_seeds(tf.distribute.get_strategy(), model, task)
        after = [state.numpy().tolist() for state in strategies.seed_states(model)]
        assert len(before) == 2
        assert [state[1] for state in after] == [state[1] for state in before]
        assert (after == before) == (index == 0)
        states.extend(state[0] for state in after)
    assert len(set(states)) == 6
