"""How an epoch is read: in rounds, each the next block of records of every virtual shard, shuffled by itself.

A round holds whole global steps. It is read in the order of the files, parsed in large batches, and is then looked up
by an index that says which of its rows each step takes, in which order. So shuffling moves no record one by one, what
was parsed can be kept for later epochs, and any step can be begun at with one round at most read for nothing.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lockstep.components.trainer.records import READ_BATCH, Deal, Records, padded

if TYPE_CHECKING:
    import tensorflow as tf

Columns: TypeAlias = "dict[str, tf.Tensor]"

# What the records of one round may take; three or four rounds are in memory at a time.
_ROUND_BYTES = 128 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Which rows of a round its steps take, from one of them on.

    Args:
      rows: int64 [steps, batch]: rows of the round.
      weights: float32 [steps, batch]: 1 for a record, 0 for padding.
      records: int64 [steps, batch]: number of each record among all of the split, in the order of the files; whatever
        for padding.
    """

    rows: "npt.NDArray[np.int64]"
    weights: "npt.NDArray[np.float32]"
    records: "npt.NDArray[np.int64]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds:
    """The rounds of one worker, or of one of its replicas; they begin and end at the same steps for all.

    Args:
      deal: Which records each virtual shard holds.
      share: Records that a step takes from each shard.
      shards: The virtual shards that are read.
      shuffle_buffer: Records within which a shard is shuffled, rounded up to whole steps; 0 keeps the order.
      bytes_per_record: Of a parsed record: a round takes 128 MiB at most, and a smaller buffer than wanted if need be,
        which is the same for any number of workers.
      seed: Of the shuffling.
    """

    deal: Deal
    share: int
    shards: tuple[int, ...]
    shuffle_buffer: int
    bytes_per_record: int
    seed: int

    @functools.cached_property
    def num_steps(self) -> int:
        """Global steps of an epoch, 1 or more."""
        return self.deal.num_steps(self.share * len(self.deal.sizes))

    @functools.cached_property
    def window(self) -> int:
        """Records of a shard that are shuffled together."""
        return self._whole_steps(min(self.shuffle_buffer if self.shuffle_buffer > 1 else READ_BATCH, self._most))

    @functools.cached_property
    def block(self) -> int:
        """Records of a shard in a round: whole windows, as many as make reading worth while."""
        num_windows = max(1, min(READ_BATCH, self._most) // self.window)
        return min(num_windows * self.window, self.num_steps * self.share)

    @property
    def num_rounds(self) -> int:
        """Rounds of an epoch."""
        return -(-self.num_steps * self.share // self.block)

    @property
    def num_rows(self) -> int:
        """Rows of a round: a block of each shard, rows of zeros where there are fewer records."""
        return len(self.shards) * self.block

    @property
    def steps_per_round(self) -> int:
        """Steps of each round but the last of an epoch, which may have fewer."""
        return self.block // self.share

    @property
    def is_rounds_of_files(self) -> bool:
        """Whether a round is block after block; else the rows of all shards' first records come first."""
        return self.deal.files_of is not None

    def num_records(self, shard: int, number: int) -> int:
        """Returns how many records of a shard are in a round."""
        return int(np.clip(self.deal.sizes[shard] - number * self.block, 0, self.block))

    def rows_of(self, shard: int) -> slice:
        """Returns which rows of a round are a shard's, padding included."""
        slot = self.shards.index(shard)
        if self.is_rounds_of_files:
            return slice(slot * self.block, (slot + 1) * self.block)
        return slice(slot, None, len(self.shards))

    def plan(self, epoch: int, number: int, first_step: int = 0) -> Plan:
        """Returns what the steps of a round take.

        Args:
          epoch: Changes the order.
          number: Of the round in its epoch.
          first_step: Steps of the round that are left out.
        """
        begin = number * self.block
        num_steps = min(self.steps_per_round, self.num_steps - number * self.steps_per_round)
        shape = (num_steps, self.share)
        rows, weights, records = [], [], []
        for shard in self.shards:
            place = self.rows_of(shard)
            order = self._order(shard, epoch, begin)[: num_steps * self.share]
            rows.append((place.start + order * (place.step or 1)).reshape(shape))
            weights.append((begin + order < self.deal.sizes[shard]).reshape(shape))
            records.append(self.deal.numbers(shard, begin + order).reshape(shape))
        return Plan(
            rows=np.concatenate(rows, axis=1)[first_step:],
            weights=np.concatenate(weights, axis=1)[first_step:].astype(np.float32),
            records=np.concatenate(records, axis=1)[first_step:],
        )

    def read(self, records: Records, first_round: "tf.Tensor", num_threads: int) -> "tf.data.Dataset":
        """Returns the rounds of an epoch from one on, each as parsed columns of [num_rows, ...].

        Args:
          records: What the deal is of.
          first_round: int64 scalar; files before it are not opened.
          num_threads: Files that are read at the same time.

        Raises:
          tf.errors.InvalidArgumentError: A file holds fewer records than the deal says (while reading).
        """
        import tensorflow as tf

        nothing = tf.data.Dataset.from_tensors(records.parse(tf.constant([], tf.string))).repeat()
        num_rounds = self.num_rounds - first_round
        if self.is_rounds_of_files:
            return self._read_blocks(records, first_round, num_threads, nothing).take(num_rounds)
        return self._read_all(records, first_round, nothing).take(num_rounds)

    def _read_blocks(
        self, records: Records, first_round: "tf.Tensor", num_threads: int, nothing: "tf.data.Dataset"
    ) -> "tf.data.Dataset":
        """Reads shard beside shard, block after block."""
        import tensorflow as tf

        def blocks(slot: "tf.Tensor") -> "tf.data.Dataset":
            files, passed = self._place(slot, first_round)
            parsed = records.read(files).skip(passed).batch(self.block).map(records.parse).concatenate(nothing)

            def fill(index: "tf.Tensor", columns: "Columns") -> "Columns":
                return self._filled(columns, self.block, first_round + index, sizes[slot : slot + 1])

            return parsed.take(self.num_rounds - first_round).enumerate().map(fill)

        num_shards = len(self.shards)
        sizes = tf.constant([self.deal.sizes[shard] for shard in self.shards], tf.int64)
        read = tf.data.Dataset.range(num_shards).interleave(
            blocks, cycle_length=num_shards, num_parallel_calls=min(num_shards, num_threads), deterministic=True
        )
        return read.batch(num_shards, drop_remainder=True).map(
            lambda columns: {name: self._one_after_another(column) for name, column in columns.items()}
        )

    def _read_all(self, records: Records, first_round: "tf.Tensor", nothing: "tf.data.Dataset") -> "tf.data.Dataset":
        """Reads every record once, and parses those of these shards."""
        import tensorflow as tf

        num_shards = len(self.deal.sizes)
        piece = num_shards * max(1, READ_BATCH // num_shards)
        own = tf.constant(np.flatnonzero(np.isin(np.arange(piece) % num_shards, self.shards)), tf.int64)

        def own_of(items: "tf.Tensor") -> "tf.Tensor":
            return tf.gather(items, tf.boolean_mask(own, own < tf.size(items, tf.int64)))

        def fill(index: "tf.Tensor", columns: "Columns") -> "Columns":
            return self._filled(columns, self.num_rows, first_round + index, sizes)

        sizes = tf.constant([self.deal.sizes[shard] for shard in self.shards], tf.int64)
        files, passed = self._place(tf.constant(0, tf.int64), first_round)
        pieces = records.read(files).skip(passed).batch(piece).map(own_of, num_parallel_calls=2, deterministic=True)
        return pieces.rebatch(self.num_rows).map(records.parse).concatenate(nothing).enumerate().map(fill)

    def _filled(self, columns: "Columns", num_rows: int, number: "tf.Tensor", sizes: "tf.Tensor") -> "Columns":
        """Returns columns of ``num_rows`` rows if they have the records that a round of shards of these sizes has.

        Padding in the place of a record would be trained on.
        """
        import tensorflow as tf

        expected = tf.reduce_sum(tf.clip_by_value(sizes - number * self.block, 0, self.block))
        count = tf.shape(columns[min(columns)], tf.int64)[0]
        message = "a file of training records is shorter than when its records were counted"
        with tf.control_dependencies([tf.debugging.assert_equal(count, expected, message=message)]):
            return {name: padded(column, num_rows) for name, column in columns.items()}

    def _one_after_another(self, blocks: Any) -> Any:
        """Returns [shards, block, ...] as [num_rows, ...]."""
        import tensorflow as tf

        if isinstance(blocks, tf.RaggedTensor):
            return blocks.merge_dims(0, 1)
        return tf.reshape(blocks, [self.num_rows, *blocks.shape[2:]])

    def _place(self, slot: "tf.Tensor", first_round: "tf.Tensor") -> "tuple[tf.Tensor, tf.Tensor]":
        """Returns the files from the one on with which a shard's part of a round begins, and records to pass over."""
        import tensorflow as tf

        def place(slot: int, first_round: int) -> "tuple[npt.NDArray[Any], np.int64]":
            # Records that are dealt singly begin at the first shard's, whichever the worker's own are.
            shard = self.shards[slot] if self.is_rounds_of_files else 0
            files, passed = self.deal.place(shard, int(first_round) * self.block)
            return np.array([file.encode() for file in files], np.object_), np.int64(passed)

        files, passed = tf.numpy_function(place, [slot, first_round], (tf.string, tf.int64))
        return tf.ensure_shape(files, [None]), tf.ensure_shape(passed, [])

    def _order(self, shard: int, epoch: int, begin: int) -> "npt.NDArray[np.int64]":
        """Returns the order of the places of a shard's block; those without a record come last."""
        order = np.arange(self.block, dtype=np.int64)
        if self.shuffle_buffer <= 1:
            return order
        for first in range(0, self.block, self.window):
            length = min(self.window, self.block - first, self.deal.sizes[shard] - begin - first)
            if length > 0:
                random = np.random.default_rng([self.seed, shard, epoch, (begin + first) // self.window])
                order[first : first + length] = first + random.permutation(length)
        return order

    @property
    def _most(self) -> int:
        """Records of each shard that a round of all of them has room for."""
        return max(1, _ROUND_BYTES // (len(self.deal.sizes) * max(1, self.bytes_per_record)))

    def _whole_steps(self, num_records: int) -> int:
        return -(-num_records // self.share) * self.share
