"""Encoded images as numbers of one size: the kind ``image``, the same graph for training and for what is served."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lockstep.transforms.columns import raw_column, refuse_missing, side_by_side
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import MISSING_SUFFIX

__all__ = ["ImageDecoder", "decode_images", "image_outputs"]


def image_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Returns the outputs of features of the kind image: float32 [batch, height, width, channels].

    With ``decode: train`` they are string [batch, 1], for `ImageDecoder`; empty where missing.

    Args:
      inputs: Raw columns by name.
      features: By raw column; those of other kinds are left alone.

    Raises:
      ValueError: A column holds no text, which is what the bytes of an image are, or is not there.
    """
    outputs: dict[str, tf.Tensor] = {}
    for name, feature in features.items():
        if feature.kind != "image":
            continue
        column = raw_column(inputs, f"features.{name}", name)
        if column.dtype != tf.string:
            raise ValueError(
                f"features.{name}: kind image needs the bytes of image files, but column {name!r} holds numbers; give"
                " kind numeric, or data of format images or image_list"
            )
        encoded = side_by_side({name: column}, lambda values: values, "")
        is_missing = encoded == ""
        if feature.missing == "error":
            encoded = refuse_missing(name, encoded, is_missing)
        outputs[name] = encoded if feature.decode == "train" else decode_images(encoded[:, 0], feature, name)
        if feature.has_indicator:
            outputs[name + MISSING_SUFFIX] = tf.cast(is_missing, tf.float32)
    return outputs


def decode_images(encoded: tf.Tensor, feature: Feature, column: str = "image") -> tf.Tensor:
    """Returns images of one size and scale, float32 [batch, height, width, channels].

    Each is computed alone, so that its batch does not matter.

    Args:
      encoded: string [batch], JPEG, PNG, GIF (the first image) or BMP; empty text becomes a black image.
      feature: Of the kind image.
      column: Where they come from, which an error of TensorFlow's has in the name of its node.
    """
    height, width, channels = feature.height or 0, feature.width or 0, feature.channels

    node = "features." + re.sub(r"[^A-Za-z0-9_]", "_", column)

    def decode(content: tf.Tensor) -> tf.Tensor:
        with tf.name_scope(node):
            pixels = tf.io.decode_image(content, channels=channels, expand_animations=False)
        return _fitted(tf.cast(tf.ensure_shape(pixels, [None, None, channels]), tf.float32), feature)

    def one(content: tf.Tensor) -> tf.Tensor:
        black = tf.zeros([height, width, channels])
        return tf.cond(tf.strings.length(content) == 0, lambda: black, lambda: decode(content))

    images = tf.map_fn(one, encoded, fn_output_signature=tf.TensorSpec([height, width, channels], tf.float32))
    if feature.scale == "zero_one":
        return images / 255.0
    return images / 127.5 - 1.0 if feature.scale == "minus_one_one" else images


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageDecoder:
    """Decodes the images of a batch that Transform passed on as bytes, as it would have done.

    Args:
      features: Column -> a feature of the kind image, as ``Feature.to_json`` gives it.

    Raises:
      ValueError: An option is not allowed.
    """

    features: Mapping[str, Mapping[str, Any]]

    def __call__(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the columns with string [batch, 1] decoded to float32 [batch, height, width, channels].

        Args:
          columns: Name -> [batch, ...]; images that are not among them are not looked for.
        """
        decoded = dict(columns)
        for name, options in self.features.items():
            if name in decoded:
                decoded[name] = decode_images(decoded[name][:, 0], Feature(**options), name)
        return decoded


def _fitted(image: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Returns one image [height, width, channels] in the size that is declared; averages where it shrinks."""
    height, width = feature.height or 0, feature.width or 0
    if feature.fit == "stretch":
        return tf.image.resize(image, [height, width], antialias=True)
    shape = tf.shape(image)[:2]
    size = tf.cast(shape, tf.float32)
    if feature.fit == "crop":
        # The window in the middle that has the proportions asked for, at least a pixel.
        factor = tf.reduce_max([height / size[0], width / size[1]])
        window = tf.cast(tf.round(tf.stack([height / factor, width / factor])), tf.int32)
        window = tf.clip_by_value(window, 1, shape)
        start = (shape - window) // 2
        image = image[start[0] : start[0] + window[0], start[1] : start[1] + window[1]]
        return tf.image.resize(image, [height, width], antialias=True)
    # Rounded, and so placed, as `image_geometry.resize_with_padding` does.
    inner = tf.cast(tf.round(size * tf.reduce_min([height / size[0], width / size[1]])), tf.int32)
    inner = tf.clip_by_value(inner, 1, [height, width])
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    return tf.image.pad_to_bounding_box(tf.image.resize(image, inner, antialias=True), top, left, height, width)
