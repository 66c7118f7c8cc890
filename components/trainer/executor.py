"""What the trainer's step does: finds the data, trains under supervision, and vouches for the model."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfx import types
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_executor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.utils import path_utils

from lockstep.components.artifact_uris import store_uri
from lockstep.components.errors import ConfigurationError, DataError, StepFailed
from lockstep.components.serving import SERVING_SIGNATURE, TRANSFORM_SIGNATURE
from lockstep.components.trainer.input_pipeline import with_steps
from lockstep.components.trainer.launchers import Launcher
from lockstep.components.trainer.launchers.local import LocalLauncher
from lockstep.components.trainer.records import count_all
from lockstep.components.trainer.spec import RunFiles, RunFn, TrainSpec, worker_command
from lockstep.components.trainer.standby import standby_command
from lockstep.components.trainer.step import TrainStep
from lockstep.components.trainer.summary import (
    SUMMARY_NAME,
    TrainingOutcome,
    installed_versions,
    training_summary,
    write_summary,
)
from lockstep.components.trainer.supervisor import Supervisor
from lockstep.components.trainer.work_folder import WorkFolder, training_key

__all__ = ["Executor", "check_servable"]

_TENSORBOARD_NAME = "tensorboard"
_LOGS_NAME = "logs"
_RUN_FN_NAME = "run_fn"

SIGNATURES = (SERVING_SIGNATURE, TRANSFORM_SIGNATURE)

Artifacts = Mapping[str, list[types.Artifact]]


class Executor(base_executor.BaseExecutor):
    """Executor of ``component.DistributedTrainer``."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Trains, and fills the outputs; blocks. A training that was interrupted goes on from its last checkpoint.

        Args:
          input_dict: ``examples``, transformed; ``transform_graph``; ``schema`` if the pipeline gives one.
          output_dict: ``model``, a SavedModel in ``Format-Serving``; ``model_run``, with ``summary.json``, the workers'
            ``logs``, ``tensorboard``, and what a ``run_fn`` left in its ``model_run_dir``.
          exec_properties: ``spec``, a ``TrainStep`` as JSON; ``steps`` and ``workers``, which take the place of its
            own, where the run sets them; ``code_fingerprint`` where the runner gives one.

        Raises:
          ConfigurationError: The specification, or the user's model function, cannot be used.
          DataError: The examples lack a split, or it is empty.
          StepFailed: The training failed for good, or left no model that can be served.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        began_s = time.monotonic()
        step = _step(exec_properties)
        model = artifact_utils.get_single_instance(output_dict["model"])
        model_run = artifact_utils.get_single_instance(output_dict["model_run"])
        model_run_dir = Path(model_run.uri)
        key = training_key(step, _identities(input_dict), str(exec_properties.get("code_fingerprint") or ""))
        folder = WorkFolder(Path(step.work_dir), key)
        with folder.held():
            spec = _train_spec(step, input_dict, model, model_run_dir, folder)
            outcome = train(spec)
            # What TFMA asks of a model beside is told by the Evaluator: a `run_fn` may be used without one.
            check_servable(Path(spec.export_dir), (SERVING_SIGNATURE,) if spec.run_fn else SIGNATURES)
            report = json.loads(RunFiles(folder.run_dir).training_path.read_text(encoding="utf-8"))
            summary = training_summary(
                spec, outcome, report, versions=installed_versions(), seconds=time.monotonic() - began_s
            )
            _keep_logs(folder.run_dir, model_run_dir / _LOGS_NAME)
            if spec.run_fn:
                shutil.copytree(folder.model_run_dir, model_run_dir / _RUN_FN_NAME)
            write_summary(model_run_dir / SUMMARY_NAME, summary)
        _describe(model, summary)
        _describe(model_run, summary)


def train(spec: TrainSpec, *, launcher: Launcher | None = None) -> TrainingOutcome:
    """Trains on this machine; see ``Supervisor.run``.

    Args:
      spec: What is trained.
      launcher: Where the workers run; what its ``poll`` raises ends the training. None starts them as usual.
    """
    files = RunFiles(Path(spec.run_dir))
    files.spec_path.write_text(spec.to_json(), encoding="utf-8")
    options = spec.options
    supervisor = Supervisor(
        launcher=launcher
        or LocalLauncher(
            base_port=options.base_port,
            devices_per_worker=options.num_devices,
            standby_command=standby_command(),
        ),
        options=spec.options,
        run_dir=files.run_dir,
        command=lambda attempt: worker_command(spec_path=files.spec_path, attempt=attempt),
        silent_together=spec.run_fn is not None,
    )
    return supervisor.run()


def check_servable(export_dir: Path, signatures: Sequence[str] = SIGNATURES) -> None:
    """Checks that a SavedModel with these signatures is there, without loading it.

    Raises:
      StepFailed: It is not, or cannot be read.
    """
    from google.protobuf import message
    from tensorflow.core.protobuf import saved_model_pb2

    path = export_dir / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel()
    try:
        saved_model.ParseFromString(path.read_bytes())
    except (OSError, message.DecodeError) as e:
        raise StepFailed(f"training left no model that can be served: {path}: {e}") from e
    missing = set(signatures) - {name for graph in saved_model.meta_graphs for name in graph.signature_def}
    if missing:
        raise StepFailed(
            f"training left no model that can be served: {path} lacks signature {', '.join(sorted(missing))}"
        )


def _step(exec_properties: Mapping[str, Any]) -> TrainStep:
    try:
        step = TrainStep.from_json(exec_properties["spec"])
        return step.at_run_time(steps=exec_properties.get("steps"), workers=exec_properties.get("workers"))
    except ValueError as e:
        raise ConfigurationError(str(e)) from e


def _identities(inputs: Artifacts) -> dict[str, list[str]]:
    """Returns what tells the data of each input from others."""
    return {
        name: [f"{store_uri(item)} {item.get_string_custom_property('input_fingerprint')}" for item in artifacts]
        for name, artifacts in inputs.items()
    }


def _train_spec(
    step: TrainStep, inputs: Artifacts, model: types.Artifact, model_run_dir: Path, folder: WorkFolder
) -> TrainSpec:
    examples = artifact_utils.get_single_instance(inputs["examples"])
    train_files = _split_files(examples, "train_split", step.train_split)
    eval_files = () if step.eval_split is None else _split_files(examples, "eval_split", step.eval_split)
    if step.options.validate_every is not None and not sum(count_all(eval_files)):
        raise DataError(f"train.validate_every: the split {step.eval_split!r} has no records; give it some")
    return TrainSpec(
        options=with_steps(step.options, train_files),
        model=step.model,
        label=step.label,
        label_kind=step.label_kind,
        classes=step.classes,
        decoder=step.decoder,
        train_files=train_files,
        eval_files=eval_files,
        transform_graph_dir=str(_local(artifact_utils.get_single_uri(inputs["transform_graph"]))),
        run_dir=str(folder.run_dir.absolute()),
        checkpoint_dir=str(folder.checkpoint_dir.absolute()),
        export_dir=str(_local(path_utils.serving_model_dir(model.uri))),
        tensorboard_dir=str(model_run_dir.absolute() / _TENSORBOARD_NAME),
        import_paths=tuple(str(Path(folder).absolute()) for folder in step.import_paths),
        run_fn=None if step.run_fn is None else _run_fn(step.run_fn, inputs, model, folder),
    )


def _run_fn(function: str, inputs: Artifacts, model: types.Artifact, folder: WorkFolder) -> RunFn:
    payload = examples_utils.get_payload_format(artifact_utils.get_single_instance(inputs["examples"]))
    schemas = inputs.get("schema")
    return RunFn(
        function=function,
        payload_format=example_gen_pb2.PayloadFormat.Name(payload),
        schema_path=str(next(_local(artifact_utils.get_single_uri(schemas)).iterdir())) if schemas else None,
        eval_model_dir=str(_local(path_utils.eval_model_dir(model.uri))),
        model_run_dir=str(folder.model_run_dir.absolute()),
    )


def _split_files(examples: types.Artifact, key: str, split: str) -> tuple[str, ...]:
    splits = artifact_utils.decode_split_names(examples.split_names)
    if split not in splits:
        raise DataError(f"{key}: the examples have no split {split!r}, only {', '.join(splits) or 'none'}")
    split_dir = _local(artifact_utils.get_split_uri([examples], split))
    files = tuple(str(path) for path in sorted(split_dir.glob("*.gz")))
    if not files:
        raise DataError(f"{key}: split {split!r} of the examples has no file in {split_dir}")
    return files


def _local(uri: str) -> Path:
    if "://" in uri:
        raise ConfigurationError(f"{uri}: not a local path; workers on this machine read and write local files only")
    return Path(uri).absolute()


def _keep_logs(run_dir: Path, logs_dir: Path) -> None:
    logs_dir.mkdir(parents=True, exist_ok=True)
    for path in sorted(run_dir.glob("*.log")):
        shutil.copyfile(path, logs_dir / path.name)


def _describe(artifact: types.Artifact, summary: Mapping[str, Any]) -> None:
    """Puts the telling figures where they are seen without reading a file."""
    artifact.set_int_custom_property("steps", summary["steps"])
    artifact.set_int_custom_property("restarts", summary["restarts"])
    for name in ("loss", "examples_per_s"):
        if summary[name] is not None:
            artifact.set_float_custom_property(name, summary[name])
    for name, value in summary["evaluation"].items():
        artifact.set_float_custom_property(f"eval_{name}", value)
