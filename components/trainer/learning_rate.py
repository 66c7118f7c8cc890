"""The learning rate of each step, as Keras' optimizers take it."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras

from lockstep.components.trainer.schedule_options import ScheduleOptions
from lockstep.components.trainer.spec import TrainOptions


@keras.saving.register_keras_serializable(package="lockstep")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate as ``train.schedule`` says.

    Args:
      learning_rate: What the options' shares and factors are of.
      options: The block, or its fields by name.
      num_steps: Steps of the whole training.
    """

    def __init__(self, learning_rate: float, options: ScheduleOptions | dict[str, Any], num_steps: int) -> None:
        self._learning_rate = learning_rate
        self._options = options if isinstance(options, ScheduleOptions) else _options(options)
        self._num_steps = num_steps

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate, float32, of the step after ``step`` others."""
        options = self._options
        done = keras.ops.cast(step, "float32")
        rate = self._learning_rate * self._factor(done)
        if not options.warmup_steps:
            return rate
        warming = self._learning_rate * (done + 1) / options.warmup_steps
        return keras.ops.where(done < options.warmup_steps, warming, rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        options = dataclasses.asdict(self._options)
        return {"learning_rate": self._learning_rate, "options": options, "num_steps": self._num_steps}

    def _factor(self, done: Any) -> Any:
        options = self._options
        decay_steps = options.decay_steps or max(1, self._num_steps - options.warmup_steps)
        decayed = keras.ops.maximum(done - options.warmup_steps, 0.0) / decay_steps
        if options.kind == "cosine":
            share = (1 + keras.ops.cos(math.pi * keras.ops.minimum(decayed, 1.0))) / 2
            return options.final + (1 - options.final) * share
        if options.kind == "exponential":
            assert options.decay_rate is not None
            return keras.ops.maximum(keras.ops.exp(decayed * math.log(options.decay_rate)), options.final)
        factor = keras.ops.ones_like(done)
        for boundary, value in zip(options.boundaries, options.factors, strict=True):
            factor = keras.ops.where(done >= boundary, value, factor)
        return factor


def learning_rate_of(model: "keras.Model", options: TrainOptions) -> Callable[[int], float] | None:
    """Returns a function of a step, counted from 1, to its learning rate; None for a model with its own optimizer."""
    if model.compiled:
        return None
    schedule = Schedule(options.learning_rate, options.schedule, options.num_steps)
    return lambda step: float(schedule(step - 1))


def _options(fields: dict[str, Any]) -> ScheduleOptions:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return ScheduleOptions(**values)
