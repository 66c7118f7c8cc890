"""The Pusher as a step, and with the Evaluator in TFX's own runner: what runs again, and what does not."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.components.base import base_executor
from tfx.dsl.components.common import importer
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local import local_dag_runner
from tfx.types import standard_artifacts

from lockstep.components.artifact_uris import STORE_URI_PROPERTY
from lockstep.components.errors import StepFailed
from lockstep.components.evaluator.component import Evaluator
from lockstep.components.evaluator.options import EvaluateOptions, EvaluateSpec, Threshold
from lockstep.components.pusher import component, versions
from lockstep.components.pusher.component import Executor, Pusher, resolve_token
from lockstep.components.pusher.options import PushOptions
from tests.components.evaluator import tiny_model
from tests.components.evaluator.conftest import BEAM_ARGUMENTS
from tests.components.pusher.test_versions import make_model, push


def _push_step(root: Path, blessed: bool, properties: dict[str, str] | None = None) -> standard_artifacts.PushedModel:
    model, blessing, pushed = (
        standard_artifacts.Model(),
        standard_artifacts.ModelBlessing(),
        standard_artifacts.PushedModel(),
    )
    model.uri, blessing.uri, pushed.uri = str(root / "model"), str(root / "blessing"), str(root / "pushed")
    Path(pushed.uri).mkdir(exist_ok=True)
    blessing.set_int_custom_property("blessed", int(blessed))
    blessing.set_string_custom_property("baseline", versions.NO_BASELINE)
    blessing.set_string_custom_property("metrics", '{"auc": 0.9}')
    blessing.set_string_custom_property("reason", "blessed: auc 0.9 >= 0.8")
    spec = PushOptions(dir=str(root / "push"), keep=2).to_json()
    Executor(base_executor.BaseExecutor.Context(tmp_dir=str(root / "tmp"), unique_id="1")).Do(
        {"model": [model], "model_blessing": [blessing]},
        {"pushed_model": [pushed]},
        {"spec": spec, "code_fingerprint": "any", **(properties or {})},
    )
    return pushed


def test_a_blessed_model_is_served_and_says_where(tmp_path: Path) -> None:
    """The properties are those of the stock Pusher; the manifest has the blessing's and the driver's."""
    make_model(tmp_path / "model" / "Format-Serving")
    pushed = _push_step(tmp_path, blessed=True, properties={"token": "t"})
    served = versions.served_version(tmp_path / "push")
    assert served is not None
    assert pushed.get_int_custom_property("pushed") == 1
    assert pushed.get_string_custom_property("pushed_destination") == str(served.dir)
    assert pushed.get_string_custom_property("pushed_version") == str(served.number)
    assert served.manifest.metrics == {"auc": 0.9}
    assert served.manifest.verdict == "blessed: auc 0.9 >= 0.8"
    assert served.manifest.token == "t"


def test_the_manifest_names_the_object_store_where_the_step_read_a_copy(tmp_path: Path) -> None:
    """A path of a container that is gone would tell nobody anything."""
    model, blessing = standard_artifacts.Model(), standard_artifacts.ModelBlessing()
    model.uri, blessing.uri = "/minio/b/model", "/minio/b/blessing"
    model.set_string_custom_property(STORE_URI_PROPERTY, "minio://b/model")
    origin = component._origin(model, blessing, "t")
    assert (origin.source_uri, origin.blessing_uri) == ("minio://b/model", "/minio/b/blessing")


def test_a_model_that_is_served_already_is_not_pushed_again_and_says_so(tmp_path: Path) -> None:
    """The second step finds the first one's version."""
    make_model(tmp_path / "model" / "Format-Serving")
    first = _push_step(tmp_path, blessed=True)
    second = _push_step(tmp_path, blessed=True)
    version = first.get_string_custom_property("pushed_version")
    assert second.get_string_custom_property("summary") == f"version {version} serves this model already"
    assert (first.get_int_custom_property("created"), second.get_int_custom_property("created")) == (1, 0)
    assert len(versions.list_versions(tmp_path / "push")) == 1


def test_a_model_that_is_not_blessed_is_not_pushed(tmp_path: Path) -> None:
    """Nothing is even written beside the versions."""
    make_model(tmp_path / "model" / "Format-Serving")
    pushed = _push_step(tmp_path, blessed=False)
    assert pushed.get_int_custom_property("pushed") == 0
    assert pushed.get_int_custom_property("created") == 0
    assert pushed.get_string_custom_property("summary") == "not blessed, nothing pushed"
    assert not (tmp_path / "push").exists()


def test_a_step_whose_output_cannot_be_written_fails_before_the_model_is_served(tmp_path: Path) -> None:
    """A device that is always full stands for a full disk: a run that fails must not change what is served."""
    make_model(tmp_path / "model" / "Format-Serving")
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "push.txt").symlink_to("/dev/full")
    with pytest.raises(
        StepFailed, match=r"push\.txt could not be written: No space left on device; nothing was pushed"
    ):
        _push_step(tmp_path, blessed=True)
    assert versions.served_version(tmp_path / "push") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")
def test_a_disk_that_fills_up_with_the_push_does_not_fail_the_step(tmp_path: Path) -> None:
    """Nothing is written to the step's output after the push: it needs no room there but one small file's."""
    make_model(tmp_path / "model" / "Format-Serving")
    (tmp_path / "pushed").mkdir()
    # Two files at most: the folder itself, and the step's one file.
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2", "tmpfs", str(tmp_path / "pushed")]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mount is not allowed here")
    try:
        pushed = _push_step(tmp_path, blessed=True)
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "pushed" / "more").write_text("x")
    finally:
        subprocess.run(["umount", str(tmp_path / "pushed")], check=True)
    assert pushed.get_int_custom_property("created") == 1
    assert versions.served_version(tmp_path / "push") is not None


def test_a_token_lasts_as_long_as_there_is_nothing_to_do(tmp_path: Path) -> None:
    """Served: that push's own; not served, or not any more: a fresh one; not blessed: always one and the same."""
    model = make_model(tmp_path / "model")
    push_dir = tmp_path / "push"
    fresh = resolve_token(push_dir, model, blessed=True)
    assert fresh != resolve_token(push_dir, model, blessed=True)
    version = push(model, push_dir, token=fresh).version
    assert resolve_token(push_dir, model, blessed=True) == fresh
    push(make_model(tmp_path / "newer", "newer"), push_dir, token="newer")
    assert resolve_token(push_dir, model, blessed=True) not in (fresh, "newer")
    shutil.rmtree(version.dir)
    assert resolve_token(push_dir, model, blessed=True) != fresh
    assert resolve_token(push_dir, model, blessed=False) == resolve_token(push_dir, model, blessed=False)


class _Runs:
    """Runs Evaluator and Pusher on imported artifacts by TFX's runner, with one metadata file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._connection = metadata.sqlite_metadata_connection_config(str(root / "metadata.db"))
        self.push_dir = root / "push"
        (root / "schema").mkdir()
        (root / "schema" / "schema.pbtxt").write_text(tiny_model.SCHEMA)
        tiny_model.write_examples(root / "examples", tiny_model.make_rows(100))

    def run(self, model_name: str, *, min_auc: float = 0.5) -> dict[str, bool]:
        """Runs the two steps; returns step -> whether it was taken from the cache."""
        spec = EvaluateSpec(
            options=EvaluateOptions(thresholds={"auc": Threshold(min=min_auc, min_change=-1.0)}),
            label="y",
            push_dir=str(self.push_dir),
        )
        examples = self._import(
            "examples",
            standard_artifacts.Examples,
            properties={"split_names": json.dumps(["eval"])},
            custom_properties={"payload_format": "FORMAT_TF_EXAMPLE"},
        )
        model = self._import(model_name, standard_artifacts.Model)
        schema = self._import("schema", standard_artifacts.Schema)
        evaluator = Evaluator(
            examples=examples.outputs["result"],
            model=model.outputs["result"],
            schema=schema.outputs["result"],
            spec=spec.to_json(),
        )
        pusher = Pusher(
            model=model.outputs["result"],
            model_blessing=evaluator.outputs["blessing"],
            spec=PushOptions(dir=str(self.push_dir)).to_json(),
        )
        local_dag_runner.LocalDagRunner().run(
            pipeline.Pipeline(
                pipeline_name="test",
                pipeline_root=str(self._root / "outputs"),
                components=[examples, model, schema, evaluator, pusher],
                enable_cache=True,
                metadata_connection_config=self._connection,
                beam_pipeline_args=BEAM_ARGUMENTS,
            )
        )
        return {kind: self._newest(kind) for kind in ("Evaluator", "Pusher")}

    def _import(self, name: str, artifact_type: type, **properties: Any) -> importer.Importer:
        # The id is the same for every model: it is part of the steps' cache keys.
        step = "model" if artifact_type is standard_artifacts.Model else name
        return importer.Importer(source_uri=str(self._root / name), artifact_type=artifact_type, **properties).with_id(
            step
        )

    def _newest(self, kind: str) -> bool:
        with metadata.Metadata(self._connection) as handle:
            [name] = [found.name for found in handle.store.get_execution_types() if found.name.endswith(f".{kind}")]
            newest = max(handle.store.get_executions_by_type(name), key=lambda execution: execution.id)
        return bool(newest.last_known_state == metadata_store_pb2.Execution.CACHED)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[_Runs]:
    """A pipeline with two models to choose from."""
    tiny_model.save_model(tmp_path / "one" / "Format-Serving", weight=1.0)
    tiny_model.save_model(tmp_path / "two" / "Format-Serving", weight=2.0)
    return _Runs(tmp_path)


_CACHED = {"Evaluator": True, "Pusher": True}
_ANEW = {"Evaluator": False, "Pusher": False}


@pytest.mark.slow
def test_only_what_changed_is_evaluated_and_pushed_and_an_older_model_again(runs: _Runs) -> None:
    """Nothing changed, though the push folder went from empty to one version, and later to two: nothing runs. An older
    model is judged against another than the first time, so the old verdict is not the answer.
    """
    assert runs.run("one") == _ANEW
    assert runs.run("one") == _CACHED
    assert runs.run("two") == _ANEW
    assert runs.run("two") == _CACHED
    assert len(versions.list_versions(runs.push_dir)) == 2
    assert runs.run("one") == _ANEW
    assert len(versions.list_versions(runs.push_dir)) == 3


@pytest.mark.slow
def test_a_deleted_push_folder_is_filled_again_without_evaluating(runs: _Runs) -> None:
    """The verdict about the first model holds still; what was pushed is not there any more."""
    runs.run("one")
    shutil.rmtree(runs.push_dir)
    assert runs.run("one") == {"Evaluator": True, "Pusher": False}
    assert versions.served_version(runs.push_dir) is not None
    assert runs.run("one") == _CACHED


@pytest.mark.slow
def test_a_refused_model_is_refused_from_the_cache_too(runs: _Runs) -> None:
    """Nothing is served, nothing changes, so nothing runs a second time."""
    assert runs.run("one", min_auc=0.999) == _ANEW
    assert versions.served_version(runs.push_dir) is None
    assert runs.run("one", min_auc=0.999) == _CACHED
