"""Packages of tiny steps, run as Kubeflow Pipelines would."""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.run_events import RunFinished
from tests.pipelines.kubeflow.emulator.conftest import Emulation, artifact_of, of_task, package, step

_MAKE = """
output("data").mkdir()
(output("data") / "rows.txt").write_text("1 2 3")
write({"parameterValues": {"total": 6}, "artifacts": {"data": {"artifacts": [{"metadata": {"span": 7}}]}}})
"""
_USE = """
rows = (source("data") / "rows.txt").read_text()
output("sum").parent.mkdir(parents=True, exist_ok=True)
output("sum").write_text(f"{rows} = {given['inputs']['parameterValues']['total']}")
"""
_RETRIES = {"maxRetryCount": 2, "backoffDuration": "30s", "backoffFactor": 2, "backoffMaxDuration": "604800s"}


def _two_steps(use: str = _USE, **maker: Any) -> dict[str, dict[str, Any]]:
    return {
        "make": step(_MAKE, parameters={"total": "NUMBER_INTEGER"}, artifacts=["data"], **maker),
        "use": step(
            use,
            inputs={
                "parameters": {"total": of_task("make", "total")},
                "artifacts": {"data": artifact_of("make", "data")},
            },
            input_types={"total": {"parameterType": "NUMBER_INTEGER"}},
            artifacts=["sum"],
            after=["make"],
        ),
    }


@pytest.mark.parametrize("kfp_version", ["2.5", "2.16"])
def test_outputs_of_a_step_reach_the_next_one_in_both_layouts_of_the_output_file(
    emulation: Emulation, kfp_version: str
) -> None:
    """Parameters by value, artifacts by the object store, wherever KFP's release has the output file."""
    finished = emulation.run(package(_two_steps()), kfp_version=kfp_version)
    assert finished.exit_code == 0, finished.message
    assert emulation.stored()["use/sum"] == "1 2 3 = 6"
    inputs = next(iter(emulation.root.glob("runs/*/emulator.log"))).read_text(encoding="utf-8")
    where = "/tmp/kfp_outputs/output_metadata.json" if kfp_version == "2.5" else "/minio/bucket/root/"
    assert f'"outputFile": "{where}' in inputs


def test_artifacts_come_with_an_id_an_empty_type_and_metadata_as_ml_metadata_gives_them(emulation: Emulation) -> None:
    """What the next step reads is what KFP's driver writes: numbers double, lists and structs wrapped."""
    make = """
    output("data").write_text("x")
    write({"artifacts": {"data": {"artifacts": [{"metadata": {"i": 1, "b": True, "l": [1], "s": {"k": "v"}}}]}}})
    """
    show = """
    output("shown").write_text(json.dumps(given["inputs"]["artifacts"]["data"]["artifacts"]))
    """
    finished = emulation.run(
        package(
            {
                "make": step(make, artifacts=["data"]),
                "use": step(
                    show,
                    inputs={"artifacts": {"data": artifact_of("make", "data")}},
                    artifacts=["shown"],
                    after=["make"],
                ),
            }
        )
    )
    assert finished.exit_code == 0, finished.message
    (artifact,) = json.loads(emulation.stored()["use/shown"])
    assert artifact["name"].isdigit()
    assert artifact["type"] == {"instanceSchema": ""}
    assert artifact["uri"].startswith("minio://bucket/root/")
    session = artifact["metadata"].pop("store_session_info")
    assert json.loads(session)["Provider"] == "minio"
    expected = {"display_name": "data", "i": 1, "b": 1, "l": {"list": [1]}, "s": {"struct": {"k": "v"}}}
    assert artifact["metadata"] == expected


def test_a_step_that_fails_once_is_tried_anew(emulation: Emulation) -> None:
    """The second attempt starts with an empty container and another retry index; its outputs count."""
    code = """
    assert not list(output("data").parent.iterdir()), "left by the first attempt"
    output("data").write_text("from attempt " + os.environ["KFP_RETRY_INDEX"])
    sys.exit(3 if os.environ["KFP_RETRY_INDEX"] == "0" else 0)
    """
    finished = emulation.run(package({"it": step(code, artifacts=["data"], retry=_RETRIES)}))
    assert finished.exit_code == 0, finished.message
    assert emulation.stored()["it/data"] == "from attempt 1"
    assert "attempt 1 failed (exit code 3)" in emulation.shown
    (logs,) = {tuple(sorted(path.name for path in folder.glob("*.log"))) for folder in emulation.root.glob("runs/*")}
    assert logs == ("emulator.log", "it-0.log", "it-1.log")


def test_a_step_that_always_fails_ends_the_run_with_the_end_of_its_log(emulation: Emulation) -> None:
    """All attempts are made, later tasks are skipped, and the message names reason, log's end and log."""
    steps = _two_steps()
    steps["make"] = step(
        "print('about to fail'); sys.exit(5)",
        parameters={"total": "NUMBER_INTEGER"},
        artifacts=["data"],
        retry=_RETRIES,
    )
    finished = emulation.run(package(steps))
    assert finished.exit_code == 1
    assert finished.message.startswith("make: exit code 5 (attempt 3; No more retries left)")
    assert "| about to fail" in finished.message
    assert "make-2.log" in finished.message
    assert emulation.states() == {"make": "failed", "use": "skipped"}


def test_a_package_that_kubeflow_would_refuse_is_refused_before_anything_starts(emulation: Emulation) -> None:
    """The validator's findings, all of them: here a retry policy that retries nothing, and an unknown producer."""
    steps = _two_steps(retry={"maxRetryCount": 2})
    steps["use"]["task"]["inputs"]["parameters"]["total"] = of_task("maker", "total")
    with pytest.raises(ConfigurationError) as refused:
        emulation.run(package(steps))
    assert "root.dag.tasks.make.retryPolicy" in str(refused.value)
    assert "maker" in str(refused.value)
    assert not emulation.root.exists()


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ('{"parameterValues": {"total": 1}, "surprise": 1}', "surprise"),
        ('{"artifacts": {"data": {"artifacts": [{"uri": "minio://bucket/root/x", "kind": 1}]}}}', "kind"),
        ('{"artifacts": {"data": {"artifacts": [{"metadata": {"span": null}}]}}}', "unsupported value type null"),
        ('{"artifacts": {"data": {"artifacts": [{"uri": 3}]}}}', "uri"),
        ('{"parameterValues": {"total": NaN}}', "not JSON"),
        ('{"parameterValues": [1]}', "parameterValues"),
        ("done", "Expecting value"),
        ("", "Expecting value"),
    ],
)
def test_a_bad_output_file_fails_the_step(run_step: Callable[..., RunFinished], document: str, reason: str) -> None:
    """Unknown fields, nulls, wrong types and what is no JSON fail a step that itself succeeded."""
    finished = run_step(f"write({document!r})", artifacts=["data"])
    assert finished.exit_code == 1
    assert reason in finished.message.splitlines()[0]


def test_a_missing_output_parameter_fails_the_step(run_step: Callable[..., RunFinished]) -> None:
    """A declared parameter must be in the output file, or in a file of its own."""
    finished = run_step("write({})", parameters={"total": "NUMBER_INTEGER"})
    assert "failed to read output parameter name='total'" in finished.message


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("STRING", "a b", "a b"),
        ("NUMBER_INTEGER", "3\\n", 3),
        ("NUMBER_DOUBLE", "0.5", 0.5),
        ("BOOLEAN", "true", True),
        ("LIST", "[1, [2]]", [1, [2]]),
        ("STRUCT", '{"a": {"b": null}}', {"a": {"b": None}}),
    ],
)
def test_a_parameter_of_each_type_passes_from_file_to_file(
    emulation: Emulation, kind: str, text: str, expected: Any
) -> None:
    """Written by the step as text into the file that KFP names, read by the next one as a value."""
    make = f"pathlib.Path(outputs['parameters']['value']['outputFile']).write_text({text!r}.replace('\\\\n', chr(10)))"
    use = "output('seen').write_text(json.dumps(given['inputs']['parameterValues']['value']))"
    finished = emulation.run(
        package(
            {
                "make": step(make, parameters={"value": kind}),
                "use": step(
                    use,
                    inputs={"parameters": {"value": of_task("make", "value")}},
                    input_types={"value": {"parameterType": kind}},
                    artifacts=["seen"],
                    after=["make"],
                ),
            }
        )
    )
    assert finished.exit_code == 0, finished.message
    assert json.loads(emulation.stored()["use/seen"]) == expected


def test_a_value_of_another_type_fails_in_the_driver_of_the_task_that_takes_it(emulation: Emulation) -> None:
    """KFP types no outputs: the producer succeeds, the consumer never starts."""
    steps = _two_steps()
    steps["make"]["container"]["command"][2] += "\nwrite({'parameterValues': {'total': 'six'}})"
    finished = emulation.run(package(steps))
    assert finished.message == "use: input parameter 'total' type mismatch: expect NUMBER_INTEGER, got string"
    assert emulation.states() == {"make": "done", "use": "failed"}


def test_run_time_parameters_have_defaults_are_typed_and_may_be_optional(emulation: Emulation) -> None:
    """Given values replace defaults; an optional one without value is absent in the step."""
    show = "output('seen').write_text(json.dumps(given['inputs']['parameterValues']))"
    names = ("count", "path", "extra")
    types = {"count": "NUMBER_INTEGER", "path": "STRING", "extra": "STRUCT"}
    the_package = package(
        {
            "it": step(
                show,
                inputs={"parameters": {name: {"componentInputParameter": name} for name in names}},
                input_types={
                    name: {"parameterType": types[name], **({"isOptional": True} if name == "extra" else {})}
                    for name in names
                },
                artifacts=["seen"],
            )
        },
        parameters={
            "count": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1},
            "path": {"parameterType": "STRING", "defaultValue": "here"},
            "extra": {"parameterType": "STRUCT", "isOptional": True},
        },
    )
    assert emulation.run(the_package, parameters={"count": "5"}).exit_code == 0
    assert json.loads(emulation.stored()["it/seen"]) == {"count": 5, "path": "here"}
    with pytest.raises(ConfigurationError, match="--set counts: the package has no such parameter; its parameters: c"):
        emulation.run(the_package, parameters={"counts": "5"})
    with pytest.raises(ConfigurationError, match="--set count=five: not of type NUMBER_INTEGER: 'five' is not a who"):
        emulation.run(the_package, parameters={"count": "five"})


def test_the_second_run_takes_steps_from_the_cache_and_a_changed_parameter_does_not(emulation: Emulation) -> None:
    """The key holds inputs and arguments, not the outputs' URIs; a task without cache runs always."""
    steps = _two_steps()
    steps["always"] = step("write({})", cache=False)
    assert emulation.run(package(steps)).exit_code == 0
    assert emulation.run(package(steps)).exit_code == 0
    assert emulation.states() == {"always": "done", "make": "cached", "use": "cached"}
    steps["use"]["container"]["args"].append("--more")
    assert emulation.run(package(steps)).exit_code == 0
    assert emulation.states() == {"always": "done", "make": "cached", "use": "done"}


def test_a_cached_output_that_is_gone_is_told_and_made_anew(emulation: Emulation) -> None:
    """Kubeflow would hand on a URI with nothing behind it."""
    assert emulation.run(package(_two_steps())).exit_code == 0
    for path in emulation.root.glob("store/**/rows.txt"):
        path.unlink()
    finished = emulation.run(package(_two_steps()))
    assert finished.exit_code == 0, finished.message
    assert "make: in the object store its cached data is gone; Kubeflow would not look" in emulation.shown
    assert emulation.states()["make"] == "done"
    # A new artifact has a new id, which is in the key of what reads it.
    assert emulation.states()["use"] == "done"


def _cut(path: pathlib.Path) -> None:
    path.write_text("1 2", encoding="utf-8")


def _alter(path: pathlib.Path) -> None:
    times = path.stat()
    path.write_text("9 9 9", encoding="utf-8")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _rename(path: pathlib.Path) -> None:
    path.rename(path.with_name("other.txt"))


def _accompany(path: pathlib.Path) -> None:
    path.with_name("more.txt").touch()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_cut, "data has changed: 'rows.txt' in it has 3 bytes, not 5"),
        (_alter, "data has changed: 'rows.txt' in it has another content"),
        (_rename, "data has changed: 'rows.txt' in it is gone"),
        (_accompany, "data has changed: 'more.txt' came into it"),
    ],
)
def test_a_cached_output_that_is_another_one_is_told_and_made_anew(
    emulation: Emulation, harm: Callable[[pathlib.Path], None], told: str
) -> None:
    """By names, sizes and content, whatever the times of the files say."""
    assert emulation.run(package(_two_steps())).exit_code == 0
    (rows,) = emulation.root.glob("store/**/rows.txt")
    harm(rows)
    finished = emulation.run(package(_two_steps()))
    assert finished.exit_code == 0, finished.message
    assert f"make: in the object store its cached {told}" in emulation.shown
    assert emulation.states() == {"make": "done", "use": "done"}


def test_records_of_an_older_release_serve_no_step(emulation: Emulation) -> None:
    """They do not say what was uploaded; ids go on, since they are in the cache's keys."""
    assert emulation.run(package(_two_steps())).exit_code == 0
    with contextlib.closing(sqlite3.connect(emulation.root / "records.sqlite")) as records, records:
        records.execute("ALTER TABLE artifact DROP COLUMN files")
        records.execute("ALTER TABLE artifact ADD COLUMN num_files INTEGER")
    for state in ("done", "cached"):
        assert emulation.run(package(_two_steps())).exit_code == 0
        assert emulation.states() == {"make": state, "use": state}


@pytest.mark.parametrize("content", [b"x" * 100_000, None])
def test_damaged_records_are_told_with_the_remedy(emulation: Emulation, content: bytes | None) -> None:
    """A file that is no database, and a database whose rows are not what was written."""
    assert emulation.run(package(_two_steps())).exit_code == 0
    path = emulation.root / "records.sqlite"
    if content is None:
        with contextlib.closing(sqlite3.connect(path)) as records, records:
            records.execute("UPDATE execution SET artifacts = 'x'")
        finished = emulation.run(package(_two_steps()))
        assert finished.exit_code == 1
        message = finished.message
    else:
        path.write_bytes(content)
        with pytest.raises(StepFailed) as raised:
            emulation.run(package(_two_steps()))
        message = str(raised.value)
    assert f"{path}: is damaged:" in message
    assert "remove it, and nothing that was run before is taken from the cache" in message


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder with a disk of its own, of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs root, to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)


@pytest.mark.parametrize("temporary", [False, True])
def test_a_disk_that_a_step_fills_is_told(
    emulation: Emulation, small_disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch, temporary: bool
) -> None:
    """The root's, and that of temporary files; the step itself has no room left to say so."""
    fill = f"""
    with open({str(small_disk / "filler")!r}, "wb", buffering=0) as filler:
        try:
            while True: filler.write(b"x" * 4096)
        except OSError:
            os._exit(1)
    """
    if temporary:
        monkeypatch.setenv("TMPDIR", str(small_disk))
    else:
        emulation.root = small_disk / "root"
    told = f"no space is left in {small_disk if temporary else emulation.root}: make room, or "
    try:
        finished = emulation.run(package({"it": step(fill)}))
    except StepFailed as e:  # its events cannot be written either
        assert told in str(e)  # noqa: PT017
    else:
        assert finished.message.startswith(f"it: exit code 1; {told}")


def test_records_on_a_full_disk_are_told(small_disk: pathlib.Path) -> None:
    """Whatever SQLite says to it."""
    from lockstep.pipelines.kubeflow.emulator.records import Outputs, Records

    records = Records(small_disk / "records.sqlite")
    _fill(small_disk)
    with pytest.raises(StepFailed, match=r"records\.sqlite: no space left for it; make room, or give another --root"):
        records.add_execution(Outputs(parameters={"p": "x" * 100_000}, artifacts={}), pipeline="p", run="r", task="t")
    with pytest.raises(StepFailed, match=r"new\.sqlite: no space left for it"):
        Records(small_disk / "new.sqlite")


def test_a_failed_step_is_not_cached(emulation: Emulation) -> None:
    """The next run runs it again."""
    flag = emulation.root.with_name("flag")
    steps = {"it": step(f"sys.exit(0 if pathlib.Path({str(flag)!r}).exists() else 1)")}
    assert emulation.run(package(steps)).exit_code == 1
    flag.touch()
    assert emulation.run(package(steps)).exit_code == 0
    assert emulation.states() == {"it": "done"}


def test_what_is_not_under_an_output_is_gone(emulation: Emulation) -> None:
    """A step sees what was downloaded for it, and leaves what is uploaded: an empty folder is nothing."""
    make = "output('data').mkdir(); (output('data').parent.parent / 'beside').write_text('x')"
    use = "output('seen').write_text(str(source('data').exists()) + str(source('data').parent.parent.exists()))"
    finished = emulation.run(
        package(
            {
                "make": step(make, artifacts=["data"]),
                "use": step(
                    use, inputs={"artifacts": {"data": artifact_of("make", "data")}}, artifacts=["seen"], after=["make"]
                ),
            }
        )
    )
    assert finished.exit_code == 0, finished.message
    assert emulation.stored() == {"use/seen": "FalseFalse"}


def test_an_output_outside_the_pipeline_root_fails_and_a_local_path_is_not_uploaded(
    run_step: Callable[..., RunFinished], emulation: Emulation
) -> None:
    """KFP uploads below the pipeline root alone, and leaves a URI without a scheme where it is."""
    elsewhere = {"artifacts": {"data": {"artifacts": [{"uri": "minio://other/x"}]}}}
    finished = run_step(f"output('data').write_text('x'); write({elsewhere})", artifacts=["data"])
    assert "URI 'minio://other/x' does not have expected bucket prefix 'minio://bucket/root'" in finished.message
    local = {"artifacts": {"data": {"artifacts": [{"uri": "/minio/bucket/root/x"}]}}}
    assert run_step(f"output('data').write_text('x'); write({local})", artifacts=["data"]).exit_code == 0
    assert emulation.stored() == {}


def test_a_step_has_the_packages_environment_and_not_the_callers(
    emulation: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of the package and of secrets are there; what the caller's shell has is not."""
    monkeypatch.setenv("MY_SHELL", "1")
    monkeypatch.setenv("TOKEN", "from the environment")
    secrets = [
        {"secretName": "mine", "keyToEnv": [{"secretKey": "user", "envVar": "USER_NAME"}]},
        {"secretName": "other", "keyToEnv": [{"secretKey": "token", "envVar": "TOKEN"}]},
        {"secretName": "absent", "optional": True, "keyToEnv": [{"secretKey": "x", "envVar": "ABSENT"}]},
    ]
    (emulation.root / "secrets" / "mine").mkdir(parents=True)
    (emulation.root / "secrets" / "mine" / "user").write_text("me\n", encoding="utf-8")
    names = ["PLAIN", "USER_NAME", "TOKEN", "ABSENT", "MY_SHELL"]
    code = f"output('seen').write_text(json.dumps([os.environ.get(name) for name in {names}]))"
    finished = emulation.run(
        package({"it": step(code, artifacts=["seen"], env={"PLAIN": "p"}, platform={"secretAsEnv": secrets})})
    )
    assert finished.exit_code == 0, finished.message
    assert json.loads(emulation.stored()["it/seen"]) == ["p", "me", "from the environment", None, None]


def test_a_secret_that_is_nowhere_is_refused_before_anything_starts(emulation: Emulation) -> None:
    """The message says where it is looked for."""
    secrets = [{"secretName": "mine", "keyToEnv": [{"secretKey": "user", "envVar": "NO_SUCH_NAME"}]}]
    with pytest.raises(ConfigurationError, match=r"takes NO_SUCH_NAME from the secret mine; write it to .*mine/user"):
        emulation.run(package({"it": step("", platform={"secretAsEnv": secrets})}))
    assert not emulation.root.exists()


def test_a_volume_that_no_process_can_mount_is_refused_with_the_remedy(emulation: Emulation) -> None:
    """Unless the folder is on this machine, which then stands for it."""
    mount = {"constant": "claim", "mountPath": "/no/such/folder"}
    with pytest.raises(ConfigurationError, match=r"the volume claim claim at /no/such/folder, .* give --docker"):
        emulation.run(package({"it": step("", platform={"pvcMount": [mount]})}))
    mount["mountPath"] = str(emulation.root.parent)
    assert emulation.run(package({"it": step("", platform={"pvcMount": [mount]})})).exit_code == 0


def test_a_step_above_its_deadline_is_ended(emulation: Emulation) -> None:
    """As Kubernetes ends a pod, with all its processes."""
    code = "import time; time.sleep(60)"
    finished = emulation.run(package({"it": step(code, platform={"activeDeadlineSeconds": "1"})}))
    assert "it: ended after 1 s" in finished.message


def test_processes_that_a_step_leaves_are_ended_with_it(
    run_step: Callable[..., RunFinished], tmp_path: pathlib.Path
) -> None:
    """A container's end is the end of everything in it."""
    pid_path = tmp_path / "pid"
    code = f"""
    import subprocess
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    pathlib.Path({str(pid_path)!r}).write_text(str(left.pid))
    """
    assert run_step(code).exit_code == 0
    assert _is_gone(int(pid_path.read_text(encoding="utf-8")))


def test_a_killed_keeper_takes_the_step_along(emulation: Emulation) -> None:
    """With the processes that the step has started."""
    pid_path = emulation.root.with_name("pids")
    code = f"""
    import signal, subprocess, time
    below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    pathlib.Path({str(pid_path)!r}).write_text(f"{{os.getpid()}} {{below.pid}}")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(100)
    """
    finished = emulation.run(package({"it": step(code)}))
    assert "it: exit code 137 (SIGKILL" in finished.message
    assert all(_is_gone(int(pid)) for pid in pid_path.read_text(encoding="utf-8").split())


def test_an_argument_longer_than_linux_takes_is_told(emulation: Emulation) -> None:
    """As in a pod, where the ExecutorInput is an argument, too, and grows with what earlier tasks wrote."""
    steps = _two_steps()
    steps["make"] = step("write({'parameterValues': {'total': 'x' * 200_000}})", parameters={"total": "STRING"})
    steps["use"] = step(
        "",
        inputs={"parameters": {"total": of_task("make", "total")}},
        input_types={"total": {"parameterType": "STRING"}},
        after=["make"],
    )
    finished = emulation.run(package(steps))
    assert finished.exit_code == 1
    assert "use: the command cannot be started: Argument list too long" in finished.message


_CHILD = """
import json, pathlib, sys
from lockstep.pipelines.console import Console
from lockstep.pipelines.kubeflow.emulator import run
from lockstep.pipelines.kubeflow.emulator.options import EmulateOptions
from lockstep.pipelines.kubeflow.package import Package
document = json.loads(pathlib.Path(sys.argv[1]).read_text())
finished = run.emulate(Package(spec=document), EmulateOptions(root=pathlib.Path(sys.argv[2])), Console())
sys.exit(finished.exit_code)
"""


def _start(spec: Any, emulation: Emulation) -> "subprocess.Popen[bytes]":
    path = emulation.root.with_name("package.json")
    path.write_text(json.dumps(spec), encoding="utf-8")
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(path), str(emulation.root)], cwd=path.parent)


def _wait_for(path: pathlib.Path) -> str:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text(encoding="utf-8")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text(encoding="utf-8")


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split(")")[1].split()[0]:
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_ended_emulator_leaves_no_process_and_nothing_that_the_next_run_trips_on(
    emulation: Emulation, signum: signal.Signals
) -> None:
    """The step ends with it, the root is free, the finished step is cached, the unfinished one runs again."""
    pid_path = emulation.root.with_name("pid")
    use = f"""
    output("sum").write_text("unfinished")
    if not pathlib.Path({str(pid_path)!r}).exists():
        pathlib.Path({str(pid_path)!r}).write_text(str(os.getpid()))
        import time; time.sleep(100)
    """
    the_package = package(_two_steps(use))
    emulator = _start(the_package.spec, emulation)
    pid = int(_wait_for(pid_path))
    with pytest.raises(StepFailed, match=f"another run .process {emulator.pid}. uses"):
        emulation.run(the_package)
    emulator.send_signal(signum)
    assert emulator.wait(60) == (-signal.SIGKILL if signum == signal.SIGKILL else 1)
    assert _is_gone(pid)
    assert emulation.states() == {"make": "done"} | ({} if signum == signal.SIGKILL else {"use": "failed"})
    finished = emulation.run(the_package)
    assert finished.exit_code == 0, finished.message
    assert emulation.states() == {"make": "cached", "use": "done"}


def test_a_model_that_was_not_pushed_is_no_success(emulation: Emulation) -> None:
    """For Kubeflow the run is green; the message and the exit code say what became of the model."""
    push = """
    output("model").write_text("nothing")
    write({"artifacts": {"model": {"artifacts": [{"metadata": {"pushed": 0, "summary": "refused"}}]}}})
    """
    the_package = package({"push": step(push, artifacts=["model"])})
    for _ in ("ran", "cached"):
        finished = emulation.run(the_package)
        assert (finished.exit_code, finished.message) == (
            4,
            "1 tasks, all of them successful; refused",
        )


def test_arguments_are_the_packages_with_placeholders_replaced(emulation: Emulation) -> None:
    """Parameters as Go writes them, URIs, and paths where the launcher has the files."""
    parts = step("output('seen').write_text(json.dumps(sys.argv[2:]))", artifacts=["seen"])
    parts["task"]["inputs"] = {
        "parameters": {
            "n": {"runtimeValue": {"constant": 3.0}},
            "l": {"runtimeValue": {"constant": [1, "a"]}},
        }
    }
    parts["component"]["inputDefinitions"]["parameters"] = {
        "n": {"parameterType": "NUMBER_INTEGER"},
        "l": {"parameterType": "LIST"},
        "d": {"parameterType": "STRING", "isOptional": True, "defaultValue": "default"},
    }
    parts["container"]["args"] += [
        "--n={{$.inputs.parameters['n']}}",
        "{{$.inputs.parameters['l']}}",
        "{{$.inputs.parameters['d']}}",
        "{{$.outputs.artifacts['seen'].uri}}",
        "{{$.outputs.artifacts['seen'].path}}",
    ]
    finished = emulation.run(package({"it": parts}))
    assert finished.exit_code == 0, finished.message
    n, listed, default, uri, path = json.loads(emulation.stored()["it/seen"])
    assert (n, listed, default) == ("--n=3", '[1,"a"]', "default")
    assert uri.startswith("minio://bucket/root/")
    assert path.endswith(uri.replace("minio://", "/minio/"))


def test_logs_of_every_attempt_are_in_the_store(emulation: Emulation) -> None:
    """KFP's launcher publishes them as the artifact executor-logs, of failed attempts too."""
    code = "print('said', os.environ['KFP_RETRY_INDEX']); sys.exit(os.environ['KFP_RETRY_INDEX'] == '0')"
    assert emulation.run(package({"it": step(code, retry=_RETRIES)})).exit_code == 0
    logs = {path.name: path.read_text(encoding="utf-8") for path in emulation.root.glob("store/**/executor-logs-*")}
    assert logs == {"executor-logs-0": "said 0\n", "executor-logs-1": "said 1\n"}


def test_progress_is_shown_live(run_step: Callable[..., RunFinished], emulation: Emulation) -> None:
    """A line of the logger lockstep.progress in a step's output is its figure."""
    assert run_step("print('2026-01-01 INFO lockstep.progress: step 3/9', flush=True)").exit_code == 0
    assert "step 3/9" in emulation.shown


def test_a_package_without_a_store_uri_is_refused(emulation: Emulation) -> None:
    """As KFP refuses a local pipeline root."""
    with pytest.raises(ConfigurationError, match="pipeline root '/tmp/x' is not allowed"):
        emulation.run(package({"it": step("")}), pipeline_root="/tmp/x")


def test_options_are_checked() -> None:
    """A wrong option is told with what is allowed."""
    from lockstep.pipelines.kubeflow.emulator.options import EmulateOptions

    with pytest.raises(ValueError, match=r"kfp_version: '1\.8' is not allowed"):
        EmulateOptions(kfp_version="1.8")
    with pytest.raises(ValueError, match="store: 's3://x' is not allowed"):
        EmulateOptions(store="s3://x")
    assert os.environ.get("LOCKSTEP_CONTAINER_DIR") is None
