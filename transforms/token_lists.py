"""Several tokens a row, of texts and lists, as padded indices or one number for each token of the vocabulary."""

import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms.columns import MISSING_MARK, with_num_values
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.vocabularies import oov_table

__all__ = ["PADDING", "padded_indices", "sums_by_token"]

# The index where a row has no further token.
PADDING = 0
# Stands there before tokens are looked up: it has line breaks, as no token of a vocabulary has.
_PADDING_MARK = "\nlockstep: padding\n"


def padded_indices(
    feature: Feature, tokens: tf.RaggedTensor, is_missing: tf.Tensor, vocabulary: tf.Tensor | None, width: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns indices, int64 [batch, width], and how many of a row are no padding, float32 [batch, 1].

    `PADDING`, then the tokens of the vocabulary (the buckets of the hash), then ``num_oov`` indices, then, where
    missing values have an index, that, at the first place of the row.

    Args:
      feature: How the column is declared.
      tokens: string [batch, (tokens)]; those beyond ``width`` are cut off.
      is_missing: bool [batch, 1], of rows without tokens.
      vocabulary: Path, as `tft.apply_vocabulary` takes it; None for a feature that hashes.
      width: Places of a row.
    """
    has_own = feature.missing == "indicator"
    marked = tokens[:, :width].to_tensor(_PADDING_MARK, shape=[None, width])
    count = tf.minimum(tokens.row_lengths(), width)[:, tf.newaxis]
    if has_own:
        marked = tf.where(is_missing & (tf.range(width) == 0), MISSING_MARK, marked)
        count = tf.where(is_missing, tf.constant(1, tf.int64), count)

    def place(index: tf.Tensor, num_tokens: tf.Tensor) -> tf.Tensor:
        index = tf.where(marked == _PADDING_MARK, tf.constant(PADDING, tf.int64), index + 1)
        return tf.where(marked == MISSING_MARK, num_tokens + 1, index) if has_own else index

    if vocabulary is None:
        num_buckets = feature.num_buckets or 0
        index = place(tf.strings.to_hash_bucket_fast(marked, num_buckets), tf.constant(num_buckets, tf.int64))
        return with_num_values(index, num_buckets + 1 + has_own), tf.cast(count, tf.float32)

    def look_up(column: tf.Tensor, vocabulary_file: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        table, size = oov_table(vocabulary_file, feature.num_oov)
        return tf.ensure_shape(place(table.lookup(column), size), [None, width]), size + 1 + has_own

    index = tft.apply_vocabulary(marked, vocabulary, num_oov_buckets=feature.num_oov, lookup_fn=look_up)
    return index, tf.cast(count, tf.float32)


def sums_by_token(
    feature: Feature, tokens: tf.RaggedTensor, vocabulary: tf.Tensor | None, amounts: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns how often a row has each token, or the sum of its amounts, float32 [batch, ``feature.dense_width``].

    Args:
      feature: How the column is declared.
      tokens: string [batch, (tokens)].
      vocabulary: Path, as `tft.apply_vocabulary` takes it; None for a feature that hashes.
      amounts: float32 [tokens of the batch]; None is 1 each.
    """
    flat = tokens.flat_values

    def look_up(column: tf.Tensor, vocabulary_file: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        table, size = oov_table(vocabulary_file, feature.num_oov)
        return table.lookup(column), size

    if vocabulary is None:
        index = tf.strings.to_hash_bucket_fast(flat, feature.num_buckets or 0)
    else:
        index = tft.apply_vocabulary(flat, vocabulary, num_oov_buckets=feature.num_oov, lookup_fn=look_up)
    width, num_rows = feature.dense_width, tokens.nrows()
    place = tokens.value_rowids() * width + index
    amounts = tf.ones_like(index, tf.float32) if amounts is None else amounts
    sums = tf.math.unsorted_segment_sum(amounts, place, num_rows * width)
    return tf.reshape(sums, [-1, width])
