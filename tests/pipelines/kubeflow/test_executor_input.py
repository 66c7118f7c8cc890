"""What the launcher says, as Kubeflow Pipelines 2.5 to 2.17 write it."""

import json
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.container_paths import ContainerPaths
from lockstep.pipelines.kubeflow.executor_input import ExecutorInput, read_executor_input

# protojson of an ExecutorInput, as the driver of 2.15 makes it for StatisticsGen, with its logs published.
EXECUTOR_INPUT: dict[str, Any] = {
    "inputs": {
        "artifacts": {
            "examples": {
                "artifacts": [
                    {
                        "name": "17",
                        "type": {"instanceSchema": ""},
                        "uri": "minio://mlpipeline/root/taxi/run/ExampleGen/salt/examples",
                        "metadata": {
                            "display_name": "examples",
                            "store_session_info": '{"Provider":"minio"}',
                            "split_names": '["train", "eval"]',
                            "span": 0,
                            "sizes": {"list": [1, 2]},
                            "rows": {"struct": {"train": 2}},
                        },
                    }
                ]
            }
        },
        "parameterValues": {"exclude_splits": "[]", "steps": 300, "rate": 1, "on": True, "absent": None},
    },
    "outputs": {
        "artifacts": {
            "statistics": {
                "artifacts": [
                    {
                        "name": "statistics",
                        "type": {"instanceSchema": "title: tfx.ExampleStatistics\ntype: object\n"},
                        "uri": "minio://mlpipeline/root/taxi/run/StatisticsGen/salt/statistics",
                        "metadata": {},
                    }
                ]
            },
            "executor-logs": {
                "artifacts": [
                    {
                        "name": "executor-logs",
                        "type": {"schemaTitle": "system.Artifact"},
                        "uri": "minio://mlpipeline/root/taxi/run/StatisticsGen/salt/executor-logs-0",
                    }
                ]
            },
        },
        "parameters": {"count": {"outputFile": "/tmp/kfp/outputs/count"}},
        "outputFile": "/minio/mlpipeline/root/taxi/run/StatisticsGen/salt/output_metadata.json",
    },
}
INPUTS_SPEC = {
    "artifacts": {"examples": {"artifactType": {"instanceSchema": "title: tfx.Examples\ntype: object\n"}}},
    "parameters": {
        "exclude_splits": {"parameterType": "STRING"},
        "steps": {"parameterType": "NUMBER_INTEGER"},
        "rate": {"parameterType": "NUMBER_DOUBLE"},
        "on": {"parameterType": "BOOLEAN"},
        "absent": {"parameterType": "STRING", "isOptional": True},
    },
}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The ExecutorInput with another value at a path."""
    document: dict[str, Any] = json.loads(json.dumps(EXECUTOR_INPUT))
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = to
    return document


def read(document: dict[str, Any] = EXECUTOR_INPUT, spec: dict[str, Any] = INPUTS_SPEC) -> ExecutorInput:
    """The ExecutorInput as it is read in a container."""
    return read_executor_input(json.dumps(document), json.dumps(spec), ContainerPaths())


def test_an_empty_type_is_filled_from_the_component() -> None:
    """The driver does not know the types of inputs, and says `instanceSchema: ""` (fact 10)."""
    [examples] = read().inputs["examples"]
    assert examples.type_title == "tfx.Examples"
    assert examples.name == "17"


def test_a_type_that_is_told_counts() -> None:
    """What made the artifact knows better than what reads it."""
    path = ("inputs", "artifacts", "examples", "artifacts", 0, "type")
    [examples] = read(changed(*path, to={"schemaTitle": "my.Examples"})).inputs["examples"]
    assert examples.type_title == "my.Examples"


def test_an_input_without_any_type_is_refused() -> None:
    """It says which one."""
    with pytest.raises(ConfigurationError, match="input examples: neither Kubeflow Pipelines nor the package says"):
        read(spec={})


def test_the_launcher_s_log_is_no_output() -> None:
    """Newer releases add an output of a type that TFX does not know (fact 9)."""
    assert set(read().outputs) == {"statistics"}


def test_lists_and_objects_come_without_ml_metadata_s_wrapping() -> None:
    """They were wrapped on the way in, and are not unwrapped on the way out (fact 13)."""
    [examples] = read().inputs["examples"]
    assert examples.metadata == {
        "split_names": '["train", "eval"]',
        "span": 0,
        "sizes": [1, 2],
        "rows": {"train": 2},
    }


@pytest.mark.parametrize("value", [{"list": "no list"}, {"struct": [1]}, {"list": [1], "more": 1}, {}])
def test_what_only_looks_wrapped_stays(value: object) -> None:
    """A user's own object keeps its shape."""
    path = ("inputs", "artifacts", "examples", "artifacts", 0, "metadata")
    [examples] = read(changed(*path, to={"x": value})).inputs["examples"]
    assert examples.metadata == {"x": value}


def test_parameters_have_the_declared_types() -> None:
    """JSON has one kind of number; a parameter without a value is absent."""
    parameters = read().parameters
    assert parameters == {"exclude_splits": "[]", "steps": 300, "rate": 1.0, "on": True}
    assert {name: type(value) for name, value in parameters.items()} == {
        "exclude_splits": str,
        "steps": int,
        "rate": float,
        "on": bool,
    }


def test_a_fraction_is_not_cut_to_an_integer() -> None:
    """The component refuses it with a message; 2 steps in place of 2.5 nobody would notice."""
    assert read(changed("inputs", "parameterValues", "steps", to=2.5)).parameters["steps"] == 2.5


def test_a_float_that_is_whole_becomes_an_integer() -> None:
    """As Python's own JSON writes what Go writes as 300."""
    steps = read(changed("inputs", "parameterValues", "steps", to=300.0)).parameters["steps"]
    assert (steps, type(steps)) == (300, int)


@pytest.mark.parametrize(
    "file",
    ["/tmp/kfp_outputs/output_metadata.json", "/minio/mlpipeline/root/taxi/run/S/salt/output_metadata.json"],
)
def test_the_output_file_is_where_the_launcher_looks(file: str) -> None:
    """Up to 2.14 in one place for all steps, from 2.15 beside the outputs."""
    assert read(changed("outputs", "outputFile", to=file)).output_file == file
    assert read().parameter_files == {"count": "/tmp/kfp/outputs/count"}


def test_a_custom_path_counts() -> None:
    """`customPath` is newer than the kfp package of the older dependencies."""
    path = ("inputs", "artifacts", "examples", "artifacts", 0, "customPath")
    read_input = read(changed(*path, to="/data/examples"))
    [examples] = read_input.inputs["examples"]
    assert examples.local_path == "/data/examples"
    assert read_input.paths.restored("at /data/examples") == f"at {examples.uri}"


def test_an_artifact_of_the_workspace_is_found_there() -> None:
    """The launcher does not download it."""
    path = ("inputs", "artifacts", "examples", "artifacts", 0, "metadata", "_kfp_workspace")
    [examples] = read(changed(*path, to=True)).inputs["examples"]
    assert examples.local_path.startswith("/kfp-workspace/.artifacts/minio/mlpipeline/root")
    assert "_kfp_workspace" not in examples.metadata


def test_fields_that_are_not_known_do_not_matter() -> None:
    """A newer server says more."""
    assert read({**EXECUTOR_INPUT, "taskConfig": {}}).output_file == EXECUTOR_INPUT["outputs"]["outputFile"]


def test_a_step_without_inputs_is_read() -> None:
    """The launcher leaves empty fields out."""
    found = read({"outputs": {"outputFile": "/tmp/o.json"}})
    assert (found.inputs, found.outputs, found.parameters, found.parameter_files) == ({}, {}, {}, {})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed("outputs", to={}), "names no output file"),
        (
            changed("inputs", "artifacts", "examples", "artifacts", 0, "uri", to="/home/me/x"),
            "input examples: '/home/me/x' is not allowed",
        ),
        (
            changed("outputs", "artifacts", "statistics", "artifacts", 0, "uri", to="hdfs://x/y"),
            "output statistics: 'hdfs://x/y' is not allowed",
        ),
    ],
)
def test_what_cannot_be_used_is_told(document: dict[str, Any], message: str) -> None:
    """The message names the artifact."""
    with pytest.raises(ConfigurationError, match=message):
        read(document)


@pytest.mark.parametrize("text", ["", "{{$}}", "[1]"])
def test_text_that_is_no_executor_input_is_told(text: str) -> None:
    """As when the command is run by hand."""
    with pytest.raises(ConfigurationError, match="the ExecutorInput is "):
        read_executor_input(text, "", ContainerPaths())
