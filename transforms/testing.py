"""A preprocessing function run on a few rows inside a test: through Beam, and through the graph that serves."""

import dataclasses
import functools
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tensorflow_transform.tf_metadata import schema_utils
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder
from tfx_bsl.public import tfxio

__all__ = ["Preprocessed", "Preprocessing", "Row", "Type", "assert_no_skew", "run_preprocessing"]

Preprocessing = Callable[[dict[str, Any]], Mapping[str, Any]]
_Value = int | float | str | bytes
Row = Mapping[str, _Value | Sequence[_Value] | None]
Type = Literal["int", "float", "string"]

_DTYPES: Mapping[Type, Any] = {"int": tf.int64, "float": tf.float32, "string": tf.string}
_ROW_NUMBER = "lockstep_row_number"
# Small, so that a few rows already make several batches, whose statistics have to be combined.
_ROWS_PER_BATCH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessed:
    """What `run_preprocessing` found.

    Args:
      features: Transformed features by name, as Beam computed them: [rows, ...], rows in the order given.
      transform_output: The transform graph, as the trainer gets it.
      raw_spec: How raw rows are parsed.
    """

    features: Mapping[str, np.ndarray[Any, Any]]
    transform_output: tft.TFTransformOutput
    raw_spec: Mapping[str, Any]

    def serve(self, rows: Sequence[Row], *, without: Sequence[str] = ()) -> dict[str, np.ndarray[Any, Any]]:
        """Transforms raw rows as a pushed model does: serialised tf.Examples, parsed, through the exported graph.

        Columns left out are absent from every row, as they are to a pushed model.

        Args:
          rows: Raw rows, also others than those that were analysed.
          without: Raw columns that the caller of the model does not send, such as the label.

        Returns:
          Transformed features by name, [rows, ...]; without those that need one of the columns left out.
        """
        given = {name: feature for name, feature in self.raw_spec.items() if name not in without}
        # All columns are parsed: tf.Transform's layer makes up one value a row for those that it is not given.
        parsed = tf.io.parse_example(tf.constant(_serialize(rows, given), tf.string), self.raw_spec)
        transformed = self.transform_output.transform_features_layer()(parsed)
        return {name: tensor.numpy() for name, tensor in transformed.items() if not self._sources[name] & {*without}}

    @functools.cached_property
    def _sources(self) -> dict[str, set[str]]:
        """The raw columns that each transformed feature is computed from."""
        function = tf.saved_model.load(self.transform_output.transform_savedmodel_dir).transform_fn
        columns = _names_of_tensors(function.structured_input_signature[0][0])
        features = _names_of_tensors(function.structured_outputs)
        # The inputs end with what the graph captures, such as tables.
        column_of = {tensor.op.name: column for tensor, column in zip(function.inputs, columns, strict=False)}
        sources: dict[str, set[str]] = {}
        for tensor, feature in zip(function.outputs, features, strict=True):
            sources.setdefault(feature, set()).update(_columns_before(tensor, column_of))
        return sources


def run_preprocessing(
    preprocessing: Preprocessing,
    rows: Sequence[Row],
    *,
    output_dir: Path | None = None,
    types: Mapping[str, Type] | None = None,
) -> Preprocessed:
    """Analyses and transforms rows with tf.Transform on Beam, in this process; takes a few seconds.

    Args:
      preprocessing: A function with TFX's signature that returns dense features; bind further arguments with
        `functools.partial`.
      rows: Raw rows, at least one: a value, a list of values, or None, for each column; a column may be absent from a
        row.
      output_dir: Where the transform graph is written, an empty or absent folder; None takes a new temporary one, which
        stays.
      types: Types of raw columns; by default ``float`` if a value of the column is a float, ``int`` if all are
        integers, ``string`` if all are text. A column without any value needs its type here.

    Raises:
      ValueError: No rows, or a column without values or with values of different types.
    """
    if not rows:
        raise ValueError("rows: there are none; give at least one")
    raw_spec = {name: tf.io.VarLenFeature(_DTYPES[kind]) for name, kind in _column_types(rows, types or {}).items()}
    graph_dir = str(output_dir) if output_dir is not None else tempfile.mkdtemp(prefix="lockstep-transform-")
    with tempfile.TemporaryDirectory() as temp_dir:
        results_path = Path(temp_dir, "rows.pickle")
        context = tft_beam.Context(temp_dir=temp_dir, passthrough_keys={_ROW_NUMBER})
        with context, beam.Pipeline(runner=FnApiRunner()) as pipeline:
            batches, adapter_config = _record_batches(rows, raw_spec)
            raw = pipeline | "Rows" >> beam.Create(batches, reshuffle=False)
            (transformed, _), transform_fn = (raw, adapter_config) | tft_beam.AnalyzeAndTransformDataset(preprocessing)
            _ = transformed | beam.combiners.ToList() | "Save" >> beam.Map(_save, str(results_path))
            _ = transform_fn | tft_beam.WriteTransformFn(graph_dir)
        # Written a moment ago by this very process.
        results = pickle.loads(results_path.read_bytes())  # noqa: S301
    results.sort(key=lambda row: row[_ROW_NUMBER])
    names = [name for name in results[0] if name != _ROW_NUMBER]
    features = {name: np.stack([np.asarray(row[name]) for row in results]) for name in names}
    return Preprocessed(features=features, transform_output=tft.TFTransformOutput(graph_dir), raw_spec=raw_spec)


def assert_no_skew(
    preprocessing: Preprocessing,
    rows: Sequence[Row],
    *,
    without: Sequence[str] = (),
    types: Mapping[str, Type] | None = None,
) -> None:
    """Asserts that training and serving see the same features: Beam and the exported layer agree bit for bit.

    Args:
      preprocessing: See `run_preprocessing`.
      rows: Raw rows, analysed and then transformed both ways, all at once and one by one.
      without: Raw columns that are absent at serving, such as the label.
      types: See `run_preprocessing`.

    Raises:
      AssertionError: Names the first feature and row that differ, with both values, or a feature that only one side
        has.
    """
    with tempfile.TemporaryDirectory() as output_dir:
        trained = run_preprocessing(preprocessing, rows, output_dir=Path(output_dir), types=types)
        whole = trained.serve(rows, without=without)
        single = [trained.serve([row], without=without) for row in rows]
    for name, served in whole.items():
        assert name in trained.features, f"feature {name!r}: served, but not given to training"
        one_by_one = np.concatenate([features[name] for features in single])
        for way, values in (("in one batch", served), ("alone", one_by_one)):
            _assert_same(name, way, trained.features[name], values, rows)
    missing = sorted(set(trained.features) - set(whole))
    assert without or not missing, f"features {', '.join(missing)}: given to training, but not served"


def _assert_same(name: str, way: str, trained: Any, served: Any, rows: Sequence[Row]) -> None:
    assert (trained.dtype.kind, trained.shape) == (served.dtype.kind, served.shape), (
        f"feature {name!r}: {trained.dtype} {trained.shape} in training, {served.dtype} {served.shape} served {way}"
    )
    same = trained == served
    if trained.dtype.kind == "f":
        same |= np.isnan(trained) & np.isnan(served)
    for i in np.flatnonzero(~same.reshape(len(rows), -1).all(axis=1)):
        raise AssertionError(
            f"feature {name!r}, row {i}: {trained[i].tolist()} in training, {served[i].tolist()} served {way};"
            f" the raw row is {dict(rows[i])}"
        )


def _column_types(rows: Sequence[Row], declared: Mapping[str, Type]) -> dict[str, Type]:
    values: dict[str, set[Type]] = {name: set() for name in declared}
    for row in rows:
        for name, value in row.items():
            found = values.setdefault(name, set())
            for one in _as_list(value):
                found.add("string" if isinstance(one, str | bytes) else "float" if isinstance(one, float) else "int")
    types: dict[str, Type] = dict(declared)
    for name, found in values.items():
        if name in declared:
            continue
        if not found or (len(found) > 1 and "string" in found):
            raise ValueError(
                f"rows: column {name!r} has {'text and numbers' if found else 'no value'}; give types its type"
            )
        types[name] = "float" if "float" in found else found.pop()
    return types


def _names_of_tensors(structure: Mapping[str, Any]) -> list[str]:
    """Returns the name of each tensor of a dict of (also sparse) tensors, in TensorFlow's order: sorted."""
    return [name for name in sorted(structure) for _ in tf.nest.flatten(structure[name], expand_composites=True)]


def _columns_before(tensor: Any, column_of: Mapping[str, str]) -> set[str]:
    seen, waiting = set(), [tensor.op]
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting.extend(before.op for before in operation.inputs)
    return {column_of[name] for name in seen if name in column_of}


def _serialize(rows: Sequence[Row], spec: Mapping[str, Any]) -> list[bytes]:
    return [_to_example(row, spec).SerializeToString() for row in rows]


def _to_example(row: Row, spec: Mapping[str, Any]) -> tf.train.Example:
    example = tf.train.Example()
    for name, value in row.items():
        values = _as_list(value)
        if not values or name not in spec:
            continue
        feature = example.features.feature[name]
        if spec[name].dtype == tf.string:
            feature.bytes_list.value.extend(one.encode() if isinstance(one, str) else one for one in values)
        elif spec[name].dtype == tf.int64:
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    return example


def _as_list(value: _Value | Sequence[_Value] | None) -> list[Any]:
    if value is None:
        return []
    return [value] if isinstance(value, int | float | str | bytes) else list(value)


def _record_batches(rows: Sequence[Row], spec: Mapping[str, Any]) -> tuple[list[pa.RecordBatch], Any]:
    """Makes what TFX's own reader gives to Transform, with one more column that tf.Transform passes through."""
    schema = schema_utils.schema_from_feature_spec(spec)
    decoder = ExamplesToRecordBatchDecoder(schema.SerializeToString())
    batches = []
    for start in range(0, len(rows), _ROWS_PER_BATCH):
        batch = decoder.DecodeBatch(_serialize(rows[start : start + _ROWS_PER_BATCH], spec))
        numbers = pa.array([[start + i] for i in range(batch.num_rows)], pa.large_list(pa.int64()))
        batches.append(pa.RecordBatch.from_arrays([*batch.columns, numbers], [*batch.schema.names, _ROW_NUMBER]))
    representations = tfxio.TFExampleBeamRecord("tf_example", schema=schema).TensorRepresentations()
    return batches, tfxio.TensorAdapterConfig(batches[0].schema, representations)


def _save(rows: Any, path: str) -> None:
    Path(path).write_bytes(pickle.dumps(rows))
