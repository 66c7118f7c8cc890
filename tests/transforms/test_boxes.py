"""Labels of boxes: against what can be seen in the decoded image, in Beam and as served, and what is refused."""

import dataclasses
import functools
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from lockstep.transforms import testing
from lockstep.transforms.boxes import box_outputs, image_frames, image_sizes, placed_boxes
from lockstep.transforms.features import Feature, Label, to_config, transformed_features
from lockstep.transforms.images import decode_images
from lockstep.transforms.preprocessing import preprocessing_fn

OPTIONS: dict[str, Any] = {
    "column": "boxes",
    "kind": "boxes",
    "class_column": "classes",
    "image": "image",
    "max_boxes": 2,
}


def black(height: int, width: int, box: tuple[int, int, int, int] | None = None) -> bytes:
    """A PNG file, black but for a white rectangle: x_min, y_min, x_max, y_max."""
    pixels = np.zeros((height, width, 3), np.uint8)
    if box is not None:
        pixels[box[1] : box[3], box[0] : box[2]] = 255
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


IMAGE = Feature(kind="image", height=24, width=32, fit="stretch", missing="zero")
# One label each, of columns of its own, all in one run of Beam: options, and a box x_min, y_min, x_max, y_max in pixels
# of an image of 16 x 12 as they want it.
LABELS: dict[str, tuple[dict[str, Any], Callable[[float, float, float, float], tuple[float, ...]]]] = {
    "xyxy": ({}, lambda a, b, c, d: (a, b, c, d)),
    "yxyx": ({"box_format": "yxyx"}, lambda a, b, c, d: (b, a, d, c)),
    "xywh": ({"box_format": "xywh"}, lambda a, b, c, d: (a, b, c - a, d - b)),
    "normalized": ({"box_unit": "normalized"}, lambda a, b, c, d: (a / 16, b / 12, c / 16, d / 12)),
    "dropping": ({"invalid_boxes": "drop"}, lambda a, b, c, d: (a, b, c, d)),
}
BOXES: list[list[tuple[float, float, float, float]]] = [
    [(2.0, 3.0, 10.0, 9.0), (0.0, 0.0, 4.0, 6.0)],
    [(8.0, 6.0, 16.5, 12.5)],
    [],
]
CLASSES = [["dog", "cat"], ["dog"], []]


def rows_of(*labels: str) -> list[dict[str, Any]]:
    """The boxes and their classes in the columns of some labels, with an image each."""
    rows: list[dict[str, Any]] = []
    for boxes, classes in zip(BOXES, CLASSES, strict=True):
        rows.append({"image": black(12, 16)})
        for label in labels:
            rows[-1][label] = [float(side) for box in boxes for side in LABELS[label][1](*box)]
            rows[-1][label + "_classes"] = classes
    return rows


@pytest.fixture(scope="module")
def prepared() -> testing.Preprocessed:
    """What Beam makes of all labels."""

    def preprocessing(inputs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = {}
        for name, (options, _) in LABELS.items():
            label = Label(**{**OPTIONS, "column": name, "class_column": name + "_classes", **options})
            outputs |= box_outputs(inputs, label, IMAGE)
        return outputs

    return testing.run_preprocessing(preprocessing, rows_of(*LABELS))


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize(("height", "width"), [(48, 64), (90, 64), (40, 121), (12, 17)])
def test_boxes_are_where_the_decoded_image_shows_the_object(fit: Any, height: int, width: int) -> None:
    """Within a pixel of the white rectangle in the resized image, whatever its proportions; cut off where it is."""
    box = (width // 8, height // 4, width // 2, height - height // 8)
    feature = Feature(kind="image", height=24, width=32, fit=fit)
    file = tf.constant([black(height, width, box)])
    frames = image_frames(image_sizes(file, feature), feature)
    given = tf.constant([[[box[1], box[0], box[3], box[2]], [0, 0, 0, 0]]], tf.float32)
    found = placed_boxes(given, frames, min_visibility=0.0).numpy()[0]
    seen = decode_images(file, feature).numpy()[0, ..., 0] > 0.5
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    expected = np.array([rows[0], columns[0], rows[-1] + 1, columns[-1] + 1])
    np.testing.assert_allclose(found[0] * [24, 32, 24, 32], expected, atol=1.0)
    assert not found[1].any()


def test_a_box_that_is_hardly_seen_is_none() -> None:
    """Of a crop of 64 x 24 to its middle 32 x 24, a box is seen to a quarter."""
    feature = Feature(kind="image", height=24, width=32, fit="crop")
    frames = image_frames(tf.constant([[24.0, 64.0]]), feature)
    boxes = tf.constant([[[0, 10, 10, 18], [0, 0, 10, 16]]], tf.float32)
    kept = placed_boxes(boxes, frames, min_visibility=0.25).numpy()[0]
    np.testing.assert_allclose(kept, [[0, 0, 10 / 24, 2 / 32], [0, 0, 0, 0]], atol=1e-6)
    assert not placed_boxes(boxes, frames, min_visibility=0.26).numpy().any()


@pytest.mark.parametrize("label", LABELS)
def test_formats_and_units_mean_the_same_boxes(label: str, prepared: testing.Preprocessed) -> None:
    """Classes by frequency; a row without boxes is an image without objects."""
    expected = np.zeros((3, 2, 5))
    expected[0] = [[0.25, 0.125, 0.75, 0.625, 0], [0, 0, 0.5, 0.25, 1]]
    expected[1, 0] = [0.5, 0.5, 1, 1, 0]  # half a pixel outside of the image is cut off
    np.testing.assert_allclose(prepared.features[label], expected, atol=1e-6)
    unit = [12, 16] if label != "normalized" else [1, 1]
    np.testing.assert_allclose(prepared.features[label + "_frame"], [[0, 0, *unit, *unit]] * 3)


def test_an_image_is_served_bit_for_bit_alike_without_its_boxes() -> None:
    """Neither boxes nor classes are known then, which is no list that does not fit."""
    label = Label(**{**OPTIONS, "column": "xyxy", "class_column": "xyxy_classes"})
    config = to_config({"image": dataclasses.replace(IMAGE, fit="pad")}, label)
    preprocessing = functools.partial(preprocessing_fn, custom_config=config)
    testing.assert_no_skew(preprocessing, rows_of("xyxy"), without=["xyxy", "xyxy_classes"])


def test_without_the_labels_columns_what_needs_the_image_alone_is_served(prepared: testing.Preprocessed) -> None:
    """The boxes are left out, by either of their columns."""
    rows = rows_of(*LABELS)
    for column in ("yxyx", "yxyx_classes"):
        both = {"yxyx", "yxyx_classes"}
        lacking = [{name: value for name, value in row.items() if name not in both} for row in rows]
        assert prepared.features.keys() - prepared.serve(lacking, without=[column]).keys() == {"yxyx"}


@pytest.mark.parametrize(
    ("boxes", "classes", "message"),
    [
        ([1.0, 1.0, 5.0], ["a"], "another number of values than four a box"),
        ([1.0, 1.0, 5.0, 5.0], ["a", "b"], "another number of classes than boxes"),
        ([1.0, 1.0, 5.0, 5.0] * 3, ["a"] * 3, "more than 2 boxes"),
        ([5.0, 1.0, 1.0, 5.0], ["a"], "reversed or empty"),
        ([1.0, 1.0, 5.0, float("nan")], ["a"], "not finite"),
        ([1.0, 1.0, 5.0, 13.5], ["a"], "over a pixel outside"),
    ],
)
def test_bad_boxes_stop_or_are_dropped_as_declared(
    boxes: list[float], classes: list[str], message: str, prepared: testing.Preprocessed
) -> None:
    """Lists that do not fit stop whatever is declared."""
    image = black(12, 16)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        prepared.serve([{"image": image, "xyxy": boxes, "xyxy_classes": classes}])
    dropping = {"image": image, "dropping": boxes, "dropping_classes": classes}
    if len(boxes) == 4 and len(classes) == 1:
        assert not prepared.serve([dropping])["dropping"].any()
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            prepared.serve([dropping])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_column": None}, "class_column: required"),
        ({"max_boxes": 0}, "max_boxes: "),
        ({"box_format": "center"}, "box_format: 'center' is not allowed"),
        ({"min_visibility": 2.0}, "min_visibility: 2.0 is not allowed"),
        ({"missing": "drop"}, "missing: 'drop' has no effect"),
        ({"kind": "regression"}, "class_column: 'classes' has no effect on kind 'regression'"),
        ({"image": "boxes"}, "give three different names"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    """Named by their keys."""
    with pytest.raises(ValueError, match=message):
        Label(**{**OPTIONS, **options})


def test_the_image_is_a_feature_and_the_classes_are_none() -> None:
    """The model would be given the answer."""
    image = Feature(kind="image", height=8, width=8)
    with pytest.raises(ValueError, match=r"label\.image: 'image' is not allowed"):
        transformed_features({"photo": image}, Label(**OPTIONS))
    with pytest.raises(ValueError, match=r"features\.classes: this column is label.class_column too"):
        transformed_features({"image": image, "classes": Feature(kind="list", max_values=2)}, Label(**OPTIONS))
