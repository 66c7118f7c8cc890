"""Random changes of images in training, which their boxes and masks follow: for ``train.augment``.

    from lockstep.transforms.augmentation import ImageAugmentation

    augment = ImageAugmentation(image="image", boxes="boxes", flip_horizontal=0.5, rotate=10, brightness=0.1)

All numbers are drawn from each record's own seed, in an order that does not depend on what is switched on.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lockstep.transforms import image_geometry
from lockstep.transforms.augmentation_options import AugmentationOptions

_DRAWS = (
    *("flip_horizontal", "flip_vertical", "rotate", "zoom", "translate_x", "translate_y"),
    *("crop", "crop_x", "crop_y", "brightness", "contrast", "saturation", "hue"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageAugmentation(AugmentationOptions):
    """Changes a batch of images; call it as ``train.augment`` is called.

    Its options are those of `AugmentationOptions`.
    """

    def __call__(self, columns: Mapping[str, Any], seeds: tf.Tensor) -> dict[str, Any]:
        """Returns the columns, of which images, boxes and masks are changed.

        Args:
          columns: Name -> [batch, ...].
          seeds: int32 [batch, 2].

        Raises:
          ValueError: A column is missing, or the images are not of a known size or lack the three channels.
        """
        for name in filter(None, (self.image, self.boxes, self.mask)):
            if name not in columns:
                raise ValueError(f"there is no column {name!r}; there are {sorted(columns)}")
        images = columns[self.image]
        if images.shape.rank != 4 or None in images.shape[1:]:
            raise ValueError(
                f"{self.image!r}: [batch, height, width, channels] of a known size is needed, not {images.shape}"
            )
        size = int(images.shape[1]), int(images.shape[2])
        drawn = draw(seeds)
        changed = dict(columns)
        if self._moves:
            maps = self.maps(drawn, size)
            images = image_geometry.move_images(images, maps, height=size[0], width=size[1], fill=self.fill)
            if self.boxes is not None:
                changed[self.boxes] = image_geometry.move_boxes(
                    columns[self.boxes],
                    maps,
                    input_size=size,
                    output_size=size,
                    unit=self.box_unit,
                    min_visibility=self.min_visibility,
                )
            if self.mask is not None:
                changed[self.mask] = image_geometry.move_images(
                    columns[self.mask],
                    maps,
                    height=size[0],
                    width=size[1],
                    interpolation="nearest",
                    fill=self.mask_fill,
                )
        changed[self.image] = self.colored(images, drawn)
        return changed

    @property
    def _moves(self) -> bool:
        return self.crop < 1 or self.zoom != (1.0, 1.0) or any(getattr(self, name) for name in _MOVES)

    def maps(self, drawn: Mapping[str, tf.Tensor], size: tuple[int, int]) -> tf.Tensor:
        """Returns how each image is moved, as `image_geometry` has it: float32 [batch, 3, 3].

        Args:
          drawn: What `draw` returns.
          size: Height and width, pixels.
        """
        height, width = size
        side = self.crop + drawn["crop"] * (1 - self.crop)
        window = image_geometry.scaling(1 / side, 1 / side) @ image_geometry.translation(
            -drawn["crop_x"] * (1 - side) * width, -drawn["crop_y"] * (1 - side) * height
        )
        low, high = self.zoom
        zoom = low + drawn["zoom"] * (high - low)
        mirrored = [
            tf.where(drawn[name] < getattr(self, name), -1.0, 1.0) for name in ("flip_horizontal", "flip_vertical")
        ]
        turned = image_geometry.rotation(_either_side(drawn["rotate"]) * math.radians(self.rotate))
        about = turned @ image_geometry.scaling(zoom * mirrored[0], zoom * mirrored[1])
        moved = image_geometry.translation(
            _either_side(drawn["translate_x"]) * self.translate * width,
            _either_side(drawn["translate_y"]) * self.translate * height,
        )
        return moved @ image_geometry.about_center(about, height, width) @ window

    def colored(self, images: tf.Tensor, drawn: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns images with other colours.

        Args:
          images: float32 [batch, height, width, channels].
          drawn: What `draw` returns.

        Raises:
          ValueError: Saturation or hue shall change, and there are not three channels.
        """
        low, high = self.value_range

        def factor(name: str) -> tf.Tensor:
            least, most = getattr(self, name)
            return (least + drawn[name] * (most - least))[:, tf.newaxis, tf.newaxis, tf.newaxis]

        changed = images
        if self.brightness:
            added = _either_side(drawn["brightness"]) * self.brightness * (high - low)
            changed = changed + added[:, tf.newaxis, tf.newaxis, tf.newaxis]
        if self.contrast != (1.0, 1.0):
            mean = tf.reduce_mean(changed, axis=[1, 2], keepdims=True)
            changed = mean + (changed - mean) * factor("contrast")
        if self.saturation != (1.0, 1.0) or self.hue:
            if images.shape[3] != 3:
                raise ValueError(
                    f"saturation and hue need images of three channels; {self.image!r} has {images.shape[3]}"
                )
            if self.saturation != (1.0, 1.0):
                grey = tf.image.rgb_to_grayscale(changed)
                changed = grey + (changed - grey) * factor("saturation")
            if self.hue:
                unit = tf.clip_by_value((changed - low) / (high - low), 0.0, 1.0)
                hue, saturation, value = tf.unstack(tf.image.rgb_to_hsv(unit), axis=-1)
                turn = (_either_side(drawn["hue"]) * self.hue)[:, tf.newaxis, tf.newaxis]
                unit = tf.image.hsv_to_rgb(tf.stack([tf.math.floormod(hue + turn, 1.0), saturation, value], axis=-1))
                changed = low + unit * (high - low)
        return changed if changed is images else tf.clip_by_value(changed, low, high)


_MOVES = ("flip_horizontal", "flip_vertical", "rotate", "translate")


def draw(seeds: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns name of a change -> float32 [batch], from 0 to below 1, of each record's own seed.

    Args:
      seeds: int32 [batch, 2].
    """
    numbers = tf.map_fn(
        lambda seed: tf.random.stateless_uniform([len(_DRAWS)], seed),
        seeds,
        fn_output_signature=tf.TensorSpec([len(_DRAWS)], tf.float32),
    )
    return dict(zip(_DRAWS, tf.unstack(numbers, axis=1), strict=True))


def _either_side(drawn: tf.Tensor) -> tf.Tensor:
    return 2 * drawn - 1
