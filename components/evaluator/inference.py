"""Reads raw examples and runs the models over them, a whole batch a call; gives TFMA one extract an example."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from apache_beam.utils import shared
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.slicer import slicer_lib

from lockstep.components import serving
from lockstep.components.box_frames import FRAME_SUFFIX, in_frames
from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.evaluator.plots import new_plots
from lockstep.components.examples_source.source import read_records

# Larger ones gain nothing more: reading, parsing and the models are a few per cent of TFMA's own work by then.
BATCH_SIZE = 2048
# Of rows with boxes, and so with images and grids of predictions.
BATCH_SIZE_OF_BOXES = 64

# What a raw column of the schema is parsed as.
SliceColumns = Mapping[str, tf.DType]


class Scores(NamedTuple):
    """What a model says of a batch of rows.

    Args:
      labels: float [batch]; of boxes [batch, boxes, 5], x_min, y_min, x_max, y_max of the image as it came and the
        class, zeros for no box.
      predictions: float [batch]; of a multiclass label [batch, classes]; of boxes [batch, n, 6], the four of a box, its
        score (0 for no box) and its class.
      weights: How much each row counts, float [batch]; [0] where the model was not asked.
    """

    labels: npt.NDArray[Any]
    predictions: npt.NDArray[Any]
    weights: npt.NDArray[Any]


class Scorer:
    """A loaded model that turns serialised rows into labels and predictions in one graph call.

    Only the label (and the weights) are asked of ``transform_features``, so TensorFlow prunes the rest of that graph
    away.

    Args:
      model_dir: The SavedModel.
      label: Name of the transformed label.
      weight: Name of the transformed weights of rows; None does not ask for any.
      num_classes: Of a label that has classes.
      of_boxes: Whether the label is one of boxes.

    Raises:
      ConfigurationError: The model cannot be loaded, or lacks a signature, the label or the weights; it gives another
        number of values a row than classes.
    """

    def __init__(
        self,
        model_dir: str,
        label: str,
        weight: str | None = None,
        num_classes: int | None = None,
        *,
        of_boxes: bool = False,
    ) -> None:
        model = serving.ServingModel(Path(model_dir))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def score(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            labels = _dense(model.transformed_feature(serialized, label))
            weights = tf.zeros([0]) if weight is None else _dense(model.transformed_feature(serialized, weight))
            predictions = model.predictions(serialized)
            if of_boxes:
                frames = model.transformed_feature(serialized, label + FRAME_SUFFIX)
                labels = tf.concat([in_frames(labels[..., :4], frames), labels[..., 4:]], axis=-1)
                return labels, predictions, tf.reshape(weights, [-1])
            if num_classes is None:
                predictions = tf.reshape(predictions, [-1])
            elif predictions.shape.rank != 2 or predictions.shape[1] != num_classes:
                raise ConfigurationError(
                    f"{model_dir}: {serving.SERVING_SIGNATURE} gives {predictions.shape}; it must give [batch,"
                    f" {num_classes}], the probabilities of the classes"
                )
            return tf.reshape(labels, [-1]), predictions, tf.reshape(weights, [-1])

        self._score = score
        score.get_concrete_function()

    def __call__(self, serialized: tf.Tensor) -> Scores:
        """Returns what the model says of serialised rows [batch]."""
        return Scores(*(value.numpy() for value in self._score(serialized)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoredModel:
    """A model to run; can be sent to Beam's workers, which load it once a process.

    Args:
      name: TFMA's name for it.
      dir: The SavedModel.
      weight: Name of the transformed weights of rows that this model is asked for; None asks for none. All models of an
        evaluation are weighed by the first one's.
      classes: Of a label that has some.
      of_boxes: Whether the label is one of boxes.
    """

    name: str
    dir: str
    weight: str | None = None
    classes: tuple[str, ...] = ()
    of_boxes: bool = False
    _shared: shared.Shared = dataclasses.field(default_factory=shared.Shared, repr=False, compare=False)

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None of another label."""
        return len(self.classes) or None

    def load(self, label: str) -> Scorer:
        """Returns the scorer; the same one in this process as long as somebody holds it."""
        scorer: Scorer = self._shared.acquire(
            lambda: Scorer(self.dir, label, self.weight, self.num_classes, of_boxes=self.of_boxes)
        )
        return scorer


def _dense(feature: Any) -> tf.Tensor:
    """A stock preprocessing function may leave its label sparse; a missing one becomes NaN, which no gate passes."""
    if isinstance(feature, tf.sparse.SparseTensor):
        return tf.sparse.to_dense(tf.cast(feature, tf.float32), default_value=np.nan)
    return tf.cast(feature, tf.float32)


def read_batches(path: str, batch_size: int = BATCH_SIZE) -> Iterator[tf.Tensor]:
    """Gives a file's records as string tensors [batch].

    Raises:
      DataError: The file is damaged, or was cut.
    """
    return read_records(path, batch_size)


def load_checked(model: ScoredModel, label: str, path: str) -> Scorer:
    """Loads a model and runs it over the first rows of a file.

    Returns:
      The scorer; whoever holds it spares Beam in this process from loading the model again.

    Raises:
      ConfigurationError: The model cannot be loaded, lacks a signature or the label, or refuses the rows.
      StepFailed: It gives something else than one number a row.
    """
    scorer = model.load(label)
    for serialized in itertools.islice(read_batches(path), 1):
        rows = serialized[:16]
        try:
            labels, predictions, _ = scorer(rows)
        except tf.errors.OpError as e:
            raise ConfigurationError(f"{model.dir}: refuses rows of {path}: {serving.refusal(e.message)}") from e
        if not len(labels) == len(predictions) == len(rows):
            raise StepFailed(
                f"{model.dir}: gives {len(predictions)} predictions and {len(labels)} labels for {len(rows)} rows; "
                "it must give one of each a row"
            )
    return scorer


def only_label(scorer: Scorer, paths: Sequence[str]) -> float | None:
    """Returns the label that every row has; None if they differ. Reads until it finds a second one."""
    found: set[float] = set()
    for path in paths:
        for serialized in read_batches(path):
            found.update(np.unique(scorer(serialized)[0]).tolist())
            if len(found) > 1:
                return None
    return found.pop() if found else None


class ScoreFiles(beam.PTransform):
    """File names in; TFMA's extracts out, one an example: label, prediction and the slices that it falls into.

    Beside them, under the tag ``PLOTS``: a mapping of model's name to its ``plots.Plots``, one a file.
    """

    PLOTS = "plots"

    def __init__(
        self,
        models: Sequence[ScoredModel],
        label: str,
        label_kind: Literal["binary", "regression"],
        slice_columns: SliceColumns,
    ) -> None:
        super().__init__()
        self._score = _ScoreFile(models, label, label_kind, slice_columns)

    def expand(self, paths: Any) -> Any:
        """Adds the steps to the pipeline."""
        scored = "ScoreFile" >> beam.ParDo(self._score).with_outputs(self.PLOTS, main="extracts")
        return paths | "Reshuffle" >> beam.Reshuffle() | scored


class _ScoreFile(beam.DoFn):
    def __init__(
        self,
        models: Sequence[ScoredModel],
        label: str,
        label_kind: Literal["binary", "regression"],
        slice_columns: SliceColumns,
    ) -> None:
        self._models = tuple(models)
        self._label = label
        self._label_kind = label_kind
        self._slice_columns = dict(slice_columns)

    def setup(self) -> None:
        self._scorers = [model.load(self._label) for model in self._models]
        self._slicer = Slicer(self._slice_columns)

    def process(self, path: str) -> Iterator[Any]:
        plots = {model.name: new_plots(self._label_kind) for model in self._models}
        for serialized in read_batches(path):
            slices = self._slicer(serialized)
            scores = [scorer(serialized) for scorer in self._scorers]
            weights = scores[0].weights if len(scores[0].weights) else None
            for of_model, scored in zip(plots.values(), scores, strict=True):
                of_model.update(scored.labels, scored.predictions, weights)
            yield from _extracts([model.name for model in self._models], scores, slices)
        yield beam.pvalue.TaggedOutput(ScoreFiles.PLOTS, plots)


def _extracts(
    names: Sequence[str], scores: Sequence[Scores], slices: Sequence[npt.NDArray[Any]]
) -> Iterator[dict[str, Any]]:
    """Yields what TFMA's own extractors yield after unbatching: values by model's name if there is more than one."""
    for row, slice_keys in enumerate(slices):
        labels = [of_model.labels[row : row + 1] for of_model in scores]
        predictions = [of_model.predictions[row : row + 1] for of_model in scores]
        weight = scores[0].weights[row : row + 1]
        several = len(names) > 1
        yield {
            **(
                {constants.EXAMPLE_WEIGHTS_KEY: dict.fromkeys(names, weight) if several else weight}
                if len(weight)
                else {}
            ),
            constants.LABELS_KEY: dict(zip(names, labels, strict=True)) if several else labels[0],
            constants.PREDICTIONS_KEY: dict(zip(names, predictions, strict=True)) if several else predictions[0],
            constants.SLICE_KEY_TYPES_KEY: slice_keys,
        }


class Slicer:
    """Gives each row the slices it falls into: all, and one a value of each column; none where the value is missing.

    TFMA's own slicer names the slices; it is asked once a combination of values, not once a row.
    """

    def __init__(self, columns: SliceColumns) -> None:
        self._columns = tuple(columns)
        self._features = {name: tf.io.RaggedFeature(dtype) for name, dtype in columns.items()}
        specs = [slicer_lib.SingleSliceSpec(), *(slicer_lib.SingleSliceSpec(columns=[name]) for name in columns)]

        @functools.cache
        def keys(values: tuple[tuple[Any, ...], ...]) -> npt.NDArray[Any]:
            features = {name: np.array(cell) for name, cell in zip(self._columns, values, strict=True) if cell}
            found = slicer_lib.get_slices_for_features_dicts([], features, specs)
            array: npt.NDArray[Any] = slicer_lib.slice_keys_to_numpy_array(sorted(set(found)))
            return array

        self._keys = keys

    def __call__(self, serialized: tf.Tensor) -> list[npt.NDArray[Any]]:
        """Returns the keys of each row; rows with the same values share one array."""
        if not self._features:
            return [self._keys(())] * int(serialized.shape[0])
        parsed = tf.io.parse_example(serialized, self._features)
        columns = [[tuple(cell) for cell in parsed[name].to_list()] for name in self._columns]
        return [self._keys(values) for values in zip(*columns, strict=True)]


def slice_columns(types: Mapping[str, int]) -> SliceColumns:
    """Returns columns with the types to parse them as, for columns with the types of a schema."""
    dtypes = {schema_pb2.BYTES: tf.string, schema_pb2.INT: tf.int64, schema_pb2.FLOAT: tf.float32}
    return {name: dtypes[kind] for name, kind in types.items()}
