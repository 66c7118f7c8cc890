"""Each place where TFX's own package breaks on open-source Kubeflow is mended."""

import copy
import json
from typing import Any

import pytest

from lockstep.pipelines.kubeflow.mend import Node, mend, steps_of
from lockstep.pipelines.kubeflow.options import KubeflowOptions, ResourceOptions, RetryOptions, StepOptions
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.validation import validate

_EXAMPLES = {"artifactType": {"instanceSchema": "title: tfx.Examples\n"}}
_NUMBER = {"artifactType": {"instanceSchema": "title: tfx.Integer\n"}}


def _container(executor: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "container": {
            "image": "image",
            "command": ["python", "-m", "entry_point"],
            "args": [
                *("--executor_class_path", executor, "--json_serialized_invocation_args", "{{$}}"),
                *("--json_serialized_inputs_spec_args", json.dumps(inputs, indent=2), "--direct_num_workers=1"),
            ],
        }
    }


def _spec() -> dict[str, Any]:
    """Returns what TFX's runner makes of three nodes: a reader with a driver, a counter, a user of the count."""
    reader_inputs = {"parameters": {"path": {"parameterType": "STRING"}}}
    counter_inputs = {"artifacts": {"examples": _EXAMPLES}}
    user_inputs = {"artifacts": {"examples": _EXAMPLES}, "parameters": {"count": {"parameterType": "STRING"}}}
    executors = {
        "My_Reader_executor": _container("my.Reader", reader_inputs),
        "Counter_executor": _container("my.Counter", counter_inputs),
        "User.1_executor": _container("my.User", user_inputs),
    }
    executors["My_Reader_executor"]["container"]["lifecycle"] = {"preCacheCheck": {"command": ["python"]}}
    examples_of = {"taskOutputArtifact": {"producerTask": "My_Reader", "outputArtifactKey": "examples"}}
    return {
        "pipelineInfo": {"name": "p"},
        "schemaVersion": "2.1.0",
        "deploymentSpec": {"executors": executors},
        "components": {
            "My_Reader": {
                "executorLabel": "My_Reader_executor",
                "inputDefinitions": reader_inputs,
                "outputDefinitions": {"artifacts": {"examples": _EXAMPLES}},
            },
            "Counter": {
                "executorLabel": "Counter_executor",
                "inputDefinitions": counter_inputs,
                "outputDefinitions": {
                    "artifacts": {"count": _NUMBER},
                    "parameters": {"count": {"parameterType": "NUMBER_INTEGER"}},
                },
            },
            "User.1": {"executorLabel": "User.1_executor", "inputDefinitions": user_inputs},
        },
        "root": {
            "inputDefinitions": {"parameters": {"data_path": {"parameterType": "STRING"}}},
            "dag": {
                "tasks": {
                    "My_Reader": {
                        "taskInfo": {"name": "My_Reader"},
                        "componentRef": {"name": "My_Reader"},
                        "inputs": {"parameters": {"path": {"componentInputParameter": "data_path"}}},
                    },
                    "Counter": {
                        "taskInfo": {"name": "Counter"},
                        "componentRef": {"name": "Counter"},
                        "inputs": {"artifacts": {"examples": examples_of}},
                        "dependentTasks": ["My_Reader"],
                    },
                    "User.1": {
                        "taskInfo": {"name": "User.1"},
                        "componentRef": {"name": "User.1"},
                        "inputs": {
                            "artifacts": {"examples": examples_of},
                            "parameters": {
                                "count": {
                                    "taskOutputParameter": {
                                        "producerTask": "Counter_task",
                                        "outputParameterKey": "count",
                                    }
                                }
                            },
                        },
                        "dependentTasks": ["Counter", "My_Reader"],
                    },
                }
            },
        },
    }


_NODES = (
    Node(id="My_Reader", code_fingerprint="f1", driver_class_path="my.Driver"),
    Node(id="Counter", code_fingerprint="f2"),
    Node(id="User.1", code_fingerprint="f3", driver_class_path="my.UserDriver", driver_inputs=()),
)


def _mended(options: KubeflowOptions | None = None) -> dict[str, Any]:
    return mend(_spec(), _NODES, options or KubeflowOptions(), name="pipeline", defaults={"data_path": "s3://b/x"})


def _name(option_key: str) -> str:
    return next(step.name for step in steps_of(list(_spec()["components"]), _NODES) if step.option_key == option_key)


def _task(spec: dict[str, Any], option_key: str) -> Any:
    return spec["root"]["dag"]["tasks"][_name(option_key)]


def _arguments(spec: dict[str, Any], option_key: str) -> list[str]:
    component = spec["components"][_name(option_key)]
    arguments: list[str] = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]["args"]
    return arguments


def test_the_mended_document_is_valid_and_the_given_one_is_left() -> None:
    """TFX's document has findings, its mended copy none."""
    given = _spec()
    before = copy.deepcopy(given)
    mended = mend(given, _NODES, KubeflowOptions(), name="pipeline", defaults={"data_path": "s3://b/x"})
    assert given == before
    assert validate(Package(spec=given)) != []
    assert validate(Package(spec=mended)) == []


def test_values_come_from_the_task_with_its_type() -> None:
    """Facts 4 and 5: TFX names the producer of a value ``X_task``, and declares every value as text."""
    mended = _mended()
    value = _task(mended, "User.1")["inputs"]["parameters"]["count"]
    assert value == {"taskOutputParameter": {"producerTask": "Counter", "outputParameterKey": "count"}}
    assert mended["components"][_name("User.1")]["inputDefinitions"]["parameters"]["count"] == {
        "parameterType": "NUMBER_INTEGER"
    }


def test_names_are_argos_in_every_place() -> None:
    """Fact 6: tasks, components, executors, producers and dependencies are renamed together."""
    mended = _mended()
    text = json.dumps({key: value for key, value in mended.items() if key != "deploymentSpec"})
    assert "My_Reader" not in text
    assert "User.1" not in text
    assert _task(mended, "Counter")["dependentTasks"] == [_name("My_Reader")]
    assert set(mended["deploymentSpec"]["executors"]) == {
        component["executorLabel"] for component in mended["components"].values()
    }


def test_each_container_names_its_node_and_code() -> None:
    """Fact 7: Kubeflow keys components by their container; and its cache key holds the arguments."""
    mended = _mended()
    arguments = _arguments(mended, "User.1")
    assert arguments[:4] == ["--node_id=User.1", "--code_fingerprint=f3", "--executor_class_path", "my.User"]
    assert arguments[4:7] == ["--json_serialized_invocation_args", "{{$}}", "--json_serialized_inputs_spec_args"]
    assert json.loads(arguments[7]) == mended["components"][_name("User.1")]["inputDefinitions"]
    assert arguments[8:] == ["--direct_num_workers=1"]


def test_a_driver_is_a_task_before_its_node() -> None:
    """Fact 11: Kubeflow ignores preCacheCheck; the driver's answer is an input of the node, and so in its cache key."""
    mended = _mended()
    probe, reader = _task(mended, "My_Reader-probe"), _task(mended, "My_Reader")
    assert _arguments(mended, "My_Reader-probe")[2:4] == ["--driver_class_path", "my.Driver"]
    assert probe["inputs"] == {"parameters": {"path": {"componentInputParameter": "data_path"}}}
    assert probe["cachingOptions"] == {"enableCache": False}
    assert reader["inputs"]["parameters"]["driver_output"] == {
        "taskOutputParameter": {"producerTask": _name("My_Reader-probe"), "outputParameterKey": "driver_output"}
    }
    assert reader["dependentTasks"] == [_name("My_Reader-probe")]
    assert "lifecycle" not in json.dumps(mended)


def test_a_driver_waits_for_what_it_reads_alone() -> None:
    """The examples that the driver does not read are neither fetched for it nor waited for; other tasks are."""
    probe = _task(_mended(), "User.1-probe")
    assert "artifacts" not in probe["inputs"]
    assert probe["dependentTasks"] == ["Counter"]


def test_a_container_of_the_users_own_is_made_unlike_others() -> None:
    """Its command is the user's, so the node is named in its environment."""
    spec = _spec()
    del spec["deploymentSpec"]["executors"]["Counter_executor"]["container"]["args"]
    mended = mend(spec, _NODES, KubeflowOptions(), name="pipeline", defaults={})
    container = mended["deploymentSpec"]["executors"]["exec-Counter"]["container"]
    assert container["command"] == ["python", "-m", "entry_point"]
    assert {"name": "LOCKSTEP_NODE_ID", "value": "Counter"} in container["env"]


def test_retries_and_cache_are_the_tasks_own() -> None:
    """Fact 18: TFX writes no retries; none are written where none are wanted."""
    options = KubeflowOptions(
        retries=RetryOptions(max=3, backoff_s=5, factor=4, window_s=99),
        cache=False,
        components={"Counter": StepOptions(retries=RetryOptions(max=0), cache=True)},
    )
    mended = _mended(options)
    assert _task(mended, "User.1")["retryPolicy"] == {
        "maxRetryCount": 3,
        "backoffDuration": "5s",
        "backoffFactor": 4.0,
        "backoffMaxDuration": "99s",
    }
    assert _task(mended, "User.1")["cachingOptions"] == {"enableCache": False}
    assert "retryPolicy" not in _task(mended, "Counter")
    assert _task(mended, "Counter")["cachingOptions"] == {"enableCache": True}


def test_resources_are_cores_and_billions_of_bytes() -> None:
    """Numbers are read by every release; an accelerator is the node's resource."""
    options = KubeflowOptions(
        resources=ResourceOptions(cpu="500m", cpu_limit="2", memory="1Gi", accelerator="nvidia.com/gpu")
    )
    executors = _mended(options)["deploymentSpec"]["executors"]
    assert executors["exec-Counter"]["container"]["resources"] == {
        "cpuRequest": 0.5,
        "cpuLimit": 2.0,
        "memoryRequest": pytest.approx(1.073741824),
        "accelerator": {"type": "nvidia.com/gpu", "count": 1},
    }
    probe = executors["exec-" + _name("My_Reader-probe")]["container"]["resources"]
    assert "accelerator" not in probe


def test_the_store_and_the_defaults_of_a_run_are_written() -> None:
    """Fact 17: the root is in the package for who creates a run; parameters have the configuration's values."""
    mended = _mended(KubeflowOptions(pipeline_root="s3://b/root", env={"A": "b"}))
    assert (mended["defaultPipelineRoot"], mended["pipelineInfo"]["name"]) == ("s3://b/root", "pipeline")
    assert mended["root"]["inputDefinitions"]["parameters"]["data_path"]["defaultValue"] == "s3://b/x"
    env = _mended()["deploymentSpec"]["executors"]["exec-Counter"]["container"]["env"]
    assert env == [{"name": "AWS_ENDPOINT_URL", "value": "http://minio-service.kubeflow:9000"}]
