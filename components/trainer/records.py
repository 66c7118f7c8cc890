"""Files of transformed records: how many there are, what is in them, and which virtual shard holds which."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from lockstep.components.errors import ConfigurationError
from lockstep.components.record_manifest import recorded_counts
from lockstep.components.tfrecord_files import count_records
from lockstep.components.trainer import example_weights
from lockstep.components.trainer.decoding import Decoder, decoded_spec

if TYPE_CHECKING:
    import tensorflow as tf

READ_BATCH = 4096
_STRING_BYTES = 64  # a guess: the length of strings is known only after reading
_NUM_VALUES = 16  # the same of a feature of any number of values
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

    def place(self, shard: int, record: int) -> tuple[tuple[str, ...], int]:
        """Finds a record of a virtual shard, so that nothing before its file need be read.

        Args:
          shard: The virtual shard.
          record: The record's place in the shard; may be past its end.

        Returns:
          The shard's files from the one with that record on, and how many records of the first to pass over. Where
          records are dealt singly, every ``len(sizes)``-th from there on is the shard's.
        """
        owned, starts = self._starts(shard)
        position = record if self.files_of is not None else record * len(self.sizes) + shard
        if position >= starts[-1]:
            return (), 0
        # The last file that begins at the record or before; an empty file begins where the next one does.
        first = int(np.searchsorted(starts, position, side="right")) - 1
        return tuple(self.files[i] for i in owned[first:]), position - int(starts[first])

    def numbers(self, shard: int, places: "npt.NDArray[np.int64]") -> "npt.NDArray[np.int64]":
        """Returns the number among all records, in the order of the files, of records of a virtual shard.

        Args:
          shard: The virtual shard.
          places: Of the records in the shard; what is past its end gets a number that means nothing.
        """
        if self.files_of is None:
            return places * len(self.sizes) + shard
        owned, starts = self._starts(shard)
        if not owned:
            return np.zeros_like(places)
        before = np.cumsum([0, *self.counts])[list(owned)]
        files = np.clip(np.searchsorted(starts, places, side="right") - 1, 0, len(owned) - 1)
        return (before[files] + places - starts[files]).astype(np.int64)

    def _starts(self, shard: int) -> "tuple[Sequence[int], npt.NDArray[np.int64]]":
        """Returns the indices of a shard's files, and the place in it where each begins; its end is the last."""
        owned = range(len(self.files)) if self.files_of is None else self.files_of[shard]
        return owned, np.cumsum([0] + [self.counts[i] for i in owned])


def layout_of(spec: Any) -> Literal["dense", "sparse", "ragged"] | None:
    """Returns what a model gets of a feature; None of one that it cannot have."""
    import tensorflow as tf

    if isinstance(spec, tf.io.FixedLenFeature):
        return "dense"
    if isinstance(spec, tf.io.VarLenFeature):
        return "sparse"
    return "ragged" if isinstance(spec, tf.io.RaggedFeature) and not spec.partitions else None


def padded(column: Any, num_rows: int) -> Any:
    """Returns a column of at most ``num_rows`` rows filled up to them: with zeros, or, if it is ragged, empty rows."""
    import tensorflow as tf

    if isinstance(column, tf.RaggedTensor):
        splits = column.row_splits
        splits = tf.concat([splits, tf.fill([num_rows + 1 - tf.size(splits)], splits[-1])], axis=0)
        return tf.RaggedTensor.from_row_splits(column.values, tf.ensure_shape(splits, [num_rows + 1]), validate=False)
    rest = [[0, num_rows - tf.shape(column)[0]], *([[0, 0]] * (column.shape.rank - 1))]
    return tf.ensure_shape(tf.pad(column, rest), [num_rows, *column.shape[1:]])


def count_all(files: Sequence[str]) -> tuple[int, ...]:
    """Returns the number of records in each file; see ``Records.count``."""
    return recorded_counts(files) or tuple(count_records(path) for path in files)


class Records:
    """Reads and parses the files of one split.

    Args:
      files: Gzip TFRecords of transformed tf.Examples.
      feature_spec: Transformed feature name -> ``tf.io.FixedLenFeature``, label included; or a ``VarLenFeature``, which
        a model gets as a SparseTensor, or a ``RaggedFeature`` without partitions, which it gets as a RaggedTensor.
      label: Name of the label.
      weight: Name of the feature that says how much each record counts; None if all count alike.
      classes: Of a multiclass label, in the order of their indices; empty for a label of another kind.
      decoder: Decodes columns of batches; None where none is encoded.
    """

    def __init__(
        self,
        files: Sequence[str],
        feature_spec: Mapping[str, Any],
        label: str,
        weight: str | None = None,
        classes: tuple[str, ...] = (),
        decoder: Decoder | None = None,
    ) -> None:
        import tensorflow as tf

        for name, spec in feature_spec.items():
            if layout_of(spec) is None:
                raise ConfigurationError(
                    f"feature {name!r}: {type(spec).__name__} of this form is not allowed; the preprocessing function "
                    "must return dense tensors of a fixed shape, or sparse or ragged ones of two dimensions"
                )
        if label not in feature_spec:
            raise ConfigurationError(
                f"label {label!r}: not among the transformed features ({', '.join(sorted(feature_spec))}); "
                "the preprocessing function must return it under its column's name"
            )
        if layout_of(feature_spec[label]) != "dense":
            raise ConfigurationError(f"label {label!r}: not dense; the preprocessing function must return it so")
        if weight is not None:
            example_weights.check_feature(weight, feature_spec.get(weight))
        self.files = tuple(files)
        self.label = label
        self.weight = weight
        self.classes = classes
        self.decoder = decoder
        self._decoded_spec = decoded_spec(feature_spec, decoder)
        self._sparse = frozenset(name for name, spec in feature_spec.items() if layout_of(spec) == "sparse")
        # While records are kept, ordered and filled up, sparse features are ragged ones: rows are rows there.
        self._feature_spec = {
            name: tf.io.RaggedFeature(spec.dtype, row_splits_dtype=tf.int64) if layout_of(spec) != "dense" else spec
            for name, spec in feature_spec.items()
        }

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
        """Returns columns of [batch, ...], a scalar feature as [batch, 1], of a batch of serialised records.

        Sparse and ragged features are RaggedTensors, [batch, (values)].
        """
        import tensorflow as tf

        columns = tf.io.parse_example(serialised, self._feature_spec)
        return {name: column[:, tf.newaxis] if column.shape.rank == 1 else column for name, column in columns.items()}

    def decoded(self, columns: "Mapping[str, Any]") -> "dict[str, Any]":
        """Returns columns of a batch with what was encoded decoded."""
        return dict(columns if self.decoder is None else self.decoder(columns))

    def require_dense(self, strategy: str) -> None:
        """Raises `ConfigurationError` where a feature is sparse or ragged, which a strategy cannot train with."""
        import tensorflow as tf

        for name, spec in self._feature_spec.items():
            if isinstance(spec, tf.io.RaggedFeature):
                raise ConfigurationError(
                    f"feature {name!r}: train.strategy {strategy} takes dense features only; let the preprocessing "
                    "function return it dense"
                )

    def for_model(self, columns: "Mapping[str, Any]") -> "tuple[dict[str, Any], Any]":
        """Returns what ``parse`` did as models take it, without the weights, and these: float32 [batch, 1], or None.

        The weights are not checked.
        """
        import tensorflow as tf

        features = {name: column.to_sparse() if name in self._sparse else column for name, column in columns.items()}
        if self.weight is None:
            return features, None
        return features, tf.cast(features.pop(self.weight), tf.float32)

    @functools.cached_property
    def bytes_per_record(self) -> int:
        """Size of a parsed record in memory, before anything is decoded."""
        size = sum(map(_num_bytes, self._feature_spec.values()))
        if self.decoder is None:
            return size
        # What is encoded, compression hardly makes smaller: the files tell its size.
        in_files = sum(os.stat(path).st_size for path in self.files)  # noqa: PTH116 - text, as the files' names are
        return max(size, in_files // max(1, sum(self.count())))

    @property
    def bytes_per_decoded_record(self) -> int:
        """Size of a record in memory as a model gets it."""
        return sum(map(_num_bytes, self._decoded_spec.values()))


def _num_bytes(spec: Any) -> int:
    import tensorflow as tf

    num_values = int(np.prod(spec.shape)) if isinstance(spec, tf.io.FixedLenFeature) else _NUM_VALUES
    return num_values * (_STRING_BYTES if spec.dtype == tf.string else int(spec.dtype.size))
