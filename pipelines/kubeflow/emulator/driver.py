"""KFP's driver: what a task gets, as the ExecutorInput that its container reads.

After ``driver/resolve.go``, ``driver/container.go`` and ``driver/driver.go``. Errors say what KFP's own would.
"""

import dataclasses
import pathlib
import posixpath
import uuid
from collections.abc import Mapping
from typing import Any

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.kubeflow.emulator import values
from lockstep.pipelines.kubeflow.emulator.cache import LOGS
from lockstep.pipelines.kubeflow.emulator.records import Outputs
from lockstep.pipelines.kubeflow.emulator.store import local_path
from lockstep.pipelines.kubeflow.emulator.workload import Task, Workload

# KFP writes it beside the outputs since 2.15, and always to this path before.
_OLD_OUTPUT_FILE = "/tmp/kfp_outputs/output_metadata.json"  # noqa: S108 - a path in the container
_OUTPUT_PARAMETERS = "/tmp/kfp/outputs"  # noqa: S108 - a path in the container
NEW_LAYOUT = (2, 15)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What KFP knows of a run.

    Args:
      id: Unique.
      pipeline: The pipeline's name.
      root: The pipeline root, in the object store.
      created: UTC, as ``2026-01-31T12:00:00Z``.
      parameters: The pipeline's input parameters' values; None for an optional one without.
      kfp_version: Major and minor number of the KFP that is followed.
    """

    id: str
    pipeline: str
    root: str
    created: str
    parameters: Mapping[str, Any]
    kfp_version: tuple[int, int]


def run_parameters(workload: Workload, given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the run's parameters: given texts, else the package's defaults, None for an optional one without.

    Raises:
      ConfigurationError: A parameter is unknown, of another type, or has no value; KFP's server refuses such a run.
    """
    found: dict[str, Any] = {}
    for name, text in given.items():
        declared = workload.parameters.get(name)
        if declared is None:
            known = ", ".join(sorted(workload.parameters)) or "none"
            raise ConfigurationError(
                f"--set {values.brief(name)}: the package has no such parameter; its parameters: {known}"
            )
        parameter_type = declared.get("parameterType", "")
        try:
            found[name] = values.parse_argument(text, parameter_type)
        except ValueError as e:
            raise ConfigurationError(f"--set {name}={values.brief(text)}: not of type {parameter_type}: {e}") from e
    for name, declared in workload.parameters.items():
        if name in found:
            continue
        if declared.get("defaultValue") is None and not declared.get("isOptional"):
            raise ConfigurationError(f"parameter {name} has no default; give --set {name}=VALUE")
        found[name] = declared.get("defaultValue")
    return found


def executor_input(task: Task, run: Run, done: Mapping[str, Outputs]) -> dict[str, Any]:
    """Returns the ExecutorInput of a task, in JSON's form, with paths as they are in a container.

    Args:
      task: What will run.
      run: Its run.
      done: Outputs of the tasks that have succeeded.

    Raises:
      StepFailed: An input cannot be resolved, or has another type than the component declares.
    """
    return {"inputs": _inputs(task, run, done), "outputs": _outputs(task, run)}


def in_folder(executor_input: Mapping[str, Any], container_dir: pathlib.Path) -> dict[str, Any]:
    """Returns an ExecutorInput with its file names below the folder that stands for the container's ``/``."""

    def below(path: str) -> str:
        return str(container_dir / path.lstrip("/"))

    outputs = executor_input["outputs"]
    parameters = {name: {"outputFile": below(output["outputFile"])} for name, output in outputs["parameters"].items()}
    return {
        **executor_input,
        "outputs": {**outputs, "parameters": parameters, "outputFile": below(outputs["outputFile"])},
    }


def with_defaults(executor_input: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Returns an ExecutorInput with the component's defaults where there is no value, as the launcher does."""
    found = dict(executor_input["inputs"]["parameterValues"])
    for name, declared in task.input_parameters.items():
        if declared.get("defaultValue") is not None:
            found.setdefault(name, declared["defaultValue"])
    return {**executor_input, "inputs": {**executor_input["inputs"], "parameterValues": found}}


def _inputs(task: Task, run: Run, done: Mapping[str, Outputs]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name, spec in (task.inputs.get("parameters") or {}).items():
        value = _parameter(spec, task, run, done)
        if value is None and "componentInputParameter" in spec:
            if not task.input_parameters.get(name, {}).get("isOptional"):
                raise StepFailed(f"the resolved input parameter is null: {spec['componentInputParameter']}")
            continue
        parameters[name] = value
    artifacts = {
        name: {"artifacts": [_artifact(name, spec, task, done)]}
        for name, spec in (task.inputs.get("artifacts") or {}).items()
    }
    return {"parameterValues": _typed(parameters, task), "artifacts": artifacts}


def _parameter(spec: Mapping[str, Any], task: Task, run: Run, done: Mapping[str, Outputs]) -> Any:
    if "componentInputParameter" in spec:
        name = spec["componentInputParameter"]
        if name not in run.parameters:
            raise StepFailed(f"parent DAG does not have input parameter {name}")
        return run.parameters[name]
    if "taskOutputParameter" in spec:
        wanted = spec["taskOutputParameter"]
        outputs = _producer(wanted.get("producerTask", ""), task, done)
        # KFP passes on nothing, in silence, where the producer has no such output.
        return outputs.parameters.get(wanted.get("outputParameterKey", ""))
    if "constant" in spec.get("runtimeValue", {}):
        constant = spec["runtimeValue"]["constant"]
        replaced = {
            "{{$.pipeline_job_name}}": run.id,
            "{{$.pipeline_job_resource_name}}": run.id,
            "{{$.pipeline_job_uuid}}": run.id,
            "{{$.pipeline_task_name}}": task.name,
            "{{$.pipeline_task_uuid}}": run.id,
            "{{$.pipeline_job_create_time_utc}}": run.created,
            "{{$.pipeline_job_schedule_time_utc}}": run.created,
        }
        return replaced.get(constant, constant) if isinstance(constant, str) else constant
    raise StepFailed(f"parameter spec with {', '.join(sorted(spec)) or 'nothing'} not implemented yet")


def _artifact(name: str, spec: Mapping[str, Any], task: Task, done: Mapping[str, Outputs]) -> dict[str, Any]:
    if "taskOutputArtifact" not in spec:
        raise StepFailed(f"failed to resolve input artifact {name}: parent DAG does not have input artifacts")
    wanted = spec["taskOutputArtifact"]
    outputs = _producer(wanted.get("producerTask", ""), task, done)
    artifact = outputs.artifacts.get(wanted.get("outputArtifactKey", ""))
    if artifact is None:
        raise StepFailed(
            f"failed to resolve input artifact {name}: cannot find output artifact key"
            f" {wanted.get('outputArtifactKey')!r} in producer task {wanted.get('producerTask')!r}"
        )
    return artifact.to_runtime_artifact()


def _producer(name: str, task: Task, done: Mapping[str, Outputs]) -> Outputs:
    if name not in done:
        raise StepFailed(
            f"producer task, {name}, not in tasks; KFP waits for the tasks in dependentTasks alone:"
            f" {', '.join(task.dependencies) or 'none'}"
        )
    return done[name]


def _typed(parameters: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Returns values checked against the component's types; a STRING takes any value, as text."""
    typed = dict(parameters)
    for name, declared in task.input_parameters.items():
        if name not in parameters:
            if not declared.get("isOptional") and declared.get("defaultValue") is None:
                raise StepFailed(f"neither value nor default value provided for non-optional parameter {name!r}")
            if declared.get("isOptional"):
                continue
            # KFP's driver looks at the absent value's type here: a default needs isOptional, but for a STRING.
            if declared.get("parameterType") != "STRING":
                raise StepFailed(f"parameter {name} has unknown protobuf.Value type: <nil>")
            typed[name] = ""
            continue
        parameter_type, value = declared.get("parameterType", ""), parameters[name]
        if parameter_type == "STRING":
            typed[name] = values.to_text(value)
        elif value is None:
            raise StepFailed(f"got null for input parameter {name!r}")
        elif values.kind(value) != values.expected_kind(parameter_type):
            raise StepFailed(
                f"input parameter {name!r} type mismatch: expect {parameter_type}, got {values.kind(value)}"
            )
    return typed


def _outputs(task: Task, run: Run) -> dict[str, Any]:
    task_root = f"{run.root.rstrip('/')}/{task.name}/{uuid.uuid4()}"
    declared = {**task.output_artifacts, LOGS: {"artifactType": {"schemaTitle": "system.Artifact"}}}
    artifacts = {}
    for name, spec in declared.items():
        artifact = {"name": name, "uri": f"{task_root}/{name}", "type": spec.get("artifactType", {})}
        if spec.get("metadata"):
            artifact["metadata"] = spec["metadata"]
        artifacts[name] = {"artifacts": [artifact]}
    output_file = _OLD_OUTPUT_FILE
    if run.kfp_version >= NEW_LAYOUT:
        folder = local_path(task_root, pathlib.Path("/"))
        assert folder is not None
        output_file = posixpath.join(str(folder), "output_metadata.json")
    return {
        "parameters": {name: {"outputFile": f"{_OUTPUT_PARAMETERS}/{name}"} for name in task.output_parameters},
        "artifacts": artifacts,
        "outputFile": output_file,
    }
