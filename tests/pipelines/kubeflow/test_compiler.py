"""From a configuration to a package, and what is refused on the way."""

import json
import pathlib
import re
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.config import load_package_config
from lockstep.pipelines.kubeflow.compiler import compile_package
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.validation import validate
from tests.pipelines.conftest import Project, make_project


@pytest.fixture(scope="module")
def hills(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A user's project, which no test runs."""
    return make_project(tmp_path_factory.mktemp("hills"), rows=2)


def _compile(hills: Project, *overrides: str) -> Package:
    return compile_package(load_package_config(str(hills.folder / "hills.yaml"), overrides=overrides))


_DATA = "data.path=s3://bucket/hills"


def _tasks(package: Package) -> Any:
    return package.spec["root"]["dag"]["tasks"]


def test_a_users_pipeline_becomes_a_package(hills: Project) -> None:
    """Steps and their probes, the user's function by its import path, no path of this machine."""
    package = _compile(hills, _DATA)
    assert set(_tasks(package)) == {
        *("ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "DistributedTrainer"),
        *("Evaluator", "Pusher", "ExampleGen-probe", "Evaluator-probe", "Pusher-probe"),
    }
    text = package.to_yaml()
    assert "my_hills.model:build_model" in text
    assert str(hills.folder) not in text
    here = re.escape(str(pathlib.Path.cwd()))  # a folder /lockstep is no part of the URI s3://mlpipeline/lockstep
    assert re.search(rf"(?<![\w.-]){here}(?![\w.-])", text) is None


def test_the_users_code_is_in_the_fingerprint_of_the_steps_that_run_it(hills: Project) -> None:
    """An edit of a module that the model imports changes the training's arguments, and no other step's."""

    def fingerprints() -> dict[str, str]:
        executors = _compile(hills, _DATA).spec["deploymentSpec"]["executors"]
        return {label: executor["container"]["args"][1] for label, executor in executors.items()}

    layers = hills.folder / "my_hills" / "layers.py"
    before, text = fingerprints(), layers.read_text()
    layers.write_text('ACTIVATION = "tanh"\n')
    after = fingerprints()
    layers.write_text(text)
    assert {label for label in before if before[label] != after[label]} == {"exec-DistributedTrainer"}


def test_a_run_sets_data_steps_and_workers(hills: Project) -> None:
    """Three parameters, the configuration's values their defaults, go to the steps that read them."""
    package = _compile(hills, _DATA, "train.steps=70")
    assert {
        name: (value["parameterType"], value["defaultValue"])
        for name, value in package.spec["root"]["inputDefinitions"]["parameters"].items()
    } == {
        "data_path": ("STRING", "s3://bucket/hills"),
        "train_steps": ("NUMBER_INTEGER", 70),
        "train_workers": ("NUMBER_INTEGER", 1),
    }
    for step in ("ExampleGen", "ExampleGen-probe"):
        assert _tasks(package)[step]["inputs"]["parameters"]["data_path"] == {"componentInputParameter": "data_path"}


def test_a_package_with_a_range_of_workers_has_no_parameter_for_them(hills: Project) -> None:
    """Its default, a number, would take the place of the range."""
    package = _compile(hills, _DATA, "train={workers: {min: 1, max: 3}, steps: 70}")
    assert set(package.spec["root"]["inputDefinitions"]["parameters"]) == {"data_path", "train_steps"}
    spec = _tasks(package)["DistributedTrainer"]["inputs"]["parameters"]["spec"]["runtimeValue"]["constant"]
    assert json.loads(spec)["options"]["workers"] == {"min": 1, "max": 3}


def test_a_package_with_epochs_has_no_parameter_for_steps(hills: Project) -> None:
    """Its default would take the place of the epochs."""
    package = _compile(hills, _DATA, "train={workers: 1, epochs: 2}")
    assert set(package.spec["root"]["inputDefinitions"]["parameters"]) == {"data_path", "train_workers"}
    assert validate(package) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), r"data\.path: 'data/hills\.csv' is a path of this machine"),
        (("data.path=/data/hills.csv",), r"data\.path: '/data/hills\.csv' is a path of this machine"),
        (
            (_DATA, "push.dir=/srv/models"),
            r"push\.dir: '/srv/models' .* Evaluator, Evaluator-probe, Pusher, Pusher-probe",
        ),
        ((_DATA, "push.dir=package:a/b"), r"push\.dir: 'package:a/b' is a path of this machine"),
        (
            ("data.path=/mnt/x", "kubeflow.volumes={v: {claim: c, mount_path: /mnt, components: [ExampleGen]}}"),
            r"data\.path: '/mnt/x' .* ExampleGen, ExampleGen-probe mount",
        ),
        (("data.path=/mnt/x", "kubeflow.volumes={v: {mount_path: /mnt}}"), r"data\.path: '/mnt/x'"),
        ((_DATA, "kubeflow.components={Trainer: {cache: false}}"), r"kubeflow\.components\.Trainer: no such step"),
        (
            (_DATA, "kubeflow.volumes={v: {mount_path: /mnt, components: [Trainer]}}"),
            r"kubeflow\.volumes\.v\.components: Trainer: no such step",
        ),
        ((_DATA, "model.build=absent.model:build"), r"absent\.model:build: no module"),
        ((_DATA, 'model.parameters={note: "{{workflow.name}}"}'), r"DistributedTrainer\.inputs.*holds '\{\{'"),
    ],
)
def test_what_kubeflow_does_not_have_is_refused(hills: Project, overrides: tuple[str, ...], message: str) -> None:
    """The message names the key, the value, and what is allowed."""
    with pytest.raises(ConfigurationError, match=message):
        _compile(hills, *overrides)


_FLINK = "beam={runner: flink, shared_dir: /mnt/beam, options: [--job_endpoint=h:1, --environment_type=EXTERNAL,"
_FLINK += " '--environment_config=localhost:50000']}"


def test_beam_steps_on_a_cluster_know_the_folder_that_its_workers_see(hills: Project) -> None:
    """As an argument of theirs; it has to be in a claim that they mount."""
    package = _compile(hills, _DATA, _FLINK, "kubeflow.volumes={v: {claim: c, mount_path: /mnt}}")
    executors = package.spec["deploymentSpec"]["executors"]
    told = {
        name for name, executor in executors.items() if "--beam_shared_dir=/mnt/beam" in executor["container"]["args"]
    }
    assert {f"exec-{step}" for step in ("ExampleGen", "StatisticsGen", "Transform", "Evaluator")} <= told
    with pytest.raises(ConfigurationError, match=r"beam\.shared_dir: '/mnt/beam' is not below the mount_path"):
        _compile(hills, _DATA, _FLINK, "kubeflow.volumes={v: {claim: c, mount_path: /other}}")


def test_paths_in_a_mounted_claim_are_the_containers_own(hills: Project) -> None:
    """A claim that all steps mount may hold the data, the pushed models and the checkpoints."""
    package = _compile(
        hills,
        "data.path=/mnt/rows/*.csv",
        "push.dir=/mnt/pushed",
        "kubeflow.work_dir=/mnt/work",
        "kubeflow.volumes={v: {claim: c, mount_path: /mnt}}",
    )
    assert package.platform is not None
    executors = package.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert all(config["pvcMount"] == [{"constant": "c", "mountPath": "/mnt"}] for config in executors.values())
    assert '"work_dir": "/mnt/work"' in package.to_yaml()


@pytest.mark.slow
def test_the_command_line_says_what_is_next_and_what_is_wrong(hills: Project) -> None:
    """Exit 0 with the next commands; exit 2 with the message alone, and the file that was there left as it was."""
    done = hills.lockstep("compile", "hills.yaml", "-o", "package.yaml", "--set", _DATA)
    assert (done.returncode, done.stderr) == (0, "")
    assert "package.yaml: pipeline hills, 8 steps and 3 probes" in done.stdout
    assert "emulate package.yaml" in done.stdout
    written = (hills.folder / "package.yaml").read_bytes()

    refused = hills.lockstep("compile", "hills.yaml", "-o", "package.yaml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("lockstep: data.path: 'data/hills.csv'")
    assert "Traceback" not in refused.stderr
    assert (hills.folder / "package.yaml").read_bytes() == written

    itself = hills.lockstep("compile", "hills.yaml", "-o", "./hills.yaml", "--set", _DATA)
    assert (itself.returncode, "is the configuration itself" in itself.stderr) == (2, True)
