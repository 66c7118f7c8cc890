"""Files of transformed records: how many there are, what is in them, and which virtual shard holds which."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.components.errors import ConfigurationError
from lockstep.components.record_manifest import recorded_counts
from lockstep.components.tfrecord_files import count_records
from lockstep.components.trainer import example_weights

if TYPE_CHECKING:
    import tensorflow as tf

READ_BATCH = 4096
_STRING_BYTES = 64  # a guess: the length of strings is known only after reading
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

    def num_steps(self, batch_size: int) -> int:
        """Returns the global steps in which all records are read once: as many as the largest shard takes."""
        share = batch_size // len(self.sizes)
        return max(-(-size // share) for size in self.sizes)

    def place(self, shard: int, record: "tf.Tensor") -> "tuple[tf.Tensor, tf.Tensor]":
        """Finds a record of a virtual shard, so that nothing before its file need be read.

        Args:
          shard: The virtual shard.
          record: int64 scalar, the record's place in the shard; may be past its end.

        Returns:
          The shard's files from the one with that record on, and how many records of the first to pass over. Where
          records are dealt singly, every ``len(sizes)``-th from there on is the shard's.
        """
        import tensorflow as tf

        owned = range(len(self.files)) if self.files_of is None else self.files_of[shard]
        position = record if self.files_of is not None else record * len(self.sizes) + shard
        starts = tf.constant(np.cumsum([0] + [self.counts[i] for i in owned]), tf.int64)
        # The last file that begins at the record or before; past the end there is none.
        first = tf.reduce_sum(tf.cast(starts <= position, tf.int64)) - 1
        return tf.constant([self.files[i] for i in owned], tf.string)[first:], position - starts[first]

    def files_of_shards(self, shards: Sequence[int]) -> tuple[str, ...]:
        """Returns the files that hold the shards' records, in order, each once."""
        if self.files_of is None:
            return self.files
        return tuple(self.files[i] for i in sorted(i for shard in shards for i in self.files_of[shard]))


def count_all(files: Sequence[str]) -> tuple[int, ...]:
    """Returns the number of records in each file; see ``Records.count``."""
    return recorded_counts(files) or tuple(count_records(path) for path in files)


class Records:
    """Reads and parses the files of one split.

    Args:
      files: Gzip TFRecords of transformed tf.Examples.
      feature_spec: Transformed feature name -> ``tf.io.FixedLenFeature``, label included.
      label: Name of the label.
      weight: Name of the feature that says how much each record counts; None if all count alike.
    """

    def __init__(
        self, files: Sequence[str], feature_spec: Mapping[str, Any], label: str, weight: str | None = None
    ) -> None:
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
        if weight is not None:
            example_weights.check_feature(weight, feature_spec.get(weight))
        self.files = tuple(files)
        self.label = label
        self.weight = weight
        self._feature_spec = dict(feature_spec)

    def count(self) -> tuple[int, ...]:
        """Returns the number of records in each file, as the manifest beside them says; reads them all without one.

        Raises:
          DataError: A file is not whole.
        """
        return count_all(self.files)

    def read(self, files: "Sequence[str] | tf.Tensor | None" = None) -> "tf.data.Dataset":
        """Returns the serialised records in the order of the files, None for all of them."""
        import tensorflow as tf

        paths = self.files if files is None else files
        return tf.data.TFRecordDataset(
            tf.convert_to_tensor(paths, tf.string), compression_type="GZIP", buffer_size=2**20
        )

    def parse(self, serialised: "tf.Tensor") -> "dict[str, tf.Tensor]":
        """Returns columns of [batch, ...], a scalar feature as [batch, 1], of a batch of serialised records."""
        import tensorflow as tf

        columns = tf.io.parse_example(serialised, self._feature_spec)
        return {name: column[:, tf.newaxis] if column.shape.rank == 1 else column for name, column in columns.items()}

    def without_weight(self, columns: "Mapping[str, Any]") -> "tuple[dict[str, Any], Any]":
        """Returns what ``parse`` did without the weights, which no model sees, and these: float32 [batch, 1], or None.

        They are not checked.
        """
        import tensorflow as tf

        features = dict(columns)
        if self.weight is None:
            return features, None
        return features, tf.cast(features.pop(self.weight), tf.float32)

    @property
    def bytes_per_record(self) -> int:
        """Size of a parsed record in memory."""
        import tensorflow as tf

        return sum(
            int(np.prod(spec.shape)) * (_STRING_BYTES if spec.dtype == tf.string else spec.dtype.size)
            for spec in self._feature_spec.values()
        )
