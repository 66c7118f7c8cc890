"""Validation while a training goes on, by all workers together, and the weights of the best one."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from lockstep.components.errors import DataError
from lockstep.components.trainer.early_stopping import Course, Validation
from lockstep.components.trainer.evaluation import Evaluation
from lockstep.components.trainer.loop import DivergedError
from lockstep.components.trainer.spec import TrainOptions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import tensorflow as tf


class Group(Protocol):
    """What a validation needs of the strategy; part of ``strategies.Engine``."""

    def weights(self) -> "list[tf.Variable]":
        """Returns the model's weights, as the training changes them."""

    def reading(self, step: int) -> AbstractContextManager[None]:
        """Returns within what the evaluated model has the weights of ``step``; a collective."""

    def gathered(self, values: "npt.NDArray[np.float64]") -> "npt.NDArray[np.float64]":
        """Returns every worker's values, [workers, n], the same bits on each; a collective."""


class Validator:
    """Validates every ``options.validate_every`` steps and after the last one; every worker calls it alike.

    Each worker counts its part of the records without asking the others, then one exchange of sums follows: no number
    of records makes one wait for another. All add the same sums in the same order, so all decide alike.

    Args:
      options: The ``train`` block, with ``validate_every``.
      evaluation: Of this worker's part of the records.
      group: The strategy at work.
      on_batch: Called after each batch.
    """

    def __init__(
        self, options: TrainOptions, evaluation: Evaluation, group: Group, *, on_batch: Callable[[], None]
    ) -> None:
        import tensorflow as tf

        self._options, self._evaluation, self._group, self._on_batch = options, evaluation, group, on_batch
        self._stopping = options.early_stopping
        self._document = tf.Variable("", dtype=tf.string, trainable=False)
        self._best: list[tf.Variable] = []
        if self._stopping is not None and self._stopping.restore_best:
            with tf.device("CPU:0"):
                self._best = [tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for v in group.weights()]

    def variables(self) -> "list[tf.Variable]":
        """Returns what a checkpoint must hold, so that a training that goes on decides as if it had not been cut."""
        return [self._document, *self._best]

    @property
    def course(self) -> Course:
        """All validations so far, those before a restart too."""
        return Course.from_json(self._document.numpy().decode())

    def is_due(self, step: int) -> bool:
        """Returns whether a validation comes after a step."""
        return step == self._options.num_steps or step % (self._options.validate_every or 1) == 0

    def validate(self, step: int) -> dict[str, float]:
        """Validates, and decides whether the training is to end; blocks. A collective.

        Returns:
          Metric -> value over all workers' records.

        Raises:
          DivergedError: A metric is not finite; the step is named.
          DataError: There are no records, or one's weight cannot be used.
          ConfigurationError: The model gives no probabilities for a binary label.
        """
        with self._group.reading(step):
            sums = self._evaluation.sums(on_batch=self._on_batch)
        metrics = self._evaluation.values(self._group.gathered(sums).sum(axis=0))
        if not metrics:
            raise DataError("train.validate_every: the evaluation split has no records; give it some, or leave it out")
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise DivergedError(
                    f"The validation's {name} is {value} after step {step}; give a lower train.learning_rate, or look "
                    "for infinite values and divisions by zero in the model and the preprocessing"
                )
        course = self.course.after(Validation(step=step, metrics=metrics), self._stopping)
        if course.best_step == step:
            for best, weight in zip(self._best, self._group.weights(), strict=bool(self._best)):
                best.assign(weight.numpy())
        self._document.assign(course.to_json())
        return metrics

    def restore_best(self) -> None:
        """Gives the model the weights of the best validation, if it is to have them; call it after the last step."""
        if self._best and self.course.best_step:
            for best, weight in zip(self._best, self._group.weights(), strict=True):
                weight.assign(best.numpy())
