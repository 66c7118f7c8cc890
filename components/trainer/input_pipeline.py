"""From files of transformed records to the batches of one worker: the same records at the same step for any number.

The records of a split are dealt to ``num_virtual_shards`` virtual shards. Every global batch takes an equal share from
each, worker ``w`` of ``N`` serves the shards ``v`` with ``v % N == w``, and each shard is shuffled by a seed made of
(seed, epoch, shard). So the global step alone is the position, whoever reads, and an epoch reads every record once: a
shard that has run out fills its share of the last batches with rows of weight 0.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.components.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import tensorflow as tf

_log = logging.getLogger(__name__)

# Parsed columns up to this size are kept in memory by each worker, so that later epochs cost no reading or parsing.
CACHE_BYTES = 512 * 2**20
_STRING_BYTES = 64  # a guess: the length of strings is known only after reading
_READ_BATCH = 4096
# Whole files are dealt to shards only if no shard is that much above the mean; the surplus would be trained alone, in
# batches that are mostly padding.
_MAX_SURPLUS = 1.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deal:
    """Which records each virtual shard holds.

    Args:
      files: The split's files, in order.
      counts: Records in each.
      files_of: For each virtual shard the indices of its files; None where records are dealt singly: record ``i`` of
        all files in order belongs to shard ``i % len(sizes)``.
      sizes: Records of each virtual shard.
    """

    files: tuple[str, ...]
    counts: tuple[int, ...]
    files_of: tuple[tuple[int, ...], ...] | None
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, files: Sequence[str], counts: Sequence[int], num_shards: int) -> "Deal":
        """Deals whole files, the largest first to the smallest shard, if that comes out even; else single records."""
        owned: list[list[int]] = [[] for _ in range(num_shards)]
        sizes = [0] * num_shards
        for index in sorted(range(len(files)), key=lambda i: (-counts[i], i)):
            shard = sizes.index(min(sizes))
            owned[shard].append(index)
            sizes[shard] += counts[index]
        total = sum(counts)
        if max(sizes) <= _MAX_SURPLUS * total / num_shards:
            files_of = tuple(tuple(sorted(indices)) for indices in owned)
            return cls(files=tuple(files), counts=tuple(counts), files_of=files_of, sizes=tuple(sizes))
        singly = tuple(len(range(shard, total, num_shards)) for shard in range(num_shards))
        return cls(files=tuple(files), counts=tuple(counts), files_of=None, sizes=singly)

    def files_of_shards(self, shards: Sequence[int]) -> tuple[str, ...]:
        """Returns the files that hold the shards' records, in order, each once."""
        if self.files_of is None:
            return self.files
        return tuple(self.files[i] for i in sorted(i for shard in shards for i in self.files_of[shard]))


class Records:
    """Reads and parses the files of one split.

    Args:
      files: Gzip TFRecords of transformed tf.Examples.
      feature_spec: Transformed feature name -> ``tf.io.FixedLenFeature``, label included.
      label: Name of the label.
    """

    def __init__(self, files: Sequence[str], feature_spec: Mapping[str, Any], label: str) -> None:
        import tensorflow as tf

        for name, spec in feature_spec.items():
            if not isinstance(spec, tf.io.FixedLenFeature):
                raise ConfigurationError(
                    f"feature {name!r}: {type(spec).__name__} is not allowed; "
                    "the preprocessing function must return dense tensors of a fixed shape"
                )
        if label not in feature_spec:
            raise ConfigurationError(
                f"label {label!r}: not among the transformed features ({', '.join(sorted(feature_spec))}); "
                "the preprocessing function must return it under its column's name"
            )
        self.files = tuple(files)
        self.label = label
        self._feature_spec = dict(feature_spec)

    def count(self) -> tuple[int, ...]:
        """Returns the number of records in each file; reads them all.

        Raises:
          DataError: A file is not a whole gzip TFRecord.
        """
        return tuple(self._count(path) for path in self.files)

    def read(self, files: Sequence[str] | None = None) -> "tf.data.Dataset":
        """Returns the serialised records in the order of the files, None for all of them."""
        import tensorflow as tf

        paths = list(self.files if files is None else files)
        return tf.data.TFRecordDataset(tf.constant(paths, tf.string), compression_type="GZIP", buffer_size=2**20)

    def parse(self, serialised: "tf.Tensor") -> "dict[str, tf.Tensor]":
        """Returns columns of [batch, ...], a scalar feature as [batch, 1], of a batch of serialised records."""
        import tensorflow as tf

        columns = tf.io.parse_example(serialised, self._feature_spec)
        return {name: column[:, tf.newaxis] if column.shape.rank == 1 else column for name, column in columns.items()}

    @property
    def bytes_per_record(self) -> int:
        """Size of a parsed record in memory."""
        import tensorflow as tf

        return sum(
            int(np.prod(spec.shape)) * (_STRING_BYTES if spec.dtype == tf.string else spec.dtype.size)
            for spec in self._feature_spec.values()
        )

    def _count(self, path: str) -> int:
        import tensorflow as tf

        try:
            batches = self.read([path]).batch(_READ_BATCH)
            return int(batches.reduce(np.int64(0), lambda total, batch: total + tf.size(batch, tf.int64)).numpy())
        except tf.errors.OpError as e:
            raise DataError(f"{path}: not a whole gzip TFRecord ({e.message}); run the step that wrote it again") from e


class TrainingInput:
    """The training batches of one worker.

    Args:
      records: The training split.
      batch_size: Records of a global batch, a multiple of ``num_shards``.
      num_shards: Virtual shards, a multiple of ``num_workers``.
      worker: This worker's index.
      num_workers: Workers in the group.
      seed: Of the shuffling.
      shuffle_buffer: Records within which a shard is shuffled; 0 keeps the order.
      cache_bytes: Parsed columns up to this size are kept in memory.

    Raises:
      DataError: There are no records.
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
    ) -> None:
        self.deal = Deal.of(records.files, records.count(), num_shards)
        if not sum(self.deal.sizes):
            raise DataError(f"{', '.join(records.files)}: no training records; check data.splits and the data")
        self._records = records
        self._share = batch_size // num_shards
        self._shards = tuple(range(worker, num_shards, num_workers))
        self._seed = seed
        self._shuffle_buffer = shuffle_buffer
        self.steps_per_epoch = max(-(-size // self._share) for size in self.deal.sizes)
        num_own = sum(self.deal.sizes[shard] for shard in self._shards)
        self.is_cached = num_own * records.bytes_per_record <= cache_bytes
        self._cache = self._load() if self.is_cached else {}
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
        epochs, within = divmod(step, self.steps_per_epoch)
        own = [self.deal.sizes[shard] for shard in self._shards]
        return epochs * sum(own) + sum(min(size, within * self._share) for size in own)

    def batches(self, start_step: int = 0) -> "tf.data.Dataset":
        """Returns this worker's batches from ``start_step`` on, endlessly.

        Each is ``(columns, weights, total)``: columns by feature name, label included, [batch_size / num_workers, ...];
        weights float32 [batch_size / num_workers, 1], 0 for padding rows (whose columns are 0); total float32 scalar,
        the sum of weights over all workers, known without asking them.
        """
        import tensorflow as tf

        first_epoch, first_step = divmod(start_step, self.steps_per_epoch)

        @tf.autograph.experimental.do_not_convert  # it costs a second, and there is nothing to convert
        def epoch_batches(epoch: "tf.Tensor") -> "tf.data.Dataset":
            skipped = tf.where(epoch == first_epoch, tf.constant(first_step, tf.int64), tf.constant(0, tf.int64))
            streams = tuple(self._stream(shard, epoch, skipped) for shard in self._shards)
            steps = tf.data.Dataset.range(skipped, self.steps_per_epoch)
            return tf.data.Dataset.zip((steps, *streams))

        batch = tf.autograph.experimental.do_not_convert(self._batch)
        epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
        dataset = epochs.flat_map(epoch_batches).map(batch, num_parallel_calls=2, deterministic=True)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        options.autotune.enabled = False  # its thread costs more than it gains with the fixed numbers here
        return dataset.prefetch(8).with_options(options)

    def _stream(self, shard: int, epoch: "tf.Tensor", skipped: "tf.Tensor") -> "tf.data.Dataset":
        """Returns the shard's share of each batch of an epoch: positions in the cache or serialised records."""
        import tensorflow as tf

        shares = self._windows(shard).enumerate().map(lambda window, items: self._shuffle(items, shard, epoch, window))
        shares = shares.rebatch(self._share).skip(skipped)
        if not self.is_cached:
            shares = shares.prefetch(2)
        nothing = tf.constant([], tf.int64 if self.is_cached else tf.string)
        return shares.concatenate(tf.data.Dataset.from_tensors(nothing).repeat())

    def _windows(self, shard: int) -> "tf.data.Dataset":
        """Returns the shard in its basic order, cut into vectors of the records that are shuffled together."""
        import tensorflow as tf

        length = self._shuffle_buffer if self._shuffle_buffer > 1 else _READ_BATCH
        if not self.is_cached:
            return self._read_shard(shard).batch(length)
        start = sum(self.deal.sizes[before] for before in self._shards[: self._shards.index(shard)])
        end = start + self.deal.sizes[shard]
        starts = tf.data.Dataset.range(start, end, length)
        return starts.map(lambda first: tf.range(first, tf.minimum(first + length, end)))

    def _shuffle(self, items: "tf.Tensor", shard: int, epoch: "tf.Tensor", window: "tf.Tensor") -> "tf.Tensor":
        # Not Dataset.shuffle: its order depends on TensorFlow's global seed too, and it moves record by record.
        import tensorflow as tf

        if self._shuffle_buffer <= 1:
            return items
        seed = tf.stack([tf.constant(self._seed * 65_536 + shard, tf.int64), epoch * 1_000_003 + window])
        keys = tf.random.stateless_uniform(
            tf.shape(items), seed=seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
        )
        return tf.gather(items, tf.argsort(keys, stable=True))

    def _batch(self, step: "tf.Tensor", *shares: "tf.Tensor") -> "tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]":
        import tensorflow as tf

        elements = tf.concat(shares, axis=0)
        if self.is_cached:
            columns = {name: tf.gather(column, elements) for name, column in self._cache.items()}
        else:
            columns = self._records.parse(elements)
        num_rows = self._share * len(self._shards)
        num_real = tf.size(elements)
        padded = {}
        for name, column in columns.items():
            rest = [[0, num_rows - num_real], *([[0, 0]] * (column.shape.rank - 1))]
            padded[name] = tf.ensure_shape(tf.pad(column, rest), [num_rows, *column.shape[1:]])
        weights = tf.cast(tf.range(num_rows) < num_real, tf.float32)[:, tf.newaxis]
        left = tf.constant(self.deal.sizes, tf.int64) - step * self._share
        total = tf.reduce_sum(tf.clip_by_value(left, 0, self._share))
        return padded, weights, tf.cast(total, tf.float32)

    def _read_shard(self, shard: int) -> "tf.data.Dataset":
        records = self._records.read(self.deal.files_of_shards([shard]))
        if self.deal.files_of is not None:
            return records
        return records.shard(len(self.deal.sizes), shard)

    def _load(self) -> "dict[str, tf.Tensor]":
        """Reads this worker's records, shard after shard, each file once."""
        import tensorflow as tf

        files = self.deal.files_of_shards(self._shards)
        parsed = self._records.read(files).batch(_READ_BATCH).map(self._records.parse).prefetch(1)
        batches = list(parsed.as_numpy_iterator()) or [self._records.parse(tf.constant([], tf.string))]
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
        order = np.concatenate(rows)
        return {
            name: tf.constant(np.concatenate([batch[name] for batch in batches])[order]) for name in batches[0]
        }
