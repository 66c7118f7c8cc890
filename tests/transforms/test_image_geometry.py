"""Images, boxes and masks moved together, against SciPy's interpolation, NumPy, and the pixels themselves."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from scipy import ndimage

from lockstep.transforms import image_geometry
from lockstep.transforms.image_geometry import move_boxes, move_images, resize_with_padding

SIZE = (24, 40)
Numbers = npt.NDArray[np.float32]


def random_maps(count: int, *, turned: bool = True) -> tf.Tensor:
    """Maps that turn, zoom, mirror and move, all a little."""
    random = np.random.default_rng(5)

    def numbers(low: float, high: float) -> tf.Tensor:
        return tf.constant(random.uniform(low, high, count), tf.float32)

    mirrored = tf.constant(random.choice([-1.0, 1.0], count), tf.float32)
    about = image_geometry.scaling(numbers(0.7, 1.4) * mirrored, numbers(0.7, 1.4))
    if turned:
        about = image_geometry.rotation(numbers(-1, 1)) @ about
    return image_geometry.translation(numbers(-6, 6), numbers(-4, 4)) @ image_geometry.about_center(about, *SIZE)


@pytest.mark.parametrize(("interpolation", "order"), [("bilinear", 1), ("nearest", 0)])
def test_images_are_moved_as_scipy_moves_them(interpolation: str, order: int) -> None:
    """Pixel by pixel, within what was the image; SciPy takes (row, column) of the pixels' middles, backwards."""
    images = np.random.default_rng(1).random((8, *SIZE, 2)).astype(np.float32)
    maps = random_maps(8)
    moved = move_images(tf.constant(images), maps, height=30, width=36, interpolation=interpolation).numpy()  # type: ignore[arg-type]
    for image, found, forward in zip(images, moved, maps.numpy().astype(np.float64), strict=True):
        back = np.linalg.inv(forward)
        matrix = back[:2, :2][::-1, ::-1]
        offset = (matrix @ [0.5, 0.5]) + back[:2, 2][::-1] - 0.5
        rows, columns = np.mgrid[:30, :36]
        source = np.tensordot(matrix, [rows, columns], 1) + offset[:, None, None]
        inside = np.all((source >= 0) & (source <= np.array(SIZE)[:, None, None] - 1), axis=0)
        # Halfway between two pixels either is the nearest.
        clear = inside & np.all(np.abs(source % 1 - 0.5) > 1e-3, axis=0) if order == 0 else inside
        assert clear.mean() > 0.3
        for channel in range(2):
            expected = ndimage.affine_transform(image[..., channel], matrix, offset, output_shape=(30, 36), order=order)
            np.testing.assert_allclose(found[..., channel][clear], expected[clear], atol=2e-4)


def test_what_lies_outside_is_filled() -> None:
    """All of an image that is moved away; and a quarter turn is NumPy's."""
    images = tf.ones([1, 4, 4, 1])
    away = image_geometry.translation(tf.constant([9.0]), tf.constant([0.0]))
    assert np.all(move_images(images, away, height=4, width=4, fill=0.25).numpy() == 0.25)
    square = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    quarter = image_geometry.about_center(image_geometry.rotation(tf.constant([math.pi / 2])), 4, 4)
    turned = move_images(tf.constant(square), quarter, height=4, width=4, interpolation="nearest").numpy()
    np.testing.assert_array_equal(turned[0, ..., 0], np.rot90(square[0, ..., 0], -1))


@pytest.mark.parametrize("unit", ["pixel", "normalized"])
@pytest.mark.parametrize("turned", [False, True])
def test_boxes_hold_the_pixels_that_were_in_them(unit: str, turned: bool) -> None:
    """Each box is drawn as a filled mask, moved, and found again by its pixels; to a pixel, as masks are of pixels."""
    random = np.random.default_rng(3)
    count = 40
    boxes = np.zeros((count, 2, 4), np.float32)  # the second one is none
    masks = np.zeros((count, *SIZE, 1), np.int32)
    for number in range(count):
        top, left = random.integers(0, 14), random.integers(0, 28)
        bottom, right = top + random.integers(6, 10), left + random.integers(6, 12)
        boxes[number, 0] = top, left, bottom, right
        masks[number, top:bottom, left:right] = 7
    maps = random_maps(count, turned=turned)
    scale = np.array([*SIZE, *SIZE], np.float32) if unit == "normalized" else np.float32(1)
    found = move_boxes(tf.constant(boxes / scale), maps, input_size=SIZE, output_size=SIZE, unit=unit).numpy() * scale  # type: ignore[arg-type]
    moved = move_images(tf.constant(masks), maps, height=SIZE[0], width=SIZE[1], interpolation="nearest").numpy()
    assert set(np.unique(moved)) == {0, 7}
    assert np.all(found[:, 1] == 0)
    checked = 0
    for box, mask in zip(found[:, 0], moved[..., 0], strict=True):
        rows, columns = np.nonzero(mask)
        if not len(rows):
            assert np.prod(box[2:] - box[:2]) < 4
            continue
        seen = np.array([rows.min(), columns.min(), rows.max() + 1, columns.max() + 1])
        # The tip of a turned rectangle may be thinner than a pixel; at the edge of the image it is cut off besides.
        at_edge = turned and (np.any(seen[:2] == 0) or seen[2] == SIZE[0] or seen[3] == SIZE[1])
        if not at_edge:
            np.testing.assert_allclose(box, seen, atol=2 if turned else 1)
            checked += 1
        assert np.all(box[:2] <= seen[:2] + 1)
        assert np.all(box[2:] >= seen[2:] - 1)
    assert checked > 15


def test_a_box_of_which_too_little_is_seen_is_none() -> None:
    """By its share: three tenths of this one stay."""
    boxes = tf.constant([[[0.0, 0.0, 10.0, 10.0]]])
    maps = image_geometry.translation(tf.constant([-7.0]), tf.constant([0.0]))
    kept = move_boxes(boxes, maps, input_size=SIZE, output_size=SIZE, min_visibility=0.29).numpy()
    np.testing.assert_array_equal(kept, [[[0, 0, 10, 3]]])
    none = move_boxes(boxes, maps, input_size=SIZE, output_size=SIZE, min_visibility=0.31).numpy()
    np.testing.assert_array_equal(none, [[[0, 0, 0, 0]]])
    gone = image_geometry.translation(tf.constant([-10.0]), tf.constant([0.0]))
    assert not np.any(move_boxes(boxes, gone, input_size=SIZE, output_size=SIZE).numpy())


@pytest.mark.parametrize(("height", "width"), [(48, 48), (12, 40), (31, 17)])
def test_resizing_with_padding_keeps_proportions_boxes_and_masks_together(height: int, width: int) -> None:
    """What is bright in the image is what the mask names, and the box is around both."""
    images = np.zeros((1, *SIZE, 1), np.float32)
    images[0, 6:18, 10:30] = 1
    box = np.array([[[6, 10, 18, 30]]], np.float32) / [*SIZE, *SIZE]
    fitted, boxes, masks = resize_with_padding(
        tf.constant(images),
        height=height,
        width=width,
        boxes=tf.constant(box, tf.float32),
        masks=tf.constant((images > 0.5).astype(np.int32)),
        unit="normalized",
    )
    assert boxes is not None
    assert masks is not None
    assert fitted.shape == (1, height, width, 1)
    top, left, bottom, right = boxes.numpy()[0, 0] * [height, width, height, width]
    assert (right - left) / (bottom - top) == pytest.approx(20 / 12, rel=0.1)
    for found in (fitted.numpy()[0, ..., 0] > 0.5, masks.numpy()[0, ..., 0] > 0):
        rows, columns = np.nonzero(found)
        np.testing.assert_allclose(
            [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1], [top, left, bottom, right], atol=1
        )
    total = fitted.numpy().sum() / images.sum()
    assert total == pytest.approx(min(height / SIZE[0], width / SIZE[1]) ** 2, rel=0.1)


def test_images_of_an_unknown_size_are_refused() -> None:
    """The size of the output's content follows from it."""

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])])
    def resize(images: tf.Tensor) -> tf.Tensor:
        return resize_with_padding(images, height=8, width=8)[0]

    with pytest.raises(ValueError, match="of a known size"):
        resize.get_concrete_function()
