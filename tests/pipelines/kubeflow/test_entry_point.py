"""The entry point as a process, as the launcher starts it."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lockstep.pipelines.kubeflow import entry_point
from tests.pipelines.kubeflow.launcher_double import Cluster, Task

SAMPLES = "tests.pipelines.kubeflow.sample_executors"


def task(name: str, **changes: Any) -> Task:
    """A task of one of the sample executors."""
    given: dict[str, Any] = {"inputs": {"examples": "Examples"}, "outputs": {"model": "Model"}}
    return Task(node_id="Step", code=("--executor_class_path", f"{SAMPLES}.{name}"), **(given | changes))


def examples(cluster: Cluster) -> dict[str, Any]:
    """Examples of one file."""
    uri = "minio://bucket/root/run/ExampleGen/1/examples"
    cluster.stored(uri).mkdir(parents=True, exist_ok=True)
    (cluster.stored(uri) / "data.gz").write_text("rows", encoding="utf-8")
    return {"name": "17", "type": {"instanceSchema": ""}, "uri": uri, "metadata": {}}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """With nothing run yet."""
    return Cluster(tmp_path)


@pytest.mark.slow
def test_a_step_runs_as_a_process_and_shows_its_progress(cluster: Cluster) -> None:
    """Its messages are in the container's log, which is all that a person sees of it."""
    execution = cluster.run(task("Recorder"), {"examples": examples(cluster)})
    assert execution.exit_code == 0, execution.log
    assert "lockstep.progress: step 300/300, loss 0.50" in execution.log
    assert (cluster.stored(execution.artifacts["model"]["uri"]) / "seen.json").exists()
    assert not list((execution.container_dir / "tmp").glob("lockstep-*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "exit_code", "message"),
    [
        ("Refusing", 2, "Step: rows.csv:3: 'x' is no number; mend the row"),
        ("Leaving", 1, "Step: its code ended the process (exit code 0)"),
    ],
)
def test_the_cause_is_the_last_line_of_the_log(name: str, exit_code: int, message: str, cluster: Cluster) -> None:
    """What the user can mend exits with 2; an executor that leaves is no success, whatever it says."""
    execution = cluster.run(task(name), {"examples": examples(cluster)})
    assert (execution.exit_code, execution.last_line) == (exit_code, message)
    assert "Traceback" in execution.log
    assert not list(cluster.folder.rglob("output_metadata.json"))


@pytest.mark.slow
def test_a_cancelled_step_ends_what_it_has_started(cluster: Cluster) -> None:
    """Kubeflow Pipelines cancels by SIGTERM, and kills half a minute later."""
    execution, executor_input = cluster.prepare(task("Waiting"), {"examples": examples(cluster)})
    with cluster.start(task("Waiting").arguments(executor_input), execution) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("worker "))
        process.send_signal(signal.SIGTERM)
        log, _ = process.communicate(timeout=25)
    assert process.returncode == 1
    assert log.rstrip().splitlines()[-1].startswith("Step: stopped from outside (SIGTERM)")
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.split()[1]), 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--node_id=X", "--json_serialized_invocation_args", "{}"],
        ["--node_id=X", "--executor_class_path=a.B", "--driver_class_path=a.C", "--json_serialized_invocation_args={}"],
        ["--executor_class_path=a.B", "--json_serialized_invocation_args={}"],
    ],
)
def test_a_wrong_command_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Neither executor nor driver, both, or no node."""
    with pytest.raises(SystemExit) as raised:
        entry_point.parse(arguments)
    assert raised.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_the_working_folder_comes_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user's `keras.py` beside the command must not stand in front of Keras; his own modules are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), "/installed"])
    entry_point.working_dir_last()
    assert entry_point.sys.path == ["/installed", str(tmp_path)]
    entry_point.working_dir_last()
    assert entry_point.sys.path == ["/installed", str(tmp_path)]


BEAM = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "--sdk_container_image=unused",
)
EXAMPLE_GEN = {
    "input_base": "STRING",
    "input_config": "STRING",
    "output_config": "STRING",
    "output_data_format": "NUMBER_INTEGER",
    "output_file_format": "NUMBER_INTEGER",
}


def stock_example_gen(data_dir: Path) -> dict[str, Any]:
    """Parameters of TFX's own CsvExampleGen, as its compiler writes them."""
    output = {"splits": [{"name": "train", "hash_buckets": 2}, {"name": "eval", "hash_buckets": 1}]}
    return {
        "input_base": str(data_dir),
        "input_config": json.dumps({"splits": [{"name": "single_split", "pattern": "*"}]}),
        "output_config": json.dumps({"split_config": output}),
        "output_data_format": 6,
        "output_file_format": 5,
    }


@pytest.mark.slow
def test_a_chain_of_stock_components_runs(tmp_path: Path) -> None:
    """TFX's CsvExampleGen with its driver, StatisticsGen, SchemaGen and ExampleValidator, none of them changed."""
    (tmp_path / "data").mkdir()
    rows = "".join(f"{index},{index % 3}\n" for index in range(90))
    (tmp_path / "data" / "rows.csv").write_text(f"x,y\n{rows}", encoding="utf-8")
    cluster = Cluster(tmp_path / "cluster", scheme="s3", layout="2.14")

    def run(name: str, code: str, **of_task: Any) -> Any:
        inputs, parameters = of_task.pop("given", {}), of_task.pop("values", {})
        flag = "--driver_class_path" if name.endswith("probe") else "--executor_class_path"
        found = cluster.run(Task(node_id=name, code=(flag, code), beam=BEAM, **of_task), inputs, parameters)
        assert found.exit_code == 0, found.log
        return found

    values = stock_example_gen(tmp_path / "data")
    probed = run(
        "ExampleGen-probe",
        "tfx.components.example_gen.driver.FileBasedDriver",
        parameters=EXAMPLE_GEN,
        output_parameters={"driver_output": "STRING"},
        values=values,
    )
    generated = run(
        "ExampleGen",
        "tfx.components.example_gen.csv_example_gen.executor.Executor",
        outputs={"examples": "Examples"},
        parameters=EXAMPLE_GEN | {"driver_output": "STRING"},
        values=values | probed.parameters,
    ).artifacts
    assert json.loads(generated["examples"]["metadata"]["split_names"]) == ["train", "eval"]
    assert "num_files:1" in generated["examples"]["metadata"]["input_fingerprint"]
    statistics = run(
        "StatisticsGen",
        "tfx.components.statistics_gen.executor.Executor",
        inputs={"examples": "Examples"},
        outputs={"statistics": "ExampleStatistics"},
        parameters={"exclude_splits": "STRING"},
        given=generated,
        values={"exclude_splits": "[]"},
    ).artifacts
    schema = run(
        "SchemaGen",
        "tfx.components.schema_gen.executor.Executor",
        inputs={"statistics": "ExampleStatistics"},
        outputs={"schema": "Schema"},
        parameters={"exclude_splits": "STRING", "infer_feature_shape": "NUMBER_INTEGER"},
        given=statistics,
        values={"exclude_splits": "[]", "infer_feature_shape": 1},
    ).artifacts
    assert 'name: "x"' in (cluster.stored(schema["schema"]["uri"]) / "schema.pbtxt").read_text()
    anomalies = run(
        "ExampleValidator",
        "tfx.components.example_validator.executor.Executor",
        inputs={"statistics": "ExampleStatistics", "schema": "Schema"},
        outputs={"anomalies": "ExampleAnomalies"},
        parameters={"exclude_splits": "STRING"},
        given=statistics | schema,
        values={"exclude_splits": "[]"},
    ).artifacts
    assert {path.parent.name for path in cluster.stored(anomalies["anomalies"]["uri"]).rglob("SchemaDiff.pb")} == {
        "Split-train",
        "Split-eval",
    }
