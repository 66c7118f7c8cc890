"""From files of transformed records to the batches of one worker: the same records at the same step for any number.

The records of a split are dealt to a fixed number of virtual shards. Every global batch takes an equal share from
each, worker ``w`` of ``N`` serves the shards ``v`` with ``v % N == w``, and each shard is shuffled by a seed made of
(seed, epoch, shard). So the global step alone is the position, whoever reads, and an epoch reads every record once: a
shard that has run out fills its share of the last batches with rows of weight 0.
"""

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.trainer import example_weights
from lockstep.components.trainer.augmentation import Augmentation, augmented, load_augmentation, record_seeds
from lockstep.components.trainer.classes import checked, weight_table
from lockstep.components.trainer.record_cache import DiskCache, MemoryCache, RecordCache
from lockstep.components.trainer.records import Deal, Records, count_all
from lockstep.components.trainer.rounds import Columns, Rounds
from lockstep.components.trainer.spec import TrainOptions

if TYPE_CHECKING:
    import tensorflow as tf

_log = logging.getLogger(__name__)

# Parsed columns up to this size are kept in memory by each worker, so that later epochs cost no reading or parsing.
CACHE_BYTES = 512 * 2**20
_PREFETCHED = 8  # batches, fewer of large ones
_PREFETCHED_BYTES = 64 * 2**20


class TrainingInput:
    """The training batches of one worker; of one replica, where a worker drives several devices.

    Args:
      records: The training split.
      batch_size: Records of a global batch, a multiple of ``num_shards``.
      num_shards: Virtual shards, a multiple of ``num_workers``.
      worker: This worker's index.
      num_workers: Workers in the group.
      seed: Of the shuffling, and of random changes.
      shuffle_buffer: Records within which a shard is shuffled; 0 keeps the order.
      cache: See ``TrainOptions``.
      cache_bytes: Parsed columns up to this size are kept in memory by ``auto``.
      cache_dir: Where ``disk`` keeps them.
      deal: Of the same records to the same shards, where it is known already; None counts them.
      class_weights: ``0`` or ``1``, or a class -> weight of the records with that label, 1 where not given.
      augmentation: Changes the records of each batch, as ``TrainOptions.augment`` says; None leaves them.

    Raises:
      DataError: There are no records. One's weight that is negative or not finite is told when its batch is read; see
        ``example_weights.as_data_error``; likewise one of no class, see ``classes.as_data_error``.
      ConfigurationError: They shall be kept in memory, and the machine has less; a weight is of no class.
      OSError: They shall be kept on the disk, and it is full.
    """

    def __init__(
        self,
        records: Records,
        *,
        batch_size: int,
        num_shards: int,
        worker: int = 0,
        num_workers: int = 1,
        seed: int = 0,
        shuffle_buffer: int = 10_000,
        cache: Literal["auto", "memory", "disk", "none"] = "auto",
        cache_bytes: int = CACHE_BYTES,
        cache_dir: Path | None = None,
        deal: Deal | None = None,
        class_weights: Mapping[str, float] | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.deal = deal or Deal.of(records.files, records.count(), num_shards)
        if not sum(self.deal.sizes):
            raise DataError(f"{', '.join(records.files)}: no training records; check data.splits and the data")
        self._records = records
        self._class_weights = dict(class_weights or {})
        self._by_class = weight_table(self._class_weights, records.classes) if records.classes else []
        self._augmentation = augmentation
        self._share = batch_size // num_shards
        self._seed = seed
        self._rounds = Rounds(
            deal=self.deal,
            share=self._share,
            shards=tuple(range(worker, num_shards, num_workers)),
            shuffle_buffer=shuffle_buffer,
            bytes_per_record=records.bytes_per_record,
            seed=seed,
        )
        self.steps_per_epoch = self._rounds.num_steps
        num_bytes = sum(self.deal.sizes[shard] for shard in self._rounds.shards) * records.bytes_per_record
        if cache == "auto":
            cache = "memory" if num_bytes <= cache_bytes else "none"
        self.cache_kind = cache
        self._cache = self._make_cache(cache, num_bytes, cache_dir)
        left = np.array(self.deal.sizes) - np.arange(self.steps_per_epoch)[:, None] * self._share
        self._totals = np.clip(left, 0, self._share).sum(axis=1).astype(np.float32)
        if self.deal.files_of is None and num_workers > 1 and self._cache is None:
            _log.warning(
                "%d files for %d virtual shards: each worker reads all of them for its part of the records; write at "
                "least %d files",
                len(records.files),
                num_shards,
                num_shards,
            )

    def records_until(self, step: int) -> int:
        """Returns how many records this worker reads in the global steps before ``step``."""
        return self._records_of([self.deal.sizes[shard] for shard in self._rounds.shards], step)

    def total_records_until(self, step: int) -> int:
        """Returns how many records all workers together read in the global steps before ``step``."""
        return self._records_of(self.deal.sizes, step)

    def sample(self) -> "tuple[dict[str, tf.Tensor], tf.Tensor]":
        """Returns the first records of the split as columns and weights, as many as a batch has or there are.

        Nothing is shuffled, kept or changed at random.
        """
        import tensorflow as tf

        num_rows = self._share * len(self._rounds.shards)
        serialised = next(iter(self._records.read().batch(num_rows)))
        columns, weights = self._weighed(self._records.parse(serialised), tf.ones([tf.size(serialised), 1]))
        return self._records.decoded(columns), weights

    def batches(self, start_step: int = 0) -> "tf.data.Dataset":
        """Returns this worker's batches from ``start_step`` on, endlessly.

        Each is ``(columns, weights, total)``: columns by feature name, label included, [batch_size / num_workers, ...];
        weights float32 [batch_size / num_workers, 1], 0 for padding rows (whose columns are 0); total float32 scalar,
        the number of records over all workers, known without asking them. The weights are 1 but for a record's own
        (``records.weight``) times that of its label (``class_weights``).
        """
        import tensorflow as tf

        epoch, step = divmod(start_step, self.steps_per_epoch)
        number, skipped = divmod(step, self._rounds.steps_per_round)

        def planned(index: "tf.Tensor", epoch: "tf.Tensor", number: "tf.Tensor", columns: Columns) -> Any:
            skips = tf.where(index == 0, tf.constant(skipped, tf.int64), tf.constant(0, tf.int64))
            return self._planned(epoch, number, skips, columns)

        # One call at a time, which works on the next round while the steps of this one are taken.
        steps = (
            self._numbered_rounds(epoch, number)
            .enumerate()
            .map(_plain(lambda index, item: planned(index, *item)), num_parallel_calls=1, deterministic=True)
        )
        dataset = steps.unbatch()
        if self._augmentation is not None or self._records.decoder is not None:
            dataset = dataset.map(
                _plain(self._prepared), num_parallel_calls=len(os.sched_getaffinity(0)), deterministic=True
            )
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread costs more than it gains with the fixed numbers here
        batch_bytes = self._share * len(self._rounds.shards) * self._records.bytes_per_decoded_record
        num_prefetched = max(2, min(_PREFETCHED, _PREFETCHED_BYTES // max(1, batch_bytes)))
        return dataset.prefetch(num_prefetched).with_options(options)

    def augmented(self, columns: Columns, weights: "tf.Tensor") -> Columns:
        """Returns records of ``sample`` as they would be changed at random in training.

        Raises:
          ConfigurationError: The function gives other columns than it takes, or of other types or shapes.
        """
        import tensorflow as tf

        if self._augmentation is None:
            return columns
        seeds = record_seeds(self._seed, 0, np.arange(int(tf.shape(weights)[0]), dtype=np.int64))
        return augmented(self._augmentation, columns, tf.constant(seeds), weights)

    def _make_cache(self, cache: str, num_bytes: int, cache_dir: Path | None) -> RecordCache | None:
        import tensorflow as tf

        if cache == "none":
            return None
        if cache == "memory":
            available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            if num_bytes > available:
                raise ConfigurationError(
                    f"train.cache: memory is not allowed: the records of this worker take {num_bytes >> 20:,} MiB, the "
                    f"machine has {available >> 20:,}; give disk or none, or more train.workers on other machines"
                )
            return MemoryCache(self._rounds.num_rounds)
        if cache_dir is None:
            raise ValueError("cache_dir: None is not allowed with cache: disk; give a folder")
        kinds = []
        empty = self._records.parse(tf.constant([], tf.string))
        for name, column in _sorted(empty).items():
            if not isinstance(column, tf.Tensor):
                raise ConfigurationError(
                    f"train.cache: disk is not allowed with feature {name!r}, which is not dense; give memory or none"
                )
            kinds.append((np.dtype(column.dtype.as_numpy_dtype), tuple(column.shape[1:])))
        return DiskCache(cache_dir, self._rounds, identity=sorted(empty), kinds=kinds)

    def _numbered_rounds(self, first_epoch: int, first_round: int) -> "tf.data.Dataset":
        """Returns (epoch, number, columns) of the rounds from one on, endlessly."""
        import tensorflow as tf

        num_threads, num_rounds, forever = len(os.sched_getaffinity(0)), self._rounds.num_rounds, np.iinfo(np.int64).max
        cache = self._cache

        def read(epoch: "tf.Tensor", number: "tf.Tensor") -> "tf.data.Dataset":
            rounds = self._rounds.read(self._records, number, num_threads)
            return rounds.enumerate().map(lambda index, columns: (epoch, number + index, columns))

        def first_of(epoch: "tf.Tensor") -> "tf.Tensor":
            return tf.where(epoch == first_epoch, tf.constant(first_round, tf.int64), tf.constant(0, tf.int64))

        if cache is None:
            return tf.data.Dataset.range(first_epoch, forever).flat_map(_plain(lambda e: read(e, first_of(e))))
        # A ragged column is kept as its values and where each row begins among them.
        empty = _sorted(self._records.parse(tf.constant([], tf.string)))
        specs = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in tf.nest.flatten(empty, True)]

        def get(epoch: "tf.Tensor", number: "tf.Tensor") -> Any:
            found = tf.numpy_function(cache.get, [number], [spec.dtype for spec in specs])
            parts = iter(tf.ensure_shape(part, spec.shape) for part, spec in zip(found, specs, strict=True))
            return epoch, number, {name: self._of_a_round(column, parts) for name, column in empty.items()}

        def put(epoch: "tf.Tensor", number: "tf.Tensor", columns: Columns) -> Any:
            def keep(number: int, *arrays: "npt.NDArray[Any]") -> np.int64:
                cache.put(int(number), list(arrays))
                return np.int64(number)

            kept = tf.numpy_function(keep, [number, *tf.nest.flatten(_sorted(columns), True)], tf.int64)
            return epoch, tf.ensure_shape(kept, []), _sorted(columns)

        def read_through(epoch: "tf.Tensor") -> "tf.data.Dataset":
            first = first_of(epoch)
            missing = tf.numpy_function(lambda number: np.int64(cache.first_missing(int(number))), [first], tf.int64)
            missing = tf.ensure_shape(missing, [])
            there = tf.data.Dataset.range(first, missing).map(lambda number: get(epoch, number))
            return there.concatenate(read(epoch, missing).map(put))

        # What an epoch begun in the middle has passed over is read in the next one.
        num_reading = 0 if cache.first_missing(0) == num_rounds else 1 if first_round == 0 else 2
        if not num_reading:
            start = first_epoch * num_rounds + first_round
            return tf.data.Dataset.range(start, forever).map(_plain(lambda i: get(i // num_rounds, i % num_rounds)))
        later = first_epoch + num_reading
        reading = tf.data.Dataset.range(first_epoch, later).flat_map(_plain(read_through))
        # Not as above: where an epoch is a step or two, a dataset for each takes longer than the step.
        kept = tf.data.Dataset.range(later * num_rounds, forever)
        return reading.concatenate(kept.map(_plain(lambda i: get(i // num_rounds, i % num_rounds))))

    def _of_a_round(self, kind: Any, parts: "Iterator[tf.Tensor]") -> Any:
        """Returns a column that was kept in parts, of which NumPy has forgotten how many rows it has."""
        import tensorflow as tf

        part, num_rows = next(parts), self._rounds.num_rows
        if isinstance(kind, tf.RaggedTensor):
            splits = tf.ensure_shape(next(parts), [num_rows + 1])
            return tf.RaggedTensor.from_row_splits(part, splits, validate=False)
        return tf.ensure_shape(part, [num_rows, *part.shape[1:]])

    def _planned(self, epoch: "tf.Tensor", number: "tf.Tensor", skipped: "tf.Tensor", columns: Columns) -> Any:
        """Returns the steps of a round: columns, weights, total, and seeds if there is an augmentation."""
        import tensorflow as tf

        def plan(epoch: int, number: int, skipped: int) -> Any:
            planned = self._rounds.plan(int(epoch), int(number), int(skipped))
            first = number * self._rounds.steps_per_round + skipped
            found = [planned.rows, planned.weights, self._totals[first : first + len(planned.rows)]]
            if self._augmentation is not None:
                found.append(record_seeds(self._seed, int(epoch), planned.records))
            return found

        kinds = [tf.int64, tf.float32, tf.float32, tf.int32][: 3 + (self._augmentation is not None)]
        rows, weights, totals, *seeds = tf.numpy_function(plan, [epoch, number, skipped], kinds)
        num_rows = self._share * len(self._rounds.shards)
        rows = tf.ensure_shape(rows, [None, num_rows])
        taken = {name: _taken(column, rows) for name, column in columns.items()}
        weighed = self._weighed(taken, tf.ensure_shape(weights, [None, num_rows])[..., tf.newaxis])
        return (*weighed, tf.ensure_shape(totals, [None]), *(tf.ensure_shape(s, [None, num_rows, 2]) for s in seeds))

    def _prepared(self, columns: Columns, weights: "tf.Tensor", total: "tf.Tensor", *seeds: "tf.Tensor") -> Any:
        """Decodes a batch, and changes it at random; a batch at a time, since decoded records are large."""
        import tensorflow as tf

        decoded = self._records.decoded(columns)
        for name, column in columns.items():
            if decoded[name] is not column:  # of padding there is nothing to decode, and it is zeros
                is_real = tf.reshape(weights > 0, [-1, *[1] * (decoded[name].shape.rank - 1)])
                decoded[name] = tf.where(is_real, decoded[name], tf.zeros([], decoded[name].dtype))
        if self._augmentation is not None:
            decoded = augmented(self._augmentation, decoded, seeds[0], weights)
        return decoded, weights, total

    def _weighed(self, columns: Columns, weights: "tf.Tensor") -> "tuple[Columns, tf.Tensor]":
        import tensorflow as tf

        columns, own = self._records.for_model(columns)
        if own is not None:
            weights *= example_weights.checked(str(self._records.weight), own)
        if self._by_class:
            label = checked(columns[self._records.label], len(self._by_class))
            columns = {**columns, self._records.label: label}
            if self._class_weights:
                weights *= tf.reshape(tf.gather(tf.constant(self._by_class), label), tf.shape(weights))
            return columns, weights
        if not self._class_weights:
            return columns, weights
        label = tf.reshape(columns[self._records.label], tf.shape(weights))
        zero, one = (self._class_weights.get(value, 1.0) for value in ("0", "1"))
        return columns, weights * tf.where(tf.cast(label, tf.float32) > 0.5, one, zero)

    def _records_of(self, sizes: Sequence[int], step: int) -> int:
        epochs, within = divmod(step, self.steps_per_epoch)
        return epochs * sum(sizes) + sum(min(size, within * self._share) for size in sizes)


def _sorted(columns: Columns) -> Columns:
    return {name: columns[name] for name in sorted(columns)}


def _taken(column: Any, rows: "tf.Tensor") -> Any:
    """Returns the rows [steps, batch] of a column, as [steps, batch, ...]."""
    import tensorflow as tf

    if not isinstance(column, tf.RaggedTensor):
        return tf.gather(column, rows)
    gathered = tf.gather(column, tf.reshape(rows, [-1]))
    return tf.RaggedTensor.from_uniform_row_length(gathered, rows.shape[1])


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that AutoGraph leaves alone: it costs a second, and there is nothing to convert."""
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]


class ReplicaInputs:
    """The training batches of a worker that drives several devices: each of them is dealt shards as a worker is.

    Args:
      inputs: One for each of its replicas, over the same deal.
    """

    def __init__(self, inputs: Sequence[TrainingInput]) -> None:
        self._inputs = tuple(inputs)
        self.deal = inputs[0].deal
        self.steps_per_epoch = inputs[0].steps_per_epoch
        self.cache_kind = inputs[0].cache_kind

    def records_until(self, step: int) -> int:
        """Returns how many records this worker reads in the global steps before ``step``."""
        return sum(one.records_until(step) for one in self._inputs)

    def total_records_until(self, step: int) -> int:
        """Returns how many records all workers together read in the global steps before ``step``."""
        return self._inputs[0].total_records_until(step)

    def sample(self) -> "tuple[Columns, tf.Tensor]":
        """Returns the first records of the split, as of ``TrainingInput.sample``."""
        return self._inputs[0].sample()

    def augmented(self, columns: Columns, weights: "tf.Tensor") -> Columns:
        """Returns records of ``sample`` as they would be changed at random in training."""
        return self._inputs[0].augmented(columns, weights)

    def batches(self, start_step: int = 0) -> "tf.data.Dataset":
        """Returns a tuple of a batch for each replica, each as of ``TrainingInput.batches``, endlessly."""
        import tensorflow as tf

        return tf.data.Dataset.zip(tuple(one.batches(start_step) for one in self._inputs))


def with_steps(options: TrainOptions, files: Sequence[str]) -> TrainOptions:
    """Returns options that say how many steps there are, where they gave epochs.

    Args:
      options: The ``train`` block.
      files: Of the training records, as of ``Records``.

    Raises:
      DataError: A file is not whole.
      ConfigurationError: The epochs have no more steps than the learning rate's warm-up.
    """
    if options.epochs is None:
        return options
    deal = Deal.of(files, count_all(files), options.virtual_shards)
    num_steps = options.epochs * max(1, deal.num_steps(options.batch_size))
    try:
        return dataclasses.replace(options, steps=num_steps, epochs=None)
    except ValueError as e:
        raise ConfigurationError(f"train.{e}") from e


def worker_input(
    records: Records, options: TrainOptions, *, worker: int, num_workers: int, cache_dir: Path | None = None
) -> TrainingInput | ReplicaInputs:
    """Returns the input of one worker, whose ``options.devices_per_worker`` replicas each have shards of their own.

    Args:
      records: The training split.
      options: The ``train`` block.
      worker: This worker's index.
      num_workers: Workers in the group.
      cache_dir: Where ``options.cache: disk`` keeps parsed records.

    Raises:
      DataError: There are no records.
      ConfigurationError: There is no such function as ``options.augment``; the machine has not the memory that
        ``options.cache`` needs.
      OSError: ``options.cache: disk`` finds no room.
    """
    count = options.devices_per_worker
    augmentation = None if options.augment is None else load_augmentation(options.augment, options.augment_parameters)
    deal = Deal.of(records.files, records.count(), options.virtual_shards)
    inputs = [
        TrainingInput(
            records,
            batch_size=options.batch_size,
            num_shards=options.virtual_shards,
            worker=worker * count + device,
            num_workers=num_workers * count,
            seed=options.seed,
            shuffle_buffer=options.shuffle_buffer,
            cache=options.cache,
            cache_bytes=CACHE_BYTES // count,
            cache_dir=cache_dir,
            deal=deal,
            class_weights=options.class_weights,
            augmentation=augmentation,
        )
        for device in range(count)
    ]
    return inputs[0] if count == 1 else ReplicaInputs(inputs)
