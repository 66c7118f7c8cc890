"""The training loop: one weighted step, several of them a call, and what happens between calls."""

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lockstep.components.errors import ConfigurationError, UserError
from lockstep.components.trainer.checkpoint import Checkpoints
from lockstep.components.trainer.heartbeat import Reporter
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.components.trainer.spec import TrainOptions

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

# 16 MiB of float32. Seven small tables exchanged densely: 490 steps/s with two workers, sparsely 75.
DENSE_ELEMENTS = 4 * 2**20

Columns = Mapping[str, "tf.Tensor"]
PerExampleLoss = Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]


class DivergedError(UserError):
    """The loss is not a finite number; another attempt would come to the same step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """How the training of one attempt went.

    Args:
      first_step: Global step from which this attempt went on.
      step: Global step reached.
      loss: Mean loss of the last call's steps; None if there was no step.
      records: Records that this worker read in this attempt.
      examples_per_s: Records that all workers read a second, the first call (tracing) left out; None without a second
        call.
      train_s: Seconds in the loop, checkpoints included.
    """

    first_step: int
    step: int
    loss: float | None
    records: int
    examples_per_s: float | None
    train_s: float


def optimizer_of(model: "keras.Model", options: TrainOptions) -> "keras.optimizers.Optimizer":
    """Returns the optimizer the model was compiled with, else the one of the options, built for the model's weights.

    Call it within the strategy's scope.
    """
    import keras

    if model.compiled:
        optimizer = model.optimizer
    elif options.optimizer == "adam":
        optimizer = keras.optimizers.Adam(options.learning_rate)
    else:
        optimizer = keras.optimizers.SGD(options.learning_rate)
    optimizer.build(model.trainable_variables)
    return optimizer


def per_example_loss(model: "keras.Model", label_kind: Literal["binary", "regression"]) -> PerExampleLoss:
    """Returns a function of (label, prediction), both [batch, 1], to losses float32 [batch].

    It is the loss that the model was compiled with, else binary cross-entropy or squared error.

    Raises:
      ConfigurationError: The model was compiled with something else than one loss.
    """
    import keras

    if not model.compiled or model.loss is None:
        if label_kind == "binary":
            return keras.losses.binary_crossentropy  # type: ignore[no-any-return]
        return keras.losses.mean_squared_error  # type: ignore[no-any-return]
    if isinstance(model.loss, (dict, list, tuple)):
        raise ConfigurationError(
            "model.build: the model was compiled with several losses; compile it with one, for its only output"
        )
    loss = keras.losses.get(model.loss)
    # A Loss averages over the batch of one worker when it is called; the global weights are known to the loop alone.
    return loss.call if isinstance(loss, keras.losses.Loss) else loss  # type: ignore[no-any-return]


def model_columns(model: "keras.Model", columns: Columns, label: str) -> "dict[str, tf.Tensor]":
    """Returns the columns that the model takes: its named inputs, or all but the label for a subclassed model.

    Raises:
      ConfigurationError: An input of the model is not among the columns, or its inputs have no names.
    """
    inputs = getattr(model, "_inputs_struct", None)
    if inputs is None:
        return {name: column for name, column in columns.items() if name != label}
    if not isinstance(inputs, dict):
        raise ConfigurationError(
            "model.build: the model must take a dict of tensors by feature name; "
            "give keras.Model(inputs={name: keras.Input(...)}, ...)"
        )
    for name in inputs:
        if name not in columns or name == label:
            known = ", ".join(sorted(set(columns) - {label}))
            raise ConfigurationError(f"model.build: input {name!r} is not a transformed feature; there are {known}")
    return {name: columns[name] for name in inputs}


class StepFunction:
    """Several training steps in one compiled call.

    The loss of a step is the weighted sum over all workers, divided by the sum of all workers' weights: what one
    process with the whole batch would have. Regularisation losses of the model are added once.

    Args:
      strategy: Every worker of it must make the same calls.
      model: Built within the strategy's scope.
      optimizer: Built likewise.
      loss: Of each example.
      label: Name of the label among the columns.
    """

    def __init__(
        self,
        strategy: "tf.distribute.Strategy",
        model: "keras.Model",
        optimizer: "keras.optimizers.Optimizer",
        loss: PerExampleLoss,
        label: str,
    ) -> None:
        import tensorflow as tf

        self._strategy = strategy
        self._model = model
        self._optimizer = optimizer
        self._loss = loss
        self._label = label
        # AutoGraph would rewrite the source of Keras and of the model at every trace: seconds, for loops it has not.
        self._call = tf.function(self._steps, autograph=False)

    def __call__(self, batches: "Iterator[Any]", num_steps: int) -> "np.ndarray[Any, Any]":
        """Trains on the next ``num_steps`` batches; blocks. Returns each step's loss, float32 [num_steps]."""
        import tensorflow as tf

        # A tensor, so that the shorter calls before a checkpoint and at the end are not traced anew.
        losses: np.ndarray[Any, Any] = self._call(batches, tf.constant(num_steps)).numpy()
        return losses

    def _steps(self, batches: "Iterator[Any]", num_steps: "tf.Tensor") -> "tf.Tensor":
        import tensorflow as tf

        def one(index: "tf.Tensor", losses: "tf.TensorArray") -> "tuple[tf.Tensor, tf.TensorArray]":
            return index + 1, losses.write(index, self._strategy.run(self._step, args=next(batches)))

        losses = tf.TensorArray(tf.float32, size=num_steps, element_shape=[])
        # One at a time: the collectives of two steps must not overtake each other.
        _, losses = tf.while_loop(lambda index, _: index < num_steps, one, (0, losses), parallel_iterations=1)
        # One collective a call, not one a step: nobody needs the global loss in between.
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, losses.stack(), axis=None)

    def _step(self, columns: Columns, weights: "tf.Tensor", total: "tf.Tensor") -> "tf.Tensor":
        import tensorflow as tf

        model = self._model
        with tf.GradientTape() as tape:
            predictions = model(model_columns(model, columns, self._label), training=True)
            losses = self._loss(tf.cast(columns[self._label], tf.float32), predictions)
            loss = tf.reduce_sum(tf.reshape(weights, [-1]) * tf.cast(tf.reshape(losses, [-1]), tf.float32)) / total
            if model.losses:
                loss += tf.add_n(model.losses) / self._strategy.num_replicas_in_sync
        variables = model.trainable_variables
        gradients = [exchanged(g) for g in tape.gradient(loss, [variable.value for variable in variables])]
        self._optimizer.apply(gradients, variables)  # sums the gradients over the workers
        return loss


def exchanged(gradient: "tf.Tensor | tf.IndexedSlices | None") -> "tf.Tensor | tf.IndexedSlices | None":
    """Returns a gradient as the workers exchange it.

    The rows that a batch touched of an embedding table up to ``DENSE_ELEMENTS`` become a dense gradient: all dense
    ones go into one collective a step, where each sparse one takes several of its own. The optimizer then treats every
    row as its paper says; of a larger table Keras updates the touched rows alone. The size decides, not the number of
    workers, so that N still equal one.
    """
    import tensorflow as tf

    if isinstance(gradient, tf.IndexedSlices) and (gradient.shape.num_elements() or math.inf) <= DENSE_ELEMENTS:
        return tf.convert_to_tensor(gradient)
    return gradient


def call_sizes(first_step: int, options: TrainOptions) -> Iterator[int]:
    """Yields how many steps each call makes: at most ``steps_per_call``, ending at each checkpoint and at the end."""
    step = first_step
    while step < options.steps:
        to_checkpoint = options.checkpoint_every - step % options.checkpoint_every
        size = min(options.steps_per_call, to_checkpoint, options.steps - step)
        yield size
        step += size


def train(
    steps: StepFunction,
    data: TrainingInput,
    checkpoints: Checkpoints,
    options: TrainOptions,
    *,
    first_step: int,
    reporter: Reporter,
    before_save: Callable[[], None],
    on_call: Callable[[int, "np.ndarray[Any, Any]", float | None], None],
) -> TrainingResult:
    """Trains from ``first_step`` to ``options.steps``; blocks, and every worker must call it alike.

    Args:
      steps: Trains on batches.
      data: Gives them.
      checkpoints: Saved to every ``checkpoint_every`` steps and after the last one.
      options: Steps, sizes of calls, distance of checkpoints.
      first_step: Where the restored variables are.
      reporter: Hears a heartbeat after each call, at most some a second, and of each checkpoint.
      before_save: Called before each save, by every worker.
      on_call: Called with (global step, losses of the call's steps, records a second since the last heartbeat or
        None), after each call.

    Raises:
      DivergedError: A step's loss is not finite; found at the end of its call, the step is named.
      tf.errors.OpError: A peer is gone, or did not answer in time.
    """
    batches = iter(data.batches(first_step))
    step, loss = first_step, None
    started_s = beat_s = time.monotonic()
    beat_step, warm_step, warm_s, saving_s = first_step, None, 0.0, 0.0

    def num_read(since_step: int) -> int:
        return data.total_records_until(step) - data.total_records_until(since_step)

    unreported: list[float] = []
    for size in call_sizes(first_step, options):
        losses = steps(batches, size)
        check_finite(losses, step)
        step += size
        loss = float(losses.mean())
        unreported.extend(losses.tolist())
        now_s = time.monotonic()
        rate = None
        if reporter.is_due or step == options.steps or warm_step is None:
            # The first call traces: its rate says nothing.
            rate = None if warm_step is None else num_read(beat_step) / (now_s - beat_s)
            reporter.say(
                "heartbeat",
                step=step,
                loss=sum(unreported) / len(unreported),
                examples_per_s=rate,
                records=data.records_until(step) - data.records_until(first_step),
                total_records=num_read(first_step),
            )
            unreported.clear()
            beat_s, beat_step = now_s, step
        if warm_step is None:
            warm_step, warm_s = step, now_s
        on_call(step, losses, rate)
        if step % options.checkpoint_every == 0 or step == options.steps:
            save_s = time.monotonic()
            before_save()
            checkpoints.save(step)
            reporter.say("checkpoint", step=step)
            saving_s += time.monotonic() - save_s
    finished_s = time.monotonic()
    num_warm = 0 if warm_step is None else num_read(warm_step)
    return TrainingResult(
        first_step=first_step,
        step=step,
        loss=loss,
        records=data.records_until(step) - data.records_until(first_step),
        examples_per_s=num_warm / (finished_s - warm_s - saving_s) if num_warm else None,
        train_s=finished_s - started_s,
    )


def check_finite(losses: "np.ndarray[Any, Any]", step: int) -> None:
    """Raises `DivergedError` naming the first step, counted from 1, whose loss is NaN or infinite.

    Args:
      losses: Of consecutive steps.
      step: Steps that were done before them.
    """
    for index, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise DivergedError(
                f"The loss is {loss} at step {step + index + 1}; give a lower train.learning_rate, "
                "or look for infinite values and divisions by zero in the model and the preprocessing"
            )


def digest(model: "keras.Model") -> str:
    """Returns the SHA-256, in hexadecimal, of the bytes of all weights in order."""
    content = hashlib.sha256()
    for weight in model.weights:
        content.update(np.ascontiguousarray(weight.numpy()).tobytes())
    return content.hexdigest()
