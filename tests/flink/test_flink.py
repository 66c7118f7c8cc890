"""The taxi pipeline on Flink beside the direct runner; skipped where ``make test-flink`` has not fetched Flink."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from google.protobuf import json_format, text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from lockstep.components.evaluator.tfma_results import read_metrics
from lockstep.components.package_files import resolve_package_path
from tests.flink import job_server
from tests.pipelines.conftest import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.skipif(not job_server.jar().exists(), reason="Flink's job server is not there: make test-flink"),
]

_TAXI = "package:tfx/examples/chicago_taxi_pipeline/data/simple/data.csv"
_TIMES = 5  # ExampleGen reads less than 8 MB by itself
_QUICK = ("train.steps=30", "evaluate.thresholds.auc.min=0.1", "evaluate.thresholds.accuracy.min=0.1")
_ON_FLINK = ("beam.runner=flink", f"beam.options=['--flink_job_server_jar={job_server.jar()}', '--parallelism=2']")


class Runs:
    """Runs of the taxi pipeline on one file, each in a root of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        header, *rows = pathlib.Path(resolve_package_path(_TAXI)).read_text().splitlines(keepends=True)
        (folder / "taxi.csv").write_text("".join([header, *rows * _TIMES]))

    def command(self, root: str, *overrides: str) -> list[str]:
        """Returns the command line of a run."""
        settings = (f"data.path={self.folder / 'taxi.csv'}", *_QUICK, *overrides)
        return Project.command(
            "run", "taxi", "--root", str(self.folder / root), *(a for o in settings for a in ("--set", o))
        )

    def run(self, root: str, *overrides: str) -> pathlib.Path:
        """Runs the pipeline to its end and returns its root."""
        ended = subprocess.run(
            self.command(root, *overrides), check=False, capture_output=True, text=True, cwd=self.folder
        )
        assert ended.returncode == 0, ended.stderr
        return self.folder / root

    def log(self, root: str) -> str:
        """Returns the log of the newest run."""
        return max((self.folder / root / "runs").glob("*/run.log")).read_text(errors="replace")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The data, and a folder for roots."""
    return Runs(tmp_path_factory.mktemp("flink"))


@pytest.fixture(scope="module")
def direct(runs: Runs) -> pathlib.Path:
    """Root of a run by the direct runner."""
    return runs.run("direct")


@pytest.fixture(scope="module")
def flink(runs: Runs) -> pathlib.Path:
    """Root of a run on Flink."""
    return runs.run("flink", *_ON_FLINK)


def _output(root: pathlib.Path, step: str, output: str) -> pathlib.Path:
    [folder] = (root / "artifacts" / step / output).iterdir()
    return folder


def _files(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_each_beam_step_ran_on_flink(runs: Runs, flink: pathlib.Path) -> None:
    """So that what is compared below did not come from this process: four steps, a job or more each."""
    states = [line for line in runs.log("flink").splitlines() if "Job state changed to DONE" in line]
    assert len(states) >= 4


def test_examples_are_the_same_bytes(direct: pathlib.Path, flink: pathlib.Path) -> None:
    """The rows, their order, their shards and the manifest."""
    found = _files(_output(flink, "ExampleGen", "examples"))
    assert found == _files(_output(direct, "ExampleGen", "examples"))
    assert len(found) > 3


@pytest.mark.parametrize("split", ["train", "eval"])
def test_statistics_are_the_same(direct: pathlib.Path, flink: pathlib.Path, split: str) -> None:
    """But for the order of the columns, and the last digits of means and standard deviations."""
    found, expected = (_statistics(root, split) for root in (flink, direct))
    assert found.keys() == expected.keys()
    assert len(found) >= 17  # one of 18 has no value in the split eval
    for column, statistics in found.items():
        assert json_format.MessageToDict(statistics) == _approx(json_format.MessageToDict(expected[column])), column


def test_the_inferred_schema_is_the_same(direct: pathlib.Path, flink: pathlib.Path) -> None:
    """But for the order of the columns."""
    found, expected = (_schema(_output(root, "SchemaGen", "schema") / "schema.pbtxt") for root in (flink, direct))
    assert found == expected


def test_transformed_examples_and_vocabularies_are_the_same_bytes(direct: pathlib.Path, flink: pathlib.Path) -> None:
    """Each shard, the manifest, and what the transform graph looks up."""
    for output, pattern in (("transformed_examples", ""), ("transform_graph", "assets")):
        found, expected = (
            {name: content for name, content in _files(_output(root, "Transform", output)).items() if pattern in name}
            for root in (flink, direct)
        )
        assert found
        assert found == expected


def test_the_evaluation_is_the_same(direct: pathlib.Path, flink: pathlib.Path) -> None:
    """Of the same model, since equal transformed examples train to equal weights: all metrics and slices to 1e-6."""
    variables = "Format-Serving/variables/variables.data-00000-of-00001"
    models = [(_output(root, "DistributedTrainer", "model") / variables).read_bytes() for root in (flink, direct)]
    assert models[0] == models[1]
    [found] = read_metrics(_output(flink, "Evaluator", "evaluation")).values()
    [expected] = read_metrics(_output(direct, "Evaluator", "evaluation")).values()
    assert found.overall == pytest.approx(expected.overall, abs=1e-6)
    assert len(found.slices) == len(expected.slices) > 0
    assert _by_slice(found.slices) == _approx(_by_slice(expected.slices), abs=1e-6)


def test_bad_data_is_told_as_by_the_direct_runner(runs: Runs) -> None:
    """One sentence, not the Java traceback that Flink reports."""
    overrides = ("features.pickup_census_tract={kind: vocabulary, missing: error}",)
    ended = subprocess.run(
        runs.command("flink", *_ON_FLINK, *overrides), check=False, capture_output=True, text=True, cwd=runs.folder
    )
    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(
        "lockstep: Transform: features.pickup_census_tract: a value of column pickup_census_tract is"
    )
    assert "java" not in ended.stderr


@pytest.mark.parametrize("victim", ["the run", "the job server"])
def test_a_run_that_ends_early_leaves_no_process(runs: Runs, victim: str) -> None:
    """Interrupted, or its job server killed: it ends soon, says so, and nothing of it goes on."""
    root = f"ended-{victim.replace(' ', '-')}"
    process = subprocess.Popen(
        runs.command(root, *_ON_FLINK), cwd=runs.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _wait(lambda: "StatisticsGen" in _events(runs.folder / root), process)
    [server] = _job_servers(process.pid)
    if victim == "the run":
        process.send_signal(signal.SIGINT)
    else:
        os.kill(server, signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert stderr.strip()
    assert not pathlib.Path(f"/proc/{server}").exists()


def _statistics(root: pathlib.Path, split: str) -> dict[str, statistics_pb2.FeatureNameStatistics]:
    path = _output(root, "StatisticsGen", "statistics") / f"Split-{split}" / "FeatureStats.pb"
    [data] = statistics_pb2.DatasetFeatureStatisticsList.FromString(path.read_bytes()).datasets
    return {feature.path.step[0]: feature for feature in data.features}


def _schema(path: pathlib.Path) -> dict[str, str]:
    schema = text_format.Parse(path.read_text(), schema_pb2.Schema())
    return {item.name: str(item) for item in (*schema.feature, *schema.string_domain)}


def _by_slice(slices: object) -> dict[str, object]:
    return {str(key): dict(values) for key, values in dict(slices).items()}  # type: ignore[call-overload]


def _approx(value: object, **tolerance: float) -> object:
    """Returns a document that equals one with nearly the same floats."""
    if isinstance(value, float):
        return pytest.approx(value, **(tolerance or {"rel": 1e-10}), nan_ok=True)
    if isinstance(value, dict):
        return {key: _approx(item, **tolerance) for key, item in value.items()}
    if isinstance(value, list):
        return [_approx(item, **tolerance) for item in value]
    return value


def _events(root: pathlib.Path) -> str:
    return "".join(path.read_text() for path in root.glob("runs/*/events.jsonl"))


def _wait(is_so: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    while not is_so():
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)  # told by the file that the process writes


def _job_servers(ancestor: int) -> Iterator[int]:
    """Yields the Java processes below a process."""
    for child in psutil.Process(ancestor).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("job-server.jar" in argument for argument in child.cmdline()):
                yield child.pid
