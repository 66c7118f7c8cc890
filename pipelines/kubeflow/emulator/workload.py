"""A package's tasks, in one flat form: what the emulator's driver, cache and launcher read."""

import dataclasses
import graphlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.components.errors import ConfigurationError

_PLATFORM = "kubernetes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retry:
    """KFP's retryPolicy, as Argo Workflows understands what KFP makes of it.

    Args:
      max_retries: Further attempts after the first.
      backoff_s: Seconds before the first of them.
      factor: What the wait is multiplied by for each further one; 0 does not multiply.
      max_duration_s: KFP's backoffMaxDuration, no bound of the wait: further attempts end so many seconds after the
        first one began, and none begins later. 0, which is what KFP takes where the package says nothing, allows none.
    """

    max_retries: int = 0
    backoff_s: float = 0.0
    factor: int = 0
    max_duration_s: float = 0.0

    def wait_s(self, num_attempts: int) -> float:
        """Returns the seconds between the last of so many failed attempts and the next one."""
        try:
            return self.backoff_s * float(self.factor) ** (num_attempts - 1) if self.factor > 0 else self.backoff_s
        except OverflowError:
            return math.inf

    def refusal(self, *, num_attempts: int, since_first_s: float) -> str | None:
        """Returns why Argo makes no further attempt; None where it makes one.

        Args:
          num_attempts: That were made, all in vain.
          since_first_s: Seconds since the first of them began.
        """
        if num_attempts > self.max_retries:
            return "No more retries left"
        if since_first_s > self.max_duration_s:
            return f"Max duration limit exceeded: backoffMaxDuration is {self.max_duration_s:g} s for all attempts"
        if since_first_s + self.wait_s(num_attempts) > self.max_duration_s:
            return f"Backoff would exceed max duration limit: backoffMaxDuration is {self.max_duration_s:g} s"
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task: its PipelineTaskSpec, ComponentSpec, container and the platform's part.

    Args:
      name: The task's name in the package.
      component_name: The component's.
      inputs: The task's ``inputs``.
      component: The component.
      dependencies: Tasks that must have succeeded. KFP derives none from ``inputs``.
      image: The container's image.
      command: Its command.
      args: Its arguments.
      env: Its environment variables.
      cached: KFP's cache is on for it.
      cache_key: Replaces what KFP would put into the key; empty for most.
      retry: How often it is started anew.
      platform: Its KubernetesExecutorConfig.
    """

    name: str
    component_name: str
    inputs: Mapping[str, Any]
    component: Mapping[str, Any]
    dependencies: tuple[str, ...]
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    cached: bool
    cache_key: str
    retry: Retry
    platform: Mapping[str, Any]

    @property
    def input_parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The component's input parameters: type, default, whether optional."""
        return _mapping(self.component, "inputDefinitions", "parameters")

    @property
    def output_parameters(self) -> dict[str, str]:
        """The component's output parameters' types."""
        declared = _mapping(self.component, "outputDefinitions", "parameters")
        return {name: parameter.get("parameterType", "") for name, parameter in declared.items()}

    @property
    def output_artifacts(self) -> Mapping[str, Mapping[str, Any]]:
        """The component's output artifacts: type, metadata."""
        return _mapping(self.component, "outputDefinitions", "artifacts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A package as the emulator runs it.

    Args:
      name: The pipeline's name.
      default_root: The pipeline root that the package proposes; KFP ignores it unless the run names it.
      parameters: The pipeline's input parameters.
      tasks: In an order that respects their dependencies, else by name.
    """

    name: str
    default_root: str
    parameters: Mapping[str, Mapping[str, Any]]
    tasks: tuple[Task, ...]


def read_workload(pipeline: Mapping[str, Any], platform: Mapping[str, Any] | None) -> Workload:
    """Returns a package's tasks.

    Args:
      pipeline: The package's first document, a PipelineSpec of schema 2.1 in JSON's form.
      platform: The second one; None where there is none.

    Raises:
      ConfigurationError: The package has something that KFP runs and the emulator does not.
    """
    specs = _mapping(pipeline, "root", "dag", "tasks")
    executors = _mapping(pipeline, "deploymentSpec", "executors")
    platforms = _mapping(platform or {}, "platforms", _PLATFORM, "deploymentSpec", "executors")
    tasks = {name: _task(name, spec, pipeline, executors, platforms) for name, spec in specs.items()}
    return Workload(
        name=pipeline["pipelineInfo"]["name"],
        default_root=pipeline.get("defaultPipelineRoot", ""),
        parameters=_mapping(pipeline, "root", "inputDefinitions", "parameters"),
        tasks=tuple(tasks[name] for name in _ordered({name: task.dependencies for name, task in tasks.items()})),
    )


def _task(
    name: str,
    spec: Mapping[str, Any],
    pipeline: Mapping[str, Any],
    executors: Mapping[str, Any],
    platforms: Mapping[str, Any],
) -> Task:
    component_name = spec["componentRef"]["name"]
    component = pipeline["components"][component_name]
    label = component.get("executorLabel")
    container = executors.get(label, {}).get("container")
    if container is None or {"parameterIterator", "artifactIterator"} & spec.keys():
        raise ConfigurationError(
            f"task {name}: no plain container; lockstep emulate runs neither importers, nested pipelines nor loops"
        )
    if spec.get("triggerPolicy", {}).get("condition") or "ALL" in spec.get("triggerPolicy", {}).get("strategy", ""):
        raise ConfigurationError(f"task {name}: lockstep emulate knows no conditions and no exit handlers")
    caching = spec.get("cachingOptions", {})
    return Task(
        name=name,
        component_name=component_name,
        inputs=spec.get("inputs", {}),
        component=component,
        dependencies=tuple(spec.get("dependentTasks", ())),
        image=container["image"],
        command=tuple(container.get("command", ())),
        args=tuple(container.get("args", ())),
        env={variable["name"]: variable.get("value", "") for variable in container.get("env", ())},
        cached=caching.get("enableCache", False),
        cache_key=caching.get("cacheKey", ""),
        retry=_retry(spec.get("retryPolicy", {})),
        platform=platforms.get(label, {}),
    )


def _retry(policy: Mapping[str, Any]) -> Retry:
    factor = float(policy.get("backoffFactor", 0.0))
    if not factor.is_integer():
        raise ConfigurationError(f"backoffFactor: {factor:g} is not allowed; Argo Workflows takes whole numbers alone")
    return Retry(
        max_retries=int(policy.get("maxRetryCount", 0)),
        backoff_s=_seconds(policy.get("backoffDuration", "0s")),
        factor=int(factor),
        max_duration_s=_seconds(policy.get("backoffMaxDuration", "0s")),
    )


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def _ordered(dependencies: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the names with each after its dependencies; of those that could come next, the first by name."""
    sorter = graphlib.TopologicalSorter({name: dependencies[name] for name in sorted(dependencies)})
    try:
        sorter.prepare()
    except graphlib.CycleError as e:
        raise ConfigurationError(f"tasks wait for each other: {', '.join(e.args[1])}") from e
    ordered: list[str] = []
    ready: list[str] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        ordered.append(ready.pop(0))
        sorter.done(ordered[-1])
    return ordered


def _mapping(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    current: Any = document
    for key in keys:
        current = current.get(key) or {}
    assert isinstance(current, Mapping)
    return current
