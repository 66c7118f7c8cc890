"""Synchronous data parallelism: what makes replicas equal, and what is refused."""

import keras
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer import synchronous
from lockstep.components.trainer.task import Task


def test_jit_compilation_is_refused_with_several_workers() -> None:
    """It would abort the process without a message."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(jit_compile=True)
    synchronous.check_model(model, Task())
    with pytest.raises(ConfigurationError, match="jit_compile"):
        synchronous.check_model(model, Task(cluster={"worker": ("a:1", "a:2")}))


def test_keras_own_accumulation_is_refused() -> None:
    """It fails within a strategy; ours is named."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(gradient_accumulation_steps=2))
    with pytest.raises(ConfigurationError, match=r"give train\.accumulate instead"):
        synchronous.check_model(model, Task())


def test_unsynchronised_batch_normalization_is_found() -> None:
    """Also in a model within the model."""
    inner = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(name="local")])
    synchronised = keras.layers.BatchNormalization(synchronized=True)
    model = keras.Sequential([keras.Input((3,)), synchronised, inner])
    names = ["/".join(variable.path.split("/")[-2:]) for variable in synchronous.unsynchronised_statistics(model)]
    assert sorted(names) == ["local/moving_mean", "local/moving_variance"]


def test_each_worker_draws_dropout_masks_of_its_own() -> None:
    """The chief keeps the seeds that checkpoints hold, the others move away from them, and all keep their place."""
    states = []
    for index in range(3):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dropout(0.5)])
        model(tf.ones([1, 3]), training=True)
        before = [state.numpy().tolist() for state in synchronous.seed_states(model)]
        task = Task(index=index, cluster={"worker": ("a:1", "a:2", "a:3")})
        synchronous.separate_seeds(tf.distribute.get_strategy(), model, task)
        after = [state.numpy().tolist() for state in synchronous.seed_states(model)]
        assert len(before) == 2
        assert [state[1] for state in after] == [state[1] for state in before]
        assert (after == before) == (index == 0)
        states.extend(state[0] for state in after)
    assert len(set(states)) == 6
