"""What the launcher is told, parsed as strictly as it parses it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from lockstep.components.errors import StepFailed
from lockstep.pipelines.kubeflow.container_paths import ArtifactPaths, ContainerPaths
from lockstep.pipelines.kubeflow.output_file import (
    executor_output,
    parameter_text,
    write_output_file,
    write_parameter_files,
)

PATHS = ArtifactPaths(ContainerPaths(), [("minio://b/run/model", "/minio/b/run/model")])


def launcher_reads(path: Path) -> dict[str, Any]:
    """The document as the launcher's `protojson.Unmarshal` takes it: an unknown field is an error (fact 12)."""
    message = pipeline_spec_pb2.ExecutorOutput()
    json_format.Parse(path.read_text(encoding="utf-8"), message)
    return dict(json_format.MessageToDict(message))


def test_the_document_is_what_kubeflow_pipelines_documents(tmp_path: Path) -> None:
    """Parameters by value, artifacts with the URI that they had and their metadata; nothing else."""
    path = tmp_path / "not" / "made" / "output_metadata.json"
    document = executor_output(
        {"examples": [("/minio/b/run/examples", {"span": 0, "split_names": '["train"]'})]}, {"total": 2}, PATHS
    )
    write_output_file(document, path)
    assert json.loads(path.read_text()) == {
        "parameterValues": {"total": 2},
        "artifacts": {
            "examples": {
                "artifacts": [{"uri": "minio://b/run/examples", "metadata": {"span": 0, "split_names": '["train"]'}}]
            }
        },
    }
    assert launcher_reads(path)["artifacts"]["examples"]["artifacts"][0]["uri"] == "minio://b/run/examples"
    assert [found.name for found in path.parent.iterdir()] == ["output_metadata.json"]


def test_no_local_path_is_left(tmp_path: Path) -> None:
    """Not in a URI (fact 15), nor in a text of the metadata, such as the Evaluator's `current_model`."""
    metadata = {
        "current_model": "/minio/b/run/model",
        "texts": ["file:///gcs/c/x", {"deep": "see /s3/d/y and /minio/b/run/model/Format-Serving"}],
    }
    document = executor_output({"blessing": [("/s3/b/run/blessing", metadata)]}, {"at": "/gcs/c/x"}, PATHS)
    write_output_file(document, tmp_path / "o.json")
    text = (tmp_path / "o.json").read_text()
    assert not any(f'"{folder}' in text or f" {folder}" in text for folder in ("/minio", "/s3", "/gcs", "file:"))
    assert document["artifacts"]["blessing"]["artifacts"] == [
        {
            "uri": "s3://b/run/blessing",
            "metadata": {
                "current_model": "minio://b/run/model",
                "texts": ["gs://c/x", {"deep": "see s3://d/y and minio://b/run/model/Format-Serving"}],
            },
        }
    ]
    assert document["parameterValues"] == {"at": "gs://c/x"}


@pytest.mark.parametrize(
    ("artifacts", "parameters", "message"),
    [
        ({"x": [("/tmp/moved", {})]}, {}, "output x: '/tmp/moved' is a local path that nothing uploads; leave its URI"),
        ({"x": [("s3://b/x", {"a": None})]}, {}, r"artifacts.x.artifacts\[0\].metadata.a is null"),
        ({}, {"total": None}, "parameterValues.total is null"),
        ({}, {"total": math.nan}, "cannot be told to Kubeflow Pipelines: Out of range float"),
        ({}, {"total": b"x"}, "cannot be told to Kubeflow Pipelines: Object of type bytes"),
    ],
)
def test_what_the_launcher_would_refuse_is_told(artifacts: Any, parameters: Any, message: str) -> None:
    """While the message can still say which output it is (fact 13)."""
    with pytest.raises(StepFailed, match=message):
        executor_output(artifacts, parameters, PATHS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "a b"),
        ('{"a": 1}', '{"a": 1}'),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        ({"b": 1, "a": 2}, '{"a": 2, "b": 1}'),
    ],
)
def test_a_parameter_s_file_holds_it_as_the_launcher_reads_it(value: Any, text: str, tmp_path: Path) -> None:
    """As `TextToPbValue` parses it: a text without quotes, the rest as JSON."""
    file = tmp_path / "outputs" / "total"
    write_parameter_files({"total": value, "other": 1}, {"total": str(file)})
    assert file.read_text() == text == parameter_text(value)


def test_a_step_without_outputs_says_nothing() -> None:
    """An empty document is one that the launcher takes."""
    assert executor_output({}, {}, PATHS) == {}
