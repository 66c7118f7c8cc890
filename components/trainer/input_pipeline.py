"""From files of transformed records to the batches of one worker: the same records at the same step for any number.

The records of a split are dealt to a fixed number of virtual shards. Every global batch takes an equal share from
each, worker ``w`` of ``N`` serves the shards ``v`` with ``v % N == w``, and each shard is shuffled by a seed made of
(seed, epoch, shard). So the global step alone is the position, whoever reads, and an epoch reads every record once: a
shard that has run out fills its share of the last batches with rows of weight 0.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.trainer import example_weights
from lockstep.components.trainer.records import READ_BATCH, Deal, Records, count_all, padded, taken
from lockstep.components.trainer.spec import TrainOptions

if TYPE_CHECKING:
    import tensorflow as tf

_log = logging.getLogger(__name__)

# Parsed columns up to this size are kept in memory by each worker, so that later epochs cost no reading or parsing.
CACHE_BYTES = 512 * 2**20
_PREFETCHED = 8  # batches


class TrainingInput:
    """The training batches of one worker; of one replica, where a worker drives several devices.

    Args:
      records: The training split.
      batch_size: Records of a global batch, a multiple of ``num_shards``.
      num_shards: Virtual shards, a multiple of ``num_workers``.
      worker: This worker's index.
      num_workers: Workers in the group.
      seed: Of the shuffling.
      shuffle_buffer: Records within which a shard is shuffled; 0 keeps the order.
      cache_bytes: Parsed columns up to this size are kept in memory.
      deal: Of the same records to the same shards, where it is known already; None counts them.
      class_weights: ``0`` or ``1`` -> weight of the records with that label, 1 where not given.

    Raises:
      DataError: There are no records, or one's weight is negative or not finite (all are looked at here where they
        are kept in memory, else each batch when it is read; see ``example_weights.as_data_error``).
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
        cache_bytes: int = CACHE_BYTES,
        deal: Deal | None = None,
        class_weights: Mapping[str, float] | None = None,
    ) -> None:
        self.deal = deal or Deal.of(records.files, records.count(), num_shards)
        if not sum(self.deal.sizes):
            raise DataError(f"{', '.join(records.files)}: no training records; check data.splits and the data")
        self._records = records
        self._class_weights = dict(class_weights or {})
        self._share = batch_size // num_shards
        self._shards = tuple(range(worker, num_shards, num_workers))
        self._seed = seed
        self._shuffle_buffer = shuffle_buffer
        self.steps_per_epoch = self.deal.num_steps(batch_size)
        num_own = sum(self.deal.sizes[shard] for shard in self._shards)
        self.is_cached = num_own * records.bytes_per_record <= cache_bytes
        self._cache = self._load() if self.is_cached else {}
        left = np.array(self.deal.sizes) - np.arange(self.steps_per_epoch)[:, None] * self._share
        self._totals = np.clip(left, 0, self._share).sum(axis=1).astype(np.float32)
        if self.deal.files_of is None and not self.is_cached:
            _log.warning(
                "%d files for %d virtual shards: each worker reads them %d times an epoch; write at least %d files",
                len(records.files),
                num_shards,
                len(self._shards),
                num_shards,
            )

    def records_until(self, step: int) -> int:
        """Returns how many records this worker reads in the global steps before ``step``."""
        return self._records_of([self.deal.sizes[shard] for shard in self._shards], step)

    def total_records_until(self, step: int) -> int:
        """Returns how many records all workers together read in the global steps before ``step``."""
        return self._records_of(self.deal.sizes, step)

    def batches(self, start_step: int = 0) -> "tf.data.Dataset":
        """Returns this worker's batches from ``start_step`` on, endlessly.

        Each is ``(columns, weights, total)``: columns by feature name, label included, [batch_size / num_workers, ...];
        weights float32 [batch_size / num_workers, 1], 0 for padding rows (whose columns are 0); total float32 scalar,
        the number of records over all workers, known without asking them. The weights are 1 but for a record's own
        (``records.weight``) times that of its label (``class_weights``).
        """
        import tensorflow as tf

        first_epoch, first_step = divmod(start_step, self.steps_per_epoch)
        read_epoch = self._cached_epoch if self.is_cached else self._streamed_epoch

        @tf.autograph.experimental.do_not_convert  # it costs a second, and there is nothing to convert
        def epoch_batches(epoch: "tf.Tensor") -> "tf.data.Dataset":
            skipped = tf.where(epoch == first_epoch, tf.constant(first_step, tf.int64), tf.constant(0, tf.int64))
            totals = tf.data.Dataset.from_tensor_slices(tf.constant(self._totals)[skipped:])
            return tf.data.Dataset.zip((read_epoch(epoch, skipped), totals))

        dataset = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(epoch_batches)
        columns_of = tf.autograph.experimental.do_not_convert(self._look_up if self.is_cached else self._parse)
        dataset = dataset.map(
            tf.autograph.experimental.do_not_convert(lambda items, total: (*self._weighed(*columns_of(items)), total)),
            num_parallel_calls=2,
            deterministic=True,
        )
        options = tf.data.Options()
        options.autotune.enabled = False  # its thread costs more than it gains with the fixed numbers here
        return dataset.prefetch(_PREFETCHED).with_options(options)

    def _weighed(
        self, columns: "dict[str, tf.Tensor]", weights: "tf.Tensor"
    ) -> "tuple[dict[str, tf.Tensor], tf.Tensor]":
        import tensorflow as tf

        columns, own = self._records.for_model(columns)
        if own is not None:
            weights *= own if self.is_cached else example_weights.checked(str(self._records.weight), own)
        if not self._class_weights:
            return columns, weights
        label = tf.reshape(columns[self._records.label], tf.shape(weights))
        zero, one = (self._class_weights.get(value, 1.0) for value in ("0", "1"))
        return columns, weights * tf.where(tf.cast(label, tf.float32) > 0.5, one, zero)

    def _records_of(self, sizes: Sequence[int], step: int) -> int:
        epochs, within = divmod(step, self.steps_per_epoch)
        return epochs * sum(sizes) + sum(min(size, within * self._share) for size in sizes)

    def _order(self, shard: int, epoch: int, window: int, length: int) -> "npt.NDArray[np.int64]":
        """Returns the order of the records of one window of ``shuffle_buffer`` records of a shard."""
        if self._shuffle_buffer <= 1:
            return np.arange(length, dtype=np.int64)
        random = np.random.default_rng([self._seed, shard, int(epoch), int(window)])
        return random.permutation(int(length)).astype(np.int64)

    @property
    def _window(self) -> int:
        return self._shuffle_buffer if self._shuffle_buffer > 1 else READ_BATCH

    def _cached_epoch(self, epoch: "tf.Tensor", skipped: "tf.Tensor") -> "tf.data.Dataset":
        """Returns for each step the rows of the cache that it takes; the row after the last one is padding."""
        import tensorflow as tf

        rows = tf.numpy_function(self._rows, [epoch], tf.int64)
        rows = tf.ensure_shape(rows, [self.steps_per_epoch, self._share * len(self._shards)])
        return tf.data.Dataset.from_tensor_slices(rows[skipped:])

    def _rows(self, epoch: int) -> "npt.NDArray[np.int64]":
        shares = []
        start = 0
        padding = sum(self.deal.sizes[shard] for shard in self._shards)
        for shard in self._shards:
            size = self.deal.sizes[shard]
            rows = np.full(self.steps_per_epoch * self._share, padding, np.int64)
            for window, first in enumerate(range(0, size, self._window)):
                length = min(self._window, size - first)
                rows[first : first + length] = start + first + self._order(shard, epoch, window, length)
            shares.append(rows.reshape(self.steps_per_epoch, self._share))
            start += size
        return np.concatenate(shares, axis=1)

    def _look_up(self, rows: "tf.Tensor") -> "tuple[dict[str, tf.Tensor], tf.Tensor]":
        import tensorflow as tf

        padding = sum(self.deal.sizes[shard] for shard in self._shards)
        columns = {name: tf.gather(column, rows) for name, column in self._cache.items()}
        return columns, tf.cast(rows < padding, tf.float32)[:, tf.newaxis]

    def _streamed_epoch(self, epoch: "tf.Tensor", skipped: "tf.Tensor") -> "tf.data.Dataset":
        """Returns for each step a vector of the serialised records that it takes, shorter where shards have run out."""
        import tensorflow as tf

        nothing = tf.data.Dataset.from_tensors(tf.constant([], tf.string)).repeat()

        def shares(shard: int) -> "tf.data.Dataset":
            # A window is shuffled as a whole: reading begins with the one that holds the first record wanted.
            first_window, passed = skipped * self._share // self._window, skipped * self._share % self._window

            def shuffle(index: "tf.Tensor", items: "tf.Tensor") -> "tf.Tensor":
                order = tf.numpy_function(self._order, [shard, epoch, first_window + index, tf.size(items)], tf.int64)
                return tf.ensure_shape(tf.gather(items, order)[tf.where(index == 0, passed, 0) :], [None])

            windows = self._read_shard(shard, first_window * self._window)
            windows = windows.batch(self._window).enumerate().map(shuffle)
            return windows.rebatch(self._share).prefetch(2).concatenate(nothing)

        steps = tf.data.Dataset.zip(tuple(shares(shard) for shard in self._shards))
        return steps.map(lambda *items: tf.concat(items, axis=0))

    def _parse(self, serialised: "tf.Tensor") -> "tuple[dict[str, tf.Tensor], tf.Tensor]":
        import tensorflow as tf

        num_rows = self._share * len(self._shards)
        columns = {name: padded(column, num_rows) for name, column in self._records.parse(serialised).items()}
        return columns, tf.cast(tf.range(num_rows) < tf.size(serialised), tf.float32)[:, tf.newaxis]

    def _read_shard(self, shard: int, first_record: "tf.Tensor") -> "tf.data.Dataset":
        files, passed = self.deal.place(shard, first_record)
        records = self._records.read(files).skip(passed)
        return records if self.deal.files_of is not None else records.shard(len(self.deal.sizes), 0)

    def _load(self) -> "dict[str, tf.Tensor]":
        """Reads this worker's records, shard after shard, each file once."""
        import tensorflow as tf

        files = self.deal.files_of_shards(self._shards)
        parsed = self._records.read(files).batch(READ_BATCH).map(self._records.parse).prefetch(1)
        batches = list(parsed) or [self._records.parse(tf.constant([], tf.string))]
        position = {path: i for i, path in enumerate(files)}
        counts = dict(zip(self.deal.files, self.deal.counts, strict=True))
        starts = np.cumsum([0] + [counts[path] for path in files])
        rows = []
        for shard in self._shards:
            if self.deal.files_of is None:
                rows.append(np.arange(shard, starts[-1], len(self.deal.sizes)))
            else:
                places = [position[path] for path in self.deal.files_of_shards([shard])]
                rows.extend(np.arange(starts[place], starts[place + 1]) for place in places)
        columns = taken(batches, np.concatenate(rows))
        if self._records.weight is not None:
            example_weights.check(self._records.weight, columns[self._records.weight].numpy())
        return columns


class ReplicaInputs:
    """The training batches of a worker that drives several devices: each of them is dealt shards as a worker is.

    Args:
      inputs: One for each of its replicas, over the same deal.
    """

    def __init__(self, inputs: Sequence[TrainingInput]) -> None:
        self._inputs = tuple(inputs)
        self.deal = inputs[0].deal
        self.steps_per_epoch = inputs[0].steps_per_epoch

    def records_until(self, step: int) -> int:
        """Returns how many records this worker reads in the global steps before ``step``."""
        return sum(one.records_until(step) for one in self._inputs)

    def total_records_until(self, step: int) -> int:
        """Returns how many records all workers together read in the global steps before ``step``."""
        return self._inputs[0].total_records_until(step)

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
    records: Records, options: TrainOptions, *, worker: int, num_workers: int
) -> TrainingInput | ReplicaInputs:
    """Returns the input of one worker, whose ``options.devices_per_worker`` replicas each have shards of their own.

    Raises:
      DataError: There are no records.
    """
    count = options.devices_per_worker
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
            cache_bytes=CACHE_BYTES // count,
            deal=deal,
            class_weights=options.class_weights,
        )
        for device in range(count)
    ]
    return inputs[0] if count == 1 else ReplicaInputs(inputs)
