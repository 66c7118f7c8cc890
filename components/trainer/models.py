"""From a transform graph to a Keras model: what a model function is given, and the built-in models."""

import dataclasses
import difflib
import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lockstep.components.class_labels import LabelKind
from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.convolution import ConvParameters, check_images, encode_image, is_image
from lockstep.components.trainer.decoding import Decoder, decoded_spec
from lockstep.components.trainer.detection import DetectorParameters, detector_tensors
from lockstep.components.trainer.factorization import FactorizationParameters
from lockstep.components.trainer.records import layout_of
from lockstep.components.trainer.spec import ModelOptions
from lockstep.components.trainer.user_functions import user_function

if TYPE_CHECKING:
    import keras
    from tensorflow_transform.output_wrapper import TFTransformOutput

_NUM_NAME_CHARACTERS = 40
# What the feature is called that says how many indices of a row are no padding, behind the name of the indices.
_COUNT_SUFFIX = "_count"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureInput:
    """One transformed feature, as the model receives it.

    Args:
      dtype: ``float32``, ``int64`` or ``string``, as TensorFlow names it.
      shape: Shape without the batch dimension; the declared features have ``(1,)``, sparse and ragged ones ``(None,)``.
      layout: ``sparse`` is given to the model as a SparseTensor (``keras.Input(..., sparse=True)``), ``ragged`` as a
        RaggedTensor (``ragged=True``), as the preprocessing function returned it.
      num_values: For an index (of a bucket, of a vocabulary, ...): how many different values there are. None for a
        quantity, and for an integer of unknown range.
      first_value: The smallest index: 0, but for vocabularies whose default value is -1.
      count: Of indices of which 0 is padding: the feature that holds how many of a row are none. That is so for an
        index feature of shape (n,) beside a float32 feature of shape (1,) named like it with ``_count`` behind, as
        declared texts and lists are. The built-in models take the mean of what is no padding. None for all others.
    """

    dtype: str
    shape: tuple[int | None, ...] = (1,)
    layout: Literal["dense", "sparse", "ragged"] = "dense"
    num_values: int | None = None
    first_value: int = 0
    count: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """What a model function is called with: ``build(inputs: ModelInputs) -> keras.Model``.

    The model takes a dict of tensors under (some of) the names in ``features``, and returns one float32 tensor:
    [batch, 1], a probability where ``label_kind`` is ``binary``, the value itself for ``regression``; [batch,
    num_classes], the classes' probabilities, for ``multiclass``; for ``boxes`` a grid, [batch, rows, columns,
    num_classes + 4], as `lockstep.components.trainer.detection` says.

    Args:
      features: Transformed features by name, without label and weights, in alphabetical order.
      label_kind: What is predicted.
      parameters: ``model.parameters`` of the configuration, as given.
      num_classes: How many classes a ``multiclass`` label, or one of ``boxes``, has; None for other kinds.
      table_parts: Parts that an ``embeddings.SplitEmbedding`` should have: the number of parameter servers, else 1.
    """

    features: Mapping[str, FeatureInput]
    label_kind: LabelKind
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_classes: int | None = None
    table_parts: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class MlpParameters:
    """Parameters of the built-in ``mlp``.

    Args:
      hidden: Units of each hidden layer, from the input on; empty for none.
      dropout: Share of each hidden layer's outputs that training sets to 0, in [0, 1).
      embedding_dim: Size of every index feature's embedding; None takes the fourth root of its number of values,
        rounded up: 2 for 16 values, 4 for 256, 10 for 10,000.
    """

    hidden: tuple[int, ...] = (64, 32)
    dropout: float = 0.0
    embedding_dim: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple) or not all(_is_count(units) for units in self.hidden):
            raise ConfigurationError(
                f"model.parameters.hidden: {self.hidden!r} is not allowed; give a list of whole numbers of 1 or more,"
                " such as [64, 32]"
            )
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ConfigurationError(
                f"model.parameters.dropout: {self.dropout!r} is not allowed; give a number from 0 to under 1"
            )
        if self.embedding_dim is not None and not _is_count(self.embedding_dim):
            raise ConfigurationError(
                f"model.parameters.embedding_dim: {self.embedding_dim!r} is not allowed;"
                " give a whole number of 1 or more, or leave it out"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearParameters:
    """The built-in ``linear`` has no parameters."""


def mlp(inputs: ModelInputs) -> "keras.Model":
    """Returns a dense network: quantities as they are, an embedding for each index feature, hidden ReLU layers.

    Args:
      inputs: Dense features of any shape, float or integer; parameters as in `MlpParameters`.

    Raises:
      ConfigurationError: An unknown or invalid parameter, no features, or a feature of strings.
    """
    import keras

    parameters = _parameters(MlpParameters, "mlp", inputs.parameters)
    tensors, encoded = _encode(inputs, lambda size: parameters.embedding_dim or math.ceil(size**0.25))
    hidden = keras.layers.Concatenate(name="inputs")(encoded) if len(encoded) > 1 else encoded[0]
    for number, units in enumerate(parameters.hidden, start=1):
        hidden = keras.layers.Dense(units, activation="relu", name=f"hidden_{number}")(hidden)
        if parameters.dropout:
            hidden = keras.layers.Dropout(parameters.dropout, name=f"dropout_{number}")(hidden)
    return _model("mlp", tensors, _head(inputs)(hidden))


def conv(inputs: ModelInputs) -> "keras.Model":
    """Returns a small convolutional network for images; other features are joined to what it makes of them.

    Args:
      inputs: Dense features, at least one of them float32 [height, width, channels]; parameters as in `ConvParameters`.

    Raises:
      ConfigurationError: An unknown or invalid parameter, no image, one that is too small, or a feature of strings.
    """
    import keras

    parameters = _parameters(ConvParameters, "conv", inputs.parameters)
    check_images(inputs.features, parameters)
    tensors, encoded = _encode(inputs, lambda size: math.ceil(size**0.25), parameters)
    hidden = keras.layers.Concatenate(name="inputs")(encoded) if len(encoded) > 1 else encoded[0]
    for number, units in enumerate(parameters.hidden, start=1):
        hidden = keras.layers.Dense(units, activation="relu", name=f"hidden_{number}")(hidden)
        if parameters.dropout:
            hidden = keras.layers.Dropout(parameters.dropout, name=f"dropout_{number}")(hidden)
    return _model("conv", tensors, _head(inputs)(hidden))


def linear(inputs: ModelInputs) -> "keras.Model":
    """Returns a linear regression, of classes a logistic one: a weight for each quantity and each value of an index.

    Args:
      inputs: Dense features of any shape, float or integer; there are no parameters.

    Raises:
      ConfigurationError: A parameter, no features, or a feature of strings.
    """
    import keras

    _parameters(LinearParameters, "linear", inputs.parameters)
    tensors, encoded = _encode(inputs, lambda size: 1)
    joined = keras.layers.Concatenate(name="inputs")(encoded) if len(encoded) > 1 else encoded[0]
    return _model("linear", tensors, _head(inputs)(joined))


def factorization_machine(inputs: ModelInputs) -> "keras.Model":
    """Returns a recommender: see ``factorization.factorization_machine``; parameters as in `FactorizationParameters`.

    Raises:
      ConfigurationError: An unknown or invalid parameter, no index feature, or a feature of strings.
    """
    from lockstep.components.trainer import factorization

    parameters = _parameters(FactorizationParameters, "factorization_machine", inputs.parameters)
    return _model("factorization_machine", *factorization.factorization_machine(inputs, parameters))


def detector(inputs: ModelInputs) -> "keras.Model":
    """Returns a small convolutional network that finds objects in an image; parameters as in `DetectorParameters`.

    Raises:
      ConfigurationError: An unknown or invalid parameter, a label of another kind, not one image, or one whose size is
        no multiple of the grid's cells.
    """
    return _model("detector", *detector_tensors(inputs, _parameters(DetectorParameters, "detector", inputs.parameters)))


BUILT_IN: Mapping[str, Callable[[ModelInputs], "keras.Model"]] = {
    "mlp": mlp,
    "linear": linear,
    "conv": conv,
    "detector": detector,
    "factorization_machine": factorization_machine,
}


def model_inputs(
    tf_transform_output: "TFTransformOutput",
    *,
    label: str,
    label_kind: LabelKind = "binary",
    parameters: Mapping[str, Any] | None = None,
    weight: str | None = None,
    num_classes: int | None = None,
    decoder: Decoder | None = None,
) -> ModelInputs:
    """Reads the transformed features from a transform graph, whoever wrote its preprocessing function.

    The number of values of an index feature is what tf.Transform recorded in the transformed schema when it applied a
    vocabulary or buckets.

    Raises:
      ConfigurationError: The label is not among the outputs of the preprocessing function, or an output is sparse.
    """
    spec = decoded_spec(tf_transform_output.transformed_feature_spec(), decoder)
    if label not in spec:
        raise ConfigurationError(
            f"label.column: {label!r} is not among the outputs of the preprocessing function"
            f" ({', '.join(sorted(spec))}); return the transformed label under the name of its column"
        )
    domains = tf_transform_output.transformed_domains()
    features = {}
    for name in sorted(set(spec) - {label, weight}):
        features[name] = _feature_input(name, spec[name], domains.get(name))
    for name, feature in features.items():
        count = features.get(name + _COUNT_SUFFIX)
        is_index = feature.num_values is not None and feature.first_value == 0 and feature.layout == "dense"
        is_counted = count is not None and (count.dtype, count.shape) == ("float32", (1,))
        if is_index and is_counted and len(feature.shape) == 1:
            features[name] = dataclasses.replace(feature, count=name + _COUNT_SUFFIX)
    return ModelInputs(
        features=features, label_kind=label_kind, parameters=dict(parameters or {}), num_classes=num_classes
    )


def build_model(
    options: ModelOptions,
    tf_transform_output: "TFTransformOutput",
    label: str,
    label_kind: LabelKind = "binary",
    *,
    table_parts: int = 1,
    weight: str | None = None,
    num_classes: int | None = None,
    decoder: Decoder | None = None,
) -> "keras.Model":
    """Builds the model that the configuration names, for the features that a transform graph produces.

    Args:
      options: The ``model`` block; ``build`` is a name in `BUILT_IN`, or ``module:function``.
      tf_transform_output: Output of the Transform component.
      label: Name of the transformed label.
      label_kind: What is predicted.
      table_parts: See ``ModelInputs``.
      num_classes: Likewise.
      weight: Name of the transformed feature that holds the records' weights, which the model is not given.
      decoder: What decodes features before the model gets them.

    Raises:
      ConfigurationError: There is no such function, or it returned something else than a Keras model; what
        `model_inputs` and the built-in models refuse. What a user's own function raises passes through unchanged.
    """
    import keras

    build = resolve_build(options.build)
    inputs = model_inputs(
        tf_transform_output,
        label=label,
        label_kind=label_kind,
        parameters=options.parameters,
        weight=weight,
        num_classes=num_classes,
        decoder=decoder,
    )
    model = build(dataclasses.replace(inputs, table_parts=table_parts))
    if not isinstance(model, keras.Model):
        raise ConfigurationError(
            f"model.build: {options.build!r} returned {type(model).__name__}; it must return a keras.Model (Keras 3)"
        )
    return model


def resolve_build(name: str) -> Callable[[ModelInputs], "keras.Model"]:
    """Returns the model function called ``name``: a built-in, or one imported by ``module:function``.

    Raises:
      ConfigurationError: No built-in has that name, or the module or the function in it does not exist.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, colon, function_name = name.partition(":")
    if not (colon and module_name and function_name):
        nearest = difflib.get_close_matches(name, BUILT_IN, n=1)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise ConfigurationError(
            f"model.build: {name!r} is not allowed{hint}; give one of {', '.join(BUILT_IN)}, or module:function"
        )
    return user_function("model.build", name)  # type: ignore[no-any-return]


def _feature_input(name: str, spec: Any, domain: Any) -> FeatureInput:
    # A domain without bounds, or of floats or strings, says nothing about how many values there are.
    layout = layout_of(spec)
    if layout is None:
        raise ConfigurationError(
            f"feature {name!r}: the preprocessing function returns it as {type(spec).__name__} of a form that the"
            " trainer does not read; return it dense, or sparse or ragged of two dimensions"
        )
    is_index = spec.dtype.is_integer and getattr(domain, "is_categorical", False) and domain.max >= domain.min
    return FeatureInput(
        dtype=spec.dtype.name,
        shape=tuple(spec.shape) if layout == "dense" else (None,),
        layout=layout,
        num_values=domain.max - domain.min + 1 if is_index else None,
        first_value=domain.min if is_index else 0,
    )


def _encode(
    inputs: ModelInputs, embedding_dim: Callable[[int], int], images: ConvParameters | None = None
) -> tuple[dict[str, Any], list[Any]]:
    """Makes a Keras input for every feature, and a float32 tensor [batch, n] from each; of images by blocks, if any."""
    import keras

    if not inputs.features:
        raise ConfigurationError("features: a model needs at least one; declare the columns that it shall learn from")
    tensors: dict[str, Any] = {}
    encoded: list[Any] = []
    places = num_places(inputs)
    for number, (name, feature) in enumerate(inputs.features.items()):
        if feature.layout != "dense":
            raise ConfigurationError(
                f"feature {name!r}: the built-in models take dense features, this is {feature.layout}; let the"
                " preprocessing function return it dense, or give a model of your own"
            )
        if feature.dtype == "string":
            raise ConfigurationError(
                f"feature {name!r}: the built-in models take numbers, this is text; give it a vocabulary, or leave it"
                " out of what the preprocessing function returns"
            )
        layer_name = _layer_name(number, name)
        tensors[name] = keras.Input(shape=feature.shape, dtype=feature.dtype, name=f"input_{layer_name}")
        if images is not None and is_image(feature):
            encoded.append(encode_image(tensors[name], images, layer_name))
            continue
        tensor = tensors[name] / places[name] if name in places else tensors[name]
        encoded.append(_encode_one(feature, tensor, embedding_dim, f"embed_{layer_name}"))
    return tensors, encoded


def num_places(inputs: ModelInputs) -> dict[str, float]:
    """Returns the features that count indices beside padding, and how many they can count."""
    return {
        feature.count: float(feature.shape[0] or 1) for feature in inputs.features.values() if feature.count is not None
    }


def _encode_one(feature: FeatureInput, tensor: Any, embedding_dim: Callable[[int], int], layer_name: str) -> Any:
    import keras

    if feature.num_values is None:
        values = keras.ops.cast(tensor, "float32")
    else:
        index = tensor - feature.first_value if feature.first_value else tensor
        dim = embedding_dim(feature.num_values)
        values = keras.layers.Embedding(feature.num_values, dim, name=layer_name)(index)
        if feature.count is not None:
            # In float32, since half precision cannot add up a long text. Without any word it is zeros.
            is_value = keras.ops.expand_dims(keras.ops.cast(keras.ops.not_equal(index, 0), "float32"), -1)
            total = keras.ops.sum(keras.ops.cast(values, "float32") * is_value, axis=1)
            values = total / keras.ops.maximum(keras.ops.sum(is_value, axis=1), 1.0)
    return values if len(values.shape) == 2 else keras.layers.Reshape((-1,))(values)


def _layer_name(number: int, feature: str) -> str:
    # A column may be called anything ("km/h", "prediction"), a layer only what TensorFlow takes as a scope, and no two
    # alike: the number tells them apart, the rest is for the reader.
    return f"{number}_{re.sub(r'[^A-Za-z0-9_]', '_', feature)[:_NUM_NAME_CHARACTERS]}"


def _model(name: str, tensors: dict[str, Any], output: Any) -> "keras.Model":
    import keras

    with warnings.catch_warnings():
        # The keys of the dict count when the model is called; that layers are named otherwise (`_layer_name`) is meant.
        warnings.filterwarnings("ignore", message="When providing `inputs` as a dict, all keys")
        return keras.Model(tensors, output, name=name)


def _head(inputs: ModelInputs) -> Any:
    import keras

    # float32 whatever the policy: a probability in half precision is too coarse for thresholds and metrics.
    activation = {"binary": "sigmoid", "multiclass": "softmax"}.get(inputs.label_kind)
    return keras.layers.Dense(inputs.num_classes or 1, activation=activation, dtype="float32", name="prediction")


_P = TypeVar("_P", MlpParameters, LinearParameters, ConvParameters, DetectorParameters, FactorizationParameters)


def _parameters(cls: type[_P], model: str, given: Mapping[str, Any]) -> _P:
    allowed = [field.name for field in dataclasses.fields(cls)]
    for name in given:
        if name not in allowed:
            nearest = difflib.get_close_matches(str(name), allowed, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise ConfigurationError(
                f"model.parameters.{name}: {model!r} has no such parameter{hint};"
                f" it takes {', '.join(allowed) or 'none'}"
            )
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return cls(**values)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
