"""A user's pipeline, compiled and run as Kubeflow would, beside the same one run as `lockstep run` does."""

import json
import pathlib
import shutil
import subprocess

import pytest

from tests.pipelines.conftest import Project, make_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_STORED = "minio/mlpipeline/data/hills.csv"
_PROBES = ("ExampleGen-probe", "Evaluator-probe", "Pusher-probe")
_CACHED = (
    *("ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "DistributedTrainer", "Evaluator"),
    "Pusher",
)


class Emulated:
    """The package of the user's project, and the root that it is run in."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.root = project.folder / "emulated"
        data = self.root / "store" / _STORED
        data.parent.mkdir(parents=True)
        shutil.copyfile(project.folder / "data" / "hills.csv", data)
        compiled = project.lockstep(
            "compile", "hills.yaml", "-o", "package.yaml", "--set", "data.path=minio://mlpipeline/data/hills.csv"
        )
        assert compiled.returncode == 0, compiled.stderr

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Runs the package, with the user's folder as the image's working folder."""
        return self.project.lockstep(
            "emulate", "package.yaml", "--root", str(self.root), "--working-dir", ".", *arguments
        )

    def states(self) -> dict[str, str]:
        """Returns step -> state of the newest run."""
        newest = max((self.root / "runs").iterdir(), key=lambda path: path.stat().st_ctime_ns)
        lines = (newest / "events.jsonl").read_text(encoding="utf-8").splitlines()
        return {event["step"]: event["state"] for event in map(json.loads, lines) if event["type"] == "StepChanged"}

    def pushed(self) -> list[pathlib.Path]:
        """Returns the versions in the object store's push folder."""
        folder = self.root / "store" / "minio" / "mlpipeline" / "lockstep" / "hills" / "pushed"
        return sorted(path for path in folder.iterdir() if path.name.isdecimal())


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """One package for the tests here, which build on each other's runs."""
    return Emulated(make_project(tmp_path_factory.mktemp("project")))


def test_every_step_passes_and_the_pushed_model_predicts_as_the_local_runs(emulated: Emulated) -> None:
    """All tasks of the package; for the same rows the same predictions."""
    finished = emulated.run()
    assert finished.returncode == 0, finished.stderr
    assert set(emulated.states().values()) == {"done"}
    local = emulated.project.run()
    assert local.returncode == 0, local.stderr
    [ours] = emulated.pushed()
    assert f"served: {ours.relative_to(emulated.project.folder)}" in finished.stdout
    [theirs] = (path for path in (emulated.project.root / "pushed").iterdir() if path.name.isdecimal())
    predictions = [
        emulated.project.lockstep("predict", str(model), "--data", "data/hills.csv") for model in (ours, theirs)
    ]
    assert predictions[0].returncode == 0, predictions[0].stderr
    assert len(predictions[0].stdout.splitlines()) == 601
    assert predictions[0].stdout == predictions[1].stdout


def test_a_second_run_asks_what_is_new_and_takes_the_rest_from_the_cache(emulated: Emulated) -> None:
    """Probes run always; nothing is new, so nothing else runs, with the other layout of the output file neither."""
    finished = emulated.run("--kfp-version", "2.14")
    assert finished.returncode == 0, finished.stderr
    assert emulated.states() == dict.fromkeys(_PROBES, "done") | dict.fromkeys(_CACHED, "cached")
    assert len(emulated.pushed()) == 1


def test_new_data_at_the_same_path_are_seen(emulated: Emulated) -> None:
    """The probe's fingerprint is in the key of what reads the data; a step's failure is told with its reason."""
    data = emulated.root / "store" / _STORED
    data.write_text("height,width,region\n1,2,north\n", encoding="utf-8")
    finished = emulated.run("--kfp-version", "2.14")
    assert finished.returncode == 1
    states = emulated.states()
    assert states["ExampleGen-probe"] == "done"
    assert states["ExampleGen"] != "cached"
    assert "failed" in states.values()
    assert "log: " in finished.stderr
