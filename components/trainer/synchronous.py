"""Synchronous data parallelism: one step on every replica at once, whose gradients are summed."""

import contextlib
import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.devices import choose_devices
from lockstep.components.trainer.gradients import clip_of
from lockstep.components.trainer.input_pipeline import ReplicaInputs, TrainingInput, worker_input
from lockstep.components.trainer.loop import Call
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.step_function import StepFunction, sum_over_workers
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter

if TYPE_CHECKING:
    import keras
    import numpy.typing as npt
    import tensorflow as tf

    from lockstep.components.trainer.strategies import Built

_log = logging.getLogger(__name__)

# Added to the seed of every dropout layer once for each replica before this one; odd and large, so that two layers'
# seeds, which Keras draws at random, do not meet.
_SEED_STRIDE = 1_000_003


class Synchronous:
    """Engine of ``one_device``, ``mirrored`` and ``multi_worker_mirrored``; see ``strategies.Engine``.

    Args:
      options: The ``train`` block.
      task: This worker's place.
      meter: Hears what each call tells of the workers.

    Raises:
      ConfigurationError: There are fewer devices than ``devices_per_worker``.
      tf.errors.OpError: The group did not come together.
    """

    def __init__(self, options: TrainOptions, task: Task, meter: GroupMeter) -> None:
        self._options, self._task, self._meter = options, task, meter
        self._strategy = make_strategy(task, choose_devices(options.devices_per_worker))
        self._statistics: list[keras.Variable] = []

    def scope(self) -> AbstractContextManager[Any]:
        """Returns where model and optimizer are built."""
        return self._strategy.scope()  # type: ignore[no-any-return]

    def input(self, records: Records, cache_dir: Path) -> TrainingInput | ReplicaInputs:
        """Returns this worker's share of the records."""
        task = self._task
        return worker_input(
            records, self._options, worker=task.index, num_workers=task.num_workers, cache_dir=cache_dir
        )

    def prepare(self, built: "Built") -> None:
        """Takes what was built.

        Raises:
          ConfigurationError: The model cannot train in this group.
        """
        check_model(built.model, self._task)
        self._built = built
        self._statistics = unsynchronised_statistics(built.model)
        self._steps = StepFunction(
            self._strategy,
            self._task.num_workers,
            built.model,
            built.optimizer,
            built.loss,
            built.label,
            clip=clip_of(self._options),
            accumulate=self._options.accumulate,
            single=self._options.steps_per_call == 1,
            meter=self._meter,
        )
        if self._statistics and self._strategy.num_replicas_in_sync > 1:
            _log.warning(
                "BatchNormalization without synchronized=True sees only its replica's share of each batch: the model "
                "depends on train.workers and train.devices_per_worker; its moving statistics are averaged over the "
                "replicas at each checkpoint"
            )

    def variables(self) -> "list[tf.Variable]":
        """Returns weights, states of random generators and the optimizer's variables."""
        model = self._built.model
        return [v.value for v in [*model.weights, *seed_states(model), *self._built.optimizer.variables]]

    def resume(self, step: int) -> None:
        """Goes on from ``step``, whose values the variables have; a collective."""
        check_same_step(self._strategy, self._task, step)
        separate_seeds(self._strategy, self._built.model, self._task)

    def run(self, batches: "Iterator[Any]", calls: Iterable[Call]) -> "Iterator[np.ndarray[Any, Any]]":
        """See ``loop.Steps``."""
        return self._steps.run(batches, calls)

    @property
    def part(self) -> tuple[int, int]:
        """Which part of what all workers share is this one's."""
        return self._task.index, self._task.num_workers

    def weights(self) -> "list[tf.Variable]":
        """Returns the model's weights."""
        return [weight.value for weight in self._built.model.weights]

    def validation_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns the model that trains: each process reads its own copy of the weights."""
        return self._built.model

    @contextlib.contextmanager
    def reading(self, step: int) -> Iterator[None]:
        """Makes the moving statistics the same on all replicas; a collective."""
        self.before_save(step)
        yield

    def gathered(self, values: "npt.NDArray[np.float64]") -> "npt.NDArray[np.float64]":
        """Returns the values of every worker, [workers, n]; a collective."""
        import tensorflow as tf

        index, num_parts = self.part
        # Rows of zeros elsewhere: sums with them are exact in any order, so all workers have the same bits.
        table = np.zeros([num_parts, len(values)])
        table[index] = values
        rows: npt.NDArray[np.float64] = sum_over_workers(self._strategy, num_parts, tf.constant(table)).numpy()
        return rows

    def before_save(self, step: int) -> None:
        """Makes the variables what a checkpoint shall hold; a collective."""
        average_over_workers(self._strategy, self._statistics)

    def trained_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns the model with its final weights, to be read by this process alone."""
        return self._built.model


def make_strategy(task: Task, devices: tuple[str, ...]) -> "tf.distribute.Strategy":
    """Joins the group: blocks until all its workers are there.

    One worker runs without collectives whatever the strategy is called. SIGTERM ends the process afterwards, as it
    does by default: TensorFlow's preemption notifier would swallow it.

    Args:
      task: This worker's place.
      devices: What it drives, as ``devices.choose_devices`` says.

    Raises:
      tf.errors.OpError: The group did not come together.
    """
    import tensorflow as tf

    if task.num_workers == 1:
        return tf.distribute.get_strategy() if len(devices) == 1 else tf.distribute.MirroredStrategy(list(devices))
    # No CommunicationOptions(timeout_seconds=...): TensorFlow starts a thread for every collective that sleeps so long,
    # and at some hundred steps a second the process dies of EAGAIN. The supervisor's watchdog ends a stuck group.
    if devices[0].startswith("CPU") and len(devices) > 1:
        strategy = _over_logical_cpus(devices)
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if strategy.num_replicas_in_sync != task.num_workers * len(devices):
        raise RuntimeError(
            f"{strategy.num_replicas_in_sync} replicas came together, not {task.num_workers} workers with "
            f"{len(devices)} devices each"
        )
    return strategy


def _over_logical_cpus(devices: tuple[str, ...]) -> "tf.distribute.Strategy":
    """Returns a MultiWorkerMirroredStrategy over several logical CPUs a worker; by itself it takes one."""
    import tensorflow as tf
    from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

    class Extended(CollectiveAllReduceExtended):
        def _initialize_local_devices(self, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
            return tuple(f"{worker_device}/device:{device}" for device in devices), "CPU"

    class OverLogicalCpus(tf.distribute.MultiWorkerMirroredStrategy):
        def __init__(self) -> None:
            options = tf.distribute.experimental.CommunicationOptions()
            extended = Extended(self, cluster_resolver=None, communication_options=options)
            tf.distribute.Strategy.__init__(self, extended)

    return OverLogicalCpus()


def check_same_step(strategy: "tf.distribute.Strategy", task: Task, step: int) -> None:
    """Fails unless all workers go on from the same step; a collective, so every worker must call it.

    Raises:
      RuntimeError: They do not, as when a shared file system shows one of them an older checkpoint.
    """
    import tensorflow as tf

    total = sum_over_workers(strategy, task.num_workers, tf.constant(step, tf.float64))
    if float(total) != step * task.num_workers:
        raise RuntimeError(
            f"worker {task.index} resumes at step {step}, another one elsewhere; "
            "all workers must see the same checkpoints"
        )


def check_model(model: "keras.Model", task: Task) -> None:
    """Refuses what cannot train under this group.

    Raises:
      ConfigurationError: The model was compiled with ``jit_compile=True`` and there are several workers, which aborts
        the process on CPU; or with an optimizer that accumulates gradients by itself, which fails within a strategy.
    """
    if model.compiled and getattr(model.optimizer, "gradient_accumulation_steps", None):
        raise ConfigurationError(
            "model.build: an optimizer with gradient_accumulation_steps is not allowed; give train.accumulate instead"
        )
    if task.num_workers > 1 and model.compiled and model.jit_compile is True:
        raise ConfigurationError(
            "model.build: a model compiled with jit_compile=True cannot train with several workers; "
            "compile it with jit_compile=False, or give train.workers: 1"
        )


def unsynchronised_statistics(model: "keras.Model") -> "list[keras.Variable]":
    """Returns moving statistics that differ from replica to replica: BatchNormalization without ``synchronized``."""
    import keras

    return [
        variable
        for layer in _layers(model)
        if isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized
        for variable in layer.non_trainable_variables
    ]


def average_over_workers(strategy: "tf.distribute.Strategy", variables: "list[keras.Variable]") -> None:
    """Sets each variable to its mean over the replicas; a collective, so every worker must call it."""
    import tensorflow as tf

    if not variables or strategy.num_replicas_in_sync == 1:
        return

    @tf.function(autograph=False)
    def means() -> "list[tf.Tensor]":
        local = strategy.run(lambda: [tf.identity(variable.value) for variable in variables])
        return [strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None) for value in local]

    for variable, mean in zip(variables, means(), strict=True):
        for copy in strategy.experimental_local_results(variable.value):
            copy.assign(mean)


def seed_states(model: "keras.Model") -> "list[keras.Variable]":
    """Returns the states of the model's random generators (dropout and its like), which are not weights."""
    weights = {id(weight) for weight in model.weights}
    return [v for v in model.variables if id(v) not in weights and v.name == "seed_generator_state"]


def separate_seeds(strategy: "tf.distribute.Strategy", model: "keras.Model", task: Task) -> None:
    """Gives each replica dropout masks of its own; the first one's state is the one that checkpoints hold.

    Keras alone draws the same mask on every replica. Call it once after the states were made or restored.
    """
    for state in seed_states(model):
        copies = strategy.experimental_local_results(state.value)
        for replica, copy in enumerate(copies, start=task.index * len(copies)):
            seed, counter = copy.numpy()
            copy.assign([(int(seed) + _SEED_STRIDE * replica) % 2**31, int(counter)])


def _layers(model: "keras.Model") -> "list[keras.layers.Layer]":
    return [layer for layer in model._flatten_layers() if layer is not model]
