"""The trained model as a SavedModel that takes raw records."""

import dataclasses
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.components.box_frames import FRAME_SUFFIX, in_frames
from lockstep.components.class_labels import LabelKind
from lockstep.components.durable_files import sync
from lockstep.components.errors import ConfigurationError
from lockstep.components.record_manifest import RawColumns, read_raw_columns
from lockstep.components.trainer.decoding import Decoder
from lockstep.components.trainer.detection import detections
from lockstep.components.trainer.loop import model_columns

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from tensorflow_transform.output_wrapper import TFTransformOutput

RawSpec = Mapping[str, Any]

DESCRIPTION_PATH = Path("assets.extra") / "lockstep.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingColumns:
    """Raw columns by what they are needed for.

    Args:
      served: What ``serving_default`` parses: every column that a feature is made of, but the label's own.
      transformed: What ``transform_features`` parses: every column that a feature or the label is made of.
    """

    served: frozenset[str]
    transformed: frozenset[str]


def serving_columns(
    transform_output: "TFTransformOutput", model: "keras.Model", *, label: str, weight: str | None = None
) -> ServingColumns:
    """Finds what can be served, from the transform graph.

    Args:
      transform_output: Its graph.
      model: What is served.
      label: Name of the transformed label.
      weight: Name of the transformed weights of records, which serving does not need.

    Raises:
      ConfigurationError: A feature of the model is made of the label's column, which is not known when serving; the
        model takes something that is no transformed feature.
    """
    sources = sources_of_features(transform_output)
    features = model_columns(model, dict.fromkeys(name for name in sources if name != weight), label)
    for name in features:
        if label in sources[name]:
            raise ConfigurationError(
                f"feature {name!r}: made of the label's column {label!r}, which is not known when the model is served; "
                "leave it out of the model"
            )
    return ServingColumns(
        served=frozenset().union(*(columns for name, columns in sources.items() if name not in (label, weight)))
        - {label},
        transformed=frozenset().union(*sources.values()),
    )


def sources_of_features(transform_output: "TFTransformOutput") -> dict[str, frozenset[str]]:
    """Returns, for every transformed feature, the raw columns that it is computed from."""
    function = _load_transform(transform_output).transform_fn
    inputs = _by_name(function.structured_input_signature[0][0], function.inputs)
    outputs = _by_name(function.structured_outputs, function.outputs)
    column_of = {tensor.op.name: column for column, tensors in inputs.items() for tensor in tensors}
    return {name: frozenset(_columns_before(tensors, column_of)) for name, tensors in outputs.items()}


def export(
    model: "keras.Model",
    transform_output: "TFTransformOutput",
    columns: ServingColumns,
    export_dir: Path,
    *,
    label: str,
    label_kind: LabelKind,
    weight: str | None = None,
    classes: Sequence[str] = (),
    decoder: Decoder | None = None,
) -> None:
    """Writes the SavedModel; ``export_dir`` appears whole or not at all.

    Signatures, each with ``examples``, a string tensor [batch] of serialised raw tf.Examples:
      ``serving_default``: ``predictions`` float32 [batch, 1]; of a multiclass label the classes' probabilities, [batch,
        classes], with the name of each in ``classes``, string [batch, classes], and in ``class`` that of the most
        probable one, string [batch, 1]. Of boxes: ``boxes`` float32 [batch, n, 4] (x_min, y_min, x_max, y_max of the
        image as it came, in the label's unit), ``scores`` float32 and ``classes`` string, [batch, n], the surest first,
        how many there are in ``count``, int32 [batch], and all in one in ``predictions``, float32 [batch, n, 6]. The
        label's columns are not looked at; any other may be absent from a record.
      ``transform_features``: every transformed feature, the label too (as of a missing value where it is absent);
        what the trainer decodes is still encoded.
    ``assets.extra/lockstep.json`` names the columns that ``serving_default`` reads, with their types, and the label
    with its classes; of times, truths and lists also how they are written.

    Raises:
      OSError, tf.errors.OpError: It could not be written; nothing stays.
    """
    import tensorflow as tf

    raw_spec = transform_output.raw_feature_spec()
    root = tf.Module()
    # What tf.Transform saved, not its TransformFeaturesLayer: as a tf_keras model that would be traced for seconds.
    root.model, root.transform = _saveable(model), _load_transform(transform_output)
    signatures = {
        "serving_default": _serving(
            model,
            root.transform,
            raw_spec,
            columns.served,
            label,
            weight,
            classes,
            decoder,
            of_boxes=label_kind == "boxes",
        ),
        "transform_features": _transforming(root.transform, raw_spec, columns.transformed),
    }

    export_dir.parent.mkdir(parents=True, exist_ok=True)
    temporary_dir = export_dir.with_name(f".writing-{export_dir.name}")
    if temporary_dir.exists():  # of an attempt that was killed here
        shutil.rmtree(temporary_dir)
    try:
        tf.saved_model.save(root, str(temporary_dir), signatures=signatures)
        written = _raw_columns(transform_output)
        _write_description(temporary_dir, raw_spec, columns.served, label, label_kind, written, classes)
        for path in temporary_dir.rglob("*"):
            sync(path)
        if export_dir.exists():  # of an attempt that was killed right after the line below
            shutil.rmtree(export_dir)
        temporary_dir.rename(export_dir)
    except BaseException:
        shutil.rmtree(temporary_dir, ignore_errors=True)
        raise
    sync(export_dir.parent)


def _saveable(model: "keras.Model") -> Any:
    """Returns what holds a model's variables in a SavedModel: itself, or its layers.

    TensorFlow would trace a signature of Keras' own for a model, which takes sparse and ragged inputs for dense ones.
    """
    inputs = getattr(model, "_inputs_struct", None) or {}
    is_uneven = any(getattr(tensor, kind, False) for tensor in inputs.values() for kind in ("sparse", "ragged"))
    return list(model.layers) if is_uneven else model


def describe(
    export_dir: Path,
    transform_output: "TFTransformOutput",
    *,
    label: str,
    label_kind: LabelKind,
    classes: Sequence[str] = (),
) -> None:
    """Writes what a SavedModel of somebody else's making reads: the raw columns that not only the label needs.

    Does nothing where there is no model, or a description.

    Raises:
      ConfigurationError: The transform graph cannot be used.
    """
    if not (export_dir / "saved_model.pb").is_file() or (export_dir / DESCRIPTION_PATH).exists():
        return
    sources = sources_of_features(transform_output)
    served = frozenset().union(*(columns for name, columns in sources.items() if name != label))
    written = _raw_columns(transform_output)
    raw_spec = transform_output.raw_feature_spec()
    _write_description(export_dir, raw_spec, served, label, label_kind, written, classes)


def _raw_columns(transform_output: "TFTransformOutput") -> RawColumns:
    return read_raw_columns(Path(transform_output.transform_savedmodel_dir).parent)


def _write_description(
    export_dir: Path,
    raw_spec: RawSpec,
    served: Collection[str],
    label: str,
    label_kind: LabelKind,
    written: RawColumns,
    classes: Sequence[str],
) -> None:
    types = {name: _type_name(raw_spec[name].dtype) for name in sorted(served)}
    description: dict[str, Any] = {"raw_features": types, "label": label, "label_kind": label_kind}
    if classes:
        description["classes"] = list(classes)
    # What the types of features say already need not be told twice.
    told = written.of([name for name in types if written.types.get(name) != types[name]])
    if told.types:
        description["raw_columns"] = told.to_document()
    path = export_dir / DESCRIPTION_PATH
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(description, sort_keys=True, indent=2) + "\n", encoding="utf-8")


def _by_name(structure: Mapping[str, Any], flat: "Sequence[tf.Tensor]") -> "dict[str, list[tf.Tensor]]":
    """Deals a function's flat tensors out to the names of a dict of (also sparse) tensors; captures stay over."""
    import tensorflow as tf

    remaining = iter(flat)
    return {  # sorted: the order in which TensorFlow flattens a dict
        name: [next(remaining) for _ in tf.nest.flatten(structure[name], expand_composites=True)]
        for name in sorted(structure)
    }


def _columns_before(outputs: "list[tf.Tensor]", column_of: Mapping[str, str]) -> set[str]:
    found, seen, waiting = set(), set(), [tensor.op for tensor in outputs]
    while waiting:
        operation = waiting.pop()
        if operation.name in seen:
            continue
        seen.add(operation.name)
        if operation.name in column_of:
            found.add(column_of[operation.name])
        waiting.extend(tensor.op for tensor in operation.inputs)
    return found


def _load_transform(transform_output: "TFTransformOutput") -> Any:
    import tensorflow as tf

    loaded = tf.saved_model.load(transform_output.transform_savedmodel_dir)
    if not hasattr(loaded, "transform_fn"):
        raise ConfigurationError(
            "preprocessing: the transform graph was written with TensorFlow 1's format; "
            "run Transform with force_tf_compat_v1=False"
        )
    return loaded


def _serving(
    model: "keras.Model",
    transform: Any,
    raw_spec: RawSpec,
    parsed: Collection[str],
    label: str,
    weight: str | None,
    classes: Sequence[str],
    decoder: Decoder | None,
    *,
    of_boxes: bool,
) -> Any:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False)
    def serve(examples: "tf.Tensor") -> "dict[str, tf.Tensor]":
        columns = _transform(transform, examples, raw_spec, parsed)
        if weight is not None:
            del columns[weight]
        if decoder is not None:
            columns = dict(decoder(columns))
        predictions = tf.cast(model(model_columns(model, columns, label), training=False), tf.float32)
        if not classes:
            return {"predictions": predictions}
        names = tf.constant(list(classes))
        if of_boxes:
            return _found_boxes(predictions, columns[label + FRAME_SUFFIX], names)
        return {
            "predictions": predictions,
            "classes": tf.tile(names[tf.newaxis], [tf.size(examples), 1]),
            "class": tf.gather(names, tf.argmax(predictions, axis=1))[:, tf.newaxis],
        }

    return serve


def _found_boxes(grid: "tf.Tensor", frames: "tf.Tensor", names: "tf.Tensor") -> "dict[str, tf.Tensor]":
    """Returns the boxes of a model's grid as places in the images as they came, by their frames [batch, 6]."""
    import tensorflow as tf

    found = detections(grid)
    is_box = found[..., 4] > 0
    boxes = in_frames(found[..., :4], frames)
    index = tf.where(is_box, found[..., 5], -1.0)
    return {
        "predictions": tf.concat([boxes, found[..., 4:5], index[..., tf.newaxis]], axis=-1),
        "boxes": boxes,
        "scores": found[..., 4],
        "classes": tf.where(is_box, tf.gather(names, tf.maximum(tf.cast(index, tf.int32), 0)), ""),
        "count": tf.math.count_nonzero(is_box, axis=1, dtype=tf.int32),
    }


def _transforming(transform: Any, raw_spec: RawSpec, parsed: Collection[str]) -> Any:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False)
    def transform_features(examples: "tf.Tensor") -> "dict[str, tf.Tensor]":
        # A signature returns tensors only: what has any number of values is filled up with zeros, or empty text.
        return {name: _as_tensor(value) for name, value in _transform(transform, examples, raw_spec, parsed).items()}

    return transform_features


def _transform(
    transform: Any, examples: "tf.Tensor", raw_spec: RawSpec, parsed: Collection[str]
) -> "dict[str, tf.Tensor]":
    """Applies the transform graph; columns that are not parsed are absent from every record."""
    import tensorflow as tf

    given = tf.io.parse_example(examples, {name: raw_spec[name] for name in sorted(parsed)})
    signature = transform.transform_fn.structured_input_signature[0][0]
    inputs = {name: given.get(name, _absent(spec, tf.size(examples))) for name, spec in signature.items()}
    return _as_columns(transform.transform_fn(inputs))


def _absent(spec: "tf.TypeSpec", num_records: "tf.Tensor") -> "tf.Tensor | tf.SparseTensor":
    import tensorflow as tf

    if isinstance(spec, tf.SparseTensorSpec):
        shape = tf.stack([tf.cast(num_records, tf.int64), tf.constant(0, tf.int64)])
        return tf.SparseTensor(tf.zeros([0, 2], tf.int64), tf.zeros([0], spec.dtype), shape)
    return tf.zeros([num_records, *spec.shape[1:]], spec.dtype)


def _as_tensor(value: Any) -> "tf.Tensor":
    import tensorflow as tf

    if isinstance(value, tf.RaggedTensor):
        return value.to_tensor()
    return tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value


def _as_columns(features: "Mapping[str, tf.Tensor]") -> "dict[str, tf.Tensor]":
    """Gives scalar features the shape [batch, 1] that the training columns have."""
    return {name: value[:, None] if value.shape.rank == 1 else value for name, value in features.items()}


def _type_name(dtype: "tf.DType") -> str:
    import tensorflow as tf

    return {tf.int64: "int", tf.float32: "float", tf.string: "string"}[dtype]
