"""Rules of a package's pipeline: names, what depends on what, parameters and their types, retries, caching.

Places in the comments are below ``backend/src`` of Kubeflow Pipelines.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from lockstep.pipelines.kubeflow.findings import KUBEFLOW_PLACEHOLDER, Finding
from lockstep.pipelines.kubeflow.names import KUBEFLOW_DRIVER, MAX_TASK, PROBE, RESERVED, TASK_PATTERN

_PIPELINE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_PIPELINE_NAME = 128  # apiserver/validation/length.go
_PARAMETER_NAME = re.compile(r"[-\w]+")
_ROOT_URI = re.compile(r"(minio|s3|gs)://[^/]+.*")
_VALUE_TYPES: dict[str, tuple[type, ...]] = {
    "NUMBER_INTEGER": (int, float),
    "NUMBER_DOUBLE": (int, float),
    "STRING": (str,),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}
_OTHER_TYPES = ("TASK_FINAL_STATUS", "TASK_CONFIG")


@dataclasses.dataclass(frozen=True)
class Dag:
    """One graph of tasks, and what stands around it."""

    spec: Mapping[str, Any]
    component: Mapping[str, Any]
    place: str

    @property
    def tasks(self) -> Mapping[str, Any]:
        """Name -> task."""
        tasks: Mapping[str, Any] = self.component["dag"].get("tasks", {})
        return tasks

    def component_of(self, task: str) -> Mapping[str, Any]:
        """Returns a task's component; empty where there is none."""
        name = self.tasks.get(task, {}).get("componentRef", {}).get("name", "")
        found: Mapping[str, Any] = self.spec.get("components", {}).get(name, {})
        return found

    def executor_of(self, task: str) -> Mapping[str, Any]:
        """Returns a task's executor; empty where there is none."""
        label = self.component_of(task).get("executorLabel", "")
        found: Mapping[str, Any] = self.spec.get("deploymentSpec", {}).get("executors", {}).get(label, {})
        return found


def pipeline_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields what is wrong with a PipelineSpec of the right structure."""
    name = spec.get("pipelineInfo", {}).get("name", "")
    # apiserver/template/v2_template.go, and Kubernetes: it begins the name of the workflow.
    if not _PIPELINE_NAME.fullmatch(name) or len(name) > _MAX_PIPELINE_NAME:
        yield Finding(
            place="pipelineInfo.name",
            reason=f"{name!r} is not allowed; give a-z, 0-9, '-' and '.', {_MAX_PIPELINE_NAME} at most",
            key="name",
        )
    pipeline_root = spec.get("defaultPipelineRoot", "")
    if pipeline_root and not _ROOT_URI.fullmatch(pipeline_root):  # v2/objectstore/config.go
        yield Finding(
            place="defaultPipelineRoot",
            reason=f"{pipeline_root!r} is not allowed; Kubeflow keeps artifacts in minio://, s3:// or gs://",
            key="kubeflow.pipeline_root",
        )
    if "dag" not in spec.get("root", {}):
        yield Finding(place="root", reason="has no 'dag'; Kubeflow runs a graph of tasks")
        return
    yield from _component_findings(spec)
    yield from _nesting_findings(spec)
    yield from _dag_findings(Dag(spec, spec["root"], "root.dag"))
    for component_name, component in spec.get("components", {}).items():
        if "dag" in component:
            yield from _dag_findings(Dag(spec, component, f"components.{component_name}.dag"))


def _component_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    components = {"root": spec["root"]} | {f"components.{k}": v for k, v in spec.get("components", {}).items()}
    for place, component in components.items():
        label = component.get("executorLabel")
        if place == "components.root":
            yield Finding(place=place, reason="'root' is Kubeflow's own name for the pipeline; give another")
        if ("dag" in component) == (label is not None):
            yield Finding(place=place, reason="needs an 'executorLabel' or a 'dag', one of the two")
        elif label is not None and label not in executors:  # v2/compiler/visitor.go
            yield Finding(place=f"{place}.executorLabel", reason=f"no executor {label!r} in deploymentSpec")
        for side in ("inputDefinitions", "outputDefinitions"):
            definitions = component.get(side, {})
            for key, parameter in definitions.get("parameters", {}).items():
                yield from _parameter_findings(f"{place}.{side}.parameters.{key}", key, parameter)
            for key, artifact in definitions.get("artifacts", {}).items():
                yield from _artifact_type_findings(f"{place}.{side}.artifacts.{key}", artifact.get("artifactType", {}))


def _parameter_findings(place: str, name: str, parameter: Mapping[str, Any]) -> Iterator[Finding]:
    kind = parameter.get("parameterType")
    if not _PARAMETER_NAME.fullmatch(name):
        yield Finding(place=place, reason=f"the name {name!r} is not allowed; give letters, digits, '_' and '-'")
    if "type" in parameter and kind is None:
        yield Finding(place=place, reason="has the 'type' of schema 2.0.0; Kubeflow reads 'parameterType'")
    elif kind not in _VALUE_TYPES and kind not in _OTHER_TYPES:
        yield Finding(
            place=f"{place}.parameterType",
            reason=f"{kind!r} is not allowed; give {', '.join((*_VALUE_TYPES, *_OTHER_TYPES))}",
        )
    elif "defaultValue" in parameter and not _is_of(parameter["defaultValue"], str(kind)):
        yield Finding(place=f"{place}.defaultValue", reason=f"{parameter['defaultValue']!r} is no {kind}")
    yield from _tag_findings(parameter.get("defaultValue"), f"{place}.defaultValue")


def _tag_findings(value: Any, place: str) -> Iterator[Finding]:
    """Yields texts at any depth that Argo would resolve: it does in the arguments of a task.

    Kubeflow's compiler makes one of the whole task, and one of the defaults (Argo: workflow/validate/validate.go).
    """
    if isinstance(value, str):
        if "{{" in KUBEFLOW_PLACEHOLDER.sub("", value):
            yield Finding(place=place, reason="holds '{{', which Argo takes for a tag of its own; write it otherwise")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _tag_findings(key, place)
            yield from _tag_findings(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _tag_findings(inner, f"{place}[{index}]")


def _artifact_type_findings(place: str, kind: Mapping[str, Any]) -> Iterator[Finding]:
    given = [key for key in ("schemaTitle", "instanceSchema", "schemaUri") if kind.get(key)]
    if len(given) != 1 or given == ["schemaUri"]:  # v2/component/launcher_v2.go, getArtifactSchema
        yield Finding(place=f"{place}.artifactType", reason="needs one of 'schemaTitle' and 'instanceSchema'")
    # v2/metadata/client.go: the type's name in the metadata is the schema's title.
    elif given == ["instanceSchema"] and not _schema_title(kind["instanceSchema"]):
        yield Finding(place=f"{place}.artifactType.instanceSchema", reason="is no YAML with a 'title:'")


def _nesting_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields graphs that hold themselves, which Kubeflow's compiler follows without end."""
    components = spec.get("components", {})

    def inner(component: Mapping[str, Any]) -> list[str]:
        tasks = component.get("dag", {}).get("tasks", {}).values()
        return [task.get("componentRef", {}).get("name", "") for task in tasks]

    graph = {
        name: [other for other in inner(component) if other in components] for name, component in components.items()
    }
    for name in _in_cycles(graph):
        yield Finding(place=f"components.{name}.dag", reason="holds itself; Kubeflow has no recursion")


def _dag_findings(dag: Dag) -> Iterator[Finding]:
    if not dag.tasks:  # v2/compiler/argocompiler/dag.go
        yield Finding(place=f"{dag.place}.tasks", reason="is empty; a graph holds at least one task")
    for name, task in dag.tasks.items():
        place = f"{dag.place}.tasks.{name}"
        yield from _name_findings(dag, name, place)
        if not task.get("taskInfo", {}).get("name"):  # v2/driver/driver.go
            yield Finding(place=f"{place}.taskInfo.name", reason="is absent; Kubeflow's driver needs it")
        yield from _tag_findings(task, place)
        component = task.get("componentRef", {}).get("name", "")
        if component not in dag.spec.get("components", {}):  # v2/compiler/visitor.go
            yield Finding(place=f"{place}.componentRef.name", reason=f"no component {component!r}")
            continue
        yield from _dependency_findings(dag, name, task, place)
        yield from _input_findings(dag, name, task, place)
        yield from _control_findings(dag, name, task, place)
    graph = {name: [other for other in _upstream(task) if other in dag.tasks] for name, task in dag.tasks.items()}
    for name in _in_cycles(graph):
        yield Finding(place=f"{dag.place}.tasks.{name}", reason="waits for itself, by way of the tasks it depends on")


def _name_findings(dag: Dag, name: str, place: str) -> Iterator[Finding]:
    # Argo: workflow/validate/validate.go; a digit is not allowed in a graph whose tasks depend on each other.
    longest = MAX_TASK - len(KUBEFLOW_DRIVER)
    if not TASK_PATTERN.fullmatch(name) or len(name) > longest:
        yield Finding(
            place=place,
            reason=f"the name {name!r} is not allowed; Argo takes letters, digits and '-', a letter first, and Kubeflow"
            f" appends {KUBEFLOW_DRIVER!r}: {longest} characters at most",
        )
    if name in RESERVED:
        yield Finding(place=place, reason=f"the name {name!r} is a word of Argo's expressions or Kubeflow's own")
    if name.endswith(KUBEFLOW_DRIVER) and name.removesuffix(KUBEFLOW_DRIVER) in dag.tasks:
        # v2/compiler/argocompiler/dag.go: two tasks of one name.
        yield Finding(
            place=place, reason=f"Kubeflow makes a task {name!r} itself, for {name[: -len(KUBEFLOW_DRIVER)]!r}"
        )


def _upstream(task: Mapping[str, Any]) -> list[str]:
    inputs = task.get("inputs", {})
    return [
        *task.get("dependentTasks", []),
        *(
            v["taskOutputArtifact"].get("producerTask", "")
            for v in inputs.get("artifacts", {}).values()
            if "taskOutputArtifact" in v
        ),
        *(
            v["taskOutputParameter"].get("producerTask", "")
            for v in inputs.get("parameters", {}).values()
            if "taskOutputParameter" in v
        ),
    ]


def _dependency_findings(dag: Dag, name: str, task: Mapping[str, Any], place: str) -> Iterator[Finding]:
    for other in task.get("dependentTasks", []):
        if other not in dag.tasks:
            yield Finding(place=f"{place}.dependentTasks", reason=f"no task {other!r} in this graph")
        elif other == name:
            yield Finding(place=f"{place}.dependentTasks", reason="a task cannot wait for itself")


def _input_findings(dag: Dag, name: str, task: Mapping[str, Any], place: str) -> Iterator[Finding]:
    declared = dag.component_of(name).get("inputDefinitions", {})
    given = task.get("inputs", {})
    for kind in ("artifacts", "parameters"):
        for key in sorted(given.get(kind, {}).keys() - declared.get(kind, {}).keys()):
            yield Finding(place=f"{place}.inputs.{kind}.{key}", reason="the task's component declares no such input")
        for key, definition in declared.get(kind, {}).items():
            optional = definition.get("isOptional") or "defaultValue" in definition
            if key not in given.get(kind, {}) and not optional and "parameterIterator" not in task:
                yield Finding(place=f"{place}.inputs.{kind}.{key}", reason="is absent, and the component needs it")
    for key, value in given.get("artifacts", {}).items():
        wanted = declared.get("artifacts", {}).get(key, {})
        yield from _artifact_source_findings(dag, value, wanted, f"{place}.inputs.artifacts.{key}")
    for key, value in given.get("parameters", {}).items():
        wanted = declared.get("parameters", {}).get(key, {}).get("parameterType", "")
        yield from _parameter_source_findings(dag, value, wanted, f"{place}.inputs.parameters.{key}")


def _artifact_source_findings(
    dag: Dag, value: Mapping[str, Any], wanted: Mapping[str, Any], place: str
) -> Iterator[Finding]:
    made: Mapping[str, Any] | None = None
    if "taskOutputArtifact" in value:
        source = value["taskOutputArtifact"]
        producer, key = source.get("producerTask", ""), source.get("outputArtifactKey", "")
        if producer not in dag.tasks:  # v2/compiler/argocompiler/dag.go
            yield Finding(place=place, reason=f"no task {producer!r} in this graph")
            return
        made = dag.component_of(producer).get("outputDefinitions", {}).get("artifacts", {}).get(key)
        if made is None and "dag" not in dag.component_of(producer):
            yield Finding(place=place, reason=f"{producer!r} makes no artifact {key!r}")
    elif "componentInputArtifact" in value:
        key = value["componentInputArtifact"]
        made = dag.component.get("inputDefinitions", {}).get("artifacts", {}).get(key)
        if made is None:
            yield Finding(place=place, reason=f"the graph has no input artifact {key!r}")
    else:
        yield Finding(place=place, reason="says not where the artifact comes from")
    titles = {_title(kind.get("artifactType", {})) for kind in (made or {}, wanted)} - {"", "system.Artifact"}
    if made and wanted and len(titles) > 1:
        yield Finding(place=place, reason=f"types differ: {' and '.join(sorted(titles))}")


def _title(kind: Mapping[str, Any]) -> str:
    return str(kind.get("schemaTitle") or _schema_title(kind.get("instanceSchema", "")))


@functools.lru_cache(maxsize=256)
def _schema_title(text: str) -> str:
    """Returns the title of a schema; empty where it is none."""
    try:
        schema = yaml.safe_load(text)
    except yaml.YAMLError:
        return ""
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) else ""


def _parameter_source_findings(dag: Dag, value: Mapping[str, Any], wanted: str, place: str) -> Iterator[Finding]:
    made: str | None = None
    if "taskOutputParameter" in value:
        source = value["taskOutputParameter"]
        producer, key = source.get("producerTask", ""), source.get("outputParameterKey", "")
        if producer not in dag.tasks:
            yield Finding(place=place, reason=f"no task {producer!r} in this graph")
            return
        outputs = dag.component_of(producer).get("outputDefinitions", {}).get("parameters", {})
        made = outputs.get(key, {}).get("parameterType")
        if key not in outputs:
            yield Finding(place=place, reason=f"{producer!r} makes no parameter {key!r}")
    elif "componentInputParameter" in value:
        key = value["componentInputParameter"]
        inputs = dag.component.get("inputDefinitions", {}).get("parameters", {})
        made = inputs.get(key, {}).get("parameterType")
        if key not in inputs:
            yield Finding(place=place, reason=f"the graph has no input parameter {key!r}")
    elif "runtimeValue" in value:
        yield from _constant_findings(value["runtimeValue"], wanted, f"{place}.runtimeValue")
    elif "taskFinalStatus" not in value:
        yield Finding(place=place, reason="says not where the value comes from")
    if made is not None and wanted and made != wanted and "parameterExpressionSelector" not in value:
        # v2/driver/resolve.go: what is declared as text arrives as text, any other difference fails the step.
        yield Finding(place=place, reason=f"types differ: {made} is made, {wanted} is declared")


def _constant_findings(value: Mapping[str, Any], wanted: str, place: str) -> Iterator[Finding]:
    if "constant" not in value:
        yield Finding(place=place, reason="has no 'constant'; Kubeflow reads nothing else")
        return
    constant = value["constant"]
    if constant is None:  # v2/driver/resolve.go
        yield Finding(place=place, reason="null is not allowed; leave the input out")
    elif wanted and not _is_of(constant, wanted):
        yield Finding(place=place, reason=f"{constant!r} is no {wanted}")


def _is_of(value: Any, kind: str) -> bool:
    if kind in _OTHER_TYPES:
        return True
    if kind == "NUMBER_INTEGER" and isinstance(value, float) and value != value // 1:
        return False
    return isinstance(value, _VALUE_TYPES.get(kind, (object,))) and (kind == "BOOLEAN" or not isinstance(value, bool))


def _control_findings(dag: Dag, name: str, task: Mapping[str, Any], place: str) -> Iterator[Finding]:
    executor = dag.executor_of(name)
    policy = task.get("triggerPolicy", {})
    if "importer" in executor and policy.get("condition"):  # v2/compiler/argocompiler/dag.go
        yield Finding(place=f"{place}.triggerPolicy", reason="Kubeflow knows no condition on an importer")
    if "artifactIterator" in task:
        yield Finding(place=f"{place}.artifactIterator", reason="Kubeflow does not implement it")
    if name.endswith(PROBE) and task.get("cachingOptions", {}).get("enableCache"):
        yield Finding(
            place=f"{place}.cachingOptions", reason="a probe looks at what is outside the pipeline; do not cache it"
        )
    yield from _retry_findings(task.get("retryPolicy", {}), f"{place}.retryPolicy")


def _retry_findings(policy: Mapping[str, Any], place: str) -> Iterator[Finding]:
    count, factor = policy.get("maxRetryCount", 0), policy.get("backoffFactor", 0)
    if count < 0:
        yield Finding(
            place=place, reason=f"maxRetryCount: {count} is not allowed; give 0 or more", key="kubeflow.retries.max"
        )
    if factor < 0 or factor != factor // 1:
        # Argo: workflow/controller/operator.go parses a whole number when the step shall start anew, and fails.
        yield Finding(
            place=place,
            reason=f"backoffFactor: {factor} is not allowed; give a whole number",
            key="kubeflow.retries.factor",
        )
    for field in ("backoffDuration", "backoffMaxDuration"):
        if policy.get(field, "0s").startswith("-"):
            yield Finding(place=place, reason=f"{field}: {policy[field]!r} is not allowed; give 0s or more")
    if count > 0 and not float(policy.get("backoffMaxDuration", "0s").rstrip("s")) >= 1:
        # v2/compiler/argocompiler/container.go puts 0, and Argo counts it from the start of the first try.
        yield Finding(
            place=place,
            reason="backoffMaxDuration: needed; without it Kubeflow 2.14 and newer never start a step anew",
            key="kubeflow.retries.window_s",
        )


def _in_cycles(graph: Mapping[str, list[str]]) -> list[str]:
    """Returns the nodes from which a way leads back to themselves."""
    return [node for node in graph if node in _reachable(graph, graph[node])]


def _reachable(graph: Mapping[str, list[str]], begin: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(begin)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(graph[node])
    return found
