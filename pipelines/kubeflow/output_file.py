"""What a step tells Kubeflow Pipelines' launcher: the ``ExecutorOutput`` in its output file.

The launcher parses it strictly: a field that it does not know, a null or a number that is none fails a step which has
done its work, and a local path in a URI means that nothing is uploaded, with no more than a warning.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.components.errors import StepFailed
from lockstep.pipelines.kubeflow.container_paths import ArtifactPaths

__all__ = ["executor_output", "parameter_text", "write_output_file", "write_parameter_files"]


def executor_output(
    artifacts: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]],
    parameters: Mapping[str, Any],
    paths: ArtifactPaths,
) -> dict[str, Any]:
    """Returns the document.

    Args:
      artifacts: Output -> local path or URI, and metadata, of each of its artifacts.
      parameters: Output parameter -> value.
      paths: Maps local paths back.

    Raises:
      StepFailed: An artifact was moved to where nothing uploads it, or something cannot be said in this document.
    """
    document: dict[str, Any] = {}
    if parameters:
        document["parameterValues"] = paths.restored(dict(parameters))
    if artifacts:
        document["artifacts"] = {
            key: {"artifacts": [_artifact(key, path, metadata, paths) for path, metadata in items]}
            for key, items in artifacts.items()
        }
    _check(document, paths)
    return document


def write_output_file(document: Mapping[str, Any], path: Path) -> None:
    """Writes the document, whole or not at all; its folder is made, which the launcher does not do before 2.15."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(document, sort_keys=True, allow_nan=False), encoding="utf-8")
    temporary.replace(path)


def write_parameter_files(values: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Writes each output parameter into the file that the launcher names for it."""
    for name, file in files.items():
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(parameter_text(values[name]), encoding="utf-8")


def parameter_text(value: Any) -> str:
    """Returns a parameter as the launcher reads it from a file: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, allow_nan=False)


def _artifact(key: str, path: str, metadata: Mapping[str, Any], paths: ArtifactPaths) -> dict[str, Any]:
    try:
        uri = paths.restored_uri(path)
    except ValueError as e:
        raise StepFailed(f"output {key}: {e}; leave its URI, or give one below it") from e
    return {"uri": uri, "metadata": paths.restored(dict(metadata))}


def _check(document: Mapping[str, Any], paths: ArtifactPaths) -> None:
    """Refuses what the launcher would refuse, while the message can still say why."""
    for where, value in _leaves("", document):
        if value is None:
            raise StepFailed(f"{where} is null, which Kubeflow Pipelines does not take")
        if isinstance(value, str):
            assert paths.restored(value) == value, f"{where} names a path of the container: {value}"
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise StepFailed(f"the step's outputs cannot be told to Kubeflow Pipelines: {e}") from e


def _leaves(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{where}.{key}" if where else key, item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(f"{where}[{index}]", item)
    else:
        yield where, value
