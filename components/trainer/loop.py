"""The training loop: what happens between the calls that train, whatever the strategy."""

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from lockstep.components.class_labels import LabelKind
from lockstep.components.errors import ConfigurationError, UserError
from lockstep.components.trainer.checkpoint import Checkpoints
from lockstep.components.trainer.detection import detection_loss
from lockstep.components.trainer.early_stopping import Course
from lockstep.components.trainer.heartbeat import Reporter
from lockstep.components.trainer.input_pipeline import ReplicaInputs, TrainingInput
from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.usage import GroupMeter, Shares

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

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
      input_share: Part of the time that this worker waited for its input, the first call left out; None without a
        second one.
      examples_per_s: Records that all workers read a second, the first call (tracing) left out; None without a second
        call.
      train_s: Seconds in the loop, checkpoints included.
    """

    first_step: int
    step: int
    loss: float | None
    records: int
    input_share: float | None
    examples_per_s: float | None
    train_s: float


def optimizer_of(model: "keras.Model", options: TrainOptions) -> "keras.optimizers.Optimizer":
    """Returns the optimizer the model was compiled with, else the one of the options, built for the model's weights.

    Call it within the strategy's scope.

    Raises:
      ConfigurationError: There is a schedule, and the model was compiled with an optimizer of its own.
    """
    import keras

    from lockstep.components.trainer.learning_rate import Schedule

    rate: Any = options.learning_rate
    if not options.schedule.is_constant:
        if model.compiled:
            raise ConfigurationError(
                "train.schedule: not allowed beside a model that is compiled with an optimizer of its own; "
                "leave it out, or do not compile the model"
            )
        rate = Schedule(options.learning_rate, options.schedule, options.num_steps)
    if model.compiled:
        optimizer = model.optimizer
    elif options.optimizer == "adam":
        optimizer = keras.optimizers.Adam(rate)
    else:
        optimizer = keras.optimizers.SGD(rate)
    # One that the model came with may scale already.
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if options.precision == "mixed_float16" and not is_scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    return optimizer


def per_example_loss(model: "keras.Model", label_kind: LabelKind) -> PerExampleLoss:
    """Returns a function of (label, prediction), both [batch, 1], to losses float32 [batch].

    It is the loss that the model was compiled with, else binary cross-entropy or squared error; of classes, whose
    predictions are [batch, classes], sparse categorical cross-entropy; of boxes ``detection.detection_loss``.

    Raises:
      ConfigurationError: The model was compiled with something else than one loss.
    """
    import keras

    if not model.compiled or model.loss is None:
        if label_kind == "binary":
            return keras.losses.binary_crossentropy  # type: ignore[no-any-return]
        if label_kind == "multiclass":
            return keras.losses.sparse_categorical_crossentropy  # type: ignore[no-any-return]
        if label_kind == "boxes":
            return detection_loss
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


class Call(NamedTuple):
    """One call of the training function.

    Args:
      size: Its steps.
      is_last: Whether a checkpoint or a validation follows, so that no later step may have begun.
    """

    size: int
    is_last: bool


class Validates(Protocol):
    """Validates while the training goes on; see ``validation.Validator``."""

    def is_due(self, step: int) -> bool:
        """Returns whether a validation comes after a step."""

    def validate(self, step: int) -> dict[str, float]:
        """Validates; returns metric -> value."""

    @property
    def course(self) -> Course:
        """What came of it so far."""


class Steps(Protocol):
    """Trains on batches, as the strategy does it."""

    def run(self, batches: "Iterator[Any]", calls: Iterable[Call]) -> "Iterator[np.ndarray[Any, Any]]":
        """Trains; yields, call after call, the losses of its steps, float32 [size]. Blocks between two."""


def calls(first_step: int, options: TrainOptions) -> Iterator[Call]:
    """Yields the calls: at most ``steps_per_call`` steps each, ending at checkpoints, validations and the end."""
    stops = [every for every in (options.checkpoint_every, options.validate_every) if every is not None]
    step = first_step
    while step < options.num_steps:
        to_stop = min(options.num_steps - step, *(every - step % every for every in stops))
        size = min(options.steps_per_call, to_stop, *options.to_trace(step))
        step += size
        yield Call(size, is_last=size == to_stop)


def traced(steps: Iterable[Call], first_step: int, options: TrainOptions, trace_dir: str | None) -> Iterator[Call]:
    """Yields the calls, and writes a profile of those within ``options.trace_steps``, for TensorBoard's plugin.

    Args:
      steps: The calls, which begin and end where the profile does.
      first_step: Steps that are done before.
      options: A training that goes on after the first step to be traced traces nothing.
      trace_dir: TensorBoard's folder; None traces nothing.
    """
    import tensorflow as tf

    step, is_tracing = first_step, False
    first, last = options.trace_steps or (0, 0)
    try:
        for call in steps:
            if trace_dir is not None and options.trace_steps and step == first - 1:
                tf.profiler.experimental.start(trace_dir)
                is_tracing = True
            yield call
            step += call.size
            if is_tracing and step >= last:
                is_tracing = False
                tf.profiler.experimental.stop()
    finally:
        if is_tracing:
            tf.profiler.experimental.stop(save=False)


def train(
    steps: Steps,
    data: TrainingInput | ReplicaInputs,
    checkpoints: Checkpoints,
    options: TrainOptions,
    *,
    first_step: int,
    reporter: Reporter,
    before_save: Callable[[int], None],
    on_call: Callable[[int, "np.ndarray[Any, Any]", float | None], None],
    meter: GroupMeter,
    on_beat: Callable[[int, Sequence[Shares]], None] = lambda step, shares: None,
    trace_dir: str | None = None,
    validator: Validates | None = None,
    on_validation: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None,
) -> TrainingResult:
    """Trains from ``first_step`` to ``options.num_steps``, or to where validations end it; blocks.

    Every worker must call it alike.

    Args:
      steps: Trains on batches.
      data: Gives them.
      checkpoints: Saved to every ``checkpoint_every`` steps and after the last one.
      options: Steps, sizes of calls, distance of checkpoints.
      first_step: Where the restored variables are.
      reporter: Hears a heartbeat after each call, at most some a second, and of each checkpoint.
      before_save: Called with the step before each save, by every worker.
      on_call: Called with (global step, losses of the call's steps, records a second since the last heartbeat or
        None), after each call.
      meter: Heard of by ``steps``.
      on_beat: Called with (global step, what each worker uses) at each heartbeat but the first.
      trace_dir: Where a profile of ``options.trace_steps`` is written; None writes none.
      validator: Validates when it is due, before a checkpoint of the same step is saved.
      on_validation: Called with (global step, metric -> value) after each validation.

    Raises:
      DivergedError: A step's loss is not finite; found at the end of its call, the step is named.
      tf.errors.OpError: A peer is gone, or did not answer in time.
    """
    step, loss = first_step, None
    started_s = beat_s = time.monotonic()
    beat_step, warm_step, warm_s, aside_s = first_step, None, 0.0, 0.0
    # A training that goes on from the checkpoint that ended it has nothing left to do.
    validation_loss: float | None = None
    has_stopped = validator is not None and validator.course.has_stopped
    to_do = () if has_stopped else calls(first_step, options)

    def num_read(since_step: int) -> int:
        return data.total_records_until(step) - data.total_records_until(since_step)

    unreported: list[float] = []
    reporter.step = first_step
    planned = traced(to_do, first_step, options, trace_dir)
    for losses in steps.run(iter(data.batches(first_step)), planned):
        check_finite(losses, step)
        step += len(losses)
        reporter.step = step
        loss = float(losses.mean())
        unreported.extend(losses.tolist())
        now_s = time.monotonic()
        rate = None
        if reporter.is_due or step == options.num_steps or warm_step is None:
            # The first call traces: its rate says nothing.
            rate = None if warm_step is None else num_read(beat_step) / (now_s - beat_s)
            shares: tuple[Shares, ...] = () if warm_step is None else meter.mark()
            own = shares[meter.worker] if shares else None
            reporter.say(
                "heartbeat",
                step=step,
                loss=sum(unreported) / len(unreported),
                examples_per_s=rate,
                records=data.records_until(step) - data.records_until(first_step),
                total_records=num_read(first_step),
                validation_loss=validation_loss,
                input_share=None if own is None else own.input_share,
                **({} if own is None else dataclasses.asdict(own.usage)),
            )
            if shares:
                on_beat(step, shares)
            unreported.clear()
            beat_s, beat_step = now_s, step
        if warm_step is None:
            warm_step, warm_s = step, now_s
            meter.begin()
        on_call(step, losses, rate)
        if validator is not None and validator.is_due(step):
            aside_since_s = time.monotonic()
            metrics = validator.validate(step)
            validation_loss = metrics["loss"]
            on_validation(step, metrics)
            has_stopped = validator.course.has_stopped
            aside_s += time.monotonic() - aside_since_s
        if step % options.checkpoint_every == 0 or step == options.num_steps or has_stopped:
            aside_since_s = time.monotonic()
            before_save(step)
            checkpoints.save(step)
            reporter.say("checkpoint", step=step)
            aside_s += time.monotonic() - aside_since_s
        if has_stopped:
            break
    finished_s = time.monotonic()
    input_share = meter.input_share() if warm_step is not None and step > warm_step else None
    num_warm = 0 if warm_step is None else num_read(warm_step)
    return TrainingResult(
        first_step=first_step,
        step=step,
        loss=loss,
        records=data.records_until(step) - data.records_until(first_step),
        input_share=input_share,
        examples_per_s=num_warm / (finished_s - warm_s - aside_s) if num_warm else None,
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
