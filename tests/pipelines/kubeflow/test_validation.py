"""Whatever Kubeflow would refuse of a package, or misread, is found, with its place and the key that mends it."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.validation import check, validate
from tests.pipelines.kubeflow import golden

Documents = tuple[dict[str, Any], dict[str, Any]]


@functools.cache
def _package() -> Package:
    return Package.read(golden.GOLDEN_DIR / "every_key.yaml")


def _valid() -> Documents:
    package = _package()
    assert package.platform is not None
    return copy.deepcopy(dict(package.spec)), copy.deepcopy(dict(package.platform))


def _tasks(documents: Documents) -> Any:
    return documents[0]["root"]["dag"]["tasks"]


def _container(documents: Documents, step: str = "Transform") -> Any:
    return documents[0]["deploymentSpec"]["executors"][f"exec-{step}"]["container"]


def _executor(documents: Documents, step: str = "Transform") -> Any:
    return documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{step}"]


def _rename_task(documents: Documents, old: str, new: str) -> None:
    _tasks(documents)[new] = _tasks(documents).pop(old)


def _importer(documents: Documents, uri: str) -> None:
    documents[0]["deploymentSpec"]["executors"]["exec-Transform"] = {
        "importer": {"artifactUri": {"constant": uri}, "typeSchema": {"schemaTitle": "system.Model"}}
    }


def _inputs(documents: Documents, step: str = "Transform") -> Any:
    return _tasks(documents)[step]["inputs"]


PIPELINE: dict[str, tuple[Callable[[Documents], Any], str]] = {
    "schema version": (lambda d: d[0].update(schemaVersion="2.0.0"), "schemaVersion: '2.0.0' is not allowed"),
    "unknown field": (lambda d: _tasks(d)["Transform"].update(retries=3), "tasks.Transform.retries: no such field"),
    "misspelled executor field": (lambda d: _container(d).update(arguments=[]), "container.arguments: no such field"),
    "wrong type": (lambda d: _container(d).update(image=3), "container.image: 3 is not allowed; Kubeflow takes text"),
    "mapping for list": (lambda d: _container(d).update(args={}), "container.args: {} is not allowed"),
    "duration": (
        lambda d: _tasks(d)["Transform"]["retryPolicy"].update(backoffDuration="30"),
        "retryPolicy.backoffDuration: '30' is not allowed; Kubeflow takes seconds",
    ),
    "memory beyond a double": (
        lambda d: _container(d)["resources"].update(memoryRequest=10**400),
        "resources.memoryRequest: 1000",
    ),
    "factor beyond a double": (
        lambda d: _tasks(d)["Transform"]["retryPolicy"].update(backoffFactor=10**400),
        "retryPolicy.backoffFactor: 1000",
    ),
    "number of too many digits": (
        lambda d: _executor(d).update(activeDeadlineSeconds="9" * 5000),
        "activeDeadlineSeconds: '999",
    ),
    "long key of a secret": (
        lambda d: _executor(d).update(
            secretAsEnv=[{"secretName": "s", "keyToEnv": [{"secretKey": "k" * 5000, "envVar": "V"}]}]
        ),
        "'V': the key 'kkk",
    ),
    "no mapping": (lambda d: d[0].update(root=[]), "root: [] is not allowed"),
    "pipeline name": (lambda d: d[0]["pipelineInfo"].update(name="My_Taxi"), "pipelineInfo.name: 'My_Taxi'"),
    "long pipeline name": (lambda d: d[0]["pipelineInfo"].update(name="a" * 129), "128 at most"),
    "local root": (lambda d: d[0].update(defaultPipelineRoot="/mnt/x"), "defaultPipelineRoot: '/mnt/x'"),
    "task name with underscore": (lambda d: _rename_task(d, "Pusher", "my_pusher"), "the name 'my_pusher'"),
    "task name with digit": (lambda d: _rename_task(d, "Pusher", "2nd"), "the name '2nd'"),
    "long task name": (lambda d: _rename_task(d, "Pusher", "a" * 122), "121 characters at most"),
    "word of expressions": (lambda d: _rename_task(d, "Pusher", "not"), "a word of Argo's expressions"),
    "kubeflow's driver": (lambda d: _rename_task(d, "Pusher", "Transform-driver"), "Kubeflow makes a task"),
    "component root": (
        lambda d: d[0]["components"].update(root=d[0]["components"]["Transform"]),
        "components.root: 'root' is Kubeflow's own name",
    ),
    "no task info": (lambda d: _tasks(d)["Transform"].pop("taskInfo"), "Transform.taskInfo.name: is absent"),
    "no such component": (
        lambda d: _tasks(d)["Transform"]["componentRef"].update(name="X"),
        "Transform.componentRef.name: no component 'X'",
    ),
    "no such executor": (
        lambda d: d[0]["components"]["Transform"].update(executorLabel="x"),
        "components.Transform.executorLabel: no executor 'x'",
    ),
    "neither executor nor graph": (
        lambda d: d[0]["components"]["Transform"].pop("executorLabel"),
        "components.Transform: needs an 'executorLabel' or a 'dag'",
    ),
    "empty graph": (lambda d: d[0]["root"]["dag"].update(tasks={}), "root.dag.tasks: is empty"),
    "graph in itself": (
        lambda d: d[0]["components"].update(
            Loop={"dag": {"tasks": {"inner": {"taskInfo": {"name": "inner"}, "componentRef": {"name": "Loop"}}}}}
        ),
        "components.Loop.dag: holds itself",
    ),
    "unknown dependency": (
        lambda d: _tasks(d)["Transform"]["dependentTasks"].append("X"),
        "Transform.dependentTasks: no task 'X'",
    ),
    "own dependency": (
        lambda d: _tasks(d)["Transform"]["dependentTasks"].append("Transform"),
        "a task cannot wait for itself",
    ),
    "cycle": (lambda d: _tasks(d)["ExampleGen"]["dependentTasks"].append("Pusher"), "waits for itself"),
    "unknown producer of an artifact": (
        lambda d: _inputs(d)["artifacts"]["schema"]["taskOutputArtifact"].update(producerTask="X"),
        "artifacts.schema: no task 'X'",
    ),
    "unknown output": (
        lambda d: _inputs(d)["artifacts"]["schema"]["taskOutputArtifact"].update(outputArtifactKey="x"),
        "'SchemaGen' makes no artifact 'x'",
    ),
    "artifact of another type": (
        lambda d: _inputs(d)["artifacts"]["schema"].update(
            taskOutputArtifact={"producerTask": "ExampleGen", "outputArtifactKey": "examples"}
        ),
        "types differ: tfx.Examples and tfx.Schema",
    ),
    "artifact from nowhere": (lambda d: _inputs(d)["artifacts"].update(schema={}), "says not where the artifact"),
    "artifact of no graph": (
        lambda d: _inputs(d)["artifacts"].update(schema={"componentInputArtifact": "x"}),
        "the graph has no input artifact 'x'",
    ),
    "absent input": (lambda d: _inputs(d)["artifacts"].pop("schema"), "schema: is absent, and the component needs it"),
    "undeclared input": (
        lambda d: _inputs(d)["parameters"].update(x={"runtimeValue": {"constant": 1}}),
        "parameters.x: the task's component declares no such input",
    ),
    "TFX's producer of a value": (
        lambda d: _inputs(d, "Pusher")["parameters"]["driver_output"]["taskOutputParameter"].update(
            producerTask="Pusher-probe_task"
        ),
        "driver_output: no task 'Pusher-probe_task'",
    ),
    "value as text": (
        lambda d: d[0]["components"]["Pusher-probe"]["outputDefinitions"]["parameters"].update(
            driver_output={"parameterType": "NUMBER_INTEGER"}
        ),
        "types differ: NUMBER_INTEGER is made, STRING is declared",
    ),
    "unknown output parameter": (
        lambda d: _inputs(d, "Pusher")["parameters"]["driver_output"]["taskOutputParameter"].update(
            outputParameterKey="x"
        ),
        "'Pusher-probe' makes no parameter 'x'",
    ),
    "run-time parameter of another type": (
        lambda d: _inputs(d, "ExampleGen")["parameters"]["data_path"].update(componentInputParameter="train_steps"),
        "types differ: NUMBER_INTEGER is made, STRING is declared",
    ),
    "unknown run-time parameter": (
        lambda d: _inputs(d, "ExampleGen")["parameters"]["data_path"].update(componentInputParameter="x"),
        "the graph has no input parameter 'x'",
    ),
    "constant of another type": (
        lambda d: _inputs(d)["parameters"]["disable_statistics"].update(runtimeValue={"constant": "yes"}),
        "disable_statistics.runtimeValue: 'yes' is no NUMBER_INTEGER",
    ),
    "fraction for an integer": (
        lambda d: _inputs(d)["parameters"]["disable_statistics"].update(runtimeValue={"constant": 0.5}),
        "0.5 is no NUMBER_INTEGER",
    ),
    "null": (
        lambda d: _inputs(d)["parameters"]["disable_statistics"].update(runtimeValue={"constant": None}),
        "null is not allowed",
    ),
    "constant of schema 2.0": (
        lambda d: _inputs(d)["parameters"]["custom_config"].update(runtimeValue={"constantValue": {"stringValue": ""}}),
        "custom_config.runtimeValue: has no 'constant'",
    ),
    "tag of Argo's in a constant": (
        lambda d: _inputs(d)["parameters"]["custom_config"].update(runtimeValue={"constant": "a {{name}}"}),
        "holds '{{', which Argo takes for a tag",
    ),
    "tag of Argo's in a part of a constant": (
        lambda d: _inputs(d)["parameters"].update(
            custom_config={"runtimeValue": {"constant": [{"a": "{{workflow.name}}"}]}}
        ),
        "runtimeValue.constant[0].a: holds '{{', which Argo takes for a tag",
    ),
    "tag of Argo's in a task's name": (
        lambda d: _tasks(d)["Transform"]["taskInfo"].update(name="{{workflow.x}}"),
        "Transform.taskInfo.name: holds '{{', which Argo takes for a tag",
    ),
    "tag of Argo's in a default": (
        lambda d: d[0]["root"]["inputDefinitions"]["parameters"]["data_path"].update(defaultValue="s3://{{inputs.x}}"),
        "data_path.defaultValue: holds '{{', which Argo takes for a tag",
    ),
    "tag that does not end": (
        lambda d: _inputs(d)["parameters"]["custom_config"].update(runtimeValue={"constant": "a {{$"}),
        "custom_config.runtimeValue.constant: holds '{{', which Argo takes for a tag",
    ),
    "no producer of a value": (
        lambda d: _inputs(d, "Pusher")["parameters"]["driver_output"]["taskOutputParameter"].pop("producerTask"),
        "driver_output: no task ''",
    ),
    "default of another type": (
        lambda d: d[0]["root"]["inputDefinitions"]["parameters"]["train_steps"].update(defaultValue="600"),
        "train_steps.defaultValue: '600' is no NUMBER_INTEGER",
    ),
    "parameter of schema 2.0": (
        lambda d: d[0]["root"]["inputDefinitions"]["parameters"].update(train_steps={"type": "INT"}),
        "has the 'type' of schema 2.0.0",
    ),
    "parameter of no type": (
        lambda d: d[0]["root"]["inputDefinitions"]["parameters"].update(train_steps={"parameterType": "INT"}),
        "train_steps.parameterType: 'INT' is not allowed",
    ),
    "parameter's name": (
        lambda d: d[0]["root"]["inputDefinitions"]["parameters"].update({"a b": {"parameterType": "STRING"}}),
        "the name 'a b' is not allowed",
    ),
    "artifact without a title": (
        lambda d: d[0]["components"]["Transform"]["inputDefinitions"]["artifacts"]["schema"]["artifactType"].update(
            instanceSchema="type: object"
        ),
        "is no YAML with a 'title:'",
    ),
    "artifact without a type": (
        lambda d: d[0]["components"]["Transform"]["inputDefinitions"]["artifacts"]["schema"].update(artifactType={}),
        "needs one of 'schemaTitle' and 'instanceSchema'",
    ),
    "artifact's schema by its URI": (
        lambda d: d[0]["components"]["Transform"]["inputDefinitions"]["artifacts"]["schema"].update(
            artifactType={"schemaUri": "https://schema.example/x.yaml"}
        ),
        "needs one of 'schemaTitle' and 'instanceSchema'",
    ),
    "fraction as a factor": (
        lambda d: _tasks(d)["Transform"]["retryPolicy"].update(backoffFactor=1.5),
        "backoffFactor: 1.5 is not allowed; give a whole number (key: kubeflow.retries.factor)",
    ),
    "retries that never happen": (
        lambda d: _tasks(d)["Transform"]["retryPolicy"].pop("backoffMaxDuration"),
        "never start a step anew (key: kubeflow.retries.window_s)",
    ),
    "negative retries": (
        lambda d: _tasks(d)["Transform"]["retryPolicy"].update(maxRetryCount=-1),
        "maxRetryCount: -1 is not allowed",
    ),
    "negative wait": (
        lambda d: _tasks(d)["Transform"]["retryPolicy"].update(backoffDuration="-3s"),
        "backoffDuration: '-3s' is not allowed",
    ),
    "cached probe": (
        lambda d: _tasks(d)["Pusher-probe"].update(cachingOptions={"enableCache": True}),
        "Pusher-probe.cachingOptions: a probe looks at what is outside",
    ),
    "iterator over artifacts": (
        lambda d: _tasks(d)["Transform"].update(artifactIterator={"itemInput": "examples"}),
        "artifactIterator: Kubeflow does not implement it",
    ),
    "condition on an importer": (
        lambda d: (_importer(d, "s3://b/x"), _tasks(d)["Transform"].update(triggerPolicy={"condition": "true"})),
        "Kubeflow knows no condition on an importer",
    ),
}
CONTAINER: dict[str, tuple[Callable[[Documents], Any], str]] = {
    "importer of a local path": (
        lambda d: _importer(d, "/data/model"),
        "'/data/model' is not allowed; Kubeflow imports",
    ),
    "resolver": (
        lambda d: d[0]["deploymentSpec"]["executors"].update({"exec-Transform": {"resolver": {}}}),
        "Kubeflow implements no resolver (TFX's Resolver node)",
    ),
    "custom job": (
        lambda d: d[0]["deploymentSpec"]["executors"].update({"exec-Transform": {"customJob": {}}}),
        "a custom job runs on Google Cloud alone",
    ),
    "empty executor": (
        lambda d: d[0]["deploymentSpec"]["executors"].update({"exec-Transform": {}}),
        "needs a 'container' or an 'importer'",
    ),
    "equal containers": (
        lambda d: d[0]["deploymentSpec"]["executors"].update(
            {"exec-Transform": d[0]["deploymentSpec"]["executors"]["exec-SchemaGen"]}
        ),
        "components.Transform: its container equals that of 'SchemaGen'",
    ),
    "no image": (lambda d: _container(d).pop("image"), "container.image: '' is not allowed; give an image"),
    "no command": (lambda d: _container(d).pop("command"), "Kubeflow does not take the image's own"),
    "hook that is ignored": (
        lambda d: _container(d).update(lifecycle={"preCacheCheck": {"command": ["python"]}}),
        "lifecycle: open-source Kubeflow ignores it",
    ),
    "tag of Argo's in an argument": (
        lambda d: _container(d)["args"].append("--x={{workflow.name}}"),
        "holds '{{', which Argo takes for a tag",
    ),
    "variable twice": (
        lambda d: _container(d)["env"].append({"name": "LOG_LEVEL", "value": ""}),
        "LOG_LEVEL stands twice",
    ),
    "variable's name": (lambda d: _container(d)["env"].append({"name": "a-b", "value": ""}), "the name 'a-b'"),
    "negative resources": (lambda d: _container(d)["resources"].update(cpuLimit=-1), "cpuLimit: -1 is not allowed"),
    "request above limit": (
        lambda d: _container(d)["resources"].update(memoryRequest=9),
        "memory: the request, 9e+09, is above the limit, 4e+09 (key: kubeflow.resources.memory)",
    ),
    "quantity": (
        lambda d: _container(d)["resources"].update(resourceCpuLimit="1x"),
        "resourceCpuLimit: '1x' is not allowed; give a quantity",
    ),
    "accelerator's name": (
        lambda d: _container(d)["resources"].update(accelerator={"type": "NVIDIA_TESLA_K80", "count": "1"}),
        "'NVIDIA_TESLA_K80' is no resource of a node",
    ),
    "no accelerators": (
        lambda d: _container(d)["resources"].update(accelerator={"type": "nvidia.com/gpu"}),
        "accelerator.count: 0 is not allowed",
    ),
}
PLATFORM: dict[str, tuple[Callable[[Documents], Any], str]] = {
    "another platform": (lambda d: d[1]["platforms"].update(vertex={}), "reads 'kubernetes' alone"),
    "no platform": (
        lambda d: d[1].update(platforms={}),
        "platforms.kubernetes.deploymentSpec: is absent; leave the second document out",
    ),
    "empty platform": (
        lambda d: d[1]["platforms"].update(kubernetes={}),
        "platforms.kubernetes.deploymentSpec: is absent; leave the second document out",
    ),
    "unknown label": (
        lambda d: d[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"].update(x={}),
        "executors.x: no executor of that label",
    ),
    "unknown field of an executor": (lambda d: _executor(d).update(priorityClass="x"), "priorityClass: no such field"),
    "snake case": (lambda d: _executor(d).update(node_selector={}), "node_selector: no such field"),
    "number for text": (
        lambda d: _executor(d)["nodeSelector"]["labels"].update(gpu=1),
        "gpu: 1 is not allowed; Kubeflow takes text",
    ),
    "pull policy": (lambda d: _executor(d).update(imagePullPolicy="always"), "'always' is not allowed"),
    "deadline": (lambda d: _executor(d).update(activeDeadlineSeconds=0), "give 1 or more (key: kubeflow.deadline_s)"),
    "never read": (lambda d: _executor(d).update(enabledSharedMemory={"size": "1Gi"}), "never read by it"),
    "label": (
        lambda d: _executor(d)["podMetadata"]["labels"].update(a="b c"),
        "'a': 'b c' is no label",
    ),
    "large annotations": (
        lambda d: _executor(d)["podMetadata"]["annotations"].update(a="b" * 300_000),
        "Kubernetes takes 262144 bytes",
    ),
    "operator of a toleration": (lambda d: _executor(d)["tolerations"][0].update(operator="In"), "operator 'In'"),
    "value of a toleration": (lambda d: _executor(d)["tolerations"][0].update(operator="Exists"), "takes no value"),
    "operator of an affinity": (
        lambda d: _executor(d)["nodeAffinity"][0]["matchExpressions"][0].update(operator="Equals"),
        "operator 'Equals'",
    ),
    "values of an affinity": (
        lambda d: _executor(d)["nodeAffinity"][0]["matchExpressions"][0].pop("values"),
        "operator 'In' with values []",
    ),
    "empty affinity": (lambda d: _executor(d)["nodeAffinity"].append({}), "is empty: Kubeflow skips it"),
    "weight": (lambda d: _executor(d)["nodeAffinity"][1].update(weight=0), "weight 0: give 1 to 100"),
    "secret's name": (
        lambda d: _executor(d)["secretAsEnv"][0].update(secretName="My_Secret"),
        "'My_Secret' is not allowed",
    ),
    "no secret": (lambda d: _executor(d)["secretAsEnv"][0].pop("secretName"), "secretName: '' is not allowed"),
    "secret as a volume": (
        lambda d: _executor(d)["secretAsVolume"][0].update(secretName="a.b"),
        "'a.b' is not allowed",
    ),
    "variable of a secret twice": (
        lambda d: _executor(d)["secretAsEnv"][0]["keyToEnv"][0].update(envVar="LOG_LEVEL"),
        "LOG_LEVEL stands twice: it is in the container's env, too",
    ),
    "no key": (lambda d: _executor(d)["secretAsEnv"][0]["keyToEnv"][0].pop("secretKey"), "no key is given"),
    "one claim twice": (
        lambda d: _executor(d)["pvcMount"].append({"constant": "rows", "mountPath": "/other"}),
        "the pod has a volume 'rows' already",
    ),
    "kubeflow's volume": (
        lambda d: _executor(d)["pvcMount"][0].update(constant="gcs-scratch"),
        "the pod has a volume 'gcs-scratch' already",
    ),
    "one path twice": (lambda d: _executor(d)["pvcMount"][0].update(mountPath="/etc/tokens/"), "is mounted twice"),
    "relative path": (lambda d: _executor(d)["pvcMount"][0].update(mountPath="data"), "'data' is not allowed"),
    "kubeflow's folder": (
        lambda d: _executor(d)["pvcMount"][0].update(mountPath="/minio"),
        "a folder of Kubeflow's own",
    ),
    "size": (
        lambda d: _executor(d, "DistributedTrainer")["emptyDirMounts"][0].update(sizeLimit="2GB"),
        "sizeLimit: '2GB' is not allowed",
    ),
}
SIZE: dict[str, tuple[Callable[[Documents], Any], str]] = {
    "long argument": (
        lambda d: _inputs(d)["parameters"]["custom_config"].update(runtimeValue={"constant": "x" * 131_072}),
        "root.dag.tasks.Transform: 131",
    ),
    "large workflow": (
        lambda d: [
            task["inputs"]["parameters"].update({key: {"runtimeValue": {"constant": "x" * 120_000}}})
            for task in _tasks(d).values()
            for key, value in list(task["inputs"].get("parameters", {}).items())[-1:]
            if "constant" in value.get("runtimeValue", {}) and isinstance(value["runtimeValue"]["constant"], str)
        ],
        "Kubeflow makes a workflow of about",
    ),
}
CASES = {**PIPELINE, **CONTAINER, **PLATFORM, **SIZE}


@pytest.mark.parametrize("case", CASES)
def test_each_fault_is_found(case: str) -> None:
    """One change to a valid package makes the finding that names it."""
    change, expected = CASES[case]
    documents = _valid()
    change(documents)
    found = [str(finding) for finding in validate(Package(spec=documents[0], platform=documents[1]))]
    assert any(expected in text for text in found), found


def test_the_packages_that_are_changed_are_valid() -> None:
    """Without a change nothing is found, so that each finding above is the change's."""
    spec, platform = _valid()
    assert validate(Package(spec=spec, platform=platform)) == []
    assert validate(Package(spec=spec)) == []


def test_the_first_findings_are_told_with_their_number() -> None:
    """A message has a line a finding, twenty at most, each beginning with the file's name."""
    documents = _valid()
    for name in list(_tasks(documents)):
        _tasks(documents)[name]["retryPolicy"] = {"maxRetryCount": 1, "backoffFactor": 0.5}
    with pytest.raises(ConfigurationError) as caught:
        check(Package(spec=documents[0], platform=documents[1]), "file.yaml")
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "file.yaml: and 2 more")
    assert all(line.startswith("file.yaml: ") for line in lines)
