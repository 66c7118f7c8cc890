"""Augmentations as a user might write them, and wrong ones."""

import sys
from typing import Any

import tensorflow as tf

from lockstep.transforms.augmentation import ImageAugmentation


def jitter(columns: dict[str, Any], seeds: Any) -> dict[str, Any]:
    """Adds noise to the fare, drawn from each record's own seed."""
    noise = tf.map_fn(
        lambda seed: tf.random.stateless_normal([1], seed), seeds, fn_output_signature=tf.TensorSpec([1], tf.float32)
    )
    return {**columns, "fare": columns["fare"] + noise}


mirrored = ImageAugmentation(image="image", flip_horizontal=1.0)


def loses_the_label(columns: dict[str, Any], seeds: Any) -> dict[str, Any]:
    """Gives the fare alone."""
    return {"fare": columns["fare"]}


def changes_the_shape(columns: dict[str, Any], seeds: Any) -> dict[str, Any]:
    """Doubles the fare's width."""
    return {**columns, "fare": tf.tile(columns["fare"], [1, 2])}


def fails(columns: dict[str, Any], seeds: Any) -> dict[str, Any]:
    """Asks for a column that is not there."""
    return {**columns, "fare": columns["fair"]}


def exits(columns: dict[str, Any], seeds: Any) -> dict[str, Any]:
    """Ends the process."""
    sys.exit("no")
