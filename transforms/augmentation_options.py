"""The options of `lockstep.transforms.augmentation.ImageAugmentation`, checked without TensorFlow."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["AugmentationOptions"]

_SHARES = {
    "flip_horizontal": 1.0,
    "flip_vertical": 1.0,
    "rotate": 180.0,
    "translate": 1.0,
    "brightness": 1.0,
    "hue": 0.5,
    "min_visibility": 1.0,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationOptions:
    """How images are changed at random.

    In this order: a window is cut out and brought to the full size (``crop``), the image is flipped, turned and zoomed
    about its middle, moved; then brightness, contrast, saturation and hue change. The geometry is one interpolation.

    Args:
      image: Column of float32 [batch, height, width, channels], of values within ``value_range``.
      boxes: Column of float32 [batch, boxes, 4 or more]: y_min, x_min, y_max, x_max; four zeros are no box. A label of
        kind boxes is such a column, of unit normalized. None for none.
      mask: Column of numbers [batch, height, width, 1]; takes the nearest pixel's value. None for none.
      box_unit: ``pixel``, or ``normalized``: 1 is the image's height or width.
      flip_horizontal: Probability that left becomes right, 0 to 1.
      flip_vertical: Probability that top becomes bottom, 0 to 1.
      rotate: Degrees, at most, to either side; 0 to 180.
      zoom: At least and at most so many times the size; two positive numbers.
      translate: At most so much of width and height, to either side; 0 to 1.
      crop: Share of width and height that is kept at least, above 0 to 1. Where the window is, is drawn too.
      brightness: At most so much of the value range is added or taken away; 0 to 1.
      contrast: At least and at most so many times the distance of each channel's values from their mean.
      saturation: At least and at most so many times the distance from grey. Three channels only.
      hue: At most so much of the circle of colours, to either side; 0 to 0.5. Three channels only.
      fill: Of pixels from outside the image.
      mask_fill: Of a mask's pixels from outside.
      value_range: Lowest and highest value of a pixel; what would be beyond is cut off.
      min_visibility: Share of a box's area that must stay within the image, 0 to 1; with less there is no box.

    Raises:
      ValueError: A number is out of its range.
    """

    image: str
    boxes: str | None = None
    mask: str | None = None
    box_unit: Literal["pixel", "normalized"] = "pixel"
    flip_horizontal: float = 0.0
    flip_vertical: float = 0.0
    rotate: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    translate: float = 0.0
    crop: float = 1.0
    brightness: float = 0.0
    contrast: tuple[float, float] = (1.0, 1.0)
    saturation: tuple[float, float] = (1.0, 1.0)
    hue: float = 0.0
    fill: float = 0.0
    mask_fill: float = 0.0
    value_range: tuple[float, float] = (0.0, 1.0)
    min_visibility: float = 0.1

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for name, most in _SHARES.items():
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise ValueError(f"{name}: {value} is not allowed; give 0 to {most:g}")
        if not 0 < self.crop <= 1:
            raise ValueError(f"crop: {self.crop} is not allowed; give a share above 0, at most 1")
        for name in ("zoom", "contrast", "saturation", "value_range"):
            low, high = getattr(self, name)
            if low > high or (low <= 0 and name == "zoom") or (low < 0 and name in ("contrast", "saturation")):
                raise ValueError(f"{name}: ({low}, {high}) is not allowed; give the lower number first, none negative")
        if self.box_unit not in ("pixel", "normalized"):
            raise ValueError(f"box_unit: {self.box_unit!r} is not allowed; give 'pixel' or 'normalized'")

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> "AugmentationOptions":
        """Returns the options of a block of a configuration, whose lists are tuples here.

        Raises:
          ValueError: A key is unknown or absent, or a value is not allowed; the message begins with the key.
        """
        known = [field.name for field in dataclasses.fields(AugmentationOptions)]
        for name in parameters:
            if name not in known:
                nearest = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(known)}"
                raise ValueError(f"{name}: no such option; {hint}")
        if "image" not in parameters:
            raise ValueError("image: required, but not given; name the column of the images")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()
        }
        for name, value in values.items():
            default = next(field.default for field in dataclasses.fields(AugmentationOptions) if field.name == name)
            if isinstance(default, tuple):
                is_allowed = isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value))
                wanted = "two numbers, such as [0.9, 1.1]"
            elif isinstance(default, float):
                is_allowed, wanted = _is_number(value), "a number"
            else:
                is_allowed, wanted = isinstance(value, str), "text"
            if not is_allowed:
                raise ValueError(f"{name}: {parameters[name]!r} is not allowed; give {wanted}")
        return cls(**values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
