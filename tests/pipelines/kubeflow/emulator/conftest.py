"""Packages of tiny steps, and what runs them."""

import io
import json
import pathlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from lockstep.pipelines.console import Console
from lockstep.pipelines.kubeflow.emulator import run
from lockstep.pipelines.kubeflow.emulator.options import EmulateOptions
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.run_events import RunFinished

ARTIFACT = {"artifactType": {"instanceSchema": "title: tfx.Examples\ntype: object\n"}}

# Stands at the head of each step's code: `given` is the ExecutorInput, `write(...)` makes the output file.
_PRELUDE = """
import json, os, pathlib, sys
given = json.loads(sys.argv[1])
outputs = given["outputs"]
def local(uri):
    return pathlib.Path(os.environ["LOCKSTEP_CONTAINER_DIR"], uri.replace("://", "/", 1))
def output(name):
    return local(outputs["artifacts"][name]["artifacts"][0]["uri"])
def source(name):
    return local(given["inputs"]["artifacts"][name]["artifacts"][0]["uri"])
def write(document):
    path = pathlib.Path(outputs["outputFile"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
"""


def step(
    code: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    input_types: Mapping[str, Any] | None = None,
    parameters: Mapping[str, str] | None = None,
    artifacts: Sequence[str] = (),
    after: Sequence[str] = (),
    cache: bool = True,
    retry: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    platform: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the parts of one task that runs Python code.

    Args:
      code: With ``given``, ``output(name)``, ``source(name)`` and ``write(document)`` at hand.
      inputs: The task's inputs.
      input_types: The component's input definitions; input artifacts have some type.
      parameters: Names and types of the output parameters.
      artifacts: Names of the output artifacts.
      after: Tasks that it waits for.
      cache: KFP's cache is on.
      retry: Its retry policy.
      env: Its environment variables.
      platform: What it asks of Kubernetes.
    """
    definitions: dict[str, Any] = {"parameters": dict(input_types or {})}
    definitions["artifacts"] = dict.fromkeys((inputs or {}).get("artifacts", {}), ARTIFACT)
    return {
        "task": {
            "inputs": dict(inputs or {}),
            "dependentTasks": list(after),
            "cachingOptions": {"enableCache": cache},
            **({"retryPolicy": retry} if retry else {}),
        },
        "component": {
            "inputDefinitions": definitions,
            "outputDefinitions": {
                "parameters": {name: {"parameterType": kind} for name, kind in (parameters or {}).items()},
                "artifacts": dict.fromkeys(artifacts, ARTIFACT),
            },
        },
        "container": {
            "image": "busybox",
            "command": ["python", "-c", _PRELUDE + textwrap.dedent(code)],
            "args": ["{{$}}"],
            "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
        },
        "platform": dict(platform or {}),
    }


def package(steps: Mapping[str, dict[str, Any]], parameters: Mapping[str, Any] | None = None) -> Package:
    """Returns the package of some steps, and of input parameters of the pipeline."""
    tasks, components, executors, platforms = {}, {}, {}, {}
    for name, parts in steps.items():
        tasks[name] = {"taskInfo": {"name": name}, "componentRef": {"name": f"comp-{name}"}, **parts["task"]}
        components[f"comp-{name}"] = {"executorLabel": f"exec-{name}", **parts["component"]}
        executors[f"exec-{name}"] = {"container": parts["container"]}
        platforms[f"exec-{name}"] = parts["platform"]
    spec = {
        "schemaVersion": "2.1.0",
        "sdkVersion": "tests",
        "pipelineInfo": {"name": "tiny"},
        "defaultPipelineRoot": "minio://bucket/root",
        "root": {"dag": {"tasks": tasks}, "inputDefinitions": {"parameters": dict(parameters or {})}},
        "components": components,
        "deploymentSpec": {"executors": executors},
    }
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": platforms}}}}
    return Package(spec=json.loads(json.dumps(spec)), platform=platform if any(platforms.values()) else None)


def of_task(producer: str, name: str) -> dict[str, Any]:
    """Returns the input parameter that another task's output parameter is."""
    return {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": name}}


def artifact_of(producer: str, name: str) -> dict[str, Any]:
    """Returns the input artifact that another task's output artifact is."""
    return {"taskOutputArtifact": {"producerTask": producer, "outputArtifactKey": name}}


class Emulation:
    """Runs packages in one root and keeps what was shown."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.shown = ""

    def run(self, a_package: Package, **options: Any) -> RunFinished:
        """Runs a package and returns how that ended."""
        stream = io.StringIO()
        finished = run.emulate(a_package, EmulateOptions(root=self.root, **options), Console(stream))
        self.shown = stream.getvalue()
        return finished

    def states(self) -> dict[str, str]:
        """Returns the last state of each task in the last run."""
        path = sorted((self.root / "runs").iterdir(), key=lambda folder: folder.stat().st_ctime_ns)[-1]
        lines = (path / "events.jsonl").read_text(encoding="utf-8").splitlines()
        events = [event for event in map(json.loads, lines) if event["type"] == "StepChanged"]
        return {event["step"]: event["state"] for event in events}

    def stored(self) -> dict[str, str]:
        """Returns the text objects in the folder that is the store, but logs, by the end of their names."""
        found = {}
        for path in (self.root / "store").rglob("*"):
            if path.is_file() and "executor-logs" not in path.name:
                parts = path.relative_to(self.root / "store").parts
                found["/".join([parts[4], *parts[6:]])] = path.read_text(encoding="utf-8")
        return found


@pytest.fixture
def emulation(tmp_path: pathlib.Path) -> Emulation:
    """Returns an emulation in an empty root."""
    return Emulation(tmp_path / "root")


@pytest.fixture
def run_step(emulation: Emulation) -> Callable[..., RunFinished]:
    """Returns a function that runs a package of one step, named ``it``."""

    def run_one(code: str, **parts: Any) -> RunFinished:
        return emulation.run(package({"it": step(code, **parts)}))

    return run_one
