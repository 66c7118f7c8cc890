"""Features of a user's own on top of declared ones, right and wrong, named by import path."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

Columns = Mapping[str, Any]


def per_kilometre(inputs: Columns, features: Columns) -> dict[str, Any]:
    """Of raw columns and declared features, with an analysis of its own; one feature was only wanted for it."""
    fare, distance = (tf.sparse.to_dense(inputs[name], 0.0) for name in ("fare", "distance"))
    rate = tf.reshape(tf.math.divide_no_nan(fare, distance), [-1, 1])
    joined = tf.concat([features["fare"], tft.scale_to_0_1(rate)], axis=1)
    return {"rate": tft.scale_to_z_score(rate), "joined": joined, "same_fare": features["fare"], "fare": None}


def unchanged(inputs: Columns, features: Columns) -> Columns:
    """Adds nothing."""
    return features


def without_any(inputs: Columns, features: Columns) -> Columns:
    """Leaves out all."""
    return dict.fromkeys(features)


def of_the_label(inputs: Columns, features: Columns) -> Columns:
    """Asks for the answer."""
    return {"answer": inputs["tips"]}


def named_as_the_label(inputs: Columns, features: Columns) -> Columns:
    """Would replace the answer."""
    return {"tips": features["fare"]}


def named_as_declared(inputs: Columns, features: Columns) -> Columns:
    """Would replace a feature."""
    return {"fare": features["fare"] * 2.0}


def of_rank_one(inputs: Columns, features: Columns) -> Columns:
    """Without a second dimension."""
    return {"flat": features["fare"][:, 0]}


def of_any_width(inputs: Columns, features: Columns) -> Columns:
    """As wide as the batch happens to be."""
    return {"wide": tf.sparse.to_dense(inputs["fare"], 0.0)}


def of_one_row(inputs: Columns, features: Columns) -> Columns:
    """A mean instead of a value a row."""
    return {"mean": tf.reshape(tft.mean(features["fare"]), [1, 1])}


def sparse(inputs: Columns, features: Columns) -> Columns:
    """As the raw column is."""
    return {"raw": inputs["fare"]}


def of_double_width(inputs: Columns, features: Columns) -> Columns:
    """In a type that records cannot hold."""
    return {"exact": tf.cast(features["fare"], tf.float64)}


def nothing(inputs: Columns, features: Columns) -> None:
    """Forgets to return."""
