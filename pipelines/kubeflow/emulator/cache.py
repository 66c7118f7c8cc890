"""KFP's cache: the fingerprint of a task, and whether what it points to is still there.

After ``cacheutils/cache.go`` and ``driver/cache.go``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.pipelines.kubeflow.emulator import values
from lockstep.pipelines.kubeflow.emulator.records import Artifact
from lockstep.pipelines.kubeflow.emulator.store import Store, StoredFile
from lockstep.pipelines.kubeflow.emulator.workload import Task

LOGS = "executor-logs"


def fingerprint(task: Task, executor_input: Mapping[str, Any], *, claims: Sequence[str]) -> str:
    """Returns the SHA-256 of KFP's cache key.

    The key holds the input artifacts' ids and the input parameters' values, the outputs' names and types, the image,
    the command with its arguments before placeholders are replaced, and the volume claims. A cache key of the package's
    own replaces all that.

    Args:
      task: What would run.
      executor_input: What it would get.
      claims: Names of the volume claims that it mounts.
    """
    if task.cache_key:
        return hashlib.sha256(task.component_name.encode() + b"\0" + task.cache_key.encode()).hexdigest()
    inputs, outputs = executor_input["inputs"], executor_input["outputs"]
    key = {
        "inputArtifactNames": {
            name: {"artifactNames": [artifact["name"] for artifact in listed["artifacts"]]}
            for name, listed in inputs["artifacts"].items()
        },
        "inputParameterValues": inputs["parameterValues"],
        "outputArtifactsSpec": {
            name: {key: value for key, value in artifact.items() if key != "uri"}
            for name, listed in outputs["artifacts"].items()
            for artifact in listed["artifacts"]
        },
        "outputParametersSpec": {name: task.output_parameters[name] for name in outputs["parameters"]},
        "containerSpec": {
            "image": task.image,
            "cmdArgs": [*task.command, *task.args],
            **({"pvcNames": sorted(set(claims))} if claims else {}),
        },
    }
    return hashlib.sha256(values.to_json(key).encode()).hexdigest()


def changes(artifacts: Mapping[str, Artifact], store: Store) -> dict[str, str]:
    """Returns what happened in the store to artifacts whose objects are no more what was uploaded, by name.

    KFP never looks: it would hand them on, and a later step would find nothing, or something else.
    """
    found = {
        name: _change(artifact.files, store.files(artifact.uri))
        for name, artifact in artifacts.items()
        if name != LOGS and artifact.files is not None
    }
    return {name: change for name, change in found.items() if change}


def _change(recorded: Mapping[str, StoredFile], found: Mapping[str, StoredFile]) -> str:
    """Returns the first difference, in words; empty where there is none."""
    if recorded and not found:
        return "is gone"
    for key, file in recorded.items():
        place = f"{key!r} in it" if key else "it"
        if key not in found:
            return f"has changed: {place} is gone"
        if found[key].size != file.size:
            return f"has changed: {place} has {found[key].size} bytes, not {file.size}"
        if found[key].tag != file.tag:
            return f"has changed: {place} has another content"
    added = sorted(found.keys() - recorded.keys())
    return f"has changed: {added[0]!r} came into it" if added else ""
