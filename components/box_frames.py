"""Boxes of objects between the image as a model sees it and the image as it came."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

FRAME_SUFFIX = "_frame"
"""Behind the name of a label of boxes: the transformed feature that holds the frames."""


def in_frames(boxes: "tf.Tensor", frames: "tf.Tensor") -> "tf.Tensor":
    """Returns boxes in the images as they came, cut off at their edges: x_min, y_min, x_max, y_max [batch, boxes, 4].

    Args:
      boxes: float32 [batch, boxes, 4]: y_min, x_min, y_max, x_max, of which 1 is the height or width of the image as
        the model sees it. Four zeros are no box, and stay.
      frames: float32 [batch, 6]: where that image begins in the one that came (y, x), its height and width there, and
        the height and width of the one that came; all in the unit of the result.
    """
    import tensorflow as tf

    start, extent, size = (tf.tile(part, [1, 2])[:, tf.newaxis] for part in tf.split(frames, 3, axis=-1))
    placed = tf.clip_by_value(start + boxes * extent, 0.0, size)
    placed = tf.where(tf.reduce_any(boxes != 0, axis=-1, keepdims=True), placed, 0.0)
    return tf.gather(placed, [1, 0, 3, 2], axis=-1)
