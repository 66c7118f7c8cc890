"""A step's artifacts in the folder that a Beam cluster's workers see."""

import pathlib
import tempfile

import pytest
from tfx import types
from tfx.types.standard_artifacts import Examples, Schema, String

from lockstep.pipelines.kubeflow.shared_folder import shared_artifacts


def _artifact(kind: type[types.Artifact], path: pathlib.Path) -> types.Artifact:
    artifact = kind()
    artifact.uri = str(path)
    return artifact


def _step(folder: pathlib.Path) -> tuple[dict[str, list[types.Artifact]], dict[str, list[types.Artifact]]]:
    """Returns the artifacts of a step whose launcher has made the folders."""
    (folder / "examples" / "Split-train").mkdir(parents=True)
    (folder / "examples" / "Split-train" / "data.gz").write_bytes(b"rows")
    (folder / "schema").mkdir()
    (folder / "value").write_text("7")
    inputs = {
        "examples": [_artifact(Examples, folder / "examples")],
        "value": [_artifact(String, folder / "value")],
    }
    return inputs, {"schema": [_artifact(Schema, folder / "schema")], "answer": [_artifact(String, folder / "answer")]}


def test_artifacts_are_in_the_shared_folder_while_the_step_runs(tmp_path: pathlib.Path) -> None:
    """The step reads and writes there alone; in the end its outputs are where the launcher looks."""
    pod, shared = tmp_path / "pod", tmp_path / "shared"
    shared.mkdir()
    inputs, outputs = _step(pod)
    with shared_artifacts(inputs, outputs, str(shared)):
        places = [pathlib.Path(a.uri) for several in (*inputs.values(), *outputs.values()) for a in several]
        assert all(place.is_relative_to(shared) for place in places)
        assert pathlib.Path(tempfile.gettempdir()).is_relative_to(shared)
        examples, value, schema, answer = places
        assert (examples / "Split-train" / "data.gz").read_bytes() == b"rows"
        assert value.read_text() == "7"
        (schema / "schema.pbtxt").write_text("feature {}")
        answer.write_text("8")
        outputs["schema"][0].set_string_custom_property("of", f"made of {examples}/Split-train")
    assert (pod / "schema" / "schema.pbtxt").read_text() == "feature {}"
    assert (pod / "answer").read_text() == "8"
    assert outputs["schema"][0].get_string_custom_property("of") == f"made of {pod}/examples/Split-train"
    assert [a.uri for a in (*inputs["examples"], *outputs["schema"])] == [str(pod / "examples"), str(pod / "schema")]
    assert list(shared.iterdir()) == []


def test_a_step_that_fails_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """Neither in the shared folder nor among the outputs, and the artifacts have their own places again."""
    pod, shared = tmp_path / "pod", tmp_path / "shared"
    shared.mkdir()
    inputs, outputs = _step(pod)

    def fail() -> None:
        with shared_artifacts(inputs, outputs, str(shared)):
            pathlib.Path(outputs["schema"][0].uri, "half").touch()
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert outputs["schema"][0].uri == str(pod / "schema")
    assert list((pod / "schema").iterdir()) == []
    assert list(shared.iterdir()) == []


def test_without_a_cluster_nothing_is_copied(tmp_path: pathlib.Path) -> None:
    """The usual case."""
    inputs, outputs = _step(tmp_path)
    with shared_artifacts(inputs, outputs, None):
        assert outputs["schema"][0].uri == str(tmp_path / "schema")
