"""Declared features as a tf.Transform ``preprocessing_fn``, named to Transform by its import path."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from lockstep.transforms.added_features import with_added_features
from lockstep.transforms.boxes import box_outputs
from lockstep.transforms.categories import category_outputs
from lockstep.transforms.crosses import cross_outputs
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import FRAME_SUFFIX, from_config, transformed_features
from lockstep.transforms.images import image_outputs
from lockstep.transforms.labels import label_output, weight_output
from lockstep.transforms.lists import list_outputs
from lockstep.transforms.numbers import number_outputs
from lockstep.transforms.texts import text_outputs
from lockstep.transforms.times import time_numbers, time_outputs


def preprocessing_fn(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Transforms the declared features and the label, as `lockstep.transforms.features` defines them.

    The same graph serves: without the label's raw columns the label is left out of what the exported layer returns.

    Args:
      inputs: Raw columns by name: sparse (at most one value a row, but for lists), ragged or dense; float32, int64 or
        string.
      custom_config: What `lockstep.transforms.features.to_config` returns.

    Returns:
      Dense tensors, of shape [batch, 1] but for texts, lists and images: the outputs of
      `lockstep.transforms.features.transformed_features`, what a function of the user's adds
      (`lockstep.transforms.added_features.with_added_features`), and the label (float32, of ``multiclass`` int64) under
      the name of its column, of ``boxes`` what `lockstep.transforms.boxes.box_outputs` returns; the weights of records,
      if there are any, likewise, NaN where missing.

    Raises:
      ValueError: An invalid configuration, a column without a value in any row of the training split, or one of a type
        that its kind cannot use; a function of the user's that fails, or gives what it must not.
    """
    features, label, weight = from_config(custom_config)
    transformed_features(features, label, weight)
    for name, feature in features.items():
        if feature.kind == "auto":
            raise ValueError(
                f"features.{name}: kind auto is not known here; resolve it with lockstep.transforms.auto.resolve, as"
                " the pipeline of `lockstep run` does"
            )
    outputs = _declared_outputs(inputs, features)
    reserved = {label.column: "label.column"} | ({} if weight is None else {weight: "train.weight_column"})
    if label.kind == "boxes":
        reserved |= {str(label.class_column): "label.class_column", label.column + FRAME_SUFFIX: "label.column"}
    function = custom_config.get("preprocessing")
    if function is not None:
        # Not the answer; and the names of the label and the weights are theirs.
        given = {name: column for name, column in inputs.items() if name not in reserved}
        outputs = with_added_features(function, given, outputs, reserved)
    if label.kind == "boxes":
        outputs |= box_outputs(inputs, label, features[str(label.image)])
    else:
        outputs[label.column] = label_output(inputs, label)
    if weight is not None:
        outputs[weight] = weight_output(inputs, weight)
    return outputs


def _declared_outputs(inputs: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    outputs: dict[str, tf.Tensor] = {}
    columns, numbers = time_numbers(inputs, features)
    outputs |= number_outputs({**inputs, **columns}, {**features, **numbers})
    outputs |= time_outputs(inputs, features)
    outputs |= category_outputs(inputs, features)
    outputs |= text_outputs(inputs, features)
    outputs |= list_outputs(inputs, features)
    outputs |= image_outputs(inputs, features)
    outputs |= cross_outputs(inputs, features, outputs)
    return outputs
