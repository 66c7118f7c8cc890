"""Encoded images as numbers: against NumPy and Pillow, alone and in batches, in Beam and as served."""

import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from lockstep.transforms import testing
from lockstep.transforms.features import Feature, Label
from lockstep.transforms.images import decode_images
from tests.transforms.conftest import declared

LABEL = Label(column="y", kind="regression")


def pixels(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    """A smooth picture with some noise, uint8 [height, width, channels]."""
    random = np.random.default_rng(seed)
    ramp = np.linspace(0, 200, height)[:, None, None] + np.linspace(0, 40, width)[None, :, None]
    return (ramp + random.integers(0, 15, (height, width, channels))).astype(np.uint8)


def encoded(image: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
    """The bytes of an image file, written by Pillow."""
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(file, kind)
    return file.getvalue()


def decoded(*files: bytes, **options: Any) -> np.ndarray[Any, Any]:
    """What the kind image makes of files."""
    feature = Feature(kind="image", **{"height": 6, "width": 8, **options})
    found: np.ndarray[Any, Any] = decode_images(tf.constant(list(files)), feature).numpy()
    return found


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("zero_one", lambda image: image / np.float32(255)),
        ("minus_one_one", lambda image: image / np.float32(127.5) - 1),
        ("none", lambda image: image),
        (None, lambda image: image / np.float32(255)),
    ],
)
@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_an_image_of_the_size_asked_for_keeps_every_pixel(scale: Any, expected: Any, fit: Any) -> None:
    """Bit for bit, in the range that is declared."""
    image = pixels(6, 8)
    np.testing.assert_array_equal(decoded(encoded(image), scale=scale, fit=fit)[0], expected(image.astype(np.float32)))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "JPEG"])
def test_every_format_is_read(kind: str) -> None:
    """The pixels that Pillow reads; JPEG's decoders differ by a few of 255."""
    file = encoded(pixels(6, 8), kind)
    expected = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"), np.float32)
    np.testing.assert_allclose(decoded(file, scale="none")[0], expected, atol=4 if kind == "JPEG" else 0)


def test_colours_become_grey_and_grey_colours() -> None:
    """As many channels as declared, whatever the file has."""
    grey = pixels(6, 8, 1)
    np.testing.assert_array_equal(decoded(encoded(grey), scale="none")[0], np.repeat(grey, 3, axis=2))
    assert decoded(encoded(pixels(6, 8)), channels=1).shape == (1, 6, 8, 1)
    assert decoded(encoded(pixels(6, 8, 4)), channels=4).shape == (1, 6, 8, 4)


def test_a_larger_image_is_averaged() -> None:
    """Pillow's bilinear filter, which widens as it shrinks; the two round differently."""
    image = pixels(30, 40)
    expected = np.asarray(Image.fromarray(image).resize((8, 6), Image.Resampling.BILINEAR), np.float32)
    for fit in ("crop", "pad", "stretch"):
        np.testing.assert_allclose(decoded(encoded(image), scale="none", fit=fit)[0], expected, atol=1)


@pytest.mark.parametrize(("height", "width"), [(60, 40), (24, 80)])
def test_other_proportions_are_cropped_padded_or_stretched(height: int, width: int) -> None:
    """The window in the middle, the whole between black, or the whole out of proportion."""
    image = pixels(height, width)
    file = encoded(image)
    crop = (30, 40) if height == 60 else (24, 32)
    top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
    window = image[top : top + crop[0], left : left + crop[1]]
    expected = np.asarray(Image.fromarray(window).resize((8, 6), Image.Resampling.BILINEAR), np.float32)
    np.testing.assert_allclose(decoded(file, scale="none", fit="crop")[0], expected, atol=1)
    stretched = np.asarray(Image.fromarray(image).resize((8, 6), Image.Resampling.BILINEAR), np.float32)
    np.testing.assert_allclose(decoded(file, scale="none", fit="stretch")[0], stretched, atol=1)
    padded = decoded(file, scale="none", fit="pad")[0]
    inner = (6, 4) if height == 60 else (2, 8)
    top, left = (6 - inner[0]) // 2, (8 - inner[1]) // 2
    small = np.asarray(Image.fromarray(image).resize(inner[::-1], Image.Resampling.BILINEAR), np.float32)
    np.testing.assert_allclose(padded[top : top + inner[0], left : left + inner[1]], small, atol=1)
    padded[top : top + inner[0], left : left + inner[1]] = 0
    assert not padded.any()


def test_a_broken_image_fails() -> None:
    """A cut file, and one that is none: never a picture of something else."""
    whole = encoded(pixels(6, 8))
    for content in (whole[:-20], b"no image", encoded(pixels(6, 8), "JPEG")[:200]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decoded(whole, content)


def test_images_are_served_as_they_are_trained() -> None:
    """Raw bytes through Beam and through the exported graph, all at once and one by one; a missing one is black."""
    files = [encoded(pixels(9, 7 + i, seed=i), "JPEG" if i % 2 else "PNG") for i in range(5)]
    rows: list[testing.Row] = [{"image": file, "y": 1.0} for file in files]
    preprocessing = declared({"image": Feature(kind="image", height=6, width=8)}, LABEL)
    made = testing.run_preprocessing(preprocessing, [*rows, {"y": 1.0}])
    assert made.features["image"].shape == (6, 6, 8, 3)
    assert made.features["image_missing"].ravel().tolist() == [0, 0, 0, 0, 0, 1]
    assert not made.features["image"][5].any()
    spec = made.transform_output.transformed_feature_spec()["image"]
    assert (tuple(spec.shape), spec.dtype) == ((6, 8, 3), tf.float32)
    np.testing.assert_array_equal(made.serve(rows, without=["y"])["image"], made.features["image"][:5])
    for row, image in zip(rows, made.features["image"], strict=False):
        np.testing.assert_array_equal(made.serve([row], without=["y"])["image"][0], image)


def test_a_missing_image_may_be_an_error() -> None:
    """As of any other feature: named."""
    column = tf.SparseTensor([[0, 0]], [encoded(pixels(6, 8))], [2, 1])
    features = {"photo": Feature(kind="image", height=6, width=8, missing="error")}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"features.photo: a value of column photo is missing"):
        declared(features, LABEL)({"photo": column, "y": tf.constant([1.0, 2.0])})


def test_numbers_are_no_image() -> None:
    """The message says what to give."""
    features = {"photo": Feature(kind="image", height=6, width=8)}
    with pytest.raises(ValueError, match=r"features.photo: kind image needs the bytes .* 'photo' holds numbers"):
        declared(features, LABEL)({"photo": tf.constant([1.0]), "y": tf.constant([1.0])})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 6}, "width: required for kind 'image'"),
        ({"height": 0, "width": 8}, "height: 0 is not allowed; give 1 or more"),
        ({"height": 6, "width": 8, "channels": 2}, "channels: 2 is not allowed; give one of 1, 3, 4"),
        (
            {"height": 6, "width": 8, "scale": "z_score"},
            "scale: 'z_score' is not allowed for kind 'image'; give one of",
        ),
        ({"height": 6, "width": 8, "missing": "mean"}, "missing: 'mean' is not allowed for kind 'image'"),
        ({"height": 6, "width": 8, "fit": "zoom"}, "fit: 'zoom' is not allowed; give one of crop, pad, stretch"),
        ({"height": 6, "width": 8, "decode": "serve"}, "decode: 'serve' is not allowed; give one of transform, train"),
        ({"height": 6, "width": 8, "log": True}, "log: True has no effect on kind 'image'"),
    ],
)
def test_an_image_out_of_range_is_refused_by_its_key(options: dict[str, Any], message: str) -> None:
    """Before anything is loaded."""
    with pytest.raises(ValueError, match=f"^{message}"):
        Feature(kind="image", **options)
