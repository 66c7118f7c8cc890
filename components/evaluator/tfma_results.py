"""TFMA's side of an evaluation: its configuration, its transforms, its result files, and reading them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import json_format
from tensorflow_model_analysis import constants
from tensorflow_model_analysis import version as tfma_version
from tensorflow_model_analysis.api import model_eval_lib
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator as evaluator_lib
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2, validation_result_pb2
from tensorflow_model_analysis.slicer import slicer_lib
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as writer_lib

from lockstep.components import serving
from lockstep.components.evaluator import metrics as metrics_lib
from lockstep.components.evaluator.baseline import BASELINE
from lockstep.components.evaluator.inference import ScoredModel
from lockstep.components.evaluator.options import EvaluateSpec
from lockstep.components.evaluator.verdict import Verdict

CANDIDATE = "candidate"

_SLICE_STAGE_NAME = "ScoreFiles"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelMetrics:
    """What TFMA found for one model.

    Args:
      overall: Name -> value over the whole split; empty if there was no example.
      slices: Slice, as ``column=value`` -> name -> value.
    """

    overall: Mapping[str, float]
    slices: Mapping[str, Mapping[str, float]]


def eval_config(spec: EvaluateSpec, models: Sequence[ScoredModel]) -> config_pb2.EvalConfig:
    """Returns TFMA's configuration of an evaluation. Without thresholds: ``verdict.judge`` decides, TFMA measures."""
    # Those of several classes, and of boxes, are not TFMA's.
    names = spec.metrics if spec.classes is None else ()
    # TFMA takes the name of the only model for the empty one; several need names, and one of them is the baseline.
    return config_pb2.EvalConfig(
        model_specs=[
            config_pb2.ModelSpec(
                name=model.name if len(models) > 1 else "",
                signature_name=serving.SERVING_SIGNATURE,
                preprocessing_function_names=[serving.TRANSFORM_SIGNATURE],
                label_key=spec.label,
                example_weight_key=spec.weight or "",
                is_baseline=model.name == BASELINE,
            )
            for model in models
        ],
        metrics_specs=[
            config_pb2.MetricsSpec(
                metrics=[_metric_config(name) for name in names],
                model_names=[model.name if len(models) > 1 else "" for model in models],
            )
        ],
        slicing_specs=[
            config_pb2.SlicingSpec(),
            *(config_pb2.SlicingSpec(feature_keys=[column]) for column in spec.options.slices),
        ],
    )


def _metric_config(name: str) -> config_pb2.MetricConfig:
    metric = metrics_lib.METRICS[name]
    return config_pb2.MetricConfig(
        class_name=metric.tfma_class, config=json.dumps({"name": name, **metric.settings}, sort_keys=True)
    )


def evaluate_and_write(extracts: Any, config: config_pb2.EvalConfig, output_dir: Path) -> None:
    """Adds TFMA's evaluation of per-example extracts to a Beam pipeline, and the writing of its metrics."""
    evaluator = evaluator_lib.MetricsPlotsAndValidationsEvaluator(eval_config=config, run_after=_SLICE_STAGE_NAME)
    writer = writer_lib.MetricsPlotsAndValidationsWriter(
        output_paths={constants.METRICS_KEY: str(output_dir / constants.METRICS_KEY)}, eval_config=config
    )
    _ = extracts | evaluator.stage_name >> evaluator.ptransform | writer.stage_name >> writer.ptransform


def read_metrics(output_dir: Path) -> Mapping[str, ModelMetrics]:
    """Returns model's name -> its metrics, out of TFMA's result files; only values that are plain numbers."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for record in model_eval_lib.load_metrics(str(output_dir)):
        slice_name = _slice_name(slicer_lib.deserialize_slice_key(record.slice_key))
        for item in record.metric_keys_and_values:
            if not item.key.is_diff and item.value.WhichOneof("type") == "double_value":
                of_model = found.setdefault(item.key.model_name or CANDIDATE, {})
                of_model.setdefault(slice_name, {})[item.key.name] = item.value.double_value.value
    return {
        name: ModelMetrics(overall=slices.pop("", {}), slices=dict(sorted(slices.items())))
        for name, slices in found.items()
    }


def _slice_name(key: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{column}={tf.compat.as_str_any(value)}" for column, value in key)


def write_eval_run(
    config: config_pb2.EvalConfig, models: Sequence[ScoredModel], data_dir: str, output_dir: Path
) -> None:
    """Writes ``eval_config.json``, which ``tfma.load_eval_result`` reads beside the metrics."""
    run = config_pb2.EvalRun(
        eval_config=config,
        version=tfma_version.VERSION,
        data_location=data_dir,
        file_format="tfrecord",
        model_locations={model.name if len(models) > 1 else "": model.dir for model in models},
    )
    (output_dir / "eval_config.json").write_text(json_format.MessageToJson(run), encoding="utf-8")


def write_validation(verdict: Verdict, model_name: str, output_dir: Path) -> None:
    """Writes the verdict in TFMA's format, for what reads it by ``tfma.load_validation_result``."""
    failures = [
        validation_result_pb2.ValidationFailure(
            metric_key=metrics_for_slice_pb2.MetricKey(name=check.metric, model_name=model_name),
            metric_threshold=_threshold(check.bound, check.limit),
            metric_value=None
            if check.value is None
            else metrics_for_slice_pb2.MetricValue(double_value={"value": check.value}),
            message=check.reason,
        )
        for check in verdict.checks
        if not check.passed
    ]
    result = validation_result_pb2.ValidationResult(
        validation_ok=verdict.blessed,
        missing_thresholds=verdict.ungated,
        rubber_stamp=verdict.baseline.state != "compared",
        metric_validations_per_slice=[
            validation_result_pb2.MetricsValidationForSlice(
                slice_key=slicer_lib.serialize_slice_key(()), failures=failures
            )
        ]
        if failures
        else [],
    )
    with tf.io.TFRecordWriter(str(output_dir / f"{constants.VALIDATIONS_KEY}.tfrecord")) as writer:
        writer.write(result.SerializeToString())


def _threshold(bound: str, limit: float) -> config_pb2.MetricThreshold:
    value = {"value": limit}
    if bound in ("min", "max"):
        key = "lower_bound" if bound == "min" else "upper_bound"
        return config_pb2.MetricThreshold(value_threshold=config_pb2.GenericValueThreshold(**{key: value}))
    direction = config_pb2.MetricDirection.Value("HIGHER_IS_BETTER" if bound == "min_change" else "LOWER_IS_BETTER")
    return config_pb2.MetricThreshold(
        change_threshold=config_pb2.GenericChangeThreshold(absolute=value, direction=direction)
    )
