"""Preprocessing functions of the tests, by every kind of tensor that Transform writes."""

import tensorflow as tf
import tensorflow_transform as tft

SCHEMA = """
feature { name: "number" type: FLOAT }
feature { name: "count" type: INT }
feature { name: "word" type: BYTES }
feature { name: "words" type: BYTES }
"""


def dense_and_sparse(inputs: dict[str, tf.SparseTensor], custom_config: dict[str, float]) -> dict[str, object]:
    """One analyser of numbers, one of words; columns of one value, of two, and of any number."""
    number = _first(inputs["number"], custom_config["missing"])
    scaled = tft.scale_to_0_1(number)  # of the least and the largest: a mean would depend on the batches
    return {
        "scaled": scaled,
        "pair": tf.concat([scaled, -scaled], axis=1),
        "count": _first(inputs["count"]),
        "word": tft.compute_and_apply_vocabulary(inputs["word"], vocab_filename="words"),
        "words": inputs["words"],
    }


def ragged(inputs: dict[str, tf.SparseTensor]) -> dict[str, object]:
    """Rows of rows of values, for which an encoder must name the borders."""
    words = tf.RaggedTensor.from_sparse(inputs["words"])
    return {"letters": tf.strings.unicode_split(words, "UTF-8")}


def twice(inputs: dict[str, tf.SparseTensor]) -> dict[str, object]:
    """Makes two rows of each."""
    count = _first(inputs["count"])
    return {"count": tf.concat([count, count], axis=0)}


def _first(column: tf.SparseTensor, missing: float = 0) -> tf.Tensor:
    dense = tf.sparse.SparseTensor(column.indices, column.values, [column.dense_shape[0], 1])
    return tf.ensure_shape(tf.sparse.to_dense(dense, default_value=missing), [None, 1])
