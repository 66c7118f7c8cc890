"""The built-in ``factorization_machine``: which of two things go together, from a vector for each."""

import dataclasses
from typing import TYPE_CHECKING, Any

from lockstep.components.errors import ConfigurationError

if TYPE_CHECKING:
    from lockstep.components.trainer.models import ModelInputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorizationParameters:
    """Parameters of the built-in ``factorization_machine``.

    Args:
      dim: Values in the vector of each user, item or other index, 1 or more.
    """

    dim: int = 8

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, int) or self.dim < 1:
            raise ConfigurationError(
                f"model.parameters.dim: {self.dim!r} is not allowed; give a whole number of 1 or more"
            )


def factorization_machine(inputs: "ModelInputs", parameters: FactorizationParameters) -> tuple[dict[str, Any], Any]:
    """Returns inputs and output of Rendle's factorization machine (2010): pairs of indices add their vectors' product.

    Vectors and weights of all index features are rows of two tables, dealt over the parameter servers where there are
    several. Quantities have a weight each. The scale of the pairs' sum is learned too, as is a constant.

    Raises:
      ConfigurationError: There is no index feature (buckets, vocabulary), or a feature of strings; the label has
        classes.
    """
    import keras

    from lockstep.components.trainer.embeddings import SplitEmbedding
    from lockstep.components.trainer.models import num_places

    if inputs.label_kind == "multiclass":
        raise ConfigurationError(
            "model.build: factorization_machine gives one value, and a multiclass label needs one for each class; give"
            " mlp, linear, or a model of your own"
        )
    tensors: dict[str, Any] = {}
    indices, are_values, quantities, offset = [], [], [], 0
    places = num_places(inputs)
    for number, (name, feature) in enumerate(inputs.features.items()):
        if feature.dtype == "string":
            raise ConfigurationError(f"feature {name!r}: the built-in models take numbers, this is text")
        tensors[name] = keras.Input(shape=feature.shape, dtype=feature.dtype, name=f"input_{number}")
        if feature.num_values is None:
            quantities.append(keras.layers.Flatten()(keras.ops.cast(tensors[name], "float32") / places.get(name, 1.0)))
        else:
            index = keras.layers.Flatten()(tensors[name])
            indices.append(index + (offset - feature.first_value))
            is_value = keras.ops.not_equal(index, 0) if feature.count else keras.ops.ones_like(index)
            are_values.append(keras.ops.cast(is_value, "float32"))
            offset += feature.num_values
    if not indices:
        raise ConfigurationError("features: factorization_machine needs one of kind vocabulary or buckets, or more")
    joined = keras.ops.concatenate(indices, axis=1)
    split = {"num_parts": inputs.table_parts}
    normal = keras.initializers.RandomNormal(stddev=0.1)
    vectors = SplitEmbedding(offset, parameters.dim, embeddings_initializer=normal, name="vectors", **split)(joined)
    weights = SplitEmbedding(offset, 1, embeddings_initializer="zeros", name="weights", **split)(joined)
    if places:  # what is padding adds nothing, alone or in pairs
        mask = keras.ops.expand_dims(keras.ops.concatenate(are_values, axis=1), -1)
        vectors, weights = vectors * mask, weights * mask
    # All pairs at once: half of (the square of the sum less the sum of the squares).
    squares = keras.ops.square(keras.ops.sum(vectors, axis=1)) - keras.ops.sum(keras.ops.square(vectors), axis=1)
    score = 0.5 * keras.ops.sum(squares, axis=1, keepdims=True) + keras.ops.sum(weights, axis=1)
    activation = "sigmoid" if inputs.label_kind == "binary" else None
    first = keras.initializers.Identity()  # 1 for the score, 0 for the quantities
    head = keras.layers.Dense(1, activation=activation, kernel_initializer=first, dtype="float32", name="prediction")
    return tensors, head(keras.ops.concatenate([score, *quantities], axis=1))
