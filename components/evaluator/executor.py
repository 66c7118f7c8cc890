"""Runs an evaluation: models over the raw rows of a split, metrics by TFMA on Beam, a verdict, and the blessing."""

import json
import logging
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from tfx import types
from tfx.components.evaluator import constants as blessing_keys
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from lockstep.components import model_artifacts, serving
from lockstep.components.class_labels import unseen_message
from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.evaluator import baseline as baseline_lib
from lockstep.components.evaluator import inference, multiclass, tfma_results
from lockstep.components.evaluator import metrics as metrics_lib
from lockstep.components.evaluator import plots as plots_lib
from lockstep.components.evaluator.options import EvaluateSpec
from lockstep.components.evaluator.verdict import VERDICT_NAME, BaselineOutcome, Verdict, judge
from lockstep.components.examples_source.artifacts import check_formats, plain_data_errors
from lockstep.components.object_store import open_folder
from lockstep.components.pusher import versions

_progress = logging.getLogger("lockstep.progress")


class Executor(base_beam_executor.BaseBeamExecutor):
    """Executor of ``component.Evaluator``."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Evaluates, writes TFMA's results, ``verdict.json`` and ``curves.json``, and blesses or does not.

        Args:
          input_dict: ``examples``, ``model``, ``schema``.
          output_dict: ``evaluation``, ``blessing``.
          exec_properties: ``spec``, and ``baseline`` where a driver ran.

        Raises:
          ConfigurationError: A sliced column is not in the schema, the model has other signatures, or the examples are
            no tf.Examples in gzip TFRecords.
          DataError: The split has no rows, or a file of it is damaged or cut.
          StepFailed: The object store of the baseline does not answer.
        """
        spec = EvaluateSpec.from_json(exec_properties["spec"])
        model_dir = model_artifacts.saved_model_dir(input_dict["model"])
        # Where no driver runs (Kubeflow), nobody has asked yet what is served.
        baseline = exec_properties.get("baseline") or versions.resolve_baseline(
            None if spec.push_dir is None else open_folder(spec.push_dir), model_dir
        )
        evaluation = artifact_utils.get_single_instance(output_dict["evaluation"])
        with plain_data_errors(), tempfile.TemporaryDirectory(prefix="lockstep-baseline-") as scratch:
            verdict = self._evaluate(spec, model_dir, baseline, input_dict, Path(evaluation.uri), Path(scratch))
        evaluation.set_string_custom_property("summary", verdict.summary)
        _bless(
            artifact_utils.get_single_instance(output_dict["blessing"]),
            artifact_utils.get_single_instance(input_dict["model"]),
            evaluation.uri,
            baseline,
            verdict,
        )
        _progress.info("%s", verdict.summary)

    def _evaluate(
        self,
        spec: EvaluateSpec,
        model_dir: Path,
        baseline: str,
        input_dict: dict[str, list[types.Artifact]],
        output_dir: Path,
        scratch: Path,
    ) -> Verdict:
        files = _example_files(input_dict["examples"], spec.split)
        slice_columns = _slice_columns(spec, input_dict["schema"])
        candidate = inference.ScoredModel(
            name=tfma_results.CANDIDATE,
            dir=str(model_dir),
            weight=spec.weight,
            classes=_classes(spec, model_dir),
            of_boxes=spec.label_kind == "boxes",
        )
        # Held, so that the pipeline finds the model loaded.
        scorer = inference.load_checked(candidate, spec.label, files[0])
        opened = baseline_lib.open_baseline(spec, baseline, files[0], scratch, candidate.classes)
        models = [candidate, opened.model] if isinstance(opened, baseline_lib.UsableBaseline) else [candidate]
        found = self._measure(spec, models, files, slice_columns, output_dir)
        if candidate.name not in found:
            raise DataError(f"examples: split {spec.split!r} has no rows in {Path(files[0]).parent}; give it some")
        if isinstance(opened, baseline_lib.UsableBaseline):
            outcome = BaselineOutcome(
                state="compared", version=opened.version, metrics=found[opened.model.name].overall
            )
        else:
            outcome = opened
        overall = found[candidate.name].overall
        names = spec.metrics
        undefined = _undefined(spec, scorer, files)
        in_order = {name: math.nan if name in undefined else overall[name] for name in names if name in overall}
        verdict = judge(spec.options, in_order, found[candidate.name].slices, outcome, undefined)
        tfma_results.write_validation(verdict, candidate.name if len(models) > 1 else "", output_dir)
        (output_dir / VERDICT_NAME).write_text(verdict.to_json(), encoding="utf-8")
        return verdict

    def _measure(
        self,
        spec: EvaluateSpec,
        models: Sequence[inference.ScoredModel],
        files: Sequence[str],
        slice_columns: inference.SliceColumns,
        output_dir: Path,
    ) -> Mapping[str, tfma_results.ModelMetrics]:
        """Runs the models and TFMA on Beam; leaves TFMA's result files."""
        config = tfma_results.eval_config(spec, models)
        if spec.label_kind == "multiclass" or spec.label_kind == "boxes":
            self._count_classes(spec, models, files, slice_columns, output_dir)
            tfma_results.write_eval_run(config, models, str(Path(files[0]).parent), output_dir)
            return _unless_unseen(spec, tfma_results.read_metrics(output_dir))
        with self._make_beam_pipeline() as pipeline:
            scored = (
                pipeline
                | "Files" >> beam.Create(files)
                | inference.ScoreFiles(models, spec.label, spec.label_kind, slice_columns)
            )
            tfma_results.evaluate_and_write(scored.extracts, config, output_dir)
            _ = (
                scored[inference.ScoreFiles.PLOTS]
                | "MergePlots" >> beam.CombineGlobally(plots_lib.merge_plots).without_defaults()
                | "WritePlots" >> beam.Map(plots_lib.write_plots, str(output_dir))
            )
        tfma_results.write_eval_run(config, models, str(Path(files[0]).parent), output_dir)
        return tfma_results.read_metrics(output_dir)

    def _count_classes(
        self,
        spec: EvaluateSpec,
        models: Sequence[inference.ScoredModel],
        files: Sequence[str],
        slice_columns: inference.SliceColumns,
        output_dir: Path,
    ) -> None:
        """Runs the models on Beam and counts; leaves result files as TFMA does."""
        classes = {model.name: model.classes for model in models}
        with self._make_beam_pipeline() as pipeline:
            _ = (
                pipeline
                | "Files" >> beam.Create(files)
                | multiclass.CountFiles(models, spec.label, slice_columns)
                | "WriteCounts"
                >> beam.Map(multiclass.write_counts, classes, spec.metrics, len(models) > 1, str(output_dir))
            )


def _classes(spec: EvaluateSpec, model_dir: Path) -> tuple[str, ...]:
    """Returns the classes that a model says it knows."""
    if spec.classes is None:
        return ()
    contract = serving.read_contract(model_dir)
    if contract is None or not contract.classes:
        raise ConfigurationError(
            f"{model_dir}: does not say which classes it knows; give a model that Lockstep trained"
        )
    return contract.classes


def _unless_unseen(
    spec: EvaluateSpec, found: Mapping[str, tfma_results.ModelMetrics]
) -> Mapping[str, tfma_results.ModelMetrics]:
    """Returns the metrics; raises where rows are of a class that training has not, and that is an error."""
    candidate = found.get(tfma_results.CANDIDATE)
    unseen = int(candidate.overall["unseen_count"]) if candidate else 0
    if unseen and spec.classes is not None and spec.classes.unseen == "error":
        raise DataError(unseen_message(spec.label, unseen, f"the split {spec.split!r}"))
    return found


def _undefined(spec: EvaluateSpec, scorer: inference.Scorer, files: Sequence[str]) -> Mapping[str, str]:
    """Returns metric -> why, for those that the labels of the split leave undefined; TFMA may give 0 for them."""
    if spec.classes is not None:
        return {}
    names = [name for name in spec.metrics if metrics_lib.METRICS[name].needs]
    label = inference.only_label(scorer, files) if names else None
    return {} if label is None else metrics_lib.undefined(names, label, f"the {spec.split} split")


def _example_files(examples: list[types.Artifact], split: str) -> list[str]:
    """Returns the files of a split, of every Examples artifact."""
    check_formats(examples, "Evaluator")
    files = [
        path
        for split_uri in artifact_utils.get_split_uris(examples, split)
        for path in sorted(fileio.glob(io_utils.all_files_pattern(split_uri)))
    ]
    if not files:
        raise DataError(f"examples: split {split!r} has no files in {examples[0].uri}; run the steps before again")
    return files


def _slice_columns(spec: EvaluateSpec, schemas: list[types.Artifact]) -> inference.SliceColumns:
    """Returns the sliced columns with their types in the schema."""
    if not spec.options.slices:
        return {}
    schema_uri = artifact_utils.get_single_uri(schemas)
    schema = io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(schema_uri))
    known = {feature.name: feature.type for feature in schema.feature}
    for column in spec.options.slices:
        if column not in known:
            what = "a column with a value in the training split"
            raise ConfigurationError(metrics_lib.unknown_name("evaluate.slices", column, known, what))
    return inference.slice_columns({column: known[column] for column in spec.options.slices})


def _bless(
    blessing: types.Artifact, model: types.Artifact, evaluation_uri: str, baseline: str, verdict: Verdict
) -> None:
    """Fills the blessing as the stock Evaluator does, so that a stock Pusher works too, and with what ours needs."""
    name = blessing_keys.BLESSED_FILE_NAME if verdict.blessed else blessing_keys.NOT_BLESSED_FILE_NAME
    io_utils.write_string_file(f"{blessing.uri}/{name}", "")
    blessing.set_int_custom_property(blessing_keys.ARTIFACT_PROPERTY_BLESSED_KEY, int(verdict.blessed))
    blessing.set_string_custom_property(blessing_keys.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri)
    blessing.set_int_custom_property(blessing_keys.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    blessing.set_string_custom_property("baseline", baseline)
    blessing.set_string_custom_property("evaluation", evaluation_uri)
    # JSON has no NaN, and a manifest with one would not equal itself.
    finite = {name: value for name, value in verdict.metrics.items() if math.isfinite(value)}
    blessing.set_string_custom_property("metrics", json.dumps(finite))
    blessing.set_string_custom_property("reason", verdict.reason)
    blessing.set_string_custom_property("summary", verdict.summary)
