"""The detector: its loss against NumPy cell by cell, what is read off its grid, and training on several workers."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.detection import detection_loss, detections
from lockstep.components.trainer.models import BUILT_IN, FeatureInput, ModelInputs
from lockstep.components.trainer.step_function import weighted_mean

IMAGE = FeatureInput(dtype="float32", shape=(16, 24, 3))


def detector(features: dict[str, FeatureInput], kind: Any = "boxes", **parameters: Any) -> Any:
    """The model for two classes."""
    inputs = ModelInputs(features=features, label_kind=kind, num_classes=2, parameters=parameters)
    return BUILT_IN["detector"](inputs)


def random_grid(seed: int, images: int = 3) -> np.ndarray[Any, Any]:
    """A grid of 4 x 6 cells, two classes."""
    random = np.random.default_rng(seed)
    return np.concatenate([random.uniform(0.01, 0.99, (images, 4, 6, 2)), random.uniform(0, 3, (images, 4, 6, 4))], -1)


LABELS = np.array(
    [
        [[0.1, 0.1, 0.9, 0.6, 0], [0.4, 0.3, 0.7, 0.5, 1], [0, 0, 0, 0, 0]],
        [[0.52, 0.52, 0.58, 0.6, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
        [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    ]
)


def loss_of_image(label: np.ndarray[Any, Any], grid: np.ndarray[Any, Any]) -> float:
    """The loss as its docstring says, a cell at a time."""
    rows, columns, depth = grid.shape
    classes = boxes = 0.0
    learning = 0
    for row in range(rows):
        for column in range(columns):
            y, x = (row + 0.5) / rows, (column + 0.5) / columns
            mine = None
            for box in sorted((box for box in label if box[:4].any()), key=lambda b: -(b[2] - b[0]) * (b[3] - b[1])):
                middle_y, middle_x = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
                within = box[0] < y < box[2] and box[1] < x < box[3]
                near = abs(y - middle_y) * rows <= 1.5 and abs(x - middle_x) * columns <= 1.5
                if (within and near) or (int(middle_y * rows), int(middle_x * columns)) == (row, column):
                    mine = box  # the smallest is the last
            for number in range(depth - 4):
                p, is_it = grid[row, column, number], mine is not None and mine[4] == number
                hit, balance = (p, 0.25) if is_it else (1 - p, 0.75)
                classes -= balance * (1 - hit) ** 2 * math.log(hit)
            if mine is not None:
                learning += 1
                up, left, down, right = grid[row, column, -4:]
                a = (y - up / rows, x - left / columns, y + down / rows, x + right / columns)
                boxes += 1 - generalized_iou(a, mine)
    return (classes + 2 * boxes) / max(learning, 1)


def generalized_iou(a: Any, b: Any) -> float:
    """Of two boxes of four numbers."""
    shared = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    around = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return float(shared / union - (around - union) / around)


def test_the_loss_is_that_of_each_cell_in_turn() -> None:
    """Boxes over each other, one smaller than a cell, and an image without any."""
    grid = random_grid(0)
    found = detection_loss(tf.constant(LABELS), tf.constant(grid)).numpy()
    expected = [loss_of_image(label, cells) for label, cells in zip(LABELS, grid, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_parts_of_a_batch_give_the_gradient_of_the_whole() -> None:
    """An image depends on itself alone: accumulated parts and several workers add up, weights and padding too."""
    grid, labels = tf.constant(random_grid(1)), tf.constant(LABELS)
    weights = tf.constant([[2.0], [0.5], [0.0]])

    def gradient(rows: slice) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(grid)
            loss = weighted_mean(detection_loss, grid[rows], labels[rows], weights[rows], tf.constant(3.0))
        return tape.gradient(loss, grid).numpy()

    whole = gradient(slice(0, 3))
    np.testing.assert_allclose(gradient(slice(0, 1)) + gradient(slice(1, 3)), whole, rtol=1e-9, atol=1e-12)
    assert np.abs(whole[:2]).min(axis=(1, 2, 3)).shape == (2,)
    assert np.isfinite(whole).all()
    assert not whole[2].any()


def test_of_boxes_over_each_other_the_surest_of_a_class_stays() -> None:
    """Another class at the same place stays too; what is unsure is left out; boxes end at the image's edges."""
    grid = np.zeros((1, 4, 6, 6), np.float32)
    grid[0, 1, 2] = [0.9, 0.6, 1.5, 1.0, 1.5, 1.0]  # rows -0.0 to 3.0, columns 1.5 to 3.5
    grid[0, 1, 3] = [0.8, 0.0, 1.5, 2.0, 1.5, 0.2]  # rows 0 to 3, columns 1.5 to 3.7: nearly the same
    grid[0, 3, 5] = [0.04, 0.7, 0.5, 0.5, 2.0, 2.0]
    found = detections(tf.constant(grid)).numpy()[0]
    expected = [
        [0, 1.5 / 6, 3 / 4, 3.5 / 6, 0.9, 0],
        [3 / 4, 5 / 6, 1, 1, 0.7, 1],
        [0, 1.5 / 6, 3 / 4, 3.5 / 6, 0.6, 1],
    ]
    np.testing.assert_allclose(found[:3], expected, atol=1e-6)
    assert not found[3:].any()


@pytest.mark.parametrize(
    ("features", "kind", "parameters", "message"),
    [
        ({"image": IMAGE}, "multiclass", {}, "detector finds boxes, and the label's kind is multiclass"),
        ({"a": FeatureInput(dtype="float32")}, "boxes", {}, "detector needs one image, and there are 0"),
        ({"image": IMAGE}, "boxes", {"halvings": 4}, "4 makes cells of 16 pixels, which 24"),
        ({"image": IMAGE}, "boxes", {"filters": []}, r"filters: \(\) is not allowed"),
        ({"image": IMAGE}, "boxes", {"halvings": 9}, "halvings: 9 is not allowed"),
    ],
)
def test_what_it_cannot_do_is_refused(features: Any, kind: Any, parameters: dict[str, Any], message: str) -> None:
    """In the terms of the configuration."""
    with pytest.raises(ConfigurationError, match=message):
        detector(features, kind, **parameters)


def test_it_gives_a_grid_of_its_cells() -> None:
    """Probabilities of the classes, and distances that are not negative; a frame beside the image does no harm."""
    model = detector({"image": IMAGE, "boxes_frame": FeatureInput(dtype="float32", shape=(6,))}, halvings=2)
    grid = model({"image": tf.random.uniform([2, 16, 24, 3])}).numpy()
    assert grid.shape == (2, 4, 6, 6)
    assert ((grid[..., :2] > 0) & (grid[..., :2] < 1)).all()
    assert (grid[..., 2:] >= 0).all()
