"""Executors and drivers between the launcher's input and its output file, in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.kubeflow import entry_point, step_execution
from lockstep.pipelines.kubeflow.container_paths import ContainerPaths
from tests.pipelines.kubeflow.launcher_double import Cluster, Task

SAMPLES = "tests.pipelines.kubeflow.sample_executors"


def runner(temporary_dir: Path) -> Callable[[list[str], Path], None]:
    """Runs a step as the entry point does, without its process."""

    def run(arguments: list[str], container_dir: Path) -> None:
        options, beam_arguments = entry_point.parse(arguments)
        command = step_execution.StepCommand(beam_arguments=tuple(beam_arguments), **vars(options))
        step_execution.run_step(command, ContainerPaths(str(container_dir)), temporary_dir)

    return run


@pytest.fixture(params=["2.14", "2.15"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    """One of each layout of the output file."""
    return Cluster(tmp_path / "cluster", layout=request.param)


def executor(name: str, **task: Any) -> Task:
    """A task of one of the sample executors, with `examples` in and `model` out."""
    task = {"inputs": {"examples": "Examples"}, "outputs": {"model": "Model"}} | task
    return Task(node_id="Step", code=("--executor_class_path", f"{SAMPLES}.{name}"), **task)


def examples(cluster: Cluster, uri: str = "", **metadata: Any) -> dict[str, Any]:
    """Examples as a step before has left them, with a split that is empty."""
    uri = uri or f"{cluster.scheme}://bucket/root/run/ExampleGen/1/examples"
    folder = cluster.stored(uri) / "Split-train"
    folder.mkdir(parents=True)
    (folder / "data.gz").write_text("rows", encoding="utf-8")
    given = {"split_names": '["train", "eval"]', "lockstep_empty_folders": '["Split-eval"]'}
    return {"name": "17", "type": {"instanceSchema": ""}, "uri": uri, "metadata": {**given, **metadata}}


@pytest.mark.parametrize("scheme", ["minio", "s3", "gs"])
def test_an_executor_sees_local_files_and_the_launcher_uris(scheme: Any, tmp_path: Path) -> None:
    """Of all three kinds of store; folders that were empty are there, and no URI reaches it (facts 10, 14)."""
    cluster = Cluster(tmp_path / "cluster", scheme=scheme)
    given = examples(cluster)
    task = executor("Recorder", parameters={"steps": "NUMBER_INTEGER", "rate": "NUMBER_DOUBLE"})
    parameters = {"steps": 300, "rate": 1, "data": "s3://elsewhere/x"}
    execution = cluster.run(task, {"examples": given}, parameters, run=runner(tmp_path / "temporary"))
    model = execution.artifacts["model"]
    seen = json.loads((cluster.stored(model["uri"]) / "seen.json").read_text())
    assert seen["files"] == ["Split-eval", "Split-train", "Split-train/data.gz"]
    assert seen["splits"] == ["train", "eval"]
    assert seen["examples_uri"] == str(
        execution.container_dir / {"gs": "gcs"}.get(scheme, scheme) / given["uri"].partition("://")[2]
    )
    assert seen["kept_at"] == given["uri"]
    assert seen["exec_properties"] == {**parameters, "code_fingerprint": "f00d"}
    assert isinstance(seen["exec_properties"]["rate"], float)
    assert seen["temporary"].startswith(str(tmp_path / "temporary"))
    assert model["metadata"] == {
        "trained_on": given["uri"],
        "note": f"see {model['uri']}/seen.json",
        "steps": 300,
        "loss": 0.5,
        "good": 1,
        "sizes": {"list": [1.0, 2.0]},
        "lockstep_types": '{"good": "bool", "steps": "int"}',
        "lockstep_empty_folders": '["assets"]',
        "tfx_version": model["metadata"]["tfx_version"],
        "display_name": "model",
        "store_session_info": "{}",
    }


def test_both_layouts_of_the_output_file_are_written(cluster: Cluster, tmp_path: Path) -> None:
    """Wherever the ExecutorInput says that it is, its folder is made."""
    execution = cluster.run(executor("Recorder"), {"examples": examples(cluster)}, run=runner(tmp_path))
    assert set(execution.artifacts) == {"model"}
    [file] = execution.container_dir.rglob("output_metadata.json")
    assert file.is_relative_to(execution.container_dir / ("tmp" if cluster.layout == "2.14" else "minio"))


def test_what_a_step_says_reaches_the_next_one(tmp_path: Path) -> None:
    """Through ML Metadata's wrapping, texts about an artifact of the step included: those are local again."""
    cluster = Cluster(tmp_path / "cluster")
    run = runner(tmp_path)
    given = examples(cluster, origin="minio://bucket/root/run/ExampleGen/1/examples", sizes={"list": [1]})
    first = cluster.run(executor("Recorder"), {"examples": given}, run=run)
    task = Task(
        node_id="Step",
        code=("--executor_class_path", f"{SAMPLES}.Recorder"),
        inputs={"examples": "Examples", "model": "Model"},
        outputs={"model": "Model"},
    )
    second = cluster.run(task, {"examples": given, "model": first.artifacts["model"]}, run=run)
    files = second.container_dir / "minio" / first.artifacts["model"]["uri"].partition("://")[2]
    assert (files / "assets").is_dir()
    assert second.artifacts["model"]["metadata"]["trained_on"] == given["uri"]


def test_beam_s_arguments_reach_an_executor_of_beam_s(tmp_path: Path) -> None:
    """All those that are not the entry point's own, even where a beginning of ours would fit."""
    beam = (
        "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
        "--sdk_container_image=unused",  # else TFX builds a package of itself
        "--direct_num_workers",
        "2",
        "--node=3",
    )
    cluster = Cluster(tmp_path / "cluster")
    execution = cluster.run(executor("BeamArguments", beam=beam), {"examples": examples(cluster)}, run=runner(tmp_path))
    assert json.loads((cluster.stored(execution.artifacts["model"]["uri"]) / "beam.json").read_text())[:5] == list(beam)


def test_a_function_of_tfx_s_gives_artifacts_and_parameters(cluster: Cluster, tmp_path: Path) -> None:
    """Values are artifacts of one file, and parameters where the package declares them, in files too."""
    task = executor(
        "Count_Executor",
        outputs={"model": "Model", "total": "Integer", "name": "String", "share": "Float"},
        parameters={"factor": "NUMBER_INTEGER"},
        output_parameters={"total": "NUMBER_INTEGER", "name": "STRING", "share": "NUMBER_DOUBLE"},
    )
    execution = cluster.run(task, {"examples": examples(cluster)}, {"factor": 10}, run=runner(tmp_path))
    assert execution.parameters == {"total": 20, "name": "files", "share": 0.5}
    files = execution.container_dir / "tmp" / "kfp" / "outputs"
    assert {path.name: path.read_text() for path in files.iterdir()} == {
        "total": "20",
        "name": "files",
        "share": "0.5",
    }
    assert cluster.stored(execution.artifacts["total"]["uri"]).read_text() == "20"
    next_task = Task(
        node_id="Double",
        code=("--executor_class_path", f"{SAMPLES}.Double_Executor"),
        inputs={"total": "Integer"},
        outputs={"twice": "Integer"},
    )
    twice = cluster.run(next_task, {"total": execution.artifacts["total"]}, run=runner(tmp_path))
    assert cluster.stored(twice.artifacts["twice"]["uri"]).read_text() == "40"


def test_an_output_may_be_moved_below_itself(tmp_path: Path) -> None:
    """The launcher uploads from there."""
    cluster = Cluster(tmp_path / "cluster")
    given = {"examples": examples(cluster)}
    execution = cluster.run(executor("Moving"), given, {"to": "{uri}/sub"}, run=runner(tmp_path))
    assert execution.artifacts["model"]["uri"].endswith("/model/sub")
    assert (cluster.stored(execution.artifacts["model"]["uri"]) / "x").read_text() == "x"


def test_an_output_that_nothing_uploads_fails_the_step(tmp_path: Path) -> None:
    """The launcher only warns, and the next step would find nothing (fact 15)."""
    cluster = Cluster(tmp_path / "cluster")
    given = {"examples": examples(cluster)}
    with pytest.raises(StepFailed, match="output model: '/tmp/elsewhere' is a local path that nothing uploads"):
        cluster.run(executor("Moving"), given, {"to": "/tmp/elsewhere"}, run=runner(tmp_path))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Returning", StepFailed, "no quota"),
        ("Absent", ConfigurationError, "the image lacks it: build one that holds the code"),
    ],
)
def test_a_failure_is_one(name: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    """Also where the executor returns it, or is not there at all; nothing is said about outputs then."""
    cluster = Cluster(tmp_path / "cluster")
    with pytest.raises(error, match=message):
        cluster.run(executor(name), {"examples": examples(cluster)}, run=runner(tmp_path))
    assert not list(cluster.folder.rglob("output_metadata.json"))


def test_an_output_parameter_without_a_value_fails_the_step(tmp_path: Path) -> None:
    """It names the parameter."""
    cluster = Cluster(tmp_path / "cluster")
    task = executor("Recorder", output_parameters={"total": "NUMBER_INTEGER"})
    with pytest.raises(StepFailed, match="output parameter total: there is no output of one value"):
        cluster.run(task, {"examples": examples(cluster)}, run=runner(tmp_path))


def driver(class_path: str, **task: Any) -> Task:
    """A driver's task."""
    return Task(
        node_id="Step",
        code=("--driver_class_path", class_path),
        output_parameters={"driver_output": "STRING"},
        **task,
    )


def test_a_driver_runs_without_ml_metadata(cluster: Cluster, tmp_path: Path) -> None:
    """Against an empty store of metadata; what it did not change is left out, and the answer is the same every time."""
    task = driver(f"{SAMPLES}.Driver", inputs={"examples": "Examples"}, parameters={"same": "STRING"})
    given = {"examples": examples(cluster)}
    outputs = [
        cluster.run(task, given, {"same": "x"}, run=runner(tmp_path)).parameters["driver_output"] for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == {
        "artifacts": {},
        "exec_properties": {"executions": 0, "files": "Split-eval,Split-train", "share": 0.5},
    }


def test_what_a_driver_said_is_what_the_executor_does(tmp_path: Path) -> None:
    """It comes as one more parameter, and is gone when its content has been taken."""
    cluster = Cluster(tmp_path / "cluster")
    text = json.dumps(
        {"artifacts": {"model": [{"span": 3, "lockstep_types": '{"span": "int"}'}]}, "exec_properties": {"b": 2}}
    )
    task = executor("Recorder", parameters={"driver_output": "STRING", "a": "STRING"})
    parameters = {"driver_output": text, "a": "1", "b": "old"}
    execution = cluster.run(task, {"examples": examples(cluster)}, parameters, run=runner(tmp_path))
    model = execution.artifacts["model"]
    seen = json.loads((cluster.stored(model["uri"]) / "seen.json").read_text())
    assert seen["exec_properties"] == {"a": "1", "b": 2, "code_fingerprint": "f00d"}
    assert model["metadata"]["span"] == 3


def test_stock_example_gen_s_driver_finds_span_and_fingerprint(tmp_path: Path) -> None:
    """TFX's own, unmodified; an edit of the data gives another answer, and so another key of the cache."""
    (tmp_path / "span-7").mkdir()
    (tmp_path / "span-7" / "rows.csv").write_text("a\n1\n", encoding="utf-8")
    cluster = Cluster(tmp_path / "cluster")
    task = driver("tfx.components.example_gen.driver.FileBasedDriver")
    parameters = {
        "input_base": str(tmp_path),
        "input_config": '{"splits": [{"name": "single_split", "pattern": "span-{SPAN}/*"}]}',
        "output_config": "{}",
    }
    before = cluster.run(task, {}, parameters, run=runner(tmp_path)).parameters["driver_output"]
    document = json.loads(before)
    assert document["exec_properties"]["span"] == 7
    assert "span-7/*" in document["exec_properties"]["input_config"]
    assert "num_files:1" in document["exec_properties"]["input_fingerprint"]
    assert document["artifacts"]["examples"][0]["custom:span"] == 7
    assert "output_config" not in document["exec_properties"]
    assert cluster.run(task, {}, parameters, run=runner(tmp_path)).parameters["driver_output"] == before
    (tmp_path / "span-7" / "rows.csv").write_text("a\n1\n2\n", encoding="utf-8")
    assert cluster.run(task, {}, parameters, run=runner(tmp_path)).parameters["driver_output"] != before


def test_an_executor_is_no_driver(tmp_path: Path) -> None:
    """It is told, and not an attribute that is absent."""
    cluster = Cluster(tmp_path / "cluster")
    with pytest.raises(ConfigurationError, match="Recorder is not a driver of a component"):
        cluster.run(driver(f"{SAMPLES}.Recorder"), {}, run=runner(tmp_path))


@pytest.mark.parametrize(
    ("root", "work_dir", "expected"),
    [
        ("/", "/tmp/lockstep-work", "/tmp/lockstep-work"),
        ("/stand/in", "/tmp/lockstep-work", "/stand/in/tmp/lockstep-work"),
        ("/stand/in", "/work", "/work"),
    ],
)
def test_where_a_folder_stands_for_the_container_a_trainings_temporary_folder_is_in_it(
    root: str, work_dir: str, expected: str
) -> None:
    """Two emulations share no `/tmp`, as two pods do not; a volume's folder stays where it is mounted."""
    properties = {"spec": json.dumps({"work_dir": work_dir, "steps": 3}), "other": "text"}
    step_execution._keep_in_container(properties, ContainerPaths(root))
    assert json.loads(properties["spec"]) == {"work_dir": expected, "steps": 3}
    assert properties["other"] == "text"


def test_a_beam_step_on_a_cluster_works_in_the_folder_that_workers_see(tmp_path: Path) -> None:
    """Other executors do not; what it wrote there is uploaded from its pod as ever."""
    shared = tmp_path / "shared"
    shared.mkdir()
    cluster = Cluster(tmp_path / "cluster", scheme="minio")
    for name, is_shared in (("BeamPlaces", True), ("Recorder", False)):
        task = executor(name, beam=(f"--beam_shared_dir={shared}",))
        given = examples(cluster, f"minio://bucket/{name}/examples")
        execution = cluster.run(task, {"examples": given}, run=runner(tmp_path / "temporary"))
        model = execution.artifacts["model"]
        seen = json.loads((cluster.stored(model["uri"]) / "seen.json").read_text())
        assert seen["examples_uri"].startswith(str(shared)) == is_shared
        assert "Split-train/data.gz" in seen["files"]
        assert model["metadata"]["trained_on"] == given["uri"]
    assert list(shared.iterdir()) == []
