"""A model whose variables are split over several devices of one machine, by TensorFlow's DTensor.

The numbers are those of the unsharded model if a gradient is laid out as its variable before the optimizer sees it,
and if gradients and updates are two functions. Otherwise momentum, RMSprop and Adam gave other weights on TensorFlow
2.16, without any error, where DTensor had to add up or lay out a gradient within the optimizer's arithmetic.
"""

import contextlib
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.devices import choose_devices
from lockstep.components.trainer.input_pipeline import ReplicaInputs, TrainingInput, worker_input
from lockstep.components.trainer.loop import Call, model_columns
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import BATCH_AXIS, TrainOptions
from lockstep.components.trainer.step_function import weighted_mean
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter

if TYPE_CHECKING:
    import keras
    import numpy.typing as npt
    import tensorflow as tf

    from lockstep.components.trainer.strategies import Built

Axes = tuple[str | None, ...]


class Sharded:
    """Engine of ``dtensor``; see ``strategies.Engine``.

    The variables that Keras made stay in this process' memory and are what checkpoints and the exported model hold;
    the devices' parts are copied there at each checkpoint.

    Args:
      options: The ``train`` block.
      task: This process.
      meter: Hears what each call tells of the workers.

    Raises:
      ConfigurationError: There are fewer devices than ``mesh`` has.
    """

    def __init__(self, options: TrainOptions, task: Task, meter: GroupMeter) -> None:
        from tensorflow.experimental import dtensor

        self._options, self._meter = options, meter
        devices = choose_devices(options.num_devices)
        self._mesh = dtensor.create_mesh(list(options.mesh.items()), devices=list(devices))

    def scope(self) -> AbstractContextManager[Any]:
        """Returns where model and optimizer are built: in this process' own memory."""
        import tensorflow as tf

        return tf.device("CPU:0")  # type: ignore[no-any-return]

    def input(self, records: Records, cache_dir: Path) -> TrainingInput | ReplicaInputs:
        """Returns all records; each batch is split over the batch axis."""
        records.require_dense(self._options.strategy)
        return worker_input(records, self._options, worker=0, num_workers=1, cache_dir=cache_dir)

    def prepare(self, built: "Built") -> None:
        """Copies what was built to the devices, each variable as ``layout`` says.

        Raises:
          ConfigurationError: ``layout`` does not fit the model's variables.
        """
        import tensorflow as tf

        self._built, model = built, built.model
        axes = axes_of(model.variables, self._options.layout, self._options.mesh)
        self._hosts = [v.value for v in [*model.variables, *built.optimizer.variables]]
        self._trainable = list(model.trainable_variables)
        copies = {id(v): self._placed(v.value, axes[v.path]) for v in model.variables}
        self._states = [copies[id(v)] for v in model.non_trainable_variables]
        for variable in self._trainable:
            variable._value = copies[id(variable)]
        self._optimizer, slots = self._placed_optimizer(built.optimizer, axes)
        self._devices = [*(copies[id(v)] for v in model.variables), *slots]
        self._gradients = tf.function(self._gradients_of, autograph=False)
        self._update = tf.function(self._update_by, autograph=False)

    def variables(self) -> "list[tf.Variable]":
        """Returns the host's variables: weights, states of random generators, the optimizer's."""
        return self._hosts

    def resume(self, step: int) -> None:
        """Copies the host's variables to the devices."""
        for host, device in zip(self._hosts, self._devices, strict=True):
            device.assign(self._packed(host.numpy(), device.layout))

    def run(self, batches: "Iterator[Any]", calls: Iterable[Call]) -> "Iterator[np.ndarray[Any, Any]]":
        """See ``loop.Steps``."""
        for call in calls:
            losses = [self._step(*self._next(batches)) for _ in range(call.size)]
            yield np.array([_first_part(loss) for loss in losses], np.float32)

    @property
    def part(self) -> tuple[int, int]:
        """There is one process."""
        return 0, 1

    def weights(self) -> "list[tf.Variable]":
        """Returns the host's copies of the model's weights."""
        host_of = {id(v): host for v, host in zip(self._built.model.variables, self._hosts, strict=False)}
        return [host_of[id(weight)] for weight in self._built.model.weights]

    def validation_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns the model; within ``reading`` it has the host's variables."""
        return self._built.model

    @contextlib.contextmanager
    def reading(self, step: int) -> Iterator[None]:
        """Copies the devices' variables to the host, and gives the model these."""
        self.before_save(step)
        placed = [variable._value for variable in self._trainable]
        self.trained_model(lambda: self._built.model)
        try:
            yield
        finally:
            for variable, value in zip(self._trainable, placed, strict=True):
                variable._value = value

    def gathered(self, values: "npt.NDArray[np.float64]") -> "npt.NDArray[np.float64]":
        """Returns the values, [1, n]."""
        return values[np.newaxis]

    def before_save(self, step: int) -> None:
        """Copies the devices' variables to the host."""
        for host, device in zip(self._hosts, self._devices, strict=True):
            host.assign(_gathered(device.read_value(), device.layout))

    def trained_model(self, rebuild: "Callable[[], keras.Model]") -> "keras.Model":
        """Returns the model with the host's variables, as of the last checkpoint."""
        for variable, host in zip(self._built.model.variables, self._hosts, strict=False):
            variable._value = host
        return self._built.model

    def _next(self, batches: "Iterator[Any]") -> Any:
        with self._meter.waiting():
            return next(batches)

    def _step(self, columns: "dict[str, tf.Tensor]", weights: "tf.Tensor", total: "tf.Tensor") -> "tf.Tensor":
        split = BATCH_AXIS if BATCH_AXIS in self._options.mesh else None
        parts = {name: self._split(column, split) for name, column in columns.items()}
        loss, gradients, states = self._gradients(parts, self._split(weights, split), self._split(total, None))
        # Between the two functions: within one, the layout wanted would change those of all that comes before.
        weights_now = [variable.value for variable in self._trainable]
        self._update(_laid_out(gradients, weights_now), _laid_out(states, self._states))
        return loss

    def _gradients_of(self, columns: "dict[str, tf.Tensor]", weights: "tf.Tensor", total: "tf.Tensor") -> Any:
        """Returns loss, gradients, and the new values of what is no weight."""
        import tensorflow as tf

        model, label = self._built.model, self._built.label
        weighed = [variable.value for variable in self._trainable]
        with tf.GradientTape() as tape:
            predictions, states, penalties = model.stateless_call(
                weighed, self._states, model_columns(model, columns, label), training=True, return_losses=True
            )
            loss = weighted_mean(self._built.loss, predictions, columns[label], weights, total)
            if penalties:
                loss += tf.cast(tf.add_n(penalties), loss.dtype)
        gradients = tape.gradient(loss, weighed)
        return loss, [None if g is None else tf.convert_to_tensor(g) for g in gradients], states

    def _update_by(self, gradients: "list[tf.Tensor]", states: "list[tf.Tensor]") -> None:
        self._optimizer.apply(gradients, self._trainable)
        for variable, state in zip(self._states, states, strict=True):
            variable.assign(state)

    def _placed_optimizer(self, built: Any, axes: Mapping[str, Axes]) -> "tuple[Any, list[Any]]":
        """Returns a copy of the optimizer over the devices' variables, and its own: each split as its weight is."""
        optimizer = type(built).from_config(built.get_config())
        weight_of: dict[int, Any] = {}
        add = optimizer.add_variable_from_reference

        def noting(reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
            slot = add(reference_variable, *args, **kwargs)
            weight_of[id(slot)] = reference_variable
            return slot

        optimizer.add_variable_from_reference = noting
        optimizer.build(self._trainable)
        slots = []
        for slot, host in zip(optimizer.variables, built.variables, strict=True):
            weight = weight_of.get(id(slot))
            split: Axes = (None,) * len(slot.shape)
            if weight is not None and tuple(weight.shape) == tuple(slot.shape):
                split = axes[weight.path]
            slot._value = self._placed(host.value, split)
            slots.append(slot._value)
        return optimizer, slots

    def _placed(self, variable: "tf.Variable", axes: Axes) -> Any:
        from tensorflow.experimental import dtensor

        return dtensor.DVariable(self._packed(variable.numpy(), self._layout(axes)), trainable=variable.trainable)

    def _split(self, value: "tf.Tensor", axis: str | None) -> "tf.Tensor":
        rank = value.shape.rank
        return self._packed(value.numpy(), self._layout((axis, *[None] * (rank - 1)) if rank else ()))

    def _layout(self, axes: Axes) -> Any:
        from tensorflow.experimental import dtensor

        return dtensor.Layout([axis or dtensor.UNSHARDED for axis in axes], self._mesh)

    def _packed(self, value: "np.ndarray[Any, Any]", layout: Any) -> "tf.Tensor":
        """Cuts a value into the devices' parts; no device holds more than its own."""
        import tensorflow as tf
        from tensorflow.experimental import dtensor

        return dtensor.pack([tf.constant(value[place]) for place in _places(value.shape, layout)], layout)


def axes_of(
    variables: "Sequence[keras.Variable]", layout: Mapping[str, Axes], mesh: Mapping[str, int]
) -> dict[str, Axes]:
    """Returns the mesh axis of each dimension of each variable, by path; None where it is not split.

    Args:
      variables: Of the model.
      layout: Pattern of paths (``*`` is any text) -> axis of each dimension; the first that fits counts.
      mesh: Axis -> number of devices along it.

    Raises:
      ConfigurationError: A pattern fits no variable, or not its dimensions.
    """
    found: dict[str, Axes] = {}
    unused = dict(layout)
    for variable in variables:
        pattern = next((p for p in layout if fnmatch.fnmatchcase(variable.path, p)), None)
        shape = tuple(variable.shape)
        found[variable.path] = (None,) * len(shape) if pattern is None else tuple(layout[pattern])
        if pattern is None:
            continue
        unused.pop(pattern, None)
        axes = found[variable.path]
        if len(axes) != len(shape):
            raise ConfigurationError(
                f"train.layout.{pattern}: {list(axes)} is not allowed: {variable.path} has {len(shape)} dimensions, "
                f"{list(shape)}; give an axis or null for each"
            )
        for size, axis in zip(shape, axes, strict=True):
            if axis is not None and size % mesh[axis]:
                raise ConfigurationError(
                    f"train.layout.{pattern}: {variable.path} {list(shape)} cannot be split evenly: axis {axis!r} has "
                    f"{mesh[axis]} devices; give null there, or a size that it divides"
                )
    if unused:
        raise ConfigurationError(
            f"train.layout.{next(iter(unused))}: no variable of the model is called so; there are "
            f"{', '.join(variable.path for variable in variables)}"
        )
    return found


def _places(shape: Sequence[int], layout: Any) -> list[tuple[slice, ...]]:
    """Returns where each device's part is in the whole."""
    from tensorflow.experimental import dtensor

    mesh, places = layout.mesh, []
    for location in mesh.local_device_locations():
        place = []
        for size, axis in zip(shape, layout.sharding_specs, strict=True):
            share = size if axis == dtensor.UNSHARDED else size // mesh.dim_size(axis)
            start = 0 if axis == dtensor.UNSHARDED else location[axis] * share
            place.append(slice(start, start + share))
        places.append(tuple(place))
    return places


def _gathered(value: "tf.Tensor", layout: Any) -> "np.ndarray[Any, Any]":
    from tensorflow.experimental import dtensor

    parts = [part.numpy() for part in dtensor.unpack(value)]
    whole = np.empty(value.shape, parts[0].dtype)
    for place, part in zip(_places(value.shape, layout), parts, strict=True):
        whole[place] = part
    return whole


def _laid_out(values: "Sequence[tf.Tensor | None]", variables: Sequence[Any]) -> "list[tf.Tensor | None]":
    """Returns each value laid out as its variable."""
    from tensorflow.experimental import dtensor

    return [
        value
        if value is None or dtensor.fetch_layout(value) == variable.layout
        else dtensor.relayout(value, variable.layout)
        for value, variable in zip(values, variables, strict=True)
    ]


def _first_part(value: "tf.Tensor") -> float:
    from tensorflow.experimental import dtensor

    return float(dtensor.unpack(value)[0])
