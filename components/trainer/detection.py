"""Objects in images: the built-in ``detector``, the loss of a grid of predictions, and the boxes that are read off it.

A model of boxes gives a grid, float32 [batch, rows, columns, classes + 4]. In each cell stand the probabilities that
the middle of an object of each class is there or next to it, and how far the object reaches from the cell's middle: up,
to the left, down, to the right, in cells. There are no anchors; after Tian, Shen, Chen and He, "FCOS: Fully
Convolutional One-Stage Object Detection" (2019).
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.convolution import is_image

if TYPE_CHECKING:
    import tensorflow as tf

    from lockstep.components.trainer.models import ModelInputs

__all__ = ["MAX_DETECTIONS", "DetectorParameters", "detection_loss", "detections", "detector_tensors"]

MAX_DETECTIONS = 100
"""Boxes that a served model gives for an image at most, as COCO's metrics count."""

_MIN_SCORE = 0.05
_SUPPRESSED_IOU = 0.5
# Cells around the middle of a box that learn it: up to so many cells away, within the box.
_RADIUS = 1.5
# Of Lin, Goyal, Girshick, He and Dollar, "Focal Loss for Dense Object Detection" (2017).
_ALPHA, _GAMMA = 0.25, 2.0
_LEAST_PROBABILITY = 1e-6
# A first probability that is low: nearly all cells hold nothing.
_FIRST_LOGIT = -4.6


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectorParameters:
    """Parameters of the built-in ``detector``.

    Args:
      filters: Of each 3 x 3 convolution, each followed by ReLU; at least one.
      halvings: Behind so many of the first ones a maximum over 2 x 2 halves the image: with 2 a cell of the grid is 4
        pixels wide. Objects should be larger than a cell.
    """

    filters: tuple[int, ...] = (16, 32, 64, 64, 64)
    halvings: int = 2

    def __post_init__(self) -> None:
        is_list = isinstance(self.filters, tuple) and len(self.filters) > 0
        if not is_list or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in self.filters):
            raise ConfigurationError(
                f"model.parameters.filters: {self.filters!r} is not allowed; give a list of whole numbers of 1 or more,"
                " such as [16, 32, 64]"
            )
        is_number = isinstance(self.halvings, int) and not isinstance(self.halvings, bool)
        if not is_number or not 0 <= self.halvings <= len(self.filters):
            raise ConfigurationError(
                f"model.parameters.halvings: {self.halvings!r} is not allowed; give a whole number from 0 to"
                f" {len(self.filters)}, the number of filters"
            )


def detector_tensors(inputs: "ModelInputs", parameters: DetectorParameters) -> tuple[dict[str, Any], Any]:
    """Returns the input of the only image, by its name, and the grid made of it; other features are not looked at.

    Raises:
      ConfigurationError: The label is no label of boxes, there is not one image, or its sides cannot be halved so.
    """
    import keras

    if inputs.label_kind != "boxes":
        raise ConfigurationError(
            f"model.build: detector finds boxes, and the label's kind is {inputs.label_kind}; give label.kind: boxes,"
            " or conv"
        )
    images = {name: feature for name, feature in inputs.features.items() if is_image(feature)}
    if len(images) != 1:
        raise ConfigurationError(f"model.build: detector needs one image, and there are {len(images)}: {list(images)}")
    [(name, feature)] = images.items()
    cell = 2**parameters.halvings
    for side in feature.shape[:2]:
        if (side or 0) % cell:
            raise ConfigurationError(
                f"model.parameters.halvings: {parameters.halvings} makes cells of {cell} pixels, which {side} pixels of"
                f" feature {name!r} are no multiple of; give features.{name} another size, or fewer halvings"
            )
    tensor = keras.Input(shape=feature.shape, dtype=feature.dtype, name="input_image")
    hidden = tensor
    for number, filters in enumerate(parameters.filters, start=1):
        layer = keras.layers.Conv2D(
            filters, 3, padding="same", activation="relu", kernel_initializer="he_normal", name=f"conv_{number}"
        )
        hidden = layer(hidden)
        if number <= parameters.halvings:
            hidden = keras.layers.MaxPooling2D(name=f"pool_{number}")(hidden)
    # float32 whatever the policy: a probability in half precision is too coarse for metrics.
    scores = keras.layers.Conv2D(
        inputs.num_classes or 1,
        1,
        activation="sigmoid",
        bias_initializer=keras.initializers.Constant(_FIRST_LOGIT),
        dtype="float32",
        name="scores",
    )(hidden)
    reach = keras.layers.Conv2D(4, 1, activation="softplus", dtype="float32", name="reach")(hidden)
    return {name: tensor}, keras.layers.Concatenate(dtype="float32", name="grid")([scores, reach])


def detection_loss(label: "tf.Tensor", grid: "tf.Tensor") -> "tf.Tensor":
    """Returns the loss of each image: focal loss of the classes, plus twice the generalised IoU loss of the boxes.

    Both are divided by the number of cells that learn a box. An image depends on itself alone. The second is of
    Rezatofighi and others, "Generalized Intersection over Union" (2019).

    Args:
      label: [batch, boxes, 5]: y_min, x_min, y_max, x_max, 1 being the image's height or width, and the class; zeros
        are no box, and a box of a negative class is none.
      grid: [batch, rows, columns, classes + 4], of the same type.

    Returns:
      [batch].
    """
    import tensorflow as tf

    rows, columns, num_classes = grid.shape[1], grid.shape[2], grid.shape[3] - 4
    owner, learns = _owners(label, rows, columns)
    target = tf.gather(label, owner, batch_dims=1)
    predicted = _boxes(grid)
    scores = tf.reshape(grid[..., :num_classes], [-1, rows * columns, num_classes])
    scores = tf.clip_by_value(scores, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    weight = tf.cast(learns, grid.dtype)
    wanted = tf.one_hot(tf.cast(target[..., 4], tf.int32), num_classes, dtype=grid.dtype) * weight[..., tf.newaxis]
    hit = wanted * scores + (1 - wanted) * (1 - scores)
    balance = wanted * _ALPHA + (1 - wanted) * (1 - _ALPHA)
    classes = tf.reduce_sum(-balance * (1 - hit) ** _GAMMA * tf.math.log(hit), axis=[1, 2])
    # What does not learn a box is compared with itself, so that no gradient comes of nonsense.
    target_boxes = tf.where(learns[..., tf.newaxis], target[..., :4], tf.stop_gradient(predicted))
    boxes = tf.reduce_sum(weight * (1 - _generalized_iou(predicted, target_boxes)), axis=1)
    return (classes + 2 * boxes) / tf.maximum(tf.reduce_sum(weight, axis=1), 1)


def detections(grid: "tf.Tensor") -> "tf.Tensor":
    """Returns the boxes of each image, the surest first: float32 [batch, n, 6], at most `MAX_DETECTIONS`.

    y_min, x_min, y_max, x_max, 1 being the image's height or width; the score, and the index of the class. Zeros are
    no box. Of boxes of one class with an IoU over 0.5 the surest stays; those with a score under 0.05 are left out.

    Args:
      grid: float32 [batch, rows, columns, classes + 4].
    """
    import tensorflow as tf

    rows, columns, num_classes = grid.shape[1], grid.shape[2], grid.shape[3] - 4
    most = min(MAX_DETECTIONS, rows * columns * num_classes)
    found = tf.image.combined_non_max_suppression(
        tf.clip_by_value(_boxes(grid), 0.0, 1.0)[:, :, tf.newaxis],
        tf.reshape(grid[..., :num_classes], [-1, rows * columns, num_classes]),
        max_output_size_per_class=min(most, rows * columns),
        max_total_size=most,
        iou_threshold=_SUPPRESSED_IOU,
        score_threshold=_MIN_SCORE,
    )
    beside = tf.stack([found.nmsed_scores, found.nmsed_classes], axis=-1)
    return tf.ensure_shape(tf.concat([found.nmsed_boxes, beside], axis=-1), [None, most, 6])


def _middles(rows: int, columns: int, dtype: Any) -> "tuple[tf.Tensor, tf.Tensor]":
    """Returns y and x of each cell's middle, [rows * columns], 1 being the image's height or width."""
    import tensorflow as tf

    y = (tf.range(rows, dtype=dtype) + 0.5) / rows
    x = (tf.range(columns, dtype=dtype) + 0.5) / columns
    return tf.repeat(y, columns), tf.tile(x, [rows])


def _boxes(grid: "tf.Tensor") -> "tf.Tensor":
    """Returns the box of each cell, [batch, rows * columns, 4]."""
    import tensorflow as tf

    rows, columns = grid.shape[1], grid.shape[2]
    y, x = _middles(rows, columns, grid.dtype)
    up, left, down, right = tf.unstack(tf.reshape(grid[..., -4:], [-1, rows * columns, 4]), axis=-1)
    return tf.stack([y - up / rows, x - left / columns, y + down / rows, x + right / columns], axis=-1)


def _owners(label: "tf.Tensor", rows: int, columns: int) -> "tuple[tf.Tensor, tf.Tensor]":
    """Returns which box each cell learns, int64 [batch, cells], and whether it learns one at all.

    Those are the cells within the box and near its middle, and that in which the middle lies; of several boxes the
    smallest.
    """
    import tensorflow as tf

    boxes = label[..., :4]
    is_box = tf.reduce_any(boxes != 0, axis=-1) & (label[..., 4] >= 0)
    y, x = (middle[tf.newaxis, :, tf.newaxis] for middle in _middles(rows, columns, label.dtype))
    y_min, x_min, y_max, x_max = (side[:, tf.newaxis] for side in tf.unstack(boxes, axis=-1))
    middle_y, middle_x = (y_min + y_max) / 2, (x_min + x_max) / 2
    is_within = (y > y_min) & (y < y_max) & (x > x_min) & (x < x_max)
    is_near = (tf.abs(y - middle_y) * rows <= _RADIUS) & (tf.abs(x - middle_x) * columns <= _RADIUS)
    row = tf.clip_by_value(tf.cast(middle_y * rows, tf.int32), 0, rows - 1)
    column = tf.clip_by_value(tf.cast(middle_x * columns, tf.int32), 0, columns - 1)
    holds_middle = tf.range(rows * columns)[tf.newaxis, :, tf.newaxis] == row * columns + column
    learns = ((is_within & is_near) | holds_middle) & is_box[:, tf.newaxis]
    area = tf.where(learns, (y_max - y_min) * (x_max - x_min), tf.constant(float("inf"), label.dtype))
    return tf.argmin(area, axis=-1), tf.reduce_any(learns, axis=-1)


def _generalized_iou(a: "tf.Tensor", b: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    def area(low: "tf.Tensor", high: "tf.Tensor") -> "tf.Tensor":
        return tf.reduce_prod(tf.maximum(high - low, 0), axis=-1)

    low_a, high_a, low_b, high_b = a[..., :2], a[..., 2:], b[..., :2], b[..., 2:]
    shared = area(tf.maximum(low_a, low_b), tf.minimum(high_a, high_b))
    union = area(low_a, high_a) + area(low_b, high_b) - shared
    around = area(tf.minimum(low_a, low_b), tf.maximum(high_a, high_b))
    least = 1e-9  # of the image's area; two boxes without extent
    return shared / tf.maximum(union, least) - (around - union) / tf.maximum(around, least)
