"""Gradients between the tape and the optimizer: how workers exchange them, sums over parts of a batch, and clipping."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeAlias

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.spec import TrainOptions

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices | None"

# 16 MiB of float32. Seven small tables exchanged densely: 490 steps/s with two workers, sparsely 75.
DENSE_ELEMENTS = 4 * 2**20


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


def summed(gradients: "list[Gradient]") -> "list[Gradient]":
    """Returns the sums over all replicas; within a replica, a collective."""
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    given = [gradient for gradient in gradients if gradient is not None]
    if replica.num_replicas_in_sync == 1 or not given:
        return gradients
    sums = iter(replica.all_reduce(tf.distribute.ReduceOp.SUM, given))
    return [None if gradient is None else next(sums) for gradient in gradients]


def skips_steps(optimizer: "keras.optimizers.Optimizer") -> bool:
    """Returns whether an optimizer leaves out steps whose gradients are not finite."""
    import keras

    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def optimizer_scale(optimizer: "keras.optimizers.Optimizer") -> Any:
    """Returns by how much an optimizer wants the loss, and so the gradients, too large; see ``scale_loss``."""
    if skips_steps(optimizer):
        return optimizer.dynamic_scale.value
    return optimizer.loss_scale_factor or 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clip:
    """Bounds of the gradients of a whole batch, all replicas' together; one of the two.

    Args:
      norm: Of all gradients as one vector: a longer one is shortened to it, its direction kept.
      value: Of each number of a gradient, either side of 0.
    """

    norm: float | None = None
    value: float | None = None

    def apply(self, gradients: "list[Gradient]", scale: Any = 1.0, *, keep_overflow: bool = False) -> "list[Gradient]":
        """Returns the gradients within the bounds.

        Args:
          gradients: Of the whole batch.
          scale: By how much they are too large, see ``optimizer_scale``; so the bounds are, too.
          keep_overflow: Whether what is infinite stays so, for an optimizer that leaves out such a step: it would not
            see it else.
        """
        import tensorflow as tf

        # A row of a table that a batch has several times is one row of the gradient.
        single = [_each_row_once(gradient) for gradient in gradients]
        if self.norm is not None:
            norm = _global_norm(single)
            return list(tf.clip_by_global_norm(single, self.norm * tf.cast(scale, norm.dtype), use_norm=norm)[0])
        assert self.value is not None
        return [None if g is None else _within(g, self.value * tf.cast(scale, g.dtype), keep_overflow) for g in single]


def clip_of(options: TrainOptions) -> Clip | None:
    """Returns the bounds that the ``train`` block gives; None for none."""
    if options.clip_norm is None and options.clip_value is None:
        return None
    return Clip(norm=options.clip_norm, value=options.clip_value)


def _global_norm(gradients: "list[Gradient]") -> "tf.Tensor":
    import tensorflow as tf

    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients if g is not None]
    return tf.sqrt(tf.add_n([tf.cast(tf.reduce_sum(tf.square(value)), values[0].dtype) for value in values]))


def _within(gradient: "tf.Tensor | tf.IndexedSlices", bound: "tf.Tensor", keep_overflow: bool) -> Gradient:
    import tensorflow as tf

    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    bounded = tf.clip_by_value(values, -bound, bound)
    if keep_overflow:
        bounded = tf.where(tf.math.is_finite(values), bounded, values)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(bounded, gradient.indices, gradient.dense_shape)
    return bounded


def _each_row_once(gradient: Gradient) -> Gradient:
    import tensorflow as tf

    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, places = tf.unique(gradient.indices)
    rows = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices))
    return tf.IndexedSlices(rows, indices, gradient.dense_shape)


class GradientSums:
    """Sums of the gradients of a batch's parts, on each replica its own.

    Args:
      strategy: Within whose scope they are made.
      variables: What the gradients are of.
    """

    def __init__(self, strategy: "tf.distribute.Strategy", variables: "list[keras.Variable]") -> None:
        import tensorflow as tf

        self._variables = variables
        self._has_gradient = [True] * len(variables)
        with strategy.scope():
            self._sums = [
                tf.Variable(
                    tf.zeros(variable.shape, variable.dtype),
                    trainable=False,
                    synchronization=tf.VariableSynchronization.ON_READ,
                    aggregation=tf.VariableAggregation.SUM,
                )
                for variable in variables
            ]

    def add(self, gradients: "list[Gradient]") -> None:
        """Adds those of one part, within a replica.

        Raises:
          ConfigurationError: One is of an embedding table so large that only the rows of a batch are exchanged.
        """
        import tensorflow as tf

        self._has_gradient = [gradient is not None for gradient in gradients]
        for variable, total, gradient in zip(self._variables, self._sums, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                raise ConfigurationError(
                    f"train.accumulate: not allowed with {variable.path}, an embedding of more than {DENSE_ELEMENTS}"
                    " values, whose rows are trained one by one; leave it out, or make the table smaller"
                )
            if gradient is not None:
                total.assign_add(gradient)

    def take(self) -> "list[Gradient]":
        """Returns the sums and sets them to zero, within a replica."""
        import tensorflow as tf

        taken = []
        for total, has_gradient in zip(self._sums, self._has_gradient, strict=True):
            taken.append(tf.identity(total) if has_gradient else None)
            total.assign(tf.zeros_like(total))
        return taken
