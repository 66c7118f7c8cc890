"""KFP's launcher: downloads inputs, replaces placeholders, runs the command, reads what it left, uploads outputs.

After ``component/launcher_v2.go``. Errors say what KFP's own would.
"""

import contextlib
import copy
import dataclasses
import json
import pathlib
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

from lockstep.components.errors import StepFailed
from lockstep.pipelines.kubeflow.emulator import driver, store, values
from lockstep.pipelines.kubeflow.emulator.cache import LOGS
from lockstep.pipelines.kubeflow.emulator.engine import Attempt, Engine, describe_exit, empty_folder
from lockstep.pipelines.kubeflow.emulator.output_file import read_output_file
from lockstep.pipelines.kubeflow.emulator.pod import Pod
from lockstep.pipelines.kubeflow.emulator.records import Outputs, Records
from lockstep.pipelines.kubeflow.emulator.store import Bucket, Store, StoredFile
from lockstep.pipelines.kubeflow.emulator.workload import Task

_UNRESOLVED = re.compile(r"\{\{\$\.inputs\.(?:parameters|artifacts)\[[^\]]*\][^}]*\}\}")
# KFP's emptyDir volumes.
_SCRATCH = ("gcs", "s3", "minio")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """One attempt of a task.

    Args:
      task: The task.
      pod: What its pod has.
      executor_input: As the driver made it.
      retry_index: 0 for the first attempt.
      container_dir: Folder for what the container has; emptied.
      log_path: Where the command's output goes.
      timeout_s: Seconds after which the command is ended; None is never.
      show: Called with new output.
    """

    task: Task
    pod: Pod
    executor_input: Mapping[str, Any]
    retry_index: int
    container_dir: pathlib.Path
    log_path: pathlib.Path
    timeout_s: float | None
    show: Callable[[bytes], None]


class Launcher:
    """Runs attempts of one run's tasks.

    Args:
      engine: Where commands run.
      store: The object store.
      bucket: Where the run may upload to.
      records: Takes the artifacts.
    """

    def __init__(self, *, engine: Engine, store: Store, bucket: Bucket, records: Records) -> None:
        self._engine, self._store, self._bucket, self._records = engine, store, bucket, records

    def run(self, launch: Launch) -> Outputs:
        """Returns what an attempt left; its log is in the store in any case.

        Raises:
          StepFailed: The attempt failed: in the command, or in what the launcher does before and after.
        """
        log_uri = f"{_artifact(launch.executor_input, LOGS)['uri']}-{launch.retry_index}"
        executor_input = copy.deepcopy(dict(launch.executor_input))
        _artifact(executor_input, LOGS)["uri"] = log_uri
        try:
            self._execute(launch, executor_input)
            return self._collect(launch, executor_input)
        except (OSError, StepFailed) as e:
            # Of a failed attempt KFP uploads the log alone, and minds no error of that.
            with contextlib.suppress(OSError, StepFailed):
                self._store.upload(launch.log_path, log_uri)
            raise StepFailed(_told(e)) from e

    def _execute(self, launch: Launch, executor_input: Mapping[str, Any]) -> None:
        container_dir = empty_folder(launch.container_dir)
        for folder in _SCRATCH:
            (container_dir / folder).mkdir()
        for name, listed in executor_input["inputs"]["artifacts"].items():
            for artifact in listed["artifacts"]:
                path = store.local_path(artifact["uri"], container_dir)
                if path is not None:  # KFP warns, and leaves it alone
                    try:
                        store.download_artifact(self._store, artifact["uri"], path)
                    except (OSError, StepFailed) as e:
                        raise StepFailed(
                            f"failed to download input artifact {name!r} from remote storage URI"
                            f" {artifact['uri']!r}: {e}"
                        ) from e
        root = self._engine.root(container_dir)
        localized = driver.in_folder(executor_input, root)
        for path in _output_folders(localized, root):
            (container_dir / path.relative_to(root)).mkdir(parents=True, exist_ok=True)
        command = resolve_command(launch.task, driver.with_defaults(localized, launch.task), root)
        outputs = {posixpath.dirname(output["outputFile"]) for output in _output_parameters(localized).values()}
        task_root = posixpath.dirname(str(store.local_path(_artifact(executor_input, LOGS)["uri"], root)))
        code = self._engine.run(
            Attempt(
                task=launch.task,
                pod=launch.pod,
                container_dir=container_dir,
                command=command,
                outputs=sorted({*outputs, task_root, posixpath.dirname(localized["outputs"]["outputFile"])}),
                env={"KFP_RETRY_INDEX": str(launch.retry_index)},
                log_path=launch.log_path,
                timeout_s=launch.timeout_s,
                show=launch.show,
            )
        )
        if code:
            raise StepFailed(describe_exit(code))

    def _collect(self, launch: Launch, executor_input: Mapping[str, Any]) -> Outputs:
        in_folder = driver.in_folder(executor_input, launch.container_dir)
        written = read_output_file(pathlib.Path(in_folder["outputs"]["outputFile"]))
        parameters = dict(written.get("parameterValues", {}))
        for name, output in _output_parameters(in_folder).items():
            if name not in parameters:
                parameters[name] = _read_parameter(name, pathlib.Path(output["outputFile"]), launch.task)
        artifacts = {}
        for name, listed in executor_input["outputs"]["artifacts"].items():
            for artifact in listed["artifacts"]:
                if name != LOGS:
                    _merge(written.get("artifacts", {}).get(name, {}).get("artifacts", []), artifact)
                files = self._upload(name, artifact["uri"], launch)
                artifacts[name] = self._records.add_artifact(
                    uri=artifact["uri"], metadata=_metadata(name, artifact, self._bucket), files=files
                )
        return Outputs(parameters=parameters, artifacts=artifacts)

    def _upload(self, name: str, uri: str, launch: Launch) -> Mapping[str, StoredFile] | None:
        """Uploads one artifact and returns its objects; None where there is nothing, which is no error to KFP."""
        path = launch.log_path if name == LOGS else store.local_path(uri, launch.container_dir)
        if path is None:
            _say(launch, f"Output Artifact {name!r} does not have a recognized storage URI {uri!r}. Skipping uploading")
            return None
        try:
            self._bucket.check(uri)
            uploaded = store.upload_artifact(self._store, path, uri)
            files = {} if uploaded is None or name == LOGS else self._store.files(uri)
        except (OSError, ValueError, StepFailed) as e:
            raise StepFailed(f"failed to upload output artifact {name!r} to remote storage URI {uri!r}: {e}") from e
        if uploaded is None:
            _say(launch, f"Local filepath {str(path)!r} does not exist")
            return None
        return files


def resolve_command(task: Task, executor_input: Mapping[str, Any], root: pathlib.Path) -> list[str]:
    """Returns a task's command and arguments with placeholders replaced.

    Args:
      task: The task.
      executor_input: With defaults filled in, and with paths as the command takes them.
      root: What the command takes for ``/``.

    Raises:
      StepFailed: There is no command, or an input's placeholder has no value.
    """
    first, *rest = [*task.command, *task.args] or [""]
    if not task.command:
        raise StepFailed("command and arguments are empty")
    whole = values.to_json(executor_input)
    replacements = _placeholders(executor_input, root)
    resolved = [first.replace("{{$}}", whole)]
    for argument in rest:
        text = argument.replace("{{$}}", whole)
        for placeholder, value in replacements.items():
            text = text.replace(placeholder, value)
        missing = _UNRESOLVED.search(text)
        if missing and "{{$}}" not in argument:
            raise StepFailed(f"failed to resolve container args: {missing[0]} not found in executor input")
        resolved.append(text)
    return resolved


def _placeholders(executor_input: Mapping[str, Any], root: pathlib.Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for kind in ("inputs", "outputs"):
        for name, listed in executor_input[kind]["artifacts"].items():
            uri = listed["artifacts"][0]["uri"]
            found[f"{{{{$.{kind}.artifacts['{name}'].uri}}}}"] = uri
            path = store.local_path(uri, root)
            if path is not None:
                found[f"{{{{$.{kind}.artifacts['{name}'].path}}}}"] = str(path)
    for name, value in executor_input["inputs"]["parameterValues"].items():
        if value is None:
            raise StepFailed(f"input parameter {name!r}: unknown PipelineSpec Value type null")
        found[f"{{{{$.inputs.parameters['{name}']}}}}"] = values.to_text(value)
    for name, output in _output_parameters(executor_input).items():
        found[f"{{{{$.outputs.parameters['{name}'].output_file}}}}"] = output["outputFile"]
    return found


def _output_folders(executor_input: Mapping[str, Any], root: pathlib.Path) -> list[pathlib.Path]:
    """Returns what KFP makes for outputs: their parents, not the folders themselves."""
    folders = [pathlib.Path(output["outputFile"]).parent for output in _output_parameters(executor_input).values()]
    for listed in executor_input["outputs"]["artifacts"].values():
        path = store.local_path(listed["artifacts"][0]["uri"], root)
        assert path is not None, "a pipeline root is in an object store"
        folders.append(path.parent)
    return folders


def _output_parameters(executor_input: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = executor_input["outputs"]["parameters"]
    return found


def _artifact(executor_input: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = executor_input["outputs"]["artifacts"][name]["artifacts"][0]
    return found


def _read_parameter(name: str, path: pathlib.Path, task: Task) -> Any:
    parameter_type = task.output_parameters[name]
    try:
        return values.parse_argument(path.read_text(encoding="utf-8"), parameter_type)
    except (OSError, ValueError) as e:
        raise StepFailed(f"failed to read output parameter name={name!r} type={parameter_type!r}: {e}") from e


def _merge(written: list[Mapping[str, Any]], artifact: dict[str, Any]) -> None:
    """Takes URI and metadata of what the command said over those of the driver; only the first artifact counts."""
    if written:
        artifact["uri"] = written[0].get("uri") or artifact["uri"]
        artifact["metadata"] = {**artifact.get("metadata", {}), **written[0].get("metadata", {})}


def _metadata(name: str, artifact: Mapping[str, Any], bucket: Bucket) -> dict[str, Any]:
    try:
        found = {key: values.to_metadata(value) for key, value in artifact.get("metadata", {}).items()}
    except ValueError as e:
        raise StepFailed(f"unable to produce MLMD artifact for output {name!r}: {e}") from e
    session = json.dumps({"Provider": bucket.scheme, "Params": {"fromEnv": "true"}})
    return {"display_name": name, "store_session_info": session, **found}


def _told(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror or error)


def _say(launch: Launch, line: str) -> None:
    with launch.log_path.open("a", encoding="utf-8") as log:
        log.write(f"launcher: {line}\n")
