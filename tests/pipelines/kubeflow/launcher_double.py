"""Kubeflow Pipelines' driver and launcher, as far as a step sees them, over a folder for the object store.

Built after their source, and smaller than the emulator: it runs one task at a time and knows no cache.
"""

import copy
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

FOLDERS = {"minio": "minio", "s3": "s3", "gs": "gcs"}
# What TFX's compiler says of an artifact's type, short of its documentation.
SCHEMA = "title: tfx.{}\ntype: object\n"
_counter = itertools.count()


@dataclasses.dataclass
class Task:
    """One task of a package.

    Args:
      node_id: The component's name.
      code: ``--executor_class_path`` or ``--driver_class_path``, and the path.
      inputs: Input -> type, such as ``Examples``.
      outputs: Output -> type.
      parameters: Parameter -> its type in the package, such as ``STRING``.
      output_parameters: The same for outputs.
      beam: Beam's arguments.
    """

    node_id: str
    code: tuple[str, str]
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    output_parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    beam: tuple[str, ...] = ()

    def arguments(self, executor_input: Mapping[str, Any]) -> list[str]:
        """The container's arguments, with the launcher's JSON in its place."""
        spec = {
            "artifacts": {
                key: {"artifactType": {"instanceSchema": SCHEMA.format(t)}} for key, t in self.inputs.items()
            },
            "parameters": {key: {"parameterType": kind} for key, kind in self.parameters.items()},
        }
        return [
            f"--node_id={self.node_id}",
            "--code_fingerprint=f00d",
            *self.code,
            "--json_serialized_invocation_args",
            json.dumps(executor_input),
            "--json_serialized_inputs_spec_args",
            json.dumps(spec),
            *self.beam,
        ]


@dataclasses.dataclass
class Execution:
    """What became of a task.

    Args:
      artifacts: Output -> artifact, as the next step's driver finds it.
      parameters: Output parameter -> value.
      container_dir: The container's ``/``.
      log: Standard output and error.
      exit_code: Of the command.
    """

    container_dir: Path
    artifacts: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    log: str = ""
    exit_code: int = 0

    @property
    def last_line(self) -> str:
        """What a person reads first."""
        return self.log.rstrip().splitlines()[-1]


@dataclasses.dataclass
class Cluster:
    """Runs tasks.

    Args:
      folder: Of everything.
      scheme: Of the pipeline's root.
      layout: Where the output file is: up to 2.14, or from 2.15.
    """

    folder: Path
    scheme: Literal["minio", "s3", "gs"] = "minio"
    layout: Literal["2.14", "2.15"] = "2.15"

    @property
    def store_dir(self) -> Path:
        """The object store."""
        return self.folder / "store"

    def stored(self, uri: str) -> Path:
        """Where the store has an object."""
        return _mapped(self.store_dir, uri)

    def prepare(
        self, task: Task, inputs: Mapping[str, Any] | None = None, parameters: Mapping[str, Any] | None = None
    ) -> tuple[Execution, dict[str, Any]]:
        """Does what driver and launcher do before the command runs; returns the ExecutorInput too."""
        number = next(_counter)
        execution = Execution(container_dir=self.folder / f"container-{number}")
        root = f"{self.scheme}://bucket/root/run/{task.node_id}/{number}"
        artifacts = {
            key: _output(key, f"{root}/{key}", {"instanceSchema": SCHEMA.format(kind)})
            for key, kind in task.outputs.items()
        }
        artifacts["executor-logs"] = _output(
            "executor-logs", f"{root}/executor-logs", {"schemaTitle": "system.Artifact"}
        )
        output_file = {
            "2.14": execution.container_dir / "tmp/kfp_outputs/output_metadata.json",
            "2.15": _mapped(execution.container_dir, root) / "output_metadata.json",
        }[self.layout]
        executor_input = {
            "inputs": {
                "artifacts": {key: {"artifacts": [copy.deepcopy(found)]} for key, found in (inputs or {}).items()},
                "parameterValues": dict(parameters or {}),
            },
            "outputs": {
                "artifacts": artifacts,
                "parameters": {
                    key: {"outputFile": str(execution.container_dir / "tmp/kfp/outputs" / key)}
                    for key in task.output_parameters
                },
                "outputFile": str(output_file),
            },
        }
        for found in (inputs or {}).values():
            self._copy(self.store_dir, execution.container_dir, found["uri"])
        for listed in artifacts.values():
            _mapped(execution.container_dir, listed["artifacts"][0]["uri"]).parent.mkdir(parents=True, exist_ok=True)
        for parameter in executor_input["outputs"]["parameters"].values():
            Path(parameter["outputFile"]).parent.mkdir(parents=True, exist_ok=True)
        return execution, executor_input

    def run(
        self,
        task: Task,
        inputs: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        *,
        run: Callable[[list[str], Path], None] | None = None,
    ) -> Execution:
        """Runs a task to its end, as a process, or by a function of its arguments and the container's folder."""
        execution, executor_input = self.prepare(task, inputs, parameters)
        arguments = task.arguments(executor_input)
        if run is not None:
            run(arguments, execution.container_dir)
        else:
            with self.start(arguments, execution) as process:
                execution.log, _ = process.communicate(timeout=240)
                execution.exit_code = process.returncode
        if execution.exit_code == 0:
            self._finish(execution, executor_input)
        return execution

    def start(self, arguments: list[str], execution: Execution) -> subprocess.Popen[str]:
        """Starts the command in a container of its own."""
        temporary_dir = execution.container_dir / "tmp"
        temporary_dir.mkdir(parents=True, exist_ok=True)
        repository = Path(__file__).parents[3]
        environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
        environment |= {
            "TMPDIR": str(temporary_dir),
            "LOCKSTEP_CONTAINER_DIR": str(execution.container_dir),
            "LOCKSTEP_STORE_DIR": str(self.store_dir),
            "PYTHONPATH": os.pathsep.join([str(repository), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "lockstep.pipelines.kubeflow.entry_point", *arguments],
            cwd=execution.container_dir,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _finish(self, execution: Execution, executor_input: Mapping[str, Any]) -> None:
        """Parses the output file strictly, uploads, and records what the next driver finds."""
        outputs = executor_input["outputs"]
        text = Path(outputs["outputFile"]).read_text(encoding="utf-8")
        json_format.Parse(text, pipeline_spec_pb2.ExecutorOutput())
        assert str(execution.container_dir) not in text
        document = json.loads(text)
        for name, parameter in outputs["parameters"].items():
            value = document.get("parameterValues", {}).get(name)
            execution.parameters[name] = Path(parameter["outputFile"]).read_text() if value is None else value
        for key, listed in outputs["artifacts"].items():
            if key == "executor-logs":
                continue
            [said] = document["artifacts"][key]["artifacts"]
            assert said["uri"].startswith(listed["artifacts"][0]["uri"])
            self._copy(execution.container_dir, self.store_dir, said["uri"])
            execution.artifacts[key] = {
                "name": str(next(_counter)),
                "type": {"instanceSchema": ""},
                "uri": said["uri"],
                "metadata": {
                    **{name: _recorded(value) for name, value in said["metadata"].items()},
                    "display_name": key,
                    "store_session_info": "{}",
                },
            }

    def _copy(self, source: Path, target: Path, uri: str) -> None:
        """Copies the files of an artifact; folders are none, and an artifact without files is no error."""
        begin, end = _mapped(source, uri), _mapped(target, uri)
        for path in [begin] if begin.is_file() else sorted(begin.rglob("*")):
            if path.is_file():
                copy_to = end / path.relative_to(begin) if path != begin else end
                copy_to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy_to)


def _mapped(root: Path, uri: str) -> Path:
    scheme, _, rest = uri.partition("://")
    return root / FOLDERS[scheme] / rest


def _output(name: str, uri: str, artifact_type: Mapping[str, str]) -> dict[str, Any]:
    return {"artifacts": [{"name": name, "uri": uri, "type": dict(artifact_type), "metadata": {}}]}


def _recorded(value: Any) -> Any:
    """A property through `StructValueToMLMDValue` and back."""
    assert value is not None, "unknown/unsupported value type"
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return {"list": value}
    return {"struct": value} if isinstance(value, dict) else value
