"""Asynchronous training: a coordinator deals steps to workers, which read and change variables on parameter servers.

What is exact: every step up to ``steps`` is dealt once, with the records that its number names, and counted by the
coordinator when its result has come. A worker that dies in the middle may have applied the step in part or whole;
another worker makes it again then, so its records may weigh twice. Nothing else repeats and nothing is left out.
Variables are changed without locks: two workers' updates of the same value may overtake each other, Keras' own count
(``optimizer.iterations``) loses some of its additions and is set right at each checkpoint.
"""

import collections
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.components.trainer.gradients import clip_of
from lockstep.components.trainer.input_pipeline import ReplicaInputs, TrainingInput, worker_input
from lockstep.components.trainer.loop import Call, model_columns
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.step_function import weighted_mean
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter

if TYPE_CHECKING:
    import keras
    import numpy.typing as npt
    import tensorflow as tf

    from lockstep.components.trainer.strategies import Built

_log = logging.getLogger(__name__)

_CALLS_AHEAD = 2  # for each worker: one that it works on, and one that waits for it
_IGNORED_FAILURES = 10**9  # without end
_FETCH_AGAIN_S = 0.1
_OF_ANOTHER_PROCESS = (
    "Unable to find the relevant tensor remote_handle",
    "Primary device is not remote",
    "unknown device",
)
_LARGE_TABLE_BYTES = 64 * 2**20


class Asynchronous:
    """Engine of ``parameter_server``, in the coordinator; see ``strategies.Engine``.

    The coordinator reads the records too, so that the step alone says which ones it takes, whoever makes it.

    Args:
      options: The ``train`` block.
      task: The coordinator's place.
      meter: Hears what each call tells of the workers.

    Raises:
      tf.errors.OpError: The group did not come together.
    """

    def __init__(self, options: TrainOptions, task: Task, meter: GroupMeter) -> None:
        import tensorflow as tf

        # Or a call to a worker that is gone waits for it for minutes.
        os.environ["GRPC_FAIL_FAST"] = "use_caller"
        # A worker's death may look like a fault of the parameter server that it spoke to, or like an unknown one. By
        # itself TensorFlow ends the coordinator at the third of the first kind in all its life, and at any of the
        # second. Whether a parameter server is dead is known to the supervisor, which starts the group again then.
        os.environ["TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES"] = str(_IGNORED_FAILURES)
        os.environ["TF_PS_HANDLE_UNKNOWN_ERROR"] = "1"
        self._options, self._meter = options, meter
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self._strategy = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._num_ahead = _CALLS_AHEAD * task.num_workers

    def scope(self) -> AbstractContextManager[Any]:
        """Returns where variables lie on the parameter servers, in turn."""
        return self._strategy.scope()  # type: ignore[no-any-return]

    def input(self, records: Records, cache_dir: Path) -> TrainingInput | ReplicaInputs:
        """Returns all records: a step is one batch, and one worker makes it."""
        records.require_dense(self._options.strategy)
        return worker_input(records, self._options, worker=0, num_workers=1, cache_dir=cache_dir)

    def prepare(self, built: "Built") -> None:
        """Takes what was built, and warns about a large table that lies in one place."""
        import tensorflow as tf

        self._built = built
        self._function = tf.function(self._steps, autograph=False, reduce_retracing=True)
        if (self._options.parameter_servers or 1) > 1:
            for variable in built.model.trainable_variables:
                if len(variable.shape) == 2 and 4 * np.prod(variable.shape) >= _LARGE_TABLE_BYTES:
                    _warn_of_table(variable)

    def variables(self) -> "list[tf.Variable]":
        """Returns the weights and the optimizer's variables."""
        return [v.value for v in [*self._built.model.weights, *self._built.optimizer.variables]]

    def resume(self, step: int) -> None:
        """Goes on from ``step``: there is nothing to do."""

    def run(self, batches: "Iterator[Any]", calls: Iterable[Call]) -> "Iterator[np.ndarray[Any, Any]]":
        """See ``loop.Steps``; some calls are under way while the first one's losses are waited for."""
        under_way: collections.deque[Any] = collections.deque()
        for call in calls:
            with self._meter.waiting():
                steps = [next(batches) for _ in range(call.size)]
            under_way.append(self._coordinator.schedule(self._function, args=_stacked(steps)))
            while under_way and (call.is_last or len(under_way) >= self._num_ahead):
                yield _fetched(under_way.popleft())

    @property
    def part(self) -> tuple[int, int]:
        """The coordinator evaluates alone."""
        return 0, 1

    def weights(self) -> "list[tf.Variable]":
        """Returns the model's weights."""
        return [weight.value for weight in self._built.model.weights]

    def validation_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns a model in this process' memory, to which ``reading`` copies the weights."""
        self._copy = rebuild()
        return self._copy

    @contextlib.contextmanager
    def reading(self, step: int) -> Iterator[None]:
        """Copies the weights; no step is under way."""
        self.before_save(step)
        self._fill(self._copy)
        yield

    def gathered(self, values: "npt.NDArray[np.float64]") -> "npt.NDArray[np.float64]":
        """Returns the coordinator's values, [1, n]."""
        return values[np.newaxis]

    def before_save(self, step: int) -> None:
        """Sets Keras' own count right; no step is under way."""
        self._coordinator.join()
        self._built.optimizer.iterations.assign(step)

    def trained_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns a model in this process' memory."""
        model = rebuild()
        self._fill(model)
        return model

    def _fill(self, model: "keras.Model") -> None:
        for local, remote in zip(model.weights, self._built.model.weights, strict=True):
            local.assign(remote.numpy())

    def _steps(self, columns: "dict[str, tf.Tensor]", weights: "tf.Tensor", totals: "tf.Tensor") -> "tf.Tensor":
        """Makes one step for each batch; all arguments have the steps as first dimension. Runs on a worker."""
        import tensorflow as tf

        num_steps = tf.size(totals)

        def one(index: "tf.Tensor", losses: "tf.TensorArray") -> "tuple[tf.Tensor, tf.TensorArray]":
            batch = {name: column[index] for name, column in columns.items()}
            loss = self._strategy.run(self._step, args=(batch, weights[index], totals[index]))
            return index + 1, losses.write(index, loss)

        losses = tf.TensorArray(tf.float32, size=num_steps, element_shape=[])
        _, losses = tf.while_loop(lambda index, _: index < num_steps, one, (0, losses), parallel_iterations=1)
        return losses.stack()

    def _step(self, columns: "dict[str, tf.Tensor]", weights: "tf.Tensor", total: "tf.Tensor") -> "tf.Tensor":
        import tensorflow as tf

        built = self._built
        with tf.GradientTape() as tape:
            predictions = built.model(model_columns(built.model, columns, built.label), training=True)
            loss = weighted_mean(built.loss, predictions, columns[built.label], weights, total)
            if built.model.losses:
                loss += tf.cast(tf.add_n(built.model.losses), loss.dtype)
        variables = built.model.trainable_variables
        # Rows of a table stay rows: the rest of it never travels.
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        if (clip := clip_of(self._options)) is not None:
            gradients = clip.apply(gradients)
        built.optimizer.apply(gradients, variables)
        return tf.cast(loss, tf.float32)


def _fetched(result: Any) -> "np.ndarray[Any, Any]":
    """Returns the losses of a call; of one whose worker died before it handed them over, those of the next one's.

    TensorFlow's own thread for that worker fetches too, and has the steps made again where it fails; that the group as
    a whole is gone is the supervisor's to find.
    """
    import tensorflow as tf

    while True:
        try:
            return np.asarray(result.fetch())
        except tf.errors.OpError as e:  # noqa: PERF203 - a retry, hardly ever
            if not _is_lost_with_worker(e):
                raise
            time.sleep(_FETCH_AGAIN_S)


def _is_lost_with_worker(error: "tf.errors.OpError") -> bool:
    """Returns whether a worker's death explains ``error``, as TensorFlow's coordinator takes it.

    Another process at the same address may have answered already: it knows nothing of the losses.
    """
    import tensorflow as tf

    if "/job:worker" not in str(error):
        return False
    if isinstance(error, tf.errors.InvalidArgumentError):  # else a fault of the step itself
        return any(text in str(error) for text in _OF_ANOTHER_PROCESS)
    return isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.CancelledError)


def _stacked(steps: "list[Any]") -> "tuple[Any, ...]":
    import tensorflow as tf

    columns = {name: tf.stack([step[0][name] for step in steps]) for name in steps[0][0]}
    return columns, tf.stack([step[1] for step in steps]), tf.stack([step[2] for step in steps])


def _warn_of_table(variable: "keras.Variable") -> None:
    size_mb = 4 * np.prod(variable.shape) / 2**20
    _log.warning(
        "%s, %.0f MiB, lies on one of the parameter servers; an embedding that is dealt over all of them is "
        "lockstep.components.trainer.embeddings.SplitEmbedding",
        variable.path,
        size_mb,
    )
