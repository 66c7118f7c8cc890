"""What is said of a ``beam`` block before anything starts; the engines themselves: tests/flink."""

import pathlib
import tempfile
import threading

import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, PortableOptions, WorkerOptions

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.beam_engines import (
    BeamOptions,
    beam_arguments,
    check_local,
    check_options,
    job_server,
    temporary_files_in,
)

_EXTERNAL = ("--environment_type=EXTERNAL", "--environment_config=workers:50000")
_CLUSTER = ("--flink_master=jobmanager:8081", *_EXTERNAL)


def test_flink_without_options_is_a_cluster_in_the_job_server_with_workers_in_this_process() -> None:
    """What Beam itself makes of the arguments."""
    options = PipelineOptions(beam_arguments(BeamOptions(runner="flink")))
    assert options.view_as(FlinkRunnerOptions).flink_master == "[local]"
    assert options.view_as(PortableOptions).environment_type == "LOOPBACK"


def test_options_replace_the_defaults() -> None:
    """The cluster, the workers and the image that the user names are those that Beam takes."""
    given = BeamOptions(runner="flink", options=(*_CLUSTER, "--sdk_container_image=mine"), shared_dir="/mnt/shared")
    options = PipelineOptions(beam_arguments(given))
    assert options.view_as(FlinkRunnerOptions).flink_master == "jobmanager:8081"
    assert options.view_as(PortableOptions).environment_type == "EXTERNAL"
    assert options.view_as(WorkerOptions).sdk_container_image == "mine"


@pytest.mark.parametrize(
    ("options", "on_cluster"),
    [
        ((), False),
        (("--flink_master=[auto]",), False),
        (("--flink_master=host:8081",), True),
        (("--job_endpoint=host:8099",), True),
        (("--job_endpoint=localhost:8099", "--environment_type=LOOPBACK"), False),
        (_EXTERNAL, True),
    ],
)
def test_where_workers_run(options: tuple[str, ...], on_cluster: bool) -> None:
    """Elsewhere, unless Beam is told or left to start them in this process."""
    assert BeamOptions(runner="flink", options=options).on_cluster == on_cluster


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": ("--flink_mastr=x:1",)}, "Beam knows no option --flink_mastr=x:1; did you mean --flink_master?"),
        ({"options": ("--flink_mast=x:1",)}, "did you mean --flink_master?"),
        ({"options": ("--parallelism=two",)}, "beam.options: argument --parallelism: invalid int value: 'two'"),
        ({"options": ("--flink_master=x:1",), "shared_dir": "/s"}, "workers need an image with Lockstep and your code"),
        ({"options": _CLUSTER}, "beam.shared_dir: is missing"),
        ({"options": (*_CLUSTER[:2], "--environment_config=workers"), "shared_dir": "/s"}, "not 'workers'"),
        ({"options": ("--environment_type=PROCESS",), "shared_dir": "/s"}, '{"command": "PROGRAM"}'),
        ({"options": ("--job_server_java_launcher=java0",)}, "there is no 'java0': install Java 11 or 17"),
        ({"options": ("--flink_job_server_jar=/nowhere.jar",)}, "/nowhere.jar: there is no such file"),
        ({"runner": "direct", "options": ("--direct_num_worker=2",)}, "did you mean --direct_num_workers?"),
    ],
)
def test_what_beam_would_not_take_is_told_by_name(given: dict[str, object], message: str) -> None:
    """Beam itself leaves an unknown option out with a line in the log, and finds what is missing a step later."""
    with pytest.raises(ConfigurationError, match="beam") as raised:
        check_options(BeamOptions(**{"runner": "flink", **given}))  # type: ignore[arg-type]
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": ("parallelism=2",)}, "spell it --key=value"),
        ({"options": ("--runner=FlinkRunner",)}, "set beam.runner"),
        ({"shared_dir": "here", "options": _CLUSTER}, "is not an absolute path"),
        ({"shared_dir": "/mnt"}, "no cluster is named"),
    ],
)
def test_blocks_that_cannot_be_meant(given: dict[str, object], message: str) -> None:
    """Told when the configuration is read, without Beam."""
    with pytest.raises(ValueError, match=message):
        BeamOptions(**{"runner": "flink", **given})  # type: ignore[arg-type]


def test_options_that_are_complete_are_taken(tmp_path: pathlib.Path) -> None:
    """A cluster's, with a job server that goes on elsewhere: nothing of it is needed here."""
    options = BeamOptions(runner="flink", options=(*_EXTERNAL, "--job_endpoint=h:1"), shared_dir=str(tmp_path))
    check_options(options)
    check_local(options, tmp_path / "root", str(tmp_path / "rows.csv"))
    check_local(options, tmp_path / "root", "s3://bucket/rows.csv")
    with job_server(options) as arguments:
        assert arguments == ()


def test_what_workers_would_not_see_is_refused(tmp_path: pathlib.Path) -> None:
    """The root of the runs and the data, each by its name; a shared folder that is none."""
    options = BeamOptions(runner="flink", options=_CLUSTER, shared_dir=str(tmp_path))
    with pytest.raises(ConfigurationError, match="--root: /elsewhere is not below"):
        check_local(options, pathlib.Path("/elsewhere"), str(tmp_path / "rows.csv"))
    with pytest.raises(ConfigurationError, match=r"data.path: /rows.csv is not below"):
        check_local(options, tmp_path, "/rows.csv")
    absent = BeamOptions(runner="flink", options=_CLUSTER, shared_dir=str(tmp_path / "absent"))
    with pytest.raises(ConfigurationError, match="is no folder of this machine; mount it"):
        check_local(absent, tmp_path, "/rows.csv")


def test_temporary_files_are_where_workers_see_them(tmp_path: pathlib.Path) -> None:
    """While a cluster's steps run, and gone afterwards; without a shared folder nothing changes."""
    before = tempfile.gettempdir()
    with temporary_files_in(str(tmp_path)) as folder:
        assert folder is not None
        assert folder.parent == tmp_path
        assert pathlib.Path(tempfile.mkdtemp()).parent == folder
    assert list(tmp_path.iterdir()) == []
    assert tempfile.gettempdir() == before
    with temporary_files_in(None) as folder:
        assert folder is None
        assert tempfile.gettempdir() == before


# The thread in which Beam's channel still looks for the server, when Beam closes the channel.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_job_server_that_cannot_start_ends_the_run_with_a_reason(tmp_path: pathlib.Path) -> None:
    """Java's place taken by a program that ends at once, as Java does with a jar that it cannot read."""
    launcher = tmp_path / "java"
    launcher.write_text("#!/bin/sh\nexit 3\n")
    launcher.chmod(0o700)
    jar = tmp_path / "server.jar"
    jar.touch()
    options = BeamOptions(
        runner="flink", options=(f"--job_server_java_launcher={launcher}", f"--flink_job_server_jar={jar}")
    )
    check_options(options)
    before = set(threading.enumerate())
    with pytest.raises(StepFailed, match="job server for flink does not start"), job_server(options):
        pass
    for thread in set(threading.enumerate()) - before:  # what it raises is this test's, not a later one's
        thread.join(timeout=2)
