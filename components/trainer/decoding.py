"""Encoded features, such as images, decoded batch by batch: the same way in training, evaluation and service.

What decodes is a class named by its import path, so that the trainer knows nothing of images, nor of transforms.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.decoder_options import DecoderOptions
from lockstep.components.trainer.user_functions import user_function

Decoder = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""columns [batch, ...] by name -> the same columns, of which encoded ones are decoded; others may be absent."""


def load_decoder(options: DecoderOptions | None) -> Decoder | None:
    """Returns the decoder; None where nothing is encoded.

    Raises:
      ConfigurationError: There is no such class, or it refuses its parameters.
    """
    if options is None:
        return None
    make = user_function("decoder", options.build)
    try:
        return make(**options.parameters)  # type: ignore[no-any-return]
    except (TypeError, ValueError) as e:
        raise ConfigurationError(f"decoder: {options.build!r} refuses its parameters: {e}") from e


def decoded_spec(feature_spec: Mapping[str, Any], decoder: Decoder | None) -> dict[str, Any]:
    """Returns how features look when they are decoded: name -> spec, ``tf.io.FixedLenFeature`` where it changes.

    Args:
      feature_spec: Of the transformed records.
      decoder: None changes nothing.
    """
    import tensorflow as tf

    if decoder is None:
        return dict(feature_spec)
    empty = {
        name: tf.zeros([0, *spec.shape], spec.dtype)
        for name, spec in feature_spec.items()
        if isinstance(spec, tf.io.FixedLenFeature)
    }
    after = decoder(empty)
    changed = {name: after[name] for name in empty if after[name] is not empty[name]}
    return {
        **feature_spec,
        **{name: tf.io.FixedLenFeature(column.shape[1:], column.dtype) for name, column in changed.items()},
    }
