"""What is measured in a process of its own: ``python -m benchmarks.training_child KIND SPEC_JSON_FILE``; prints JSON.

``input`` reads batches as a worker does, from memory and from files, and by the recipe of many tutorials, which parses
each record and then batches. ``fit-1`` and ``fit-10`` train the same model on the same batches with Keras' own
``fit``, as in a module for the stock Trainer, 1 or 10 steps a call.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import keras
import tensorflow as tf
from tensorflow_transform.output_wrapper import TFTransformOutput

from lockstep.components.trainer import models
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import TrainSpec

_MEASURED_S = 5.0
_WARM_BATCHES = 20
_TAKEN = 10  # batches a call


def main(kind: str, spec: TrainSpec) -> dict[str, tuple[float, float]]:
    """Returns name of the figure -> examples a second, and a second of processor time."""
    if kind == "input":
        return _input(spec)
    return {kind: _fit(spec, steps_per_execution=int(kind.removeprefix("fit-")))}


def _input(spec: TrainSpec) -> dict[str, tuple[float, float]]:
    transform_output = TFTransformOutput(spec.transform_graph_dir)
    feature_spec = transform_output.transformed_feature_spec()
    records = Records(spec.train_files, feature_spec, spec.label)
    options = spec.options

    def ours(cache: Literal["memory", "disk", "none"], folder: str | None = None) -> tuple[float, float]:
        data = TrainingInput(
            records,
            batch_size=options.batch_size,
            num_shards=options.virtual_shards,
            shuffle_buffer=options.shuffle_buffer,
            cache=cache,
            cache_dir=None if folder is None else Path(folder),
        )
        # A cache is filled in the first epoch; where there is none, each is alike.
        num_warm = _WARM_BATCHES if cache == "none" else data.steps_per_epoch + _WARM_BATCHES
        return _rates(data.batches(), options.batch_size, num_warm=num_warm)

    def recipe() -> tf.data.Dataset:
        parsed = _read(spec).map(
            lambda record: tf.io.parse_single_example(record, feature_spec), num_parallel_calls=tf.data.AUTOTUNE
        )
        return parsed.shuffle(options.shuffle_buffer).repeat().batch(options.batch_size).prefetch(tf.data.AUTOTUNE)

    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        kept = {"memory": ours("memory"), "disk": ours("disk", folder)}
    return {**kept, "files": ours("none"), "recipe": _rates(recipe(), options.batch_size)}


def _rates(batches: tf.data.Dataset, batch_size: int, *, num_warm: int = _WARM_BATCHES) -> tuple[float, float]:
    """Takes batches within a compiled function, as training does, and not one by one into Python."""
    iterator = iter(batches)

    @tf.function(autograph=False)
    def take() -> tf.Tensor:
        def one(index: tf.Tensor, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            parts = tf.nest.flatten(next(iterator))
            return index + 1, size + tf.add_n([tf.size(part) for part in parts])

        return tf.while_loop(lambda index, _: index < _TAKEN, one, (0, 0), parallel_iterations=1)[1]

    for _ in range(-(-num_warm // _TAKEN)):
        take()
    begin_s, used_s, count = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begin_s < _MEASURED_S:
        take()
        count += _TAKEN * batch_size
    return count / (time.monotonic() - begin_s), count / (time.process_time() - used_s)


class _Clock(keras.callbacks.Callback):
    """Ends the training when it has been measured for long enough."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[int, float, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes when a call is over; the first ones trace."""
        del logs
        self.marks.append((batch, time.monotonic(), time.process_time()))
        if len(self.marks) > _WARM_BATCHES and self.marks[-1][1] - self.marks[_WARM_BATCHES][1] > _MEASURED_S:
            self.model.stop_training = True

    def rates(self, batch_size: int) -> tuple[float, float]:
        """Returns examples a second, and a second of processor time, after the first calls."""
        first, last = self.marks[_WARM_BATCHES], self.marks[-1]
        count = (last[0] - first[0]) * batch_size
        return count / (last[1] - first[1]), count / (last[2] - first[2])


def _fit(spec: TrainSpec, *, steps_per_execution: int) -> tuple[float, float]:
    transform_output = TFTransformOutput(spec.transform_graph_dir)
    feature_spec = transform_output.transformed_feature_spec()
    keras.utils.set_random_seed(spec.options.seed)
    model = models.build_model(spec.model, transform_output, spec.label, spec.label_kind)
    model.compile(
        optimizer=keras.optimizers.Adam(spec.options.learning_rate),
        loss="binary_crossentropy",
        steps_per_execution=steps_per_execution,
    )

    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        columns = {n: v if v.shape.rank > 1 else v[:, None] for n, v in tf.io.parse_example(serialized, spec_).items()}
        return columns, columns.pop(spec.label)

    spec_ = feature_spec
    batches = _read(spec).shuffle(spec.options.shuffle_buffer).repeat().batch(spec.options.batch_size)
    clock = _Clock()
    dataset = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    model.fit(dataset, steps_per_epoch=10**6, callbacks=[clock], verbose=0)
    return clock.rates(spec.options.batch_size)


def _read(spec: TrainSpec) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(list(spec.train_files), compression_type="GZIP", num_parallel_reads=2)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], TrainSpec.from_json(Path(sys.argv[2]).read_text(encoding="utf-8")))), flush=True)
    # Not Python's own end: a thread of tf.data that waits for Python then waits for ever.
    os._exit(0)
