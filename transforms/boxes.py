"""Boxes of objects in an image as a label: brought to the image as the model sees it, and padded to one number."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from lockstep.transforms.columns import dense_column, raw_column
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import FRAME_SUFFIX, Label, vocabulary_name
from lockstep.transforms.vocabularies import VocabularyOptions, analyze_tokens, vocabulary_table

__all__ = ["box_outputs", "image_frames", "image_sizes", "placed_boxes"]

_ALL = 1 << 62
# How far a box may reach over the image's edge, pixels: annotations are rounded. It is cut off there.
_TOLERANCE = 1.0


def box_outputs(inputs: Mapping[str, Any], label: Label, feature: Feature) -> dict[str, tf.Tensor]:
    """Returns the label's boxes, and how the image that the model sees lies in the original one.

    Under the label's name float32 [batch, max_boxes, 5]: y_min, x_min, y_max, x_max, of which 1 is the height or width
    of the resized image, and the index of the class (-1 for one that training has not); zeros are no box. Under its
    name with ``_frame`` behind what `image_frames` returns, and the size of the original image (height, width), float32
    [batch, 6], in the label's unit; it needs the image alone.

    Args:
      inputs: Raw columns by name.
      label: Of the kind ``boxes``.
      feature: The image's.

    Raises:
      ValueError: A column has a type that cannot be used, or is not there.
    """
    encoded, _ = dense_column(raw_column(inputs, "label.image", str(label.image)))
    sizes = image_sizes(encoded[:, 0], feature)
    frames = image_frames(sizes, feature)
    values, lengths = _boxes(inputs, label)
    classes = _classes(inputs, label, lengths)
    boxes = _corners(values, tf.sequence_mask(lengths, label.max_boxes), label, sizes)
    boxes = placed_boxes(boxes, frames, min_visibility=label.min_visibility)
    is_box = tf.reduce_any(boxes != 0, axis=-1, keepdims=True)
    rows = tf.concat([boxes, tf.where(is_box, classes[..., tf.newaxis], 0.0)], axis=-1)
    unit = tf.tile(sizes, [1, 3]) if label.box_unit == "normalized" else 1.0
    return {label.column: rows, label.column + FRAME_SUFFIX: tf.concat([frames, sizes], axis=-1) / unit}


def image_sizes(encoded: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Returns the height and width of each image before it is resized, pixels, float32 [batch, 2].

    Args:
      encoded: string [batch]; empty text is an image of the size that the feature has.
      feature: Of the kind image.
    """

    def one(content: tf.Tensor) -> tf.Tensor:
        resized = tf.constant([feature.height or 0, feature.width or 0])
        return tf.cond(
            tf.strings.length(content) == 0,
            lambda: resized,
            lambda: tf.shape(tf.io.decode_image(content, channels=feature.channels, expand_animations=False))[:2],
        )

    return tf.cast(tf.map_fn(one, encoded, fn_output_signature=tf.TensorSpec([2], tf.int32)), tf.float32)


def image_frames(sizes: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Returns how resized images lie in the original ones, pixels: float32 [batch, 4], (y, x, height, width).

    A point at (v, u) of the resized image, of which 1 is the height or width, is (y + v * height, x + u * width) of the
    original. The rounding is that of `lockstep.transforms.images`.

    Args:
      sizes: Height and width of the original images, float32 [batch, 2].
      feature: Of the kind image.
    """
    target = tf.constant([float(feature.height or 0), float(feature.width or 0)])
    if feature.fit == "stretch":
        return tf.concat([tf.zeros_like(sizes), sizes], axis=-1)
    if feature.fit == "crop":
        factor = tf.reduce_max(target / sizes, axis=-1, keepdims=True)
        window = tf.clip_by_value(tf.round(target / factor), 1.0, sizes)
        return tf.concat([tf.floor((sizes - window) / 2), window], axis=-1)
    factor = tf.reduce_min(target / sizes, axis=-1, keepdims=True)
    inner = tf.clip_by_value(tf.round(sizes * factor), 1.0, target)
    per_pixel = sizes / inner
    return tf.concat([-tf.floor((target - inner) / 2) * per_pixel, target * per_pixel], axis=-1)


def placed_boxes(boxes: tf.Tensor, frames: tf.Tensor, *, min_visibility: float) -> tf.Tensor:
    """Returns boxes in the resized images, cut off at their edges, of which 1 is the height or width.

    Args:
      boxes: y_min, x_min, y_max, x_max in pixels of the original images, float32 [batch, boxes, 4]; zeros are no box.
      frames: See `image_frames`.
      min_visibility: Share of a box's area that must be seen; of less, or of nothing, there is no box: four zeros.
    """
    start, extent = tf.tile(frames[:, tf.newaxis, :2], [1, 1, 2]), tf.tile(frames[:, tf.newaxis, 2:], [1, 1, 2])
    whole = (boxes - start) / extent
    seen = tf.clip_by_value(whole, 0.0, 1.0)
    whole_area, seen_area = (tf.reduce_prod(box[..., 2:] - box[..., :2], axis=-1) for box in (whole, seen))
    is_kept = tf.reduce_any(boxes != 0, axis=-1) & (seen_area > 0) & (seen_area >= min_visibility * whole_area)
    return tf.where(is_kept[..., tf.newaxis], seen, 0.0)


def _ragged(column: Any) -> tf.RaggedTensor:
    if isinstance(column, tf.SparseTensor):
        return tf.RaggedTensor.from_sparse(column)
    return tf.RaggedTensor.from_tensor(tf.reshape(column, [tf.shape(column)[0], -1]))


def _boxes(inputs: Mapping[str, Any], label: Label) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the numbers of the boxes, float32 [batch, max_boxes, 4], and how many there are, int64 [batch]."""
    column = raw_column(inputs, "label.column", label.column)
    if column.dtype == tf.string:
        raise ValueError(
            f"label.column: column {label.column!r} holds text; boxes are lists of numbers: declare data.types."
            f"{label.column}: list<float>"
        )
    values = _ragged(column)
    lengths, most = values.row_lengths(), label.max_boxes or 0
    # Without quotes and brackets: TensorFlow puts backslashes before those in the text of an assertion.
    uneven = f"label.column: a row has in column {label.column} another number of values than four a box; mend the data"
    many = f"label.max_boxes: a row has in column {label.column} more than {most} boxes; give a greater max_boxes"
    checks = [
        tf.debugging.Assert(tf.reduce_all(lengths % 4 == 0), [uneven]),
        tf.debugging.Assert(tf.reduce_all(lengths <= 4 * most), [many]),
    ]
    with tf.control_dependencies(checks):
        dense = tf.cast(values.to_tensor(shape=[None, 4 * most]), tf.float32)
    return tf.reshape(dense, [-1, most, 4]), lengths // 4


def _classes(inputs: Mapping[str, Any], label: Label, num_boxes: tf.Tensor) -> tf.Tensor:
    """Returns the indices of the boxes' classes, float32 [batch, max_boxes]."""
    name = str(label.class_column)
    column = raw_column(inputs, "label.class_column", name)
    if column.dtype.is_floating:
        raise ValueError(f"label.class_column: column {name!r} holds numbers with a decimal point; give text or int")
    values = _ragged(column)
    tokens = values.values if values.dtype == tf.string else tf.strings.as_string(values.values)
    (vocabulary,) = analyze_tokens([tokens], [VocabularyOptions(name=vocabulary_name(name), top_k=_ALL)])
    index = tft.apply_vocabulary(tokens, vocabulary, lookup_fn=_look_up, num_oov_buckets=1)
    unequal = (
        f"label.class_column: a row has in column {name} another number of classes than boxes in column {label.column};"
        " give one for each box"
    )
    is_equal = tf.reduce_all(values.row_lengths() == num_boxes)
    with tf.control_dependencies([tf.debugging.Assert(is_equal, [unequal])]):
        return values.with_values(tf.cast(index, tf.float32)).to_tensor(shape=[None, label.max_boxes])


def _look_up(classes: tf.Tensor, vocabulary_file: Any) -> tuple[tf.Tensor, tf.Tensor]:
    table, size = vocabulary_table(vocabulary_file, lambda lines: tf.lookup.StaticHashTable(lines, default_value=-1))
    return table.lookup(classes), size


def _corners(values: tf.Tensor, is_given: tf.Tensor, label: Label, sizes: tf.Tensor) -> tf.Tensor:
    """Returns boxes as y_min, x_min, y_max, x_max in pixels, cut off at the image; zeros for what is dropped."""
    a, b, c, d = tf.unstack(values, axis=-1)
    if label.box_format == "yxyx":
        boxes = values
    else:
        c, d = (a + c, b + d) if label.box_format == "xywh" else (c, d)
        boxes = tf.stack([b, a, d, c], axis=-1)
    edges = tf.concat([sizes, sizes], axis=-1)[:, tf.newaxis]
    if label.box_unit == "normalized":
        boxes *= edges
    is_ordered = tf.reduce_all(boxes[..., 2:] > boxes[..., :2], axis=-1)
    is_within = tf.reduce_all((boxes >= -_TOLERANCE) & (boxes <= edges + _TOLERANCE), axis=-1)
    is_valid = tf.reduce_all(tf.math.is_finite(values), axis=-1) & is_ordered & is_within
    found = tf.where((is_given & is_valid)[..., tf.newaxis], tf.clip_by_value(boxes, 0.0, edges), 0.0)
    if label.invalid_boxes == "drop":
        return found
    message = (
        f"label.column: a box in column {label.column} is reversed or empty, not finite, or over a pixel outside of its"
        " image; mend the data, check label.box_format and box_unit, or give invalid_boxes: drop"
    )
    wrong = tf.boolean_mask(values, is_given & ~is_valid)
    with tf.control_dependencies([tf.debugging.Assert(tf.size(wrong) == 0, [message, wrong])]):
        return tf.identity(found)
