"""The built-in ``conv``: a small convolutional network for images, beside any other features."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from lockstep.components.errors import ConfigurationError

if TYPE_CHECKING:
    from lockstep.components.trainer.models import FeatureInput

__all__ = ["ConvParameters", "encode_image", "is_image"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvParameters:
    """Parameters of the built-in ``conv``.

    Args:
      filters: Of each block from the image on: a 3 x 3 convolution, ReLU, and a maximum over 2 x 2, which halves the
        image; at least one.
      pool: What comes behind the blocks: ``average`` over all places, or ``flatten``, which keeps where things are and
        suits small images.
      hidden: Units of each dense layer behind that; empty for none.
      dropout: Share of each dense layer's outputs that training sets to 0, in [0, 1).
    """

    filters: tuple[int, ...] = (32, 64, 128)
    pool: Literal["average", "flatten"] = "average"
    hidden: tuple[int, ...] = (64,)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("filters", "hidden"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(_is_count(units) for units in value):
                raise ConfigurationError(
                    f"model.parameters.{name}: {value!r} is not allowed; give a list of whole numbers of 1 or more,"
                    " such as [32, 64]"
                )
        if not self.filters:
            raise ConfigurationError("model.parameters.filters: [] is not allowed; give at least one number")
        if self.pool not in ("average", "flatten"):
            raise ConfigurationError(f"model.parameters.pool: {self.pool!r} is not allowed; give average or flatten")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ConfigurationError(
                f"model.parameters.dropout: {self.dropout!r} is not allowed; give a number from 0 to under 1"
            )


def is_image(feature: "FeatureInput") -> bool:
    """Returns whether a feature is an image: dense floats of a known height, width and number of channels."""
    is_known = len(feature.shape) == 3 and None not in feature.shape
    return feature.layout == "dense" and feature.dtype == "float32" and is_known


def check_images(features: "Mapping[str, FeatureInput]", parameters: ConvParameters) -> None:
    """Refuses what the blocks cannot make smaller.

    Raises:
      ConfigurationError: There is no image, or one has fewer pixels than the blocks halve away.
    """
    images = {name: feature for name, feature in features.items() if is_image(feature)}
    if not images:
        raise ConfigurationError(
            "model.build: conv needs an image, and no feature is float32 [height, width, channels]; declare one of"
            " kind image, or give mlp"
        )
    for name, feature in images.items():
        least = 2 ** len(parameters.filters)
        height, width = feature.shape[:2]
        if min(height or 0, width or 0) < least:
            raise ConfigurationError(
                f"model.parameters.filters: {len(parameters.filters)} blocks halve {height} x {width} pixels"
                f" (feature {name!r}) away; give fewer, or images of at least {least} pixels"
            )


def encode_image(tensor: Any, parameters: ConvParameters, name: str) -> Any:
    """Returns what the blocks make of images [batch, height, width, channels]: [batch, n]."""
    import keras

    hidden = tensor
    for number, filters in enumerate(parameters.filters, start=1):
        layer = f"{name}_{number}"
        hidden = keras.layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"conv_{layer}")(hidden)
        hidden = keras.layers.MaxPooling2D(name=f"pool_{layer}")(hidden)
    if parameters.pool == "flatten":
        return keras.layers.Flatten(name=f"flatten_{name}")(hidden)
    return keras.layers.GlobalAveragePooling2D(name=f"average_{name}")(hidden)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
