"""The engines that run the Beam steps: which of Beam's options each needs, and what is wrong, before anything starts.

``apache_beam`` is imported only to check options: the command line reads a configuration without it.
"""

import argparse
import contextlib
import dataclasses
import difflib
import io
import json
import pathlib
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.object_store import is_object_uri

__all__ = [
    "BEAM_STEPS",
    "BeamOptions",
    "beam_arguments",
    "check_local",
    "check_options",
    "job_server",
    "temporary_files_in",
]

BEAM_STEPS = ("ExampleGen", "StatisticsGen", "Transform", "Evaluator")

Engine = Literal["direct", "flink", "spark"]

# By their long names, since short ones make newer Beam releases look for another runner on the network first.
_RUNNERS: Mapping[Engine, str] = {
    "direct": "apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "flink": "apache_beam.runners.portability.flink_runner.FlinkRunner",
    "spark": "apache_beam.runners.portability.spark_runner.SparkRunner",
}
_NO_IMAGE = "unused"


@dataclasses.dataclass(frozen=True)
class _Cluster:
    """How an engine's cluster is named in Beam's options.

    Args:
      option: Its address.
      embedded: Address of a cluster within the job server's own process, which is there for tests and small data.
      jar: Option that names the job server's jar.
    """

    option: str
    embedded: str
    jar: str

    def is_embedded(self, address: str) -> bool:
        """Whether an address is that of a cluster within the job server."""
        return address in ("[local]", "[auto]") or address.startswith("local")


_CLUSTERS: Mapping[Engine, _Cluster] = {
    "flink": _Cluster("flink_master", "[local]", "flink_job_server_jar"),
    "spark": _Cluster("spark_master_url", "local[4]", "spark_job_server_jar"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The ``beam`` block: which engine runs the Beam steps.

    Args:
      runner: ``direct`` runs in the step's own process; ExampleGen in one for each processor. ``flink`` and ``spark``
        run on the cluster that ``options`` name, else on one within Beam's job server on this machine.
      options: Further Beam options, as Beam's command line spells them (``--key=value``).
      shared_dir: Folder that this machine (on Kubeflow: each Beam step) and all workers of the cluster see under the
        same path, such as the mount of a ReadWriteMany volume. Required with a cluster; on this machine the root of the
        runs and the data are below it.
    """

    runner: Engine = "direct"
    options: tuple[str, ...] = ()
    shared_dir: str | None = None

    def __post_init__(self) -> None:
        for option in self.options:
            if not option.startswith("--"):
                raise ValueError(f"options: {option!r} is not allowed; spell it --key=value")
            name = option.removeprefix("--").partition("=")[0]
            if name == "runner":
                raise ValueError("options: --runner is not allowed here; set beam.runner")
        if self.shared_dir is not None:
            if not pathlib.PurePath(self.shared_dir).is_absolute():
                raise ValueError(
                    f"shared_dir: {self.shared_dir!r} is not an absolute path; workers have no other folder"
                )
            if not self.on_cluster:
                raise ValueError("shared_dir: nothing shares it, since no cluster is named; leave it out")

    @property
    def on_cluster(self) -> bool:
        """Whether workers run elsewhere than in the step's own process."""
        cluster = _CLUSTERS.get(self.runner)
        if cluster is None or self.option("environment_type") == "LOOPBACK":
            return False
        if self.option("environment_type") is not None or self.option("job_endpoint") is not None:
            return True
        return not cluster.is_embedded(self.option(cluster.option) or cluster.embedded)

    def option(self, name: str) -> str | None:
        """Returns the value of a Beam option; None where it is not given."""
        values = [value for key, _, value in (o.removeprefix("--").partition("=") for o in self.options) if key == name]
        return values[-1] if values else None


def beam_arguments(options: BeamOptions) -> list[str]:
    """Returns the Beam command line of a ``beam`` block."""
    cluster = _CLUSTERS.get(options.runner)
    defaults = []
    if cluster is not None and options.option("job_endpoint") is None and options.option(cluster.option) is None:
        defaults.append(f"--{cluster.option}={cluster.embedded}")
    if cluster is not None and not options.on_cluster:
        defaults.append("--environment_type=LOOPBACK")
    return [
        f"--runner={_RUNNERS[options.runner]}",
        # With any image named, TFX does not build a source distribution of itself at the start of every Beam step.
        f"--sdk_container_image={_NO_IMAGE}",
        *defaults,
        *options.options,
    ]


def check_options(options: BeamOptions) -> None:
    """Looks whether Beam takes the options and the engine has what it needs; imports Beam where any are given.

    Raises:
      ConfigurationError: Naming the option, and what is missing.
    """
    if options.runner == "direct" and not options.options:
        return
    values = _parsed(options)
    cluster = _CLUSTERS.get(options.runner)
    if cluster is None:
        return
    if options.on_cluster:
        _check_workers(options, cluster)
        if options.shared_dir is None:
            raise ConfigurationError(
                f"beam.shared_dir: is missing; {options.runner}'s workers and the steps exchange files by a folder that"
                " all see"
            )
    if options.option("job_endpoint") is None:
        _check_job_server(options, cluster, values)


def check_local(options: BeamOptions, root: pathlib.Path, data_path: str) -> None:
    """Looks whether the workers of a cluster will see what a run on this machine reads and writes.

    Args:
      options: Those that ``check_options`` takes.
      root: Of the runs.
      data_path: ``data.path``; absolute, or a URI, whose files are fetched to the shared folder.

    Raises:
      ConfigurationError: The shared folder is not there, or does not hold them.
    """
    if options.shared_dir is None:
        return
    shared = pathlib.Path(options.shared_dir)
    if not shared.is_dir():
        raise ConfigurationError(f"beam.shared_dir: {shared} is no folder of this machine; mount it")
    places = {"--root": str(root)} | ({} if is_object_uri(data_path) else {"data.path": data_path})
    for key, path in places.items():
        if not pathlib.PurePath(path).is_relative_to(shared):
            raise ConfigurationError(
                f"{key}: {path} is not below beam.shared_dir ({shared}), so {options.runner}'s workers would not see it"
            )


@contextlib.contextmanager
def temporary_files_in(shared_dir: str | None) -> Iterator[pathlib.Path | None]:
    """Makes a folder in the one that workers see, and puts all temporary files there until it is removed at the end.

    What a step fetches for its workers goes to the system's folder for such files, which is its machine's alone.

    Args:
      shared_dir: None changes nothing, and gives None.
    """
    if shared_dir is None:
        yield None
        return
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix=".lockstep-", dir=shared_dir, ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        try:
            yield pathlib.Path(folder)
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def job_server(options: BeamOptions) -> Iterator[tuple[str, ...]]:
    """Runs Beam's job server while the context lasts, one for all steps: each would start one of its own, and leave it.

    Args:
      options: Those that ``check_options`` takes.

    Yields:
      Further arguments of Beam, which lead to it; none where the engine needs no such server here.

    Raises:
      StepFailed: It does not start.
    """
    by_itself = options.option("job_endpoint") is None and "submit_uber_jar" not in " ".join(options.options)
    if options.runner == "direct" or not by_itself:
        yield ()
        return
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners import runner as beam_runner

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    arguments = [*beam_arguments(options), f"--job_port={port}"]
    server = beam_runner.create_runner(_RUNNERS[options.runner]).default_job_server(PipelineOptions(arguments))
    try:
        server.start()
    except RuntimeError as e:
        raise StepFailed(f"Beam's job server for {options.runner} does not start: {e}; the log says why") from e
    try:
        yield (f"--job_endpoint=localhost:{port}",)
    finally:
        server.stop()


def _parsed(options: BeamOptions) -> dict[str, Any]:
    """Returns all options of Beam by name; raises for those that Beam does not know, or of the wrong type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Google's libraries announce the end of older Pythons
        from apache_beam.options.pipeline_options import PipelineOptions

    parsers: list[argparse.ArgumentParser] = []

    def keep(parser: argparse.ArgumentParser) -> None:
        parser.allow_abbrev = False  # Beam would take --flink_mas for --flink_master, which is then checked by nobody
        parsers.append(parser)

    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            values: dict[str, Any] = PipelineOptions(beam_arguments(options)).get_all_options(add_extra_args_fn=keep)
            _, unknown = parsers[0].parse_known_args(list(options.options))
    except SystemExit:
        reason = message.getvalue().strip().rpartition("error: ")[2]
        raise ConfigurationError(f"beam.options: {reason}") from None
    for option in unknown:
        name = option.removeprefix("--").partition("=")[0]
        nearest = difflib.get_close_matches(name, values, n=1)
        hint = f"; did you mean --{nearest[0]}?" if nearest else ""
        raise ConfigurationError(f"beam.options: Beam knows no option {option}{hint}")
    return values


def _check_workers(options: BeamOptions, cluster: _Cluster) -> None:
    """Refuses what would start workers that lack the code, or none at all."""
    if options.option("environment_option") or options.option("environment_options"):
        return  # another way of saying it, which Beam checks
    kind = options.option("environment_type") or "DOCKER"
    if kind == "DOCKER" and not options.option("sdk_container_image") and not options.option("environment_config"):
        raise ConfigurationError(
            f"beam.options: {options.runner}'s workers need an image with Lockstep and your code: give"
            " --sdk_container_image=IMAGE where the cluster starts containers, or --environment_type=EXTERNAL and"
            " --environment_config=HOST:PORT of workers beside it"
        )
    config = options.option("environment_config")
    if kind == "EXTERNAL" and not (config and config.rpartition(":")[2].isdecimal()):
        raise ConfigurationError(
            "beam.options: --environment_type=EXTERNAL needs --environment_config=HOST:PORT of the workers, not"
            f" {config!r}"
        )
    if kind == "PROCESS":
        try:
            command = json.loads(config or "").get("command")
        except (ValueError, AttributeError):
            command = None
        if not command:
            raise ConfigurationError(
                'beam.options: --environment_type=PROCESS needs --environment_config={"command": "PROGRAM"}, which'
                " starts a worker"
            )


def _check_job_server(options: BeamOptions, cluster: _Cluster, values: Mapping[str, Any]) -> None:
    jar = options.option(cluster.jar)
    if jar is not None and "://" not in jar and not pathlib.Path(jar).is_file():
        raise ConfigurationError(f"beam.options: --{cluster.jar}={jar}: there is no such file")
    launcher = str(values["job_server_java_launcher"])
    if shutil.which(launcher) is None:
        raise ConfigurationError(
            f"beam.runner: {options.runner} needs Beam's job server, a Java program, and there is no {launcher!r}:"
            " install Java 11 or 17, or name a running job server with --job_endpoint=HOST:PORT in beam.options"
        )
