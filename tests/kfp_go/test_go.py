"""What Kubeflow's own code and Argo's validation say of packages; skipped where ``make verify-kfp`` has not run."""

import copy
import json
import pathlib
import shutil
import string
import tempfile
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tfx.dsl.component.experimental.annotations import OutputDict, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.types.channel import Channel
from tfx.types.standard_artifacts import Model, ModelBlessing

from lockstep.pipelines.config import load_package_config
from lockstep.pipelines.kubeflow import names
from lockstep.pipelines.kubeflow.compiler import compile_package
from lockstep.pipelines.kubeflow.mend import Node, mend
from lockstep.pipelines.kubeflow.options import KubeflowOptions
from lockstep.pipelines.kubeflow.package import Package
from tests.kfp_go import verify
from tests.pipelines.kubeflow import golden, test_validation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
    pytest.mark.skipif(not verify.binary().exists(), reason="the Go program is not built: make verify-kfp"),
]
# Of the validator's cases, those that the server, its compiler or Argo's validation refuse; the others fail in the
# middle of a run, or do not what they say.
_REFUSED = {
    "server": {
        *("schema version", "unknown field", "duration", "no mapping", "parameter of no type"),
        *("no platform", "empty platform", "factor beyond a double"),
    },
    "compiler": {
        *("wrong type", "mapping for list", "no such component", "no such executor", "neither executor nor graph"),
        *("unknown producer of an artifact", "TFX's producer of a value", "iterator over artifacts"),
        *("condition on an importer", "resolver", "custom job", "empty executor"),
        *("parameter of schema 2.0", "parameter's name", "no producer of a value", "memory beyond a double"),
    },
    "Argo": {
        *("task name with underscore", "task name with digit", "long task name", "kubeflow's driver", "empty graph"),
        *("unknown dependency", "own dependency", "cycle"),
        *("tag of Argo's in a task's name", "tag of Argo's in a default"),
    },
}


def _ask(packages: Mapping[str, Package | str], folder: pathlib.Path) -> dict[str, str]:
    """Returns why each package or text is refused; empty text where it is accepted."""
    paths = [folder / f"{number}.yaml" for number in range(len(packages))]
    for path, package in zip(paths, packages.values(), strict=True):
        path.write_text(package if isinstance(package, str) else package.to_yaml(), encoding="utf-8")
    return dict(zip(packages, verify.ask(paths).values(), strict=True))


def test_golden_packages_are_taken() -> None:
    """Kubeflow's server parses them and compiles them to workflows that Argo takes."""
    paths = sorted(golden.GOLDEN_DIR.glob("*.yaml"))
    assert len(paths) == 2
    assert set(verify.ask(paths).values()) == {""}


def test_packages_that_are_refused_are_those_the_validator_refuses_first(tmp_path: pathlib.Path) -> None:
    """Each of the validator's cases is refused where the table says, and no other is."""
    valid = Package.read(golden.GOLDEN_DIR / "every_key.yaml")
    broken = {}
    for case, (change, _) in test_validation.CASES.items():
        documents = copy.deepcopy((dict(valid.spec), dict(valid.platform or {})))
        change(documents)
        broken[case] = Package(spec=documents[0], platform=documents[1])
    answers = _ask(broken, tmp_path)
    found = {by: {case for case, answer in answers.items() if answer.startswith(f"{by}: ")} for by in _REFUSED}
    assert found == _REFUSED
    assert {case for case, answer in answers.items() if answer} == set().union(*_REFUSED.values())


@component
def Count() -> OutputDict(count=int):  # noqa: N802 -- a component's name
    """Makes a number."""
    return {"count": 3}


@component
def Use(count: Parameter[int]) -> None:  # noqa: N802 -- a component's name
    """Takes a number."""


def _tfx_spec(*nodes: Any) -> dict[str, Any]:
    """Returns what TFX's own runner makes of nodes."""
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(
        config=kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(default_image="image", use_pipeline_spec_2_1=True)
    )
    pipeline = tfx_pipeline.Pipeline(pipeline_name="own", pipeline_root="gs://bucket/root", components=list(nodes))
    spec: dict[str, Any] = runner.run(pipeline, write_out=False)["pipelineSpec"]
    return spec


def test_tfxs_own_packages_are_refused_and_the_mended_one_taken(tmp_path: pathlib.Path) -> None:
    """A value that another step makes, an id with an underscore, a resolver: refused as TFX writes them."""
    count = Count()
    use = Use(count=count.outputs["count"].future()[0].value)
    value = _tfx_spec(count, use)
    underscore = _tfx_spec(Count().with_id("my_count"))
    resolver = _tfx_spec(
        Resolver(
            strategy_class=latest_blessed_model_strategy.LatestBlessedModelStrategy,
            model=Channel(type=Model),
            model_blessing=Channel(type=ModelBlessing),
        ).with_id("latest")
    )
    nodes = [Node(id=node_id, code_fingerprint="f00d", driver_class_path=None) for node_id in ("Count", "Use")]
    mended = mend(value, nodes, KubeflowOptions(), name="own", defaults={})
    specs = {"value": value, "underscore": underscore, "resolver": resolver, "mended": mended}
    answers = _ask({name: Package(spec=spec) for name, spec in specs.items()}, tmp_path)
    assert 'unknown producer task "Count_task"' in answers["value"]
    assert answers["underscore"].startswith("Argo: ")
    assert "non-importer executor not implemented" in answers["resolver"]
    assert answers["mended"] == ""


@pytest.mark.parametrize("name", ["taxi", "flights", "linear", "recommender"])
def test_packages_of_the_examples_are_taken(name: str, tmp_path: pathlib.Path) -> None:
    """As lockstep compile writes them today."""
    source = load_package_config(name, overrides=["data.path=s3://bucket/data"])
    assert _ask({name: compile_package(source)}, tmp_path) == {name: ""}


_PIPELINES = st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=63)
_IDS = st.lists(st.text(min_size=1, max_size=200) | st.sampled_from(sorted(names.RESERVED)), min_size=1, unique=True)


@settings(deadline=None, max_examples=5)
@given(st.lists(st.tuples(_PIPELINES.filter(lambda name: name[0].isalnum()), _IDS), min_size=20, max_size=20))
def test_any_names_are_taken(pipelines: list[tuple[str, list[str]]]) -> None:
    """Whatever a pipeline and its nodes are called, Argo takes what they are called in Kubeflow."""
    with tempfile.TemporaryDirectory() as folder:
        packages = {str(number): _chain(name, ids) for number, (name, ids) in enumerate(pipelines)}
        answers = _ask(packages, pathlib.Path(folder))
    assert set(answers.values()) == {""}


def _chain(name: str, ids: list[str]) -> Package:
    """Returns a pipeline of steps with probes, each after the one before."""
    steps = [step + suffix for step in names.step_names(ids).values() for suffix in (names.PROBE, "")]
    container = {"image": "image", "command": ["true"]}
    return Package(
        spec={
            "schemaVersion": "2.1.0",
            "pipelineInfo": {"name": names.pipeline_name(name)},
            "components": {step: {"executorLabel": f"exec-{step}"} for step in steps},
            "deploymentSpec": {
                "executors": {f"exec-{step}": {"container": {**container, "args": [step]}} for step in steps}
            },
            "root": {
                "dag": {
                    "tasks": {
                        step: {
                            "taskInfo": {"name": step},
                            "componentRef": {"name": step},
                            "dependentTasks": steps[max(0, number - 1) : number],
                        }
                        for number, step in enumerate(steps)
                    }
                }
            },
        }
    )


def test_forms_that_are_no_package_are_refused(tmp_path: pathlib.Path) -> None:
    """TFX's JSON of a job, an Argo workflow, and a platform's document that the server would pass over."""
    package = Package.read(golden.GOLDEN_DIR / "taxi.yaml")
    answers = _ask(
        {
            "job": json.dumps({"pipelineSpec": package.spec, "runtimeConfig": {}}),
            "workflow": yaml.safe_dump({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {}}),
            "platform": Package(spec=package.spec, platform={"platform": {"kubernetes": {}}}).to_yaml(),
        },
        tmp_path,
    )
    assert all(answers.values()), answers
    assert answers["platform"].startswith("server: reads 1 of 2 documents")
