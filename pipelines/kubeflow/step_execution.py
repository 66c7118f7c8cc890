"""One execution of a TFX executor or driver, between Kubeflow Pipelines' ``ExecutorInput`` and its output file."""

import dataclasses
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.orchestration.portable import outputs_utils
from tfx.proto.orchestration import execution_result_pb2
from tfx.utils import import_utils

from lockstep.components.artifact_uris import STORE_URI_PROPERTY
from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.kubeflow import component_driver, output_file, step_folders
from lockstep.pipelines.kubeflow.artifact_metadata import artifact_of, is_file, metadata_of
from lockstep.pipelines.kubeflow.container_paths import ContainerPaths
from lockstep.pipelines.kubeflow.executor_input import ExecutorInput, RuntimeArtifact, read_executor_input
from lockstep.pipelines.kubeflow.shared_folder import shared_artifacts

__all__ = ["StepCommand", "run_step"]

_logger = logging.getLogger(__name__)

Artifacts = dict[str, list[types.Artifact]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCommand:
    """What the package says of a step.

    Args:
      node_id: The component's name in TFX.
      code_fingerprint: Of the code that the package was compiled with; an execution property of the executor.
      executor_class_path: Import path; empty for a driver's task.
      driver_class_path: Import path; empty for an executor's task.
      json_serialized_invocation_args: ``ExecutorInput`` as JSON.
      json_serialized_inputs_spec_args: ``ComponentInputsSpec`` as JSON; may be empty.
      beam_arguments: For executors that use Beam.
      beam_shared_dir: Folder that the workers of Beam's cluster see; empty without such.
    """

    node_id: str
    code_fingerprint: str
    executor_class_path: str
    driver_class_path: str
    json_serialized_invocation_args: str
    json_serialized_inputs_spec_args: str
    beam_arguments: tuple[str, ...]
    beam_shared_dir: str = ""


def run_step(command: StepCommand, paths: ContainerPaths, temporary_dir: Path) -> None:
    """Runs the step, and writes the output file, output parameters too.

    Args:
      command: What is to be run.
      paths: Where the launcher has put the inputs, and takes the outputs from.
      temporary_dir: Local folder, for the executor.

    Raises:
      ConfigurationError: A class is not in the image, or the ``ExecutorInput`` cannot be used.
      StepFailed: The executor says that it failed, or an output cannot be told to Kubeflow Pipelines.
      Exception: Whatever the executor raised.
    """
    executor_input = read_executor_input(
        command.json_serialized_invocation_args, command.json_serialized_inputs_spec_args, paths
    )
    inputs = _inputs(executor_input)
    exec_properties = {**executor_input.parameters, "code_fingerprint": command.code_fingerprint}
    _keep_in_container(exec_properties, paths)
    driver_output = exec_properties.pop(component_driver.DRIVER_OUTPUT, "")
    if command.driver_class_path:
        text = component_driver.run_driver(command.driver_class_path, inputs, exec_properties)
        _logger.info("driver_output: %s", text)
        _finish(executor_input, {}, {component_driver.DRIVER_OUTPUT: text})
        return
    executor_class = _executor_class(command.executor_class_path)
    outputs = _outputs(executor_input)
    if driver_output:
        component_driver.apply_driver_output(driver_output, outputs, exec_properties)
    on_cluster = command.beam_shared_dir and issubclass(executor_class, base_beam_executor.BaseBeamExecutor)
    with shared_artifacts(inputs, outputs, command.beam_shared_dir if on_cluster else None):
        result = _executor(executor_class, command, temporary_dir).Do(inputs, outputs, exec_properties)
    _heed(result, outputs)
    outputs_utils.tag_output_artifacts_with_version(outputs)
    _finish(executor_input, outputs, _parameters(executor_input, outputs))


def _keep_in_container(exec_properties: dict[str, Any], paths: ContainerPaths) -> None:
    """Puts a training's folder below the folder that stands for the container's root: its ``/tmp`` is its own."""
    spec = exec_properties.get("spec")
    if paths.root == "/" or not isinstance(spec, str):
        return
    document = json.loads(spec)
    if isinstance(document, dict) and str(document.get("work_dir")).startswith("/tmp/"):  # noqa: S108 - a container's
        document["work_dir"] = f"{paths.root.rstrip('/')}{document['work_dir']}"
        exec_properties["spec"] = json.dumps(document, sort_keys=True)


def _inputs(executor_input: ExecutorInput) -> Artifacts:
    """Returns the inputs as TFX knows them; the launcher has downloaded their files, but no folder that was empty."""
    found: Artifacts = {}
    for key, runtimes in executor_input.inputs.items():
        found[key] = []
        for runtime in runtimes:
            metadata = executor_input.paths.localized(dict(runtime.metadata))
            artifact = artifact_of(dataclasses.replace(runtime, metadata=metadata))
            artifact.set_string_custom_property(STORE_URI_PROPERTY, runtime.uri)
            found[key].append(artifact)
            if not is_file(artifact):
                step_folders.make_folders(Path(runtime.local_path), metadata)
            elif Path(runtime.local_path).is_file():
                artifact.read()  # TFX's component functions ask for the value without reading it
    return found


def _outputs(executor_input: ExecutorInput) -> Artifacts:
    """Returns the outputs as TFX knows them; the launcher makes only the folders that theirs are in."""
    found: Artifacts = {}
    for key, runtimes in executor_input.outputs.items():
        found[key] = [artifact_of(runtime) for runtime in runtimes]
        for artifact, runtime in zip(found[key], runtimes, strict=True):
            path = Path(runtime.local_path)
            (path.parent if is_file(artifact) else path).mkdir(parents=True, exist_ok=True)
    return found


def _executor_class(class_path: str) -> type[base_executor.BaseExecutor]:
    try:
        return import_utils.import_class_by_path(class_path)  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as e:
        raise ConfigurationError(
            f"executor {class_path}: {e}; the image lacks it: build one that holds the code that was compiled"
        ) from e


def _executor(
    executor_class: type[base_executor.BaseExecutor], command: StepCommand, temporary_dir: Path
) -> base_executor.BaseExecutor:
    shared = {
        "unique_id": command.node_id,
        "tmp_dir": str(temporary_dir / "tmp"),
        "stateful_working_dir": str(temporary_dir / "state"),
    }
    if issubclass(executor_class, base_beam_executor.BaseBeamExecutor):
        context = base_beam_executor.BaseBeamExecutor.Context(beam_pipeline_args=list(command.beam_arguments), **shared)
    else:
        context = base_executor.BaseExecutor.Context(extra_flags=list(command.beam_arguments), **shared)
    return executor_class(context)


def _heed(result: execution_result_pb2.ExecutorOutput | None, outputs: Artifacts) -> None:
    """Takes what a newer executor returns in place of changing its arguments, or raising."""
    if result is None:
        return
    if result.execution_result.code:
        raise StepFailed(result.execution_result.result_message or f"ended with code {result.execution_result.code}")
    for key, records in result.output_artifacts.items():
        for artifact, record in zip(outputs.get(key, []), records.artifacts, strict=False):
            artifact.set_mlmd_artifact(record)


def _parameters(executor_input: ExecutorInput, outputs: Artifacts) -> dict[str, Any]:
    """Returns the output parameters: the values of the outputs with the same names, as TFX's compiler declares them."""
    values = {}
    for name in executor_input.parameter_files:
        artifacts = outputs.get(name, [])
        if len(artifacts) != 1 or not is_file(artifacts[0]):
            raise StepFailed(f"output parameter {name}: there is no output of one value with that name")
        values[name] = artifacts[0].read()
        if values[name] is None:
            raise StepFailed(f"output parameter {name} is None, which Kubeflow Pipelines does not take; give a value")
    return values


def _finish(executor_input: ExecutorInput, outputs: Mapping[str, list[types.Artifact]], values: dict[str, Any]) -> None:
    artifacts = {
        key: [_described(artifact, runtime) for artifact, runtime in zip(outputs.get(key, ()), runtimes, strict=False)]
        for key, runtimes in executor_input.outputs.items()
    }
    document = output_file.executor_output(artifacts, values, executor_input.paths)
    output_file.write_parameter_files(document.get("parameterValues", {}), executor_input.parameter_files)
    output_file.write_output_file(document, Path(executor_input.output_file))
    _logger.info("outputs: %s", json.dumps(document, sort_keys=True))


def _described(artifact: types.Artifact, runtime: RuntimeArtifact) -> tuple[str, dict[str, Any]]:
    path = Path(runtime.local_path)
    folders = step_folders.empty_folders(path) if path.is_dir() else {}
    metadata = {**metadata_of(artifact), **folders}
    metadata.pop(STORE_URI_PROPERTY, None)  # of an input, whose properties an executor has copied
    return artifact.uri, metadata
