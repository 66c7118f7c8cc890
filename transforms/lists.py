"""The kind of feature that is made of several values a row: ``list``."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lockstep.transforms.columns import raw_column, refuse_missing
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import COUNT_SUFFIX, MISSING_SUFFIX, vocabulary_name
from lockstep.transforms.token_lists import padded_indices, sums_by_token
from lockstep.transforms.vocabularies import VocabularyOptions, analyze_tokens

__all__ = ["list_outputs"]


def list_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Returns the outputs of features of the kind ``list``.

    Args:
      inputs: Raw columns by name.
      features: By raw column; those of other kinds are left alone.

    Raises:
      ValueError: A column has a type that its kind cannot use, or is not there.
    """
    lists = {name: _tokens(inputs, name, feature) for name, feature in features.items() if feature.kind == "list"}
    looked_up = {name: tokens for name, (tokens, _, _) in lists.items() if features[name].num_buckets is None}
    vocabularies: dict[str, tf.Tensor] = {}
    if looked_up:
        options = [
            VocabularyOptions(
                name=vocabulary_name(name), top_k=features[name].top_k, min_frequency=features[name].min_frequency
            )
            for name in looked_up
        ]
        found = analyze_tokens([tokens.flat_values for tokens in looked_up.values()], options)
        vocabularies = dict(zip(looked_up, found, strict=True))
    outputs: dict[str, tf.Tensor] = {}
    for name, (tokens, amounts, is_missing) in lists.items():
        feature, vocabulary = features[name], vocabularies.get(name)
        if feature.output == "indices":
            outputs[name], outputs[name + COUNT_SUFFIX] = padded_indices(
                feature, tokens, is_missing, vocabulary, feature.max_values or 0
            )
            continue
        sums = sums_by_token(feature, tokens, vocabulary, amounts)
        outputs[name] = tf.minimum(sums, 1.0) if amounts is None else sums
        if feature.has_indicator:
            outputs[name + MISSING_SUFFIX] = tf.cast(is_missing, tf.float32)
    return outputs


def _tokens(
    inputs: Mapping[str, Any], name: str, feature: Feature
) -> tuple[tf.RaggedTensor, tf.Tensor | None, tf.Tensor]:
    """Returns the values as text [batch, (values)], their weights [values of the batch], and which rows have none."""
    values = _ragged(raw_column(inputs, f"features.{name}", name))
    if values.dtype.is_floating:
        raise ValueError(
            f"features.{name}: text or whole numbers are needed, but column {name!r} holds numbers with a decimal"
            " point; leave it out, or take it in a preprocessing function of your own"
        )
    tokens = values if values.dtype == tf.string else values.with_values(tf.strings.as_string(values.values))
    amounts = None if feature.weights is None else _weights(inputs, name, feature.weights, tokens)
    is_missing = (tokens.row_lengths() == 0)[:, tf.newaxis]
    if feature.missing == "error":
        tokens = tokens.with_values(refuse_missing(name, tokens.values, is_missing))
    elif feature.default is not None:
        tokens = _filled(tokens, is_missing, tf.constant(str(feature.default)))
        amounts = None if amounts is None else _filled(amounts, is_missing, tf.constant(1.0))
    return tokens, None if amounts is None else amounts.values, is_missing


def _weights(inputs: Mapping[str, Any], name: str, column: str, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the weights of a list's values, float32 [batch, (values)]; fails, when run, where they do not fit."""
    weights = _ragged(raw_column(inputs, f"features.{name}.weights", column))
    if weights.dtype == tf.string:
        raise ValueError(f"features.{name}.weights: column {column!r} holds text; a weight is a number: convert it")
    amounts = tf.cast(weights.values, tf.float32)
    # Without quotes and brackets: TensorFlow puts backslashes before those, and the message ends at these.
    key = f"features.{name}.weights"
    unequal = (
        f"{key}: a row has another number of values in column {column} than in column {name}; give a weight for each"
        " value"
    )
    odd = f"{key}: column {column} has a weight that is NaN or infinite; mend the data"
    fits = tf.reduce_all(weights.row_lengths() == tokens.row_lengths())
    checks = [
        tf.debugging.Assert(fits, [unequal]),
        tf.debugging.Assert(tf.reduce_all(tf.math.is_finite(amounts)), [odd]),
    ]
    with tf.control_dependencies(checks):
        return tokens.with_values(tf.identity(amounts))


def _ragged(column: Any) -> tf.RaggedTensor:
    """Returns a column, sparse or dense, as [batch, (values)]."""
    if isinstance(column, tf.SparseTensor):
        return tf.RaggedTensor.from_sparse(column)
    rows = tf.reshape(column, [tf.shape(column)[0], -1])
    return tf.RaggedTensor.from_tensor(rows)


def _filled(values: tf.RaggedTensor, is_missing: tf.Tensor, default: tf.Tensor) -> tf.RaggedTensor:
    """Returns lists, [default] where there is none."""
    lengths = tf.cast(is_missing[:, 0], tf.int64)
    defaults = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(lengths)], default), lengths)
    return tf.concat([values, defaults], axis=1)
