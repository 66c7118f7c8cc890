"""How large a package, and what Kubeflow makes of it, may be."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.pipelines.kubeflow.findings import Finding
from lockstep.pipelines.kubeflow.package import MAX_BYTES, Package

# Linux takes no argument of a program longer than 32 pages, its end included: MAX_ARG_STRLEN. Kubeflow's driver gets
# task, component and container as an argument each; its launcher the component, and the values of the inputs.
MAX_ARGUMENT_BYTES = 32 * 4096 - 1
# Argo's limit (workflow/packer/packer.go, MAX_WORKFLOW_SIZE), below etcd's 1.5 MiB. The workflow holds each of these.
MAX_WORKFLOW_BYTES = 1 << 20
# What Kubeflow's compiler puts around them, once and for each task; its own small samples come to 15 kB in all.
_FRAME_BYTES = 40 << 10
_TASK_FRAME_BYTES = 2 << 10


def size_findings(package: Package) -> Iterator[Finding]:
    """Yields what is too large."""
    size = len(package.to_yaml().encode())
    if size > MAX_BYTES:  # apiserver/common/const.go
        yield Finding(place="package", reason=f"{size} bytes; Kubeflow's server reads {MAX_BYTES} at most")
    parts = dict(_parts(package))
    for place, text in parts.items():
        if len(text.encode()) > MAX_ARGUMENT_BYTES:
            yield Finding(
                place=place,
                reason=f"{len(text.encode())} bytes; Kubeflow hands it to a program as one argument, which takes"
                f" {MAX_ARGUMENT_BYTES} at most: put long tables into files that the code reads",
            )
    num_tasks = len(package.spec.get("root", {}).get("dag", {}).get("tasks", {}))
    # Quoted once more, since the workflow holds them as text.
    total = sum(len(json.dumps(text)) for text in parts.values()) + _FRAME_BYTES + num_tasks * _TASK_FRAME_BYTES
    if total > MAX_WORKFLOW_BYTES:
        yield Finding(
            place="package",
            reason=f"Kubeflow makes a workflow of about {total} bytes of it; Argo takes {MAX_WORKFLOW_BYTES} at most",
        )


def _parts(package: Package) -> Iterator[tuple[str, str]]:
    spec = package.spec
    for name, component in {"root": spec.get("root", {}), **spec.get("components", {})}.items():
        yield f"components.{name}", _json({key: value for key, value in component.items() if key != "dag"})
        for task_name, task in component.get("dag", {}).get("tasks", {}).items():
            yield f"{name}.dag.tasks.{task_name}", _json(task)
    for label, executor in spec.get("deploymentSpec", {}).get("executors", {}).items():
        yield f"deploymentSpec.executors.{label}", _json(executor)
    platform: Mapping[str, Any] = (package.platform or {}).get("platforms", {}).get("kubernetes", {})
    for label, config in platform.get("deploymentSpec", {}).get("executors", {}).items():
        yield f"platforms.kubernetes.executors.{label}", _json(config)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
