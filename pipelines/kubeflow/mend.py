"""TFX's PipelineSpec made into one that open-source Kubeflow Pipelines runs: a pure function of JSON documents.

Each change answers a place where the package of TFX's own runner is refused or silently misread. The design is in
docs/adr/0008-kubeflow.md.
"""

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.pipelines.kubeflow.names import PROBE, step_names
from lockstep.pipelines.kubeflow.options import KubeflowOptions, ResourceOptions, RetryOptions, quantity

COMMAND = ("python", "-m", "lockstep.pipelines.kubeflow.entry_point")
DRIVER_OUTPUT = "driver_output"
_EXECUTOR_INPUT = "{{$}}"
_TFX_TASK_SUFFIX = "_task"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """What the PipelineSpec does not say about a node of the pipeline.

    Args:
      id: The node's id in TFX.
      code_fingerprint: Hash of the code that its result depends on.
      driver_class_path: Import path of a driver of its own; None where it has none.
      driver_inputs: Keys of the input artifacts that the driver reads; None is all.
    """

    id: str
    code_fingerprint: str
    driver_class_path: str | None = None
    driver_inputs: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One task of the mended pipeline.

    Args:
      name: Of the task and its component in Kubeflow.
      option_key: What it is called in ``kubeflow.components``.
      executor_label: Of its executor.
      is_probe: Whether it runs a node's driver.
    """

    name: str
    option_key: str
    executor_label: str
    is_probe: bool


def steps_of(ids: Sequence[str], nodes: Sequence[Node]) -> list[Step]:
    """Returns the tasks that a pipeline has in Kubeflow.

    Args:
      ids: Ids of all its nodes.
      nodes: Those that run in a container of Lockstep's.
    """
    names = step_names(ids)
    steps = [_step(names[node_id], node_id, is_probe=False) for node_id in ids]
    probes = [_step(names[node.id] + PROBE, node.id + PROBE, is_probe=True) for node in nodes if node.driver_class_path]
    return steps + probes


def _step(name: str, option_key: str, *, is_probe: bool) -> Step:
    return Step(name=name, option_key=option_key, executor_label=f"exec-{name}", is_probe=is_probe)


def mend(
    spec: Mapping[str, Any],
    nodes: Sequence[Node],
    options: KubeflowOptions,
    *,
    name: str,
    defaults: Mapping[str, str | int],
) -> dict[str, Any]:
    """Returns the PipelineSpec that Kubeflow runs.

    Args:
      spec: What TFX's runner made, schema 2.1.0. Left as it is.
      nodes: What it does not say.
      options: The ``kubeflow`` block.
      name: The pipeline's name in Kubeflow.
      defaults: Run-time parameter -> value where a run gives none.
    """
    mended: dict[str, Any] = json.loads(
        json.dumps(spec)
    )  # not deepcopy, which keeps what is one object in two places one
    tasks = mended["root"]["dag"]["tasks"]
    _mend_producers(tasks)
    _mend_types(tasks, mended["components"])
    steps = steps_of(list(tasks), nodes)
    _rename(mended, {step.option_key: step for step in steps if not step.is_probe})
    by_name = {step.name: step for step in steps}
    names = {step.option_key: step.name for step in steps}
    for node in nodes:
        if node.driver_class_path is not None:
            _add_probe(mended, by_name[names[node.id]], by_name[names[node.id + PROBE]], node)
        _mend_container(mended, by_name[names[node.id]], node)
    for step in steps:
        _apply_options(mended, step, options)
    mended["pipelineInfo"]["name"] = name
    mended["defaultPipelineRoot"] = options.pipeline_root
    for parameter, value in defaults.items():
        mended["root"]["inputDefinitions"]["parameters"][parameter]["defaultValue"] = value
    return mended


def _mend_producers(tasks: Mapping[str, Any]) -> None:
    """TFX calls the producer of a value ``X_task``, the task itself ``X``."""
    for task in tasks.values():
        for value in task.get("inputs", {}).get("parameters", {}).values():
            source = value.get("taskOutputParameter")
            if source and source["producerTask"] not in tasks:
                source["producerTask"] = source["producerTask"].removesuffix(_TFX_TASK_SUFFIX)


def _mend_types(tasks: Mapping[str, Any], components: Mapping[str, Any]) -> None:
    """TFX declares every value that another step makes as text, whatever that step makes."""
    for task in tasks.values():
        component = components[task["componentRef"]["name"]]
        for key, value in task.get("inputs", {}).get("parameters", {}).items():
            source = value.get("taskOutputParameter")
            if source:
                producer = components[tasks[source["producerTask"]]["componentRef"]["name"]]
                made = producer["outputDefinitions"]["parameters"][source["outputParameterKey"]]
                component["inputDefinitions"]["parameters"][key]["parameterType"] = made["parameterType"]


def _rename(spec: dict[str, Any], steps: Mapping[str, Step]) -> None:
    """Gives tasks, components and executors names that Argo takes, in every place."""
    executors = spec["deploymentSpec"]["executors"]
    labels = {spec["components"][node_id]["executorLabel"]: step.executor_label for node_id, step in steps.items()}
    spec["deploymentSpec"]["executors"] = {labels[label]: executor for label, executor in executors.items()}
    spec["components"] = {
        steps[node_id].name: {**component, "executorLabel": steps[node_id].executor_label}
        for node_id, component in spec["components"].items()
    }
    tasks = spec["root"]["dag"]["tasks"]
    spec["root"]["dag"]["tasks"] = {steps[node_id].name: task for node_id, task in tasks.items()}
    for node_id, task in tasks.items():
        task["taskInfo"]["name"] = task["componentRef"]["name"] = steps[node_id].name
        if "dependentTasks" in task:
            task["dependentTasks"] = sorted(steps[other].name for other in task["dependentTasks"])
        for kind, source_key in (("artifacts", "taskOutputArtifact"), ("parameters", "taskOutputParameter")):
            for value in task.get("inputs", {}).get(kind, {}).values():
                if source_key in value:
                    value[source_key]["producerTask"] = steps[value[source_key]["producerTask"]].name


def _mend_container(spec: dict[str, Any], step: Step, node: Node) -> None:
    """Names the node in its container's arguments: Kubeflow keys a component by its container alone."""
    container = spec["deploymentSpec"]["executors"][step.executor_label]["container"]
    # Kubeflow ignores it: the probe does its work.
    container.pop("lifecycle", None)
    if "args" not in container:  # A container of the user's own, whose command is his.
        container.setdefault("env", []).append({"name": "LOCKSTEP_NODE_ID", "value": node.id})
        return
    executor_class_path, beam = _executor_and_beam(container["args"])
    container["args"] = _arguments(spec, step, node, ["--executor_class_path", executor_class_path], beam)


def _executor_and_beam(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Takes the command line apart that TFX's step builder made; what follows its own options is Beam's."""
    own = {"--executor_class_path", "--json_serialized_invocation_args", "--json_serialized_inputs_spec_args"}
    values = {}
    rest = list(arguments)
    while rest and rest[0] in own:
        values[rest[0]] = rest[1]
        rest = rest[2:]
    return values["--executor_class_path"], rest


def _arguments(spec: dict[str, Any], step: Step, node: Node, runs: Sequence[str], beam: Sequence[str]) -> list[str]:
    return [
        f"--node_id={node.id}",
        f"--code_fingerprint={node.code_fingerprint}",
        *runs,
        "--json_serialized_invocation_args",
        _EXECUTOR_INPUT,
        "--json_serialized_inputs_spec_args",
        json.dumps(spec["components"][step.name].get("inputDefinitions", {}), sort_keys=True, separators=(",", ":")),
        *beam,
    ]


def _add_probe(spec: dict[str, Any], step: Step, probe: Step, node: Node) -> None:
    """Makes the node's driver a task before it, whose answer is one of the node's inputs."""
    assert node.driver_class_path is not None
    components, tasks = spec["components"], spec["root"]["dag"]["tasks"]
    executors = spec["deploymentSpec"]["executors"]
    component, task = components[step.name], tasks[step.name]
    read = {
        key: value
        for key, value in component.get("inputDefinitions", {}).get("artifacts", {}).items()
        if node.driver_inputs is None or key in node.driver_inputs
    }
    components[probe.name] = {
        "executorLabel": probe.executor_label,
        "inputDefinitions": _without_empty(
            artifacts=copy.deepcopy(read),
            parameters=copy.deepcopy(component.get("inputDefinitions", {}).get("parameters", {})),
        ),
        "outputDefinitions": {"parameters": {DRIVER_OUTPUT: {"parameterType": "STRING"}}},
    }
    inputs = task.get("inputs", {})
    tasks[probe.name] = {
        "taskInfo": {"name": probe.name},
        "componentRef": {"name": probe.name},
        "inputs": _without_empty(
            artifacts={key: copy.deepcopy(inputs["artifacts"][key]) for key in read},
            parameters=copy.deepcopy(inputs.get("parameters", {})),
        ),
        "dependentTasks": _probe_dependencies(task, read),
    }
    container = executors[step.executor_label]["container"]
    executors[probe.executor_label] = {
        "container": {
            **{key: copy.deepcopy(value) for key, value in container.items() if key in ("image", "command")},
            "args": _arguments(spec, probe, node, ["--driver_class_path", node.driver_class_path], []),
        }
    }
    component.setdefault("inputDefinitions", {}).setdefault("parameters", {})[DRIVER_OUTPUT] = {
        "parameterType": "STRING"
    }
    task.setdefault("inputs", {}).setdefault("parameters", {})[DRIVER_OUTPUT] = {
        "taskOutputParameter": {"producerTask": probe.name, "outputParameterKey": DRIVER_OUTPUT}
    }
    task["dependentTasks"] = sorted([*task.get("dependentTasks", []), probe.name])


def _probe_dependencies(task: Mapping[str, Any], read: Mapping[str, Any]) -> list[str]:
    """Returns what the probe waits for: as the node, but not for producers of what it does not read."""
    producers = {
        key: value["taskOutputArtifact"]["producerTask"]
        for key, value in task.get("inputs", {}).get("artifacts", {}).items()
        if "taskOutputArtifact" in value
    }
    not_read = {producer for key, producer in producers.items() if key not in read}
    of_read = {producer for key, producer in producers.items() if key in read}
    return sorted(other for other in task.get("dependentTasks", []) if other in of_read or other not in not_read)


def _without_empty(**mappings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: mapping for key, mapping in mappings.items() if mapping}


def _apply_options(spec: dict[str, Any], step: Step, options: KubeflowOptions) -> None:
    own = options.of_step(step.option_key, probe=step.is_probe)
    task = spec["root"]["dag"]["tasks"][step.name]
    container = spec["deploymentSpec"]["executors"][step.executor_label].get("container")
    if own.retries is not None and own.retries.max:
        task["retryPolicy"] = _retry_policy(own.retries)
    task["cachingOptions"] = {"enableCache": bool(own.cache)}
    if container is None:  # An importer.
        return
    assert own.resources is not None
    resources = _resources(own.resources)
    if resources:
        container["resources"] = resources
    variables = {**_store_variables(options), **_variables(container), **own.env}
    if variables:
        container["env"] = [{"name": name, "value": value} for name, value in sorted(variables.items())]


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container.get("env", [])}


def _store_variables(options: KubeflowOptions) -> dict[str, str]:
    variables = {"AWS_ENDPOINT_URL": options.store_endpoint, "AWS_DEFAULT_REGION": options.store.region}
    return {name: value for name, value in variables.items() if value is not None}


def _retry_policy(retries: RetryOptions) -> dict[str, Any]:
    return {
        "maxRetryCount": retries.max,
        "backoffDuration": f"{retries.backoff_s}s",
        "backoffFactor": float(retries.factor),
        "backoffMaxDuration": f"{retries.window_s}s",
    }


def _resources(options: ResourceOptions) -> dict[str, Any]:
    """Returns numbers of cores and of 10^9 bytes, which every release of Kubeflow Pipelines 2 reads."""
    given = {
        "cpuRequest": (options.cpu, 1.0),
        "cpuLimit": (options.cpu_limit, 1.0),
        "memoryRequest": (options.memory, 1e9),
        "memoryLimit": (options.memory_limit, 1e9),
    }
    resources: dict[str, Any] = {key: quantity(text) / unit for key, (text, unit) in given.items() if text is not None}
    if options.accelerator is not None:
        resources["accelerator"] = {"type": options.accelerator, "count": options.accelerator_count}
    return resources
