"""The kind of feature that is made of the words of a text: ``text``."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms.columns import dense_column, raw_column, refuse_missing
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import COUNT_SUFFIX, MISSING_SUFFIX, vocabulary_name
from lockstep.transforms.token_lists import padded_indices, sums_by_token

__all__ = ["split_texts", "text_outputs"]

# Classes of characters in Unicode: separators and controls (with tabs and line breaks); punctuation and symbols.
_BETWEEN = {"whitespace": r"[\p{Z}\p{Cc}]+", "words": r"[\p{Z}\p{Cc}\p{P}\p{S}]+"}


def text_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Returns the outputs of features of the kind ``text``.

    Args:
      inputs: Raw columns by name.
      features: By raw column; those of other kinds are left alone.

    Raises:
      ValueError: A column holds no text, or is not there.
    """
    outputs: dict[str, tf.Tensor] = {}
    for name, feature in features.items():
        if feature.kind == "text":
            outputs |= _of_text(name, feature, raw_column(inputs, f"features.{name}", name))
    return outputs


def split_texts(feature: Feature, texts: tf.Tensor) -> tf.RaggedTensor:
    """Returns the tokens of texts: string [batch, (tokens)].

    Args:
      feature: How the column is declared.
      texts: string [batch], in UTF-8; with ``lower``, bytes that are not become U+FFFD, which is a symbol.
    """
    if feature.lower:
        texts = tf.strings.lower(texts, encoding="utf-8")
    words = tf.strings.split(tf.strings.regex_replace(texts, _BETWEEN[feature.split], " "))
    least, most = feature.ngrams
    if (least, most) == (1, 1):
        return words
    return tf.strings.ngrams(words, tuple(range(least, most + 1)))


def _of_text(name: str, feature: Feature, raw: Any) -> dict[str, tf.Tensor]:
    if raw.dtype != tf.string:
        raise ValueError(
            f"features.{name}: kind text needs text, but column {name!r} holds numbers; give kind: numeric or"
            " vocabulary"
        )
    texts, is_missing = dense_column(raw)
    if feature.missing == "error":
        texts = refuse_missing(name, texts, is_missing)
    elif feature.default is not None:
        texts = tf.where(is_missing, tf.constant(str(feature.default)), texts)
    if feature.missing != "indicator":
        is_missing = tf.zeros_like(is_missing)
    tokens = split_texts(feature, texts[:, 0])
    # By tf.Transform's own analyzer, which spreads its counts over Beam's workers: words, and runs of them, may be more
    # than fit into the memory of one.
    vocabulary = tft.vocabulary(
        tokens.flat_values,
        top_k=feature.top_k,
        frequency_threshold=feature.min_frequency if feature.min_frequency > 1 else None,
        vocab_filename=vocabulary_name(name),
    )
    if feature.output == "indices":
        index, count = padded_indices(feature, tokens, is_missing, vocabulary, feature.max_tokens or 0)
        return {name: index, name + COUNT_SUFFIX: count}
    values = sums_by_token(feature, tokens, vocabulary)
    if feature.output == "tf_idf":
        values = _weigh(values, tokens, is_missing)
    outputs = {name: values}
    if feature.has_indicator:
        outputs[name + MISSING_SUFFIX] = tf.cast(is_missing, tf.float32)
    return outputs


def _weigh(counts: tf.Tensor, tokens: tf.RaggedTensor, is_missing: tf.Tensor) -> tf.Tensor:
    """Returns counts as `tft.tfidf` weighs them: by the length of the text, and by how many texts have the token."""
    has_token = tf.cast(counts > 0, tf.int64)
    num_having = tft.sum(has_token, reduce_instance_dims=False)
    num_texts = tft.sum(tf.cast(tf.logical_not(is_missing), tf.int64))
    rarity = tf.math.log(tf.cast(num_texts + 1, tf.float64) / tf.cast(num_having + 1, tf.float64)) + 1
    length = tf.cast(tokens.row_lengths(), tf.float32)[:, tf.newaxis]
    return tf.math.divide_no_nan(counts, length) * tf.cast(rarity, tf.float32)
