"""A package becomes a new version of its pipeline in Kubeflow, and that a run, which can be waited for."""

import dataclasses
import datetime as dt
import difflib
import json
import math
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
_ALIVE = ("PENDING", "RUNNING", "CANCELING", "PAUSED")
_DONE = ("SUCCEEDED", "SKIPPED")
_ENDED = (*_DONE, "FAILED", "CANCELED")
_MAX_TASKS = 5
_POLLS_UNTIL_TOLD = 3
_MAX_UNKNOWN_S = 600.0
_MAX_SHOWN = 80
_MAX_EXACT = 2**53  # Kubeflow keeps every number as a double


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
            raise ConfigurationError(f"--set {_cut(assignment)}: spell it key=value, for example train_steps=500")
        if key not in declared:
            nearest = difflib.get_close_matches(key, declared, n=1, cutoff=0.5)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            known = ", ".join(sorted(declared)) or "none"
            raise ConfigurationError(f"--set {_cut(key)}: the package has no such parameter{hint} (there are: {known})")
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
            if run.display_name == name
            and run.pipeline_version_reference
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
      StepFailed: The run failed or was canceled, or the server does not answer any more, or names no state for ten
        minutes.
    """
    states: dict[str, str] = {}
    num_unknown = 0
    while True:
        found = connection.read("look at the run", "get_run", run_id=run.run_id)
        tasks = [
            task for task in (found.run_details.task_details if found.run_details else None) or () if task.display_name
        ]
        for name, state in [*((task.display_name, str(task.state)) for task in tasks), ("", str(found.state))]:
            if states.get(name) != state and state not in ("None", "", "RUNTIME_STATE_UNSPECIFIED"):
                report(connection.quoted(f"{name or 'run'}: {state.lower()}"))
                states[name] = state
        if str(found.state) in _ENDED:
            break
        num_unknown = 0 if str(found.state) in _ALIVE else num_unknown + 1
        _look_after(num_unknown, poll_s, run, report)
        pause(poll_s)
    if str(found.state) in _DONE:
        return
    failed = [_failure(task) for task in tasks if str(task.state) == "FAILED"]
    reason = "; ".join(failed[:_MAX_TASKS]) or (found.error.message if found.error else "") or "no reason is given"
    raise StepFailed(f"the run {str(found.state).lower()}: {connection.quoted(reason)}; see {run.link}")


def _look_after(num_unknown: int, poll_s: float, run: Run, report: Callable[[str], None]) -> None:
    """Says once that nobody knows how a run does, and raises where that lasts."""
    if num_unknown == _POLLS_UNTIL_TOLD:
        report(f"run: the server names no state of it; giving up after {_MAX_UNKNOWN_S / 60:g} minutes of that")
    if num_unknown * poll_s >= _MAX_UNKNOWN_S:
        raise StepFailed(
            f"the server named no state of the run for {_MAX_UNKNOWN_S / 60:g} minutes; the run may go on: see"
            f" {run.link}, and whether Kubeflow's persistence agent (deployment ml-pipeline-persistenceagent) works"
        )


def _failure(task: Any) -> str:
    return f"{task.display_name} failed" + (f" ({task.error.message})" if task.error and task.error.message else "")


def _value(key: str, text: str, kind: str) -> Any:
    types, wanted = _KINDS.get(kind, _KINDS["STRING"])
    if types == (str,):
        return text
    try:
        value = parse_yaml(text)
    except ValueError as e:
        raise ConfigurationError(f"--set {key}={_cut(text)}: the value is {_cut(str(e))}") from e
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "BOOLEAN"):
        raise ConfigurationError(f"--set {key}={_cut(text)}: {_shown(value)} is not allowed; give {wanted}")
    problem = _unsendable(value, whole=kind == "NUMBER_INTEGER")
    if problem:
        raise ConfigurationError(f"--set {key}={_cut(text)}: {problem}")
    return value


def _unsendable(value: Any, *, whole: bool) -> str:
    """Returns why a value does not reach a step as it is; nothing where it does."""
    if whole and abs(value) > _MAX_EXACT:
        return "is not allowed; give a whole number from -2^53 to 2^53, since Kubeflow keeps numbers as doubles"
    try:
        json.dumps(value, allow_nan=False)
        numbers = [value]
        while numbers:
            item = numbers.pop()
            if isinstance(item, dict):
                numbers.extend(item.values())
            elif isinstance(item, list):
                numbers.extend(item)
            elif isinstance(item, int) and not math.isfinite(float(item)):
                raise OverflowError
    except (OverflowError, ValueError):
        return "there is a number in it that JSON or Kubeflow cannot hold; give finite numbers below 1.8e308"
    except (RecursionError, TypeError):
        return "there is something in it that JSON cannot hold; give texts, numbers, true, false, lists, mappings"
    return ""


def _shown(value: Any) -> str:
    try:
        return _cut(repr(value))
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def _find_pipeline(connection: Connection, name: str) -> str | None:
    found = connection.read(
        "look for the pipeline", "list_pipelines", filter=by_name(name), namespace=connection.namespace
    )
    pipeline = _named(found.pipelines, name)
    return _given(connection, pipeline.pipeline_id, "pipeline") if pipeline else None


def _named(items: Sequence[Any] | None, name: str) -> Any:
    """Returns the first of that name, or None: a server, or a proxy before it, may have left out the filter."""
    return next((item for item in items or () if item.display_name == name), None)


def _refuse_to_guess(connection: Connection, name: str) -> None:
    """Raises Conflict where there is a pipeline of that name now: ours or not, it takes a version more."""
    if _find_pipeline(connection, name) is not None:
        raise Conflict(f"a pipeline called {name!r} is there")


def _upload_version(connection: Connection, pipeline_id: str, file: pathlib.Path, name: str) -> Version:
    def find() -> Any:
        found = connection.read(
            "look for the version", "list_pipeline_versions", pipeline_id=pipeline_id, filter=by_name(name)
        )
        return _named(found.pipeline_versions, name)

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
