"""How each strategy makes variables, runs steps and hands the model back: one engine a kind, one place that chooses."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lockstep.components.trainer.input_pipeline import ReplicaInputs, TrainingInput
from lockstep.components.trainer.loop import Call, PerExampleLoss
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter

if TYPE_CHECKING:
    import keras
    import numpy as np
    import numpy.typing as npt
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """What was built within an engine's scope.

    Args:
      model: With its weights.
      optimizer: Built for them.
      loss: Of each example.
      label: Name of the label among the columns of a batch.
    """

    model: "keras.Model"
    optimizer: "keras.optimizers.Optimizer"
    loss: PerExampleLoss
    label: str


class Engine(Protocol):
    """One strategy at work in one process; its methods are called in this order, by every worker alike."""

    def scope(self) -> AbstractContextManager[Any]:
        """Returns where model and optimizer are built."""

    def input(self, records: Records, cache_dir: Path) -> TrainingInput | ReplicaInputs:
        """Returns this process' share of the records; parsed ones may be kept below ``cache_dir``."""

    def prepare(self, built: Built) -> None:
        """Takes what was built.

        Raises:
          ConfigurationError: The model cannot train with this strategy.
        """

    def variables(self) -> "list[tf.Variable]":
        """Returns what a checkpoint holds, in an order that depends on the program only."""

    def resume(self, step: int) -> None:
        """Goes on from ``step``, whose values the variables have."""

    def run(self, batches: "Iterator[Any]", calls: Iterable[Call]) -> "Iterator[np.ndarray[Any, Any]]":
        """See ``loop.Steps``."""

    @property
    def part(self) -> tuple[int, int]:
        """Which part of what all workers share is this process's, and how many parts there are."""

    def weights(self) -> "list[tf.Variable]":
        """Returns the model's weights among ``variables``."""

    def validation_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns the model that validations read.

        Args:
          rebuild: Builds the model anew, outside the strategy.
        """

    def reading(self, step: int) -> AbstractContextManager[None]:
        """Returns within what the model of ``validation_model`` has the weights of ``step``; a collective."""

    def gathered(self, values: "npt.NDArray[np.float64]") -> "npt.NDArray[np.float64]":
        """Returns the values of every process that has a part, [parts, n], the same bits everywhere; a collective."""

    def before_save(self, step: int) -> None:
        """Makes the variables what a checkpoint of ``step`` shall hold."""

    def trained_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns an ordinary model with the final weights, to be read by this process alone.

        Args:
          rebuild: Builds the model anew, outside the strategy.
        """


def make_engine(options: TrainOptions, task: Task, meter: GroupMeter) -> Engine:
    """Joins the group: blocks until all its processes are there. Call it before TensorFlow runs anything.

    Args:
      options: The ``train`` block.
      task: This process' place.
      meter: Hears what each call tells of the workers.

    Raises:
      ConfigurationError: This machine has not the devices that the options ask for.
      tf.errors.OpError: The group did not come together.
    """
    from lockstep.components.trainer.asynchronous import Asynchronous
    from lockstep.components.trainer.sharded import Sharded
    from lockstep.components.trainer.synchronous import Synchronous

    if options.strategy == "dtensor":
        return Sharded(options, task, meter)
    if options.strategy == "parameter_server":
        return Asynchronous(options, task, meter)
    return Synchronous(options, task, meter)
