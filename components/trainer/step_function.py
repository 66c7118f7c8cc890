"""One weighted training step on every replica at once, and several of them in one compiled call."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lockstep.components.trainer.gradients import (
    Clip,
    Gradient,
    GradientSums,
    exchanged,
    optimizer_scale,
    skips_steps,
    summed,
)
from lockstep.components.trainer.loop import Call, Columns, PerExampleLoss, model_columns
from lockstep.components.trainer.usage import WIDTH, GroupMeter

if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf


def weighted_mean(
    loss: PerExampleLoss, predictions: "tf.Tensor", label: "tf.Tensor", weights: "tf.Tensor", total: "tf.Tensor"
) -> "tf.Tensor":
    """Returns the sum of a batch's losses by weight, divided by ``total``, in the precision of the predictions.

    Args:
      loss: Of each example.
      predictions: Of the model, [rows, 1].
      label: The same shape.
      weights: Of the rows, float32 [rows, 1].
      total: Records of the whole global batch, as Keras' ``sample_weight`` has it: not the sum of their weights.
    """
    import tensorflow as tf

    # A model in float64 stays in float64 to the gradients; anything else is summed in float32.
    dtype = tf.float64 if predictions.dtype == tf.float64 else tf.float32
    losses = tf.cast(tf.reshape(loss(tf.cast(label, dtype), tf.cast(predictions, dtype)), [-1]), dtype)
    return tf.reduce_sum(tf.cast(tf.reshape(weights, [-1]), dtype) * losses) / tf.cast(total, dtype)


class StepFunction:
    """Several training steps in one compiled call.

    The loss of a step is the weighted sum over all replicas, divided by the number of all replicas' records: what one
    process with the whole batch would have. Regularisation losses of the model are added once.

    Args:
      strategy: Every worker of it must make the same calls.
      num_workers: Processes.
      model: Built within the strategy's scope.
      optimizer: Built likewise.
      loss: Of each example.
      label: Name of the label among the columns.
      clip: Bounds of the whole batch's gradients.
      accumulate: Parts that each batch is trained in, one after another; divides the rows of a replica.
      single: Whether every call has one step: no loop is built for it then.
      meter: Hears with each call what all workers use, and how long they waited for their batches.
    """

    def __init__(
        self,
        strategy: "tf.distribute.Strategy",
        num_workers: int,
        model: "keras.Model",
        optimizer: "keras.optimizers.Optimizer",
        loss: PerExampleLoss,
        label: str,
        *,
        clip: Clip | None = None,
        accumulate: int = 1,
        single: bool = False,
        meter: GroupMeter | None = None,
    ) -> None:
        import tensorflow as tf

        self._strategy = strategy
        self._num_workers = num_workers
        self._model = model
        self._optimizer = optimizer
        self._loss = loss
        self._label = label
        self._clip = clip
        # One that leaves out a step whose gradients are not finite must see those of all replicas, or a replica would
        # wait for ever for the others.
        self._skips_steps = skips_steps(optimizer) and strategy.num_replicas_in_sync > 1
        self._accumulate = accumulate
        self._sums = GradientSums(strategy, model.trainable_variables) if accumulate > 1 else None
        # AutoGraph would rewrite the source of Keras and of the model at every trace: seconds, for loops it has not.
        self._call = tf.function(self._single_step if single else self._steps, autograph=False)
        self._meter = meter or GroupMeter(num_workers=num_workers)
        self._sizes: dict[int, Any] = {}
        self._table: Any = None
        self._told: Any = None

    def run(self, batches: "Iterator[Any]", calls: Iterable[Call]) -> "Iterator[np.ndarray[Any, Any]]":
        """See ``loop.Steps``."""
        for call in calls:
            yield self(batches, call.size)

    def __call__(self, batches: "Iterator[Any]", num_steps: int) -> "np.ndarray[Any, Any]":
        """Trains on the next ``num_steps`` batches; blocks. Returns each step's loss, float32 [num_steps]."""
        import tensorflow as tf

        if num_steps not in self._sizes:
            # A tensor, so that the shorter calls before a checkpoint and at the end are not traced anew.
            self._sizes[num_steps] = tf.constant(num_steps)
        table = self._meter.table()
        if table is not self._table:
            self._table, self._told = table, tf.constant(table)
        values = self._call(batches, self._sizes[num_steps], self._told).numpy()
        self._meter.take(values[num_steps:].reshape(table.shape))
        losses: np.ndarray[Any, Any] = values[:num_steps]
        return losses

    def _single_step(self, batches: "Iterator[Any]", _num_steps: "tf.Tensor", table: "tf.Tensor") -> "tf.Tensor":
        import tensorflow as tf

        batch, waited_s = _next_batch(batches)
        loss = self._whole_step(*on_replicas(self._strategy, batch))
        return self._told_by_all(tf.reshape(loss, [1]), waited_s, table)

    def _steps(self, batches: "Iterator[Any]", num_steps: "tf.Tensor", table: "tf.Tensor") -> "tf.Tensor":
        import tensorflow as tf

        def one(
            index: "tf.Tensor", losses: "tf.TensorArray", waited_s: "tf.Tensor"
        ) -> "tuple[tf.Tensor, tf.TensorArray, tf.Tensor]":
            batch, more_s = _next_batch(batches)
            loss = self._whole_step(*on_replicas(self._strategy, batch))
            return index + 1, losses.write(index, loss), waited_s + more_s

        losses = tf.TensorArray(tf.float32, size=num_steps, element_shape=[])
        none_s = tf.zeros([], tf.float64)
        # One at a time: the collectives of two steps must not overtake each other.
        _, losses, waited_s = tf.while_loop(
            lambda index, *_: index < num_steps, one, (0, losses, none_s), parallel_iterations=1
        )
        return self._told_by_all(losses.stack(), waited_s, table)

    def _told_by_all(self, losses: "tf.Tensor", waited_s: "tf.Tensor", table: "tf.Tensor") -> "tf.Tensor":
        """Returns the losses over all workers, and then their tables: float32 [steps + workers * WIDTH]."""
        import tensorflow as tf

        own = tf.reshape(tf.one_hot([self._meter.worker * WIDTH + WIDTH - 1], self._num_workers * WIDTH), [-1])
        told = tf.reshape(table, [-1]) + own * tf.cast(waited_s, tf.float32)
        # One collective a call, not one a step: nobody needs the global loss in between.
        return sum_over_workers(self._strategy, self._num_workers, tf.concat([losses, told], axis=0))

    def _whole_step(self, columns: Any, weights: Any, total: Any) -> "tf.Tensor":
        """Trains on one batch, of each replica; returns this worker's part of the loss."""
        import tensorflow as tf

        if self._sums is None:
            return self._local_sum(self._strategy.run(self._step, args=(columns, weights, total)))

        def one(part: "tf.Tensor", loss: "tf.Tensor") -> "tuple[tf.Tensor, tf.Tensor]":
            more = self._strategy.run(self._add_part, args=(columns, weights, total, part))
            return part + 1, loss + self._local_sum(more)

        # One at a time, or the parts would be in memory together. Replicas exchange nothing before the last one.
        _, loss = tf.while_loop(lambda part, _: part < self._accumulate, one, (0, 0.0), parallel_iterations=1)
        self._strategy.run(self._apply_sums)
        return loss

    def _local_sum(self, by_replica: Any) -> "tf.Tensor":
        import tensorflow as tf

        return tf.add_n(self._strategy.experimental_local_results(by_replica))

    def _step(self, columns: Columns, weights: "tf.Tensor", total: "tf.Tensor") -> "tf.Tensor":
        loss, gradients = self._gradients(columns, weights, total)
        self._apply(gradients)
        return loss

    def _add_part(self, columns: Columns, weights: "tf.Tensor", total: "tf.Tensor", part: "tf.Tensor") -> "tf.Tensor":
        assert self._sums is not None
        rows = weights.shape[0] // self._accumulate
        columns = {name: _part_of(column, part, rows) for name, column in columns.items()}
        loss, gradients = self._gradients(columns, _part_of(weights, part, rows), total)
        self._sums.add(gradients)
        return loss

    def _apply_sums(self) -> None:
        assert self._sums is not None
        self._apply(self._sums.take())

    def _gradients(
        self, columns: Columns, weights: "tf.Tensor", total: "tf.Tensor"
    ) -> "tuple[tf.Tensor, list[Gradient]]":
        """Returns this replica's part of the loss, float32, and of its gradients."""
        import tensorflow as tf

        model = self._model
        with tf.GradientTape() as tape:
            predictions = model(model_columns(model, columns, self._label), training=True)
            loss = weighted_mean(self._loss, predictions, columns[self._label], weights, total)
            if model.losses:
                num_parts = self._strategy.num_replicas_in_sync * self._accumulate
                loss += tf.cast(tf.add_n(model.losses) / num_parts, loss.dtype)
            scaled = self._optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, [variable.value for variable in model.trainable_variables])
        return tf.cast(loss, tf.float32), [exchanged(gradient) for gradient in gradients]

    def _apply(self, gradients: "list[Gradient]") -> None:
        if self._clip is not None or self._skips_steps:
            gradients = summed(gradients)
            if self._clip is not None:
                scale, skips = optimizer_scale(self._optimizer), skips_steps(self._optimizer)
                gradients = self._clip.apply(gradients, scale, keep_overflow=skips)
            # The optimizer sums them over the replicas once more: what a replica has is its part of that.
            num_replicas = self._strategy.num_replicas_in_sync
            gradients = [None if gradient is None else gradient / num_replicas for gradient in gradients]
        self._optimizer.apply(gradients, self._model.trainable_variables)  # sums the gradients over the replicas


def _next_batch(batches: "Iterator[Any]") -> "tuple[Any, tf.Tensor]":
    """Returns the next batch, and how many seconds it was waited for, float64."""
    import tensorflow as tf

    began_s = tf.timestamp()
    with tf.control_dependencies([began_s]):
        batch = next(batches)
    with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)[:1]):
        return batch, tf.timestamp() - began_s


def _part_of(column: Any, part: "tf.Tensor", rows: int) -> Any:
    import tensorflow as tf

    if isinstance(column, tf.SparseTensor):
        width = column.dense_shape[1]
        start = tf.stack([tf.cast(part * rows, tf.int64), tf.zeros([], tf.int64)])
        return tf.sparse.slice(column, start, tf.stack([tf.constant(rows, tf.int64), width]))
    sliced = column[part * rows : (part + 1) * rows]
    return sliced if isinstance(column, tf.RaggedTensor) else tf.ensure_shape(sliced, [rows, *column.shape[1:]])


def on_replicas(strategy: "tf.distribute.Strategy", batches: Any) -> Any:
    """Returns the arguments of ``strategy.run``, from a batch, or from a tuple of one for each local replica."""
    if not isinstance(batches[0], tuple):
        return batches
    parts = iter(batches)  # called once for each local replica, in their order
    return strategy.experimental_distribute_values_from_function(lambda _: next(parts))


def sum_over_workers(strategy: "tf.distribute.Strategy", num_workers: int, value: "tf.Tensor") -> "tf.Tensor":
    """Returns the sum of each worker's own value; a collective if there are several, so all must call it."""
    import tensorflow as tf

    if num_workers == 1:  # what is the same on all replicas of a process would be counted once for each
        return value
    return strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
