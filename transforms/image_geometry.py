"""Images moved by affine maps, with the boxes and masks on them; a map for each image of a batch.

Positions are continuous: a pixel in row r and column c covers [r, r + 1) x [c, c + 1), so an image of height h ends at
h. A map is a float32 matrix [3, 3] that takes (x, y, 1) of the input to (x, y, 1) of the output, x to the right, y
down. Boxes are (y_min, x_min, y_max, x_max); one of four zeros stands for no box, so that a batch can hold images with
different numbers of them.
"""

from typing import Literal

import tensorflow as tf

BoxUnit = Literal["pixel", "normalized"]


def identity(count: tf.Tensor) -> tf.Tensor:
    """Returns maps that move nothing, float32 [count, 3, 3]."""
    return tf.eye(3, batch_shape=[count])


def translation(dx: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """Returns maps by so many pixels to the right and down.

    Args:
      dx: float32 [batch].
      dy: float32 [batch].
    """
    one, zero = tf.ones_like(dx), tf.zeros_like(dx)
    return _matrix([one, zero, dx], [zero, one, dy])


def scaling(sx: tf.Tensor, sy: tf.Tensor) -> tf.Tensor:
    """Returns maps that multiply x and y, about the top left corner.

    Args:
      sx: float32 [batch]; a negative one mirrors.
      sy: float32 [batch], likewise.
    """
    zero = tf.zeros_like(sx)
    return _matrix([sx, zero, zero], [zero, sy, zero])


def rotation(angle: tf.Tensor) -> tf.Tensor:
    """Returns maps that turn about the top left corner, clockwise as one looks at the image.

    Args:
      angle: float32 [batch], radians.
    """
    zero = tf.zeros_like(angle)
    return _matrix([tf.cos(angle), -tf.sin(angle), zero], [tf.sin(angle), tf.cos(angle), zero])


def about_center(maps: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Returns maps [batch, 3, 3] that do about the middle of an image what the given ones do about its corner."""
    x, y = tf.fill(tf.shape(maps)[:1], width / 2), tf.fill(tf.shape(maps)[:1], height / 2)
    return translation(x, y) @ maps @ translation(-x, -y)


def _matrix(x: list[tf.Tensor], y: list[tf.Tensor]) -> tf.Tensor:
    last = [tf.zeros_like(x[0]), tf.zeros_like(x[0]), tf.ones_like(x[0])]
    return tf.stack([tf.stack(row, axis=-1) for row in (x, y, last)], axis=-2)


def move_images(
    images: tf.Tensor,
    maps: tf.Tensor,
    *,
    height: int,
    width: int,
    interpolation: Literal["bilinear", "nearest"] = "bilinear",
    fill: float = 0.0,
) -> tf.Tensor:
    """Returns what the maps make of images: [batch, height, width, channels], of the same dtype.

    Args:
      images: [batch, input height, input width, channels]; float32, uint8 or int32, also int64 if ``nearest``.
      maps: float32 [batch, 3, 3], none of them singular.
      height: Of the output, pixels.
      width: Of the output, pixels.
      interpolation: ``nearest`` for masks, whose values are names of classes.
      fill: Of pixels that lie outside of the input.
    """
    # The kernel asks where in the input each output pixel comes from, by numbers of pixels, not by their middles.
    half = tf.fill(tf.shape(maps)[:1], 0.5)
    back = translation(-half, -half) @ tf.linalg.inv(maps) @ translation(half, half)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.reshape(back, [-1, 9])[:, :8],
        output_shape=[height, width],
        fill_value=fill,
        interpolation=interpolation.upper(),
        fill_mode="CONSTANT",
    )
    return tf.ensure_shape(moved, [images.shape[0], height, width, images.shape[3]])


def move_boxes(
    boxes: tf.Tensor,
    maps: tf.Tensor,
    *,
    input_size: tuple[int, int],
    output_size: tuple[int, int],
    unit: BoxUnit = "pixel",
    min_visibility: float = 0.0,
) -> tf.Tensor:
    """Returns the boxes around what was in the boxes, cut off at the edges of the output; of the same shape.

    A turned box becomes the upright one around it. One that is no longer to be seen is zeros, in its old place.

    Args:
      boxes: float32 [batch, boxes, 4 or more]; what stands behind the four, as a class, stays with its box.
      maps: float32 [batch, 3, 3].
      input_size: Height and width of the images before, pixels.
      output_size: And after.
      unit: ``pixel``, or ``normalized``: 1 is the image's height or width.
      min_visibility: Share of a moved box's area that must be within the output, 0 to 1; with less there is no box.
    """
    scale = [tf.constant([size[0], size[1]] * 2, tf.float32) for size in (input_size, output_size)]
    boxes, beside = boxes[..., :4], boxes[..., 4:]
    is_box = tf.reduce_any(boxes != 0, axis=-1)
    if unit == "normalized":
        boxes = boxes * scale[0]
    y_min, x_min, y_max, x_max = tf.unstack(boxes, axis=-1)
    corners = tf.stack(
        [tf.stack([x, y, tf.ones_like(x)], axis=-1) for x in (x_min, x_max) for y in (y_min, y_max)], axis=-2
    )
    moved = tf.einsum("bij,bncj->bnci", maps, corners)[..., :2]
    low, high = tf.reduce_min(moved, axis=-2), tf.reduce_max(moved, axis=-2)
    edge = tf.constant([output_size[1], output_size[0]], tf.float32)
    low_seen, high_seen = tf.clip_by_value(low, 0.0, edge), tf.clip_by_value(high, 0.0, edge)
    seen, whole = (tf.reduce_prod(b - a, axis=-1) for a, b in ((low_seen, high_seen), (low, high)))
    is_kept = is_box & (seen > 0) & (seen >= min_visibility * whole)
    found = tf.stack([low_seen[..., 1], low_seen[..., 0], high_seen[..., 1], high_seen[..., 0]], axis=-1)
    if unit == "normalized":
        found = found / scale[1]
    found = tf.concat([found, beside], axis=-1)
    return tf.where(is_kept[..., tf.newaxis], found, tf.zeros_like(found))


def resize_with_padding(
    images: tf.Tensor,
    *,
    height: int,
    width: int,
    boxes: tf.Tensor | None = None,
    masks: tf.Tensor | None = None,
    unit: BoxUnit = "pixel",
) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor | None]:
    """Returns images of another size with their proportions kept, and their boxes and masks; what is beside them is 0.

    Images are averaged over what becomes one pixel (antialiasing), masks take the nearest pixel.

    Args:
      images: float32 [batch, input height, input width, channels], sizes known.
      height: Of the output, pixels.
      width: Of the output, pixels.
      boxes: float32 [batch, boxes, 4].
      masks: Integers [batch, input height, input width, 1].
      unit: Of the boxes.

    Raises:
      ValueError: The images' size is not known.
    """
    size = images.shape[1], images.shape[2]
    if None in size:
        raise ValueError(f"images of a known size are needed, not {images.shape}")
    count = tf.shape(images)[0]
    factor = min(height / size[0], width / size[1])
    inner = max(1, round(factor * size[0])), max(1, round(factor * size[1]))
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    one = tf.ones([count])
    maps = translation(left * one, top * one) @ scaling(inner[1] / size[1] * one, inner[0] / size[0] * one)
    fitted = tf.image.pad_to_bounding_box(tf.image.resize(images, inner, antialias=True), top, left, height, width)
    if boxes is not None:
        boxes = move_boxes(boxes, maps, input_size=size, output_size=(height, width), unit=unit)
    if masks is not None:
        masks = move_images(masks, maps, height=height, width=width, interpolation="nearest")
    return fitted, boxes, masks
