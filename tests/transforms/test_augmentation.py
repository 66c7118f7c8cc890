"""Random changes of images, against NumPy and Python's colorsys; boxes and masks follow; seeds decide alone."""

import colorsys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from lockstep.transforms.augmentation import ImageAugmentation, draw

SIZE = (12, 16)


def batch(count: int = 6) -> dict[str, Any]:
    """Images with a bright rectangle, its box and its mask, and a label."""
    random = np.random.default_rng(2)
    images = random.uniform(0, 0.4, (count, *SIZE, 3)).astype(np.float32)
    masks = np.zeros((count, *SIZE, 1), np.int64)
    images[:, 3:8, 4:12] += 0.5
    masks[:, 3:8, 4:12] = 2
    boxes = np.tile(np.array([[3, 4, 8, 12], [0, 0, 0, 0]], np.float32), (count, 1, 1))
    columns = {"image": images, "boxes": boxes, "mask": masks, "label": np.arange(count, dtype=np.int64)[:, None]}
    return {name: tf.constant(value) for name, value in columns.items()}


def seeds(count: int = 6, epoch: int = 0) -> tf.Tensor:
    """A seed for each record."""
    return tf.constant([[epoch, 1000 + record] for record in range(count)], tf.int32)


EVERYTHING = ImageAugmentation(
    image="image",
    boxes="boxes",
    mask="mask",
    flip_horizontal=0.5,
    flip_vertical=0.3,
    rotate=20,
    zoom=(0.8, 1.2),
    translate=0.1,
    crop=0.7,
    brightness=0.1,
    contrast=(0.8, 1.2),
    saturation=(0.5, 1.5),
    hue=0.1,
)


def test_a_record_is_changed_by_its_seed_alone() -> None:
    """In another batch, at another place, the same; in another epoch, otherwise; no two alike."""
    columns = batch()
    whole = EVERYTHING(columns, seeds())
    order = [4, 1, 2]
    part = EVERYTHING({name: tf.gather(value, order) for name, value in columns.items()}, tf.gather(seeds(), order))
    for name, value in whole.items():
        np.testing.assert_allclose(value.numpy()[order], part[name].numpy(), rtol=0, atol=1e-6)
        assert value.dtype == columns[name].dtype
        assert value.shape == columns[name].shape
    later = EVERYTHING(columns, seeds(epoch=1))["image"].numpy()
    assert all(np.abs(whole["image"].numpy() - later).max(axis=(1, 2, 3)) > 0.05)
    np.testing.assert_array_equal(whole["label"].numpy(), columns["label"].numpy())
    assert whole["image"].numpy().min() >= 0
    assert whole["image"].numpy().max() <= 1
    assert set(np.unique(whole["mask"].numpy())) <= {0, 2}


def test_a_switch_does_not_change_what_others_draw() -> None:
    """The brightness is the same with and without turning."""
    plain = ImageAugmentation(image="image", brightness=0.2)
    gray = {"image": tf.fill([6, *SIZE, 1], 0.5)}
    turned = ImageAugmentation(image="image", brightness=0.2, rotate=30, fill=0.5)
    np.testing.assert_allclose(
        plain(gray, seeds())["image"].numpy(), turned(gray, seeds())["image"].numpy(), rtol=0, atol=1e-6
    )


def test_half_of_many_records_are_flipped_and_their_boxes_and_masks_too() -> None:
    """Each is as it was, or as NumPy flips it."""
    count = 200
    columns = batch(count)
    changed = ImageAugmentation(image="image", boxes="boxes", mask="mask", flip_horizontal=0.5)(columns, seeds(count))
    flipped = 0
    for number in range(count):
        image, before = changed["image"].numpy()[number], columns["image"].numpy()[number]
        is_flipped = bool(np.allclose(image, before[:, ::-1], atol=1e-5))
        flipped += is_flipped
        expected = [[3, 16 - 12, 8, 16 - 4]] if is_flipped else [[3, 4, 8, 12]]
        np.testing.assert_allclose(image, before[:, ::-1] if is_flipped else before, atol=1e-5)
        np.testing.assert_allclose(changed["boxes"].numpy()[number], [*expected, [0, 0, 0, 0]], atol=1e-4)
        mask = columns["mask"].numpy()[number]
        np.testing.assert_array_equal(changed["mask"].numpy()[number], mask[:, ::-1] if is_flipped else mask)
    assert 70 < flipped < 130


@pytest.mark.parametrize("options", [{"crop": 0.6}, {"zoom": (0.7, 1.3)}, {"translate": 0.3}, {"flip_vertical": 1.0}])
def test_boxes_follow_masks(options: dict[str, Any]) -> None:
    """What the moved mask covers is what the moved box holds; without turning to a pixel."""
    columns = batch(50)
    changed = ImageAugmentation(image="image", boxes="boxes", mask="mask", min_visibility=0.0, **options)(
        columns, seeds(50)
    )
    moved = 0
    for box, mask in zip(changed["boxes"].numpy()[:, 0], changed["mask"].numpy()[..., 0], strict=True):
        rows, cells = np.nonzero(mask)
        seen = np.array([rows.min(), cells.min(), rows.max() + 1, cells.max() + 1])
        np.testing.assert_allclose(box, seen, atol=1)
        moved += bool(np.abs(box - [3, 4, 8, 12]).max() > 0.5)
    assert moved > 20


def test_a_crop_shows_a_window_of_the_image_at_the_full_size() -> None:
    """On a slope of brightness both ends stay within it, and the slope is as much flatter as the window is narrower."""
    slope = np.tile(np.linspace(0, 1, 40, dtype=np.float32)[None, None, :, None], (30, 8, 1, 1))
    changed = ImageAugmentation(image="image", crop=0.5)({"image": tf.constant(slope)}, seeds(30))["image"].numpy()
    middle = changed[:, 4, 2:-2, 0]
    steps = np.diff(middle, axis=1)
    side = steps.mean(axis=1) * 39
    assert np.all((side > 0.49) & (side < 1.01))
    assert side.std() > 0.05
    np.testing.assert_allclose(steps, np.repeat(steps.mean(axis=1, keepdims=True), steps.shape[1], axis=1), atol=2e-3)


def test_colors_change_as_numpy_and_colorsys_change_them() -> None:
    """Brightness and contrast by the formula, saturation about the luma, hue on the circle; then cut off."""
    columns, drawn = batch(), {name: value.numpy() for name, value in draw(seeds()).items()}
    before: npt.NDArray[np.float64] = columns["image"].numpy().astype(np.float64)

    def each(name: str) -> npt.NDArray[np.float64]:
        return drawn[name].astype(np.float64)[:, None, None, None]

    def check(options: dict[str, Any], expected: npt.NDArray[np.float64]) -> None:
        found = ImageAugmentation(image="image", **options)(columns, seeds())["image"].numpy()
        np.testing.assert_allclose(found, np.clip(expected, 0, 1), atol=2e-4)

    check({"brightness": 0.3}, before + (2 * each("brightness") - 1) * 0.3)
    mean = before.mean(axis=(1, 2), keepdims=True)
    check({"contrast": (0.5, 2.0)}, mean + (before - mean) * (0.5 + 1.5 * each("contrast")))
    luma = (before * [0.2989, 0.5870, 0.1140]).sum(axis=-1, keepdims=True)
    check({"saturation": (0.0, 2.0)}, luma + (before - luma) * 2 * each("saturation"))
    turned = np.empty_like(before)
    for index in np.ndindex(before.shape[:3]):
        hue, saturation, value = colorsys.rgb_to_hsv(*before[index])
        turned[index] = colorsys.hsv_to_rgb((hue + (2 * drawn["hue"][index[0]] - 1) * 0.4) % 1, saturation, value)
    check({"hue": 0.4}, turned)


def test_nothing_switched_on_changes_nothing() -> None:
    """Not even by an interpolation."""
    columns = batch()
    for name, value in ImageAugmentation(image="image", boxes="boxes", mask="mask")(columns, seeds()).items():
        np.testing.assert_array_equal(value.numpy(), columns[name].numpy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flip_horizontal": 1.5}, "flip_horizontal: 1.5 is not allowed; give 0 to 1"),
        ({"rotate": -3}, "rotate: -3 is not allowed; give 0 to 180"),
        ({"crop": 0.0}, "crop: 0.0 is not allowed"),
        ({"zoom": (1.2, 0.8)}, r"zoom: \(1.2, 0.8\) is not allowed; give the lower number first"),
        ({"contrast": (-1.0, 1.0)}, "contrast"),
        ({"box_unit": "pixels"}, "box_unit: 'pixels' is not allowed"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    """By the name of the option."""
    with pytest.raises(ValueError, match=message):
        ImageAugmentation(image="image", **options)


def test_columns_that_do_not_fit_are_refused() -> None:
    """A missing one by the names that there are; colours of grey images."""
    with pytest.raises(ValueError, match=r"no column 'picture'; there are \['boxes', 'image', 'label', 'mask'\]"):
        ImageAugmentation(image="picture")(batch(), seeds())
    with pytest.raises(ValueError, match="of a known size is needed"):
        ImageAugmentation(image="label")(batch(), seeds())
    with pytest.raises(ValueError, match="three channels; 'mask' has 1"):
        ImageAugmentation(image="mask", hue=0.1)({"mask": tf.zeros([6, 4, 4, 1])}, seeds())
