"""KFP's cache: the fingerprint of a task, and whether what it points to is still there.

After ``cacheutils/cache.go`` and ``driver/cache.go``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.pipelines.kubeflow.emulator import values
from lockstep.pipelines.kubeflow.emulator.records import Artifact
from lockstep.pipelines.kubeflow.emulator.store import Store
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


def gone(artifacts: Mapping[str, Artifact], store: Store) -> list[str]:
    """Returns the names of artifacts of which objects are missing in the store.

    KFP never looks: it would hand them on, and a later step would find nothing.
    """
    return [
        name
        for name, artifact in artifacts.items()
        if name != LOGS and artifact.num_files and len(store.keys(artifact.uri)) < artifact.num_files
    ]
