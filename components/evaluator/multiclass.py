"""A label of several classes, or of boxes, on Beam: counts a model and slice, file by file, in TFMA's result format."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.proto import metrics_for_slice_pb2
from tensorflow_model_analysis.slicer import slicer_lib

from lockstep.components.evaluator import inference
from lockstep.components.evaluator.box_matches import BoxMatches
from lockstep.components.evaluator.class_counts import ClassCounts
from lockstep.components.evaluator.plots import PLOTS_NAME

_METRICS_FILE = f"{constants.METRICS_KEY}-00000-of-00001.tfrecord"

# Name of a model, and TFMA's key of a slice.
_Key = tuple[str, Any]


class CountFiles(beam.PTransform):
    """File names in; one mapping out, of (name of the model, TFMA's key of the slice) to counts.

    These are `ClassCounts`, or `BoxMatches` of models of boxes.
    """

    def __init__(
        self, models: Sequence[inference.ScoredModel], label: str, slice_columns: inference.SliceColumns
    ) -> None:
        super().__init__()
        self._count = _CountFile(models, label, slice_columns)

    def expand(self, paths: Any) -> Any:
        """Adds the steps to the pipeline."""
        counted = paths | "Reshuffle" >> beam.Reshuffle() | "CountFile" >> beam.ParDo(self._count)
        return counted | "MergeCounts" >> beam.CombineGlobally(merge_counts)


def _new_counts(model: inference.ScoredModel) -> "ClassCounts | BoxMatches":
    num_classes = model.num_classes or 0
    return BoxMatches(num_classes) if model.of_boxes else ClassCounts(num_classes)


class _CountFile(beam.DoFn):
    def __init__(
        self, models: Sequence[inference.ScoredModel], label: str, slice_columns: inference.SliceColumns
    ) -> None:
        self._models = tuple(models)
        self._label = label
        self._slice_columns = dict(slice_columns)

    def setup(self) -> None:
        self._scorers = [model.load(self._label) for model in self._models]
        self._slicer = inference.Slicer(self._slice_columns)

    def process(self, path: str) -> Iterator[dict[_Key, Any]]:
        counts: dict[_Key, Any] = {}
        of_boxes = any(model.of_boxes for model in self._models)
        size = inference.BATCH_SIZE_OF_BOXES if of_boxes else inference.BATCH_SIZE
        for serialized in inference.read_batches(path, size):
            slices = self._slicer(serialized)
            # Rows with the same values share one array of keys: each combination of values is counted at once.
            rows_of: dict[int, list[int]] = {}
            for row, keys in enumerate(slices):
                rows_of.setdefault(id(keys), []).append(row)
            scores = [scorer(serialized) for scorer in self._scorers]
            weights = scores[0].weights if len(scores[0].weights) else None
            for model, scored in zip(self._models, scores, strict=True):
                for rows in rows_of.values():
                    part = _new_counts(model)
                    index = np.array(rows)
                    part.update(
                        scored.labels[index], scored.predictions[index], None if weights is None else weights[index]
                    )
                    for key in slices[rows[0]]:
                        of_key = counts.setdefault((model.name, tuple(key)), _new_counts(model))
                        of_key.merge(part)
        yield counts


def merge_counts(parts: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    """Returns the counts of several parts of the rows together; the parts stay as they are."""
    merged: dict[_Key, Any] = {}
    for part in parts:
        for key, counts in part.items():
            if key not in merged:
                merged[key] = type(counts)(counts.num_classes)
            merged[key].merge(counts)
    return merged


def write_counts(
    counts: dict[Any, Any],
    classes: dict[str, Any],
    names: Any,
    is_named: bool,
    output_dir: str,
) -> None:
    """Writes the metrics as TFMA does, one record a slice, and ``curves.json`` of the whole split, in a local folder.

    Args:
      counts: What `CountFiles` gives, its types as Beam, which reads annotations, understands them; nothing of no
        rows.
      classes: Name of a model -> its classes.
      names: Metrics to write; of the whole split ``unseen_count`` too.
      is_named: Whether TFMA knows the models by their names; the only one has the empty name.
      output_dir: An existing folder.
    """
    by_slice: dict[Any, dict[str, Any]] = {}
    for (model, key), counted in counts.items():
        by_slice.setdefault(key, {})[model] = counted
    with tf.io.TFRecordWriter(str(Path(output_dir) / _METRICS_FILE)) as writer:
        for key in sorted(by_slice, key=repr):
            record = metrics_for_slice_pb2.MetricsForSlice(slice_key=slicer_lib.serialize_slice_key(key))
            for model, counted in by_slice[key].items():
                for name, value in counted.values().items():
                    if name in names or (name == "unseen_count" and not key):
                        item = record.metric_keys_and_values.add()
                        item.key.name = name
                        item.key.model_name = model if is_named else ""
                        item.value.double_value.value = value
            writer.write(record.SerializeToString())
    document = {name: counted.to_document(classes[name]) for name, counted in by_slice.get((), {}).items()}
    (Path(output_dir) / PLOTS_NAME).write_text(json.dumps({"models": document}, allow_nan=False) + "\n", "utf-8")
