"""What Kubeflow Pipelines tells a step: its ``ExecutorInput``, which its launcher puts for ``{{$}}``.

Read as JSON and not as the message of the kfp package, whose releases know different fields: a package is compiled with
one release and may run on a newer server.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import yaml

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.container_paths import ArtifactPaths, ContainerPaths

# The launcher's own: it writes the container's log there and uploads it.
_LAUNCHERS_OUTPUT = "executor-logs"
# Kubeflow Pipelines' own notes about an artifact.
_LAUNCHERS_METADATA = ("display_name", "store_session_info", "_kfp_workspace")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeArtifact:
    """One artifact.

    Args:
      name: Kubeflow Pipelines' id of an input, a number in text until it gives ML Metadata up; of an output its key.
      uri: Where it is in the object store.
      local_path: Where it is in the container.
      type_title: TFX's name of its type, such as ``tfx.Examples``, or a type of the user's.
      metadata: Its properties as JSON, without Kubeflow Pipelines' own and without its wrapping of lists and objects.
    """

    name: str
    uri: str
    local_path: str
    type_title: str
    metadata: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExecutorInput:
    """One execution of a step.

    Args:
      inputs: Key -> artifacts.
      parameters: Name -> value, typed as the component declares it; those without a value are absent.
      outputs: Key -> artifacts to be made; without the launcher's own log.
      output_file: Where the launcher looks for what the step says about its outputs.
      parameter_files: Output parameter -> file that the launcher reads where the output file does not have it.
      paths: Maps what is said about these artifacts.
    """

    inputs: Mapping[str, tuple[RuntimeArtifact, ...]]
    parameters: Mapping[str, Any]
    outputs: Mapping[str, tuple[RuntimeArtifact, ...]]
    output_file: str
    parameter_files: Mapping[str, str]
    paths: ArtifactPaths


def read_executor_input(text: str, inputs_spec: str, paths: ContainerPaths) -> ExecutorInput:
    """Returns what the launcher's JSON says.

    Args:
      text: ``ExecutorInput`` as JSON, with the names of its fields as protobuf's JSON form spells them.
      inputs_spec: ``ComponentInputsSpec`` as JSON, from the package: types of inputs that the launcher leaves out, and
        of numbers, which JSON does not tell apart. May be empty.
      paths: The launcher's mapping of URIs.

    Raises:
      ConfigurationError: Not an ``ExecutorInput``, or an artifact is where the launcher does not download from.
    """
    document, spec = _object(text, "the ExecutorInput"), _object(inputs_spec or "{}", "the inputs' specification")
    inputs, outputs = document.get("inputs", {}), document.get("outputs", {})
    titles = {key: _title(value.get("artifactType", {})) for key, value in spec.get("artifacts", {}).items()}
    input_artifacts = {
        key: tuple(_artifact(f"input {key}", item, titles.get(key, ""), paths) for item in value.get("artifacts", ()))
        for key, value in inputs.get("artifacts", {}).items()
    }
    output_artifacts = {
        key: tuple(_artifact(f"output {key}", item, "", paths) for item in value.get("artifacts", ()))
        for key, value in outputs.get("artifacts", {}).items()
        if key != _LAUNCHERS_OUTPUT
    }
    output_file = outputs.get("outputFile", "")
    if not output_file:
        raise ConfigurationError("the ExecutorInput names no output file; this is not Kubeflow Pipelines' launcher")
    every = [item for group in (input_artifacts, output_artifacts) for items in group.values() for item in items]
    return ExecutorInput(
        inputs=input_artifacts,
        parameters=_parameters(inputs.get("parameterValues", {}), spec.get("parameters", {})),
        outputs=output_artifacts,
        output_file=output_file,
        parameter_files={key: value["outputFile"] for key, value in outputs.get("parameters", {}).items()},
        paths=ArtifactPaths(paths, ((item.uri, item.local_path) for item in every)),
    )


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as e:
        raise ConfigurationError(f"{what} is not JSON: {e}") from e
    if not isinstance(document, dict):
        raise ConfigurationError(f"{what} is {document!r}, not a JSON object")
    return document


def _artifact(where: str, document: Mapping[str, Any], title: str, paths: ContainerPaths) -> RuntimeArtifact:
    metadata = document.get("metadata") or {}
    uri = document.get("uri", "")
    try:
        in_workspace = bool(metadata.get("_kfp_workspace"))
        local_path = document.get("customPath") or paths.local_path(uri, in_workspace=in_workspace)
    except ValueError as e:
        raise ConfigurationError(f"{where}: {e}") from e
    type_title = _title(document.get("type") or {}) or title
    if not type_title:
        raise ConfigurationError(f"{where}: neither Kubeflow Pipelines nor the package says what type it has")
    return RuntimeArtifact(
        name=document.get("name", ""),
        uri=uri,
        local_path=local_path,
        type_title=type_title,
        metadata={key: _unwrapped(value) for key, value in metadata.items() if key not in _LAUNCHERS_METADATA},
    )


def _title(artifact_type: Mapping[str, Any]) -> str:
    """Returns the title of a type's schema; empty where it has none."""
    if artifact_type.get("schemaTitle"):
        return str(artifact_type["schemaTitle"])
    schema = yaml.safe_load(artifact_type.get("instanceSchema") or "") or {}
    return str(schema.get("title", ""))


def _unwrapped(value: Any) -> Any:
    """Returns a property as it was given: ML Metadata has no lists, so they come back as an object of one key."""
    if isinstance(value, dict) and len(value) == 1:
        [(key, inner)] = value.items()
        if (key == "list" and isinstance(inner, list)) or (key == "struct" and isinstance(inner, dict)):
            return inner
    return value


def _parameters(values: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _typed(value, specs.get(key, {}).get("parameterType", ""))
        for key, value in values.items()
        if value is not None
    }


def _typed(value: Any, parameter_type: str) -> Any:
    """Returns a number as the component declares it; a fraction stays one, for the component to refuse."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if parameter_type == "NUMBER_INTEGER" and value == value // 1:
        return int(value)
    return float(value) if parameter_type == "NUMBER_DOUBLE" else value
