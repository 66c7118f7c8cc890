"""A package becomes a new version of its pipeline in Kubeflow, and that a run, which can be waited for."""

import dataclasses
import datetime as dt
import difflib
import pathlib
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.kubeflow import validation
from lockstep.pipelines.kubeflow.client import Conflict, Connection, by_name
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.yaml_reader import parse_yaml

_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "STRING": ((str,), "text"),
    "NUMBER_INTEGER": ((int,), "a whole number"),
    "NUMBER_DOUBLE": ((int, float), "a number"),
    "BOOLEAN": ((bool,), "true or false"),
    "LIST": ((list,), "a list"),
    "STRUCT": ((dict,), "a mapping"),
}
_DONE = ("SUCCEEDED", "SKIPPED")
_ENDED = (*_DONE, "FAILED", "CANCELED")
_MAX_TASKS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a pipeline on a server."""

    pipeline_id: str
    version_id: str
    link: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run on a server."""

    run_id: str
    link: str


def read_package(path: pathlib.Path) -> Package:
    """Returns the package in a file, validated.

    Raises:
      ConfigurationError: It is none, or Kubeflow would refuse it.
    """
    package = Package.read(path)
    validation.check(package, str(path))
    return package


def run_arguments(package: Package, assignments: Sequence[str]) -> dict[str, Any]:
    """Returns a run's parameters.

    Args:
      package: What is run.
      assignments: ``key=value`` each; a parameter of text takes the value as it stands, any other reads it as YAML.

    Raises:
      ConfigurationError: There is no such parameter, the value has another type, or one without default has no value.
    """
    declared = package.spec["root"].get("inputDefinitions", {}).get("parameters", {})
    arguments = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        key = key.strip()
        if not separator or not key:
            raise ConfigurationError(f"--set {assignment}: spell it key=value, for example train_steps=500")
        if key not in declared:
            nearest = difflib.get_close_matches(key, declared, n=1, cutoff=0.5)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            known = ", ".join(sorted(declared)) or "none"
            raise ConfigurationError(f"--set {key}: the package has no such parameter{hint} (there are: {known})")
        arguments[key] = _value(key, text, declared[key].get("parameterType", "STRING"))
    for key, parameter in declared.items():
        if key not in arguments and "defaultValue" not in parameter and not parameter.get("isOptional"):
            raise ConfigurationError(f"--set {key}=...: required, since the package has no default for it")
    return arguments


def upload(connection: Connection, package: Package, name: str | None) -> Version:
    """Uploads a package: as a new version of the pipeline of its name, or as a new pipeline.

    Args:
      connection: To the server.
      package: What is uploaded.
      name: Of the version; None makes one of the time. The first version of a pipeline has the pipeline's own name.

    Raises:
      ConfigurationError: The server refuses it.
      StepFailed: The server does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="lockstep-submit-") as folder:
        file = pathlib.Path(folder) / "pipeline.yaml"  # the server looks at the suffix
        package.write(file)
        pipeline_id = _find_pipeline(connection, package.name)
        if pipeline_id is None:
            try:
                pipeline = connection.create(
                    "upload the pipeline",
                    "upload_pipeline",
                    lambda: _refuse_to_guess(connection, package.name),
                    pipeline_package_path=str(file),
                    pipeline_name=package.name,
                    namespace=connection.namespace,
                )
                return _newest_version(connection, pipeline.pipeline_id)
            except Conflict as e:
                # Somebody else's came first, or an attempt of ours whose answer was lost.
                pipeline_id = _find_pipeline(connection, package.name)
                if pipeline_id is None:
                    raise ConfigurationError(
                        f"{e}; a pipeline called {package.name!r} is there, but not to be seen by you: give the package"
                        " another name"
                    ) from e
        return _upload_version(connection, pipeline_id, file, name or _time_name())


def start(
    connection: Connection,
    package: Package,
    version: Version,
    *,
    name: str | None,
    experiment: str,
    arguments: Mapping[str, Any],
) -> Run:
    """Creates a run of a version; its outputs go below the package's own pipeline root.

    Args:
      connection: To the server.
      package: What the version was made of.
      version: What is run.
      name: Of the run; None makes one of the pipeline's name and the time.
      experiment: Made if it is not there.
      arguments: Parameter -> value.

    Raises:
      ConfigurationError: The server refuses it.
      StepFailed: The server does not answer.
    """
    experiment_id = _experiment(connection, experiment)
    name = name or f"{package.name} {_time_name()}"

    def find() -> Any:
        found = connection.read(
            "look for the run", "list_runs", experiment_id=experiment_id, filter=by_name(name), page_size=50
        )
        of_version = (
            run
            for run in found.runs or ()
            if run.pipeline_version_reference
            and run.pipeline_version_reference.pipeline_version_id == version.version_id
        )
        return next(of_version, None)

    try:
        run = connection.create(
            "create the run",
            "run_pipeline",
            find,
            experiment_id=experiment_id,
            job_name=name,
            params=dict(arguments),
            pipeline_id=version.pipeline_id,
            version_id=version.version_id,
            pipeline_root=package.spec.get("defaultPipelineRoot") or None,
        )
    except Conflict as e:
        raise ConfigurationError(f"{e}; give another --name") from e
    return Run(run_id=_given(connection, run.run_id, "run"), link=connection.link(f"runs/details/{run.run_id}"))


def wait(
    connection: Connection,
    run: Run,
    report: Callable[[str], None],
    *,
    poll_s: float = 5.0,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Waits until a run has ended, and says what changes; interrupted, it leaves the run alone.

    Args:
      connection: To the server.
      run: The run.
      report: Takes a line for each change of state, of the run and its tasks.
      poll_s: Seconds between two looks.
      pause: Waits for some seconds.

    Raises:
      StepFailed: The run failed or was canceled, or the server does not answer any more.
    """
    states: dict[str, str] = {}
    while True:
        found = connection.read("look at the run", "get_run", run_id=run.run_id)
        tasks = [
            task for task in (found.run_details.task_details if found.run_details else None) or () if task.display_name
        ]
        for name, state in [*((task.display_name, str(task.state)) for task in tasks), ("", str(found.state))]:
            if states.get(name) != state and state not in ("None", "RUNTIME_STATE_UNSPECIFIED"):
                report(f"{name or 'run'}: {state.lower()}")
                states[name] = state
        if str(found.state) in _ENDED:
            break
        pause(poll_s)
    if str(found.state) in _DONE:
        return
    failed = [_failure(task) for task in tasks if str(task.state) == "FAILED"]
    reason = "; ".join(failed[:_MAX_TASKS]) or (found.error.message if found.error else "") or "no reason is given"
    raise StepFailed(f"the run {str(found.state).lower()}: {reason}; see {run.link}")


def _failure(task: Any) -> str:
    return f"{task.display_name} failed" + (f" ({task.error.message})" if task.error and task.error.message else "")


def _value(key: str, text: str, kind: str) -> Any:
    types, wanted = _KINDS.get(kind, _KINDS["STRING"])
    if types == (str,):
        return text
    try:
        value = parse_yaml(text)
    except ValueError as e:
        raise ConfigurationError(f"--set {key}={text}: the value is {e}") from e
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "BOOLEAN"):
        raise ConfigurationError(f"--set {key}={text}: {value!r} is not allowed; give {wanted}")
    return value


def _find_pipeline(connection: Connection, name: str) -> str | None:
    found = connection.read(
        "look for the pipeline", "list_pipelines", filter=by_name(name), namespace=connection.namespace
    )
    pipelines = found.pipelines or ()
    return _given(connection, pipelines[0].pipeline_id, "pipeline") if pipelines else None


def _refuse_to_guess(connection: Connection, name: str) -> None:
    """Raises Conflict where there is a pipeline of that name now: ours or not, it takes a version more."""
    if _find_pipeline(connection, name) is not None:
        raise Conflict(f"a pipeline called {name!r} is there")


def _upload_version(connection: Connection, pipeline_id: str, file: pathlib.Path, name: str) -> Version:
    def find() -> Any:
        found = connection.read(
            "look for the version", "list_pipeline_versions", pipeline_id=pipeline_id, filter=by_name(name)
        )
        return next(iter(found.pipeline_versions or ()), None)

    try:
        version = connection.create(
            "upload the version",
            "upload_pipeline_version",
            find,
            pipeline_package_path=str(file),
            pipeline_version_name=name,
            pipeline_id=pipeline_id,
        )
    except Conflict as e:
        raise ConfigurationError(f"{e}; a version called {name!r} is there: give another --name") from e
    return _version(connection, pipeline_id, version.pipeline_version_id)


def _newest_version(connection: Connection, pipeline_id: str) -> Version:
    pipeline_id = _given(connection, pipeline_id, "pipeline")
    found = connection.read(
        "look for the version",
        "list_pipeline_versions",
        pipeline_id=pipeline_id,
        page_size=1,
        sort_by="created_at desc",
    )
    versions = found.pipeline_versions or ()
    return _version(connection, pipeline_id, versions[0].pipeline_version_id if versions else None)


def _version(connection: Connection, pipeline_id: str, version_id: str | None) -> Version:
    version_id = _given(connection, version_id, "version")
    link = connection.link(f"pipelines/details/{pipeline_id}/version/{version_id}")
    return Version(pipeline_id=pipeline_id, version_id=version_id, link=link)


def _experiment(connection: Connection, name: str) -> str:
    try:
        experiment = connection.read(
            "make the experiment", "create_experiment", name=name, namespace=connection.namespace
        )
    except Conflict as e:
        raise ConfigurationError(
            f"{e}; an experiment called {name!r} is there, but archived or another's: give another --experiment"
        ) from e
    return _given(connection, experiment.experiment_id, "experiment")


def _given(connection: Connection, identity: str | None, what: str) -> str:
    if not identity:
        raise StepFailed(f"{connection.server.endpoint}: the answer names no {what}; is this Kubeflow Pipelines 2?")
    return identity


def _time_name() -> str:
    return f"{dt.datetime.now(dt.timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
