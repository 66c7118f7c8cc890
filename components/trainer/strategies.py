"""Which process this is, and how its steps are kept equal to those of its peers."""

import dataclasses
import json
import os
import signal
from typing import TYPE_CHECKING

from lockstep.components.errors import ConfigurationError

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# Added to the seed of every dropout layer once for each worker before this one; odd and large, so that two layers'
# seeds, which Keras draws at random, do not meet.
_SEED_STRIDE = 1_000_003


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One worker's place in its group.

    Args:
      index: 0 is the chief.
      addresses: ``host:port`` of each worker, by index.
    """

    index: int = 0
    addresses: tuple[str, ...] = ("localhost:0",)

    @classmethod
    def from_tf_config(cls, text: str | None, *, workers: int) -> "Task":
        """Reads ``TF_CONFIG``.

        Args:
          text: The variable's value; None or empty means a single process.
          workers: How many workers the specification asks for.

        Raises:
          ValueError: It is malformed, or describes another number of workers.
        """
        if not text:
            task = cls()
        else:
            try:
                config = json.loads(text)
                task = cls(index=int(config["task"]["index"]), addresses=tuple(config["cluster"]["worker"]))
            except (KeyError, TypeError, ValueError) as e:
                raise ValueError(f"TF_CONFIG: {text!r} is not allowed; give cluster.worker and task.index") from e
        if len(task.addresses) != workers or not 0 <= task.index < workers:
            raise ValueError(
                f"TF_CONFIG: worker {task.index} of {len(task.addresses)} is not allowed; "
                f"the specification asks for {workers} workers"
            )
        return task

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes checkpoints, events and the model."""
        return self.index == 0

    @property
    def num_workers(self) -> int:
        """Workers in the group."""
        return len(self.addresses)

    @property
    def num_neighbours(self) -> int:
        """Workers of the group on this worker's machine, itself included."""
        host = self.addresses[self.index].rpartition(":")[0]
        return sum(address.rpartition(":")[0] == host for address in self.addresses)


def limit_threads(task: Task) -> int:
    """Gives this worker its share of the machine's cores; call it before TensorFlow runs anything.

    Without it every worker starts a thread for each core, and they wait for one another at each step.

    Returns:
      Threads of each pool, 1 or more.
    """
    import tensorflow as tf

    num_threads = max(1, len(os.sched_getaffinity(0)) // task.num_neighbours)
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)
    return num_threads


def make_strategy(task: Task) -> "tf.distribute.Strategy":
    """Joins the group: blocks until all its workers are there.

    One worker runs without collectives whatever the strategy is called. SIGTERM ends the process afterwards, as it
    does by default: TensorFlow's preemption notifier would swallow it.

    Raises:
      ConfigurationError: A worker sees several devices.
      tf.errors.OpError: The group did not come together.
    """
    import tensorflow as tf

    if task.num_workers == 1:
        return tf.distribute.get_strategy()
    # No CommunicationOptions(timeout_seconds=...): TensorFlow starts a thread for every collective that sleeps so long,
    # and at some hundred steps a second the process dies of EAGAIN. The supervisor's watchdog ends a stuck group.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if strategy.num_replicas_in_sync != task.num_workers:
        raise ConfigurationError(
            f"strategy: {strategy.num_replicas_in_sync} devices for {task.num_workers} workers are not supported; "
            "let each worker see one device (CUDA_VISIBLE_DEVICES)"
        )
    return strategy


def check_same_step(strategy: "tf.distribute.Strategy", task: Task, step: int) -> None:
    """Fails unless all workers go on from the same step; a collective, so every worker must call it.

    Raises:
      RuntimeError: They do not, as when a shared file system shows one of them an older checkpoint.
    """
    import tensorflow as tf

    total = strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(step, tf.float64), axis=None)
    if float(total) != step * task.num_workers:
        raise RuntimeError(
            f"worker {task.index} resumes at step {step}, another one elsewhere; "
            "all workers must see the same checkpoints"
        )


def check_model(model: "keras.Model", task: Task) -> None:
    """Refuses what cannot train under this group.

    Raises:
      ConfigurationError: The model was compiled with ``jit_compile=True`` and there are several workers, which aborts
        the process on CPU.
    """
    if task.num_workers > 1 and model.compiled and model.jit_compile is True:
        raise ConfigurationError(
            "model.build: a model compiled with jit_compile=True cannot train with several workers; "
            "compile it with jit_compile=False, or give train.workers: 1"
        )


def unsynchronised_statistics(model: "keras.Model") -> "list[keras.Variable]":
    """Returns moving statistics that differ from worker to worker: BatchNormalization without ``synchronized``."""
    import keras

    return [
        variable
        for layer in _layers(model)
        if isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized
        for variable in layer.non_trainable_variables
    ]


def average_over_workers(strategy: "tf.distribute.Strategy", variables: "list[keras.Variable]") -> None:
    """Sets each variable to its mean over the workers; a collective, so every worker must call it."""
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
    """Gives this worker dropout masks of its own; the chief's state is the one that checkpoints hold.

    Keras alone draws the same mask on every replica. Call it once after the states were made or restored.
    """
    for state in seed_states(model):
        for copy in strategy.experimental_local_results(state.value):
            seed, counter = copy.numpy()
            copy.assign([(int(seed) + _SEED_STRIDE * task.index) % 2**31, int(counter)])


def _layers(model: "keras.Model") -> "list[keras.layers.Layer]":
    return [layer for layer in model._flatten_layers() if layer is not model]
