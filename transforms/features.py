"""The ``features`` and ``label`` blocks of a pipeline's configuration, and what comes out of them."""

import dataclasses
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, Literal

from lockstep.transforms.box_options import check_box_label
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.time_options import NUM_VALUES_OF_PART

__all__ = [
    "COUNT_SUFFIX",
    "DAYS",
    "FRAME_SUFFIX",
    "MISSING_SUFFIX",
    "Feature",
    "Label",
    "TransformedFeature",
    "crossed_outputs",
    "from_config",
    "source_columns",
    "to_config",
    "transformed_features",
    "vocabulary_name",
]

MISSING_SUFFIX = "_missing"
# Of indices padded to one length: how many of a row are no padding. The built-in models look for it.
COUNT_SUFFIX = "_count"
# Of a label of boxes, behind its column: where the image that the model sees lies in the original one.
FRAME_SUFFIX = "_frame"
# Of a timestamp, behind its column: the days since a date.
DAYS = "days"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """What the model learns to predict: dense float32 of shape [batch, 1], under the name of its column.

    Of ``boxes`` it is float32 [batch, max_boxes, 5]: y_min, x_min, y_max, x_max, 1 being the height or width of the
    image as the model sees it, and the index of the class; zeros are no box.

    Args:
      column: The raw column; of numbers, but beside ``positive``, for ``multiclass``, and where ``preprocessing`` makes
        the label of it, as of an image's folder.
      kind: ``binary`` (0 or 1), ``regression``, or ``multiclass``: text or whole numbers become the index (int64) of
        the class, most frequent in training first, -1 for another one; the classes are kept in the transform graph
        under `vocabulary_name` of the column. Or ``boxes``: a list of numbers, four for each object in an image; a row
        without any is an image without objects.
      positive: ``binary`` only, instead of ``threshold``: the text, or whole number as text, for which the label is 1;
        it is 0 for every other.
      threshold: ``binary`` only: the label is 1 where ``column > threshold``, compared in float64; None takes the
        column as it is, and then it must hold 0 and 1 only.
      relative_to: A second column of numbers, needs ``threshold``: the label is 1 where
        ``column > threshold * relative_to``. It may be a feature too.
      missing: What ExampleGen does with a row in which ``column`` or ``relative_to`` is missing: ``error`` stops,
        ``drop`` leaves the row out. Where no ExampleGen looked (at serving) the label is NaN.
      unseen: ``multiclass`` and ``boxes`` only. What becomes of a row of the split ``eval`` with a class that the split
        ``train`` has not: ``error`` stops training and evaluation; ``leave_out`` measures without it, and tells how
        many there were.
      transformed: Beside ``run_fn`` only: what a preprocessing function of your own calls the transformed label; None
        is the name of ``column``.
      class_column: ``boxes`` only, required as the next two: the raw column with a list of the boxes' classes, text or
        whole numbers.
      image: The feature of kind image that the boxes are in; they follow how it is resized.
      max_boxes: As many as a row can have; one with more is an error.
      box_unit: ``pixel`` of the image's file, or ``normalized``: 1 is its height or width. The served model answers in
        the same unit.
      box_format: ``xyxy`` is x_min, y_min, x_max, y_max; ``yxyx`` y_min, x_min, y_max, x_max; ``xywh`` x_min, y_min,
        width, height, as COCO has it.
      min_visibility: Share of a box's area that must be within the resized image, 0 to 1; of less there is no box.
      invalid_boxes: What becomes of a box that is reversed or empty, not finite, or more than a pixel outside of its
        image: ``error`` stops, ``drop`` leaves the box out. What is up to a pixel outside is cut off.

    Raises:
      ValueError: A value out of range, or one that would be ignored.
    """

    column: str
    kind: Literal["binary", "regression", "multiclass", "boxes"] = "binary"
    positive: str | None = None
    threshold: float | None = None
    relative_to: str | None = None
    missing: Literal["error", "drop"] = "error"
    unseen: Literal["error", "leave_out"] = "error"
    transformed: str | None = None
    class_column: str | None = None
    image: str | None = None
    max_boxes: int | None = None
    box_unit: Literal["pixel", "normalized"] = "pixel"
    box_format: Literal["xyxy", "yxyx", "xywh"] = "xyxy"
    min_visibility: float = 0.0
    invalid_boxes: Literal["error", "drop"] = "error"

    def __post_init__(self) -> None:
        if not self.column:
            raise ValueError("column: an empty name is not allowed; name the column to predict")
        if self.kind not in ("binary", "regression", "multiclass", "boxes"):
            raise ValueError(f"kind: {self.kind!r} is not allowed; give binary, regression, multiclass or boxes")
        if self.missing not in ("error", "drop"):
            raise ValueError(f"missing: {self.missing!r} is not allowed; give error or drop")
        if self.unseen not in ("error", "leave_out"):
            raise ValueError(f"unseen: {self.unseen!r} is not allowed; give error or leave_out")
        if self.unseen != "error" and self.kind not in ("multiclass", "boxes"):
            raise ValueError(
                f"unseen: {self.unseen!r} has no effect on kind {self.kind!r}, only on multiclass and boxes; remove it"
            )
        if self.positive is not None and self.kind != "binary":
            raise ValueError(
                f"positive: {self.positive!r} has no effect on kind {self.kind!r}, only on binary; remove it"
            )
        if self.positive is not None and self.threshold is not None:
            raise ValueError(f"positive: not allowed beside threshold: {self.threshold}; keep one of the two")
        if self.threshold is not None and self.kind != "binary":
            raise ValueError(
                f"threshold: {self.threshold} has no effect on kind {self.kind!r}, only on binary; remove it"
            )
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ValueError(f"threshold: {self.threshold} is not allowed; give a finite number")
        if self.relative_to is not None and self.threshold is None:
            raise ValueError(
                f"relative_to: {self.relative_to!r} needs a threshold (the label is 1 where column > threshold *"
                " relative_to); give one"
            )
        if self.relative_to == self.column:
            raise ValueError(f"relative_to: {self.relative_to!r} is the label's own column; name another one")
        check_box_label(self)

    @property
    def output(self) -> str:
        """Name of the transformed label."""
        return self.transformed or self.column


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformedFeature:
    """One output of the declared features, dense.

    Args:
      column: The key of the feature that it is made by: its raw column, or the name of a cross.
      dtype: ``float32`` for a quantity, ``int64`` for an index; None is the column's own, of ``pass_through``, or, of
        ``auto``, not known yet, as its outputs' names are not.
      num_values: How many different indices there are; None for a quantity, and for a vocabulary, whose size is known
        only after the analysis: it is the number of tokens of `vocabulary_name`, plus ``num_oov``, plus 1 where missing
        values have an index (and plus 1 for padding). It stands in the transformed schema as the integer domain of this
        feature.
      shape: Without the batch dimension.
    """

    column: str
    dtype: Literal["float32", "int64"] | None
    num_values: int | None = None
    shape: tuple[int, ...] = (1,)


def transformed_features(
    features: Mapping[str, Feature], label: Label | None = None, weight: str | None = None
) -> dict[str, TransformedFeature]:
    """Returns what the declared features produce, by name, without the label.

    Args:
      features: The ``features`` block, by raw column.
      label: The ``label`` block, to check against the features.
      weight: The raw column of the records' weights, to check likewise; it is no feature, and not returned.

    Raises:
      ValueError: Two outputs have one name, or the label is among the features, so that the model would be given the
        answer.
    """
    if label is not None and label.column in features:
        raise ValueError(
            f"features.{label.column}: this column is label.column too, so that the model would be given the answer;"
            " remove it from the features"
        )
    outputs: dict[str, TransformedFeature] = {}
    for column, feature in features.items():
        for name, output in _outputs(column, feature).items():
            if name in outputs:
                raise ValueError(
                    f"features.{column} and features.{outputs[name].column} both produce {name!r};"
                    f" give the one without an index another `missing`, such as zero, or rename a column"
                )
            if label is not None and name == label.column:
                raise ValueError(
                    f"features.{column} produces {name!r}, which is the name of label.column too;"
                    " give it another `missing`, such as zero, or rename a column"
                )
            if name == weight:
                raise ValueError(
                    f"features.{column} produces {name!r}, which is train.weight_column too, and the model is not given"
                    " that; remove the feature, or weigh by a copy of the column under another name"
                )
            outputs[name] = output
    if label is not None and label.kind == "boxes" and features:
        _check_boxes(features, label, outputs)
    _check_sources(features, label)
    return outputs


def _check_boxes(features: Mapping[str, Feature], label: Label, outputs: Mapping[str, TransformedFeature]) -> None:
    image = features.get(str(label.image))
    if image is None or image.kind != "image":
        raise ValueError(f"label.image: {label.image!r} is not allowed; name a feature of kind image")
    if label.class_column in features:
        raise ValueError(
            f"features.{label.class_column}: this column is label.class_column too, so that the model would be given"
            " the answer; remove it from the features"
        )
    if label.column + FRAME_SUFFIX in outputs:
        raise ValueError(
            f"features: one produces {label.column + FRAME_SUFFIX!r}, which is kept for the place of the image that"
            " label.image names; rename its column"
        )


def crossed_outputs(features: Mapping[str, Feature]) -> dict[str, TransformedFeature]:
    """Returns the outputs whose index a cross takes, by name; of any other name it takes the raw column."""
    return {
        name: output
        for column, feature in features.items()
        if feature.kind in ("buckets", "timestamp")
        for name, output in _outputs(column, feature).items()
        if output.num_values is not None
    }


def source_columns(features: Mapping[str, Feature]) -> list[str]:
    """Returns the raw columns that features are made of, each once."""
    known = crossed_outputs(features)
    sources: list[str] = []
    for name, feature in features.items():
        if feature.kind == "cross":
            sources += [known[column].column if column in known else column for column in feature.columns]
        else:
            sources += [name] if feature.weights is None else [name, feature.weights]
    return list(dict.fromkeys(sources))


def _check_sources(features: Mapping[str, Feature], label: Label | None) -> None:
    known = crossed_outputs(features)
    for name, feature in features.items():
        key = "columns" if feature.kind == "cross" else "weights"
        for column in (*feature.columns, *filter(None, [feature.weights])):
            if label is not None and column == label.column:
                raise ValueError(
                    f"features.{name}.{key}: {column!r} is label.column too, so that the model would be given the"
                    " answer; name another one"
                )
            other = features.get(column)
            if feature.kind == "cross" and column not in known and other and other.kind in _UNCROSSED:
                outputs = " or ".join(_outputs(column, other)) if other.kind == "timestamp" else ""
                remedy = f"name one of its outputs that are indices: {outputs}" if outputs else "name another one"
                raise ValueError(
                    f"features.{name}.columns: {column!r}, of kind {other.kind!r}, has no index to cross; {remedy}"
                )


# Of these there is not one value a row that could be crossed.
_UNCROSSED = ("cross", "text", "list", "timestamp")


def vocabulary_name(column: str) -> str:
    """Returns the name under which the vocabulary of a column is kept in the transform graph.

    Different columns get different names, which are safe as file names.
    """
    safe = re.sub(r"[^A-Za-z0-9]+", "_", column)
    # tf.Transform replaces characters itself, so that two columns could share one file without the checksum.
    return f"vocabulary_{safe}" if safe == column else f"vocabulary_{safe}_{zlib.crc32(column.encode()):08x}"


def to_config(
    features: Mapping[str, Feature], label: Label, weight: str | None = None, preprocessing: str | None = None
) -> dict[str, Any]:
    """Returns the JSON form that `lockstep.transforms.preprocessing.preprocessing_fn` takes as ``custom_config``.

    Args:
      features: By raw column.
      label: What is predicted.
      weight: The raw column of the records' weights.
      preprocessing: ``module:function``, which adds features to the declared ones.
    """
    return {
        "features": {column: feature.to_json() for column, feature in features.items()},
        "label": dataclasses.asdict(label),
        **({} if weight is None else {"weight": weight}),
        **({} if preprocessing is None else {"preprocessing": preprocessing}),
    }


def from_config(config: Mapping[str, Any]) -> tuple[dict[str, Feature], Label, str | None]:
    """Reads what `to_config` wrote: features, label, and the column of the records' weights or None.

    Keys that have a default may be absent.

    Raises:
      ValueError: A key is absent or unknown, or a value is not allowed; the message names the column.
    """
    unknown = (set(config) - {"weight", "preprocessing"}) ^ {"features", "label"}
    if unknown:
        raise ValueError(
            f"custom_config must have the keys features and label, got {', '.join(sorted(config)) or 'none'}"
        )
    features = {
        column: _construct(Feature, f"features.{column}", given) for column, given in config["features"].items()
    }
    return features, _construct(Label, "label", config["label"]), config.get("weight")


def _construct(cls: Any, key: str, given: Mapping[str, Any]) -> Any:
    try:
        return cls(**given)
    except (TypeError, ValueError) as e:
        raise ValueError(f"{key}.{e}" if isinstance(e, ValueError) else f"{key}: {e}") from e


def _outputs(column: str, feature: Feature) -> dict[str, TransformedFeature]:
    quantity = TransformedFeature(column=column, dtype="float32")
    outputs: dict[str, TransformedFeature] = {}
    if feature.kind == "timestamp":
        outputs = {f"{column}_{name}": output for name, output in _parts_of_time(column, feature).items()}
    elif feature.kind == "numeric":
        outputs[column] = quantity
    elif feature.kind == "image":
        shape = (feature.height or 0, feature.width or 0, feature.channels)
        is_encoded = feature.decode == "train"
        image = TransformedFeature(column=column, dtype="float32", shape=shape)
        outputs[column] = TransformedFeature(column=column, dtype=None) if is_encoded else image
    elif feature.kind in ("text", "list"):
        outputs = _outputs_of_tokens(column, feature)
    elif feature.kind in ("pass_through", "auto"):
        outputs[column] = TransformedFeature(column=column, dtype=None)
    else:
        outputs[column] = TransformedFeature(column=column, dtype="int64", num_values=feature.num_indices)
    if feature.has_indicator:
        outputs[column + MISSING_SUFFIX] = quantity
    return outputs


def _parts_of_time(column: str, feature: Feature) -> dict[str, TransformedFeature]:
    quantity = TransformedFeature(column=column, dtype="float32")
    outputs: dict[str, TransformedFeature] = {}
    for part in feature.parts:
        num_values = NUM_VALUES_OF_PART.get(part)
        if num_values is None:
            outputs[part] = quantity
        elif feature.cyclic:
            outputs[f"{part}_sin"] = outputs[f"{part}_cos"] = quantity
        else:
            own = int(feature.missing == "indicator")
            outputs[part] = TransformedFeature(column=column, dtype="int64", num_values=num_values + own)
    if feature.since is not None:
        outputs[DAYS] = quantity
    return outputs


def _outputs_of_tokens(column: str, feature: Feature) -> dict[str, TransformedFeature]:
    if feature.output != "indices":
        return {column: TransformedFeature(column=column, dtype="float32", shape=(feature.dense_width,))}
    width = feature.max_tokens or feature.max_values or 0
    index = TransformedFeature(column=column, dtype="int64", num_values=feature.num_indices, shape=(width,))
    return {column: index, column + COUNT_SUFFIX: TransformedFeature(column=column, dtype="float32")}
