"""Steps in containers, where an engine answers."""

import io
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.emulator.docker import Docker
from lockstep.pipelines.kubeflow.emulator.pod import Pod
from lockstep.pipelines.kubeflow.emulator.workload import read_workload
from tests.pipelines.conftest import Project
from tests.pipelines.kubeflow.emulator.conftest import Emulation, artifact_of, of_task, package, step

_PROGRAMS = ("sh", "cat", "id", "ls", "mkdir", "sleep", "touch")


def _docker(*arguments: str, given: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["docker", *arguments], input=given, capture_output=True, check=False)


def _needs_engine() -> None:
    answer = _docker("version") if shutil.which("docker") else None
    if answer is None or answer.returncode:
        pytest.skip("NO CONTAINER ENGINE ANSWERS HERE: steps in containers are not tested")


def _file_system() -> bytes:
    """Returns a tar file with a shell, a few programs of this machine, and the libraries that they need."""
    paths = {pathlib.Path(found) for program in _PROGRAMS if (found := shutil.which(program))}
    for path in list(paths):
        listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
        paths |= {pathlib.Path(word) for word in listed.split() if word.startswith("/")}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path in sorted(paths):
            content = path.read_bytes()
            member = tarfile.TarInfo(f"bin/{path.name}" if path.name in _PROGRAMS else str(path).lstrip("/"))
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
        tmp = tarfile.TarInfo("tmp")
        tmp.type, tmp.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(tmp)
    return stream.getvalue()


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, str]]:
    """Returns an image of this machine's shell that runs as user 10001, and the same one as root."""
    _needs_engine()
    names = {"user": "lockstep-test-tiny:user", "root": "lockstep-test-tiny:root"}
    content = _file_system()
    for name, changes in ((names["user"], ("--change", "USER 10001")), (names["root"], ())):
        made = _docker("import", *changes, "--change", "ENV PATH=/bin", "-", name, given=content)
        assert made.returncode == 0, made.stderr.decode()
    yield names
    _docker("image", "rm", *names.values())


def _shell(script: str, image: str, **parts: Any) -> dict[str, Any]:
    made = step("", **parts)
    made["container"] |= {
        "image": image,
        "command": ["sh", "-euc", script],
        "args": ["sh", "{{$.inputs.parameters['total']}}"] if "inputs" in parts else [],
    }
    return made


def _chain(image: str, **use: Any) -> dict[str, Any]:
    make = """
      mkdir "{{$.outputs.artifacts['data'].path}}"
      id -u > "{{$.outputs.artifacts['data'].path}}/user"
      echo 7 > "{{$.outputs.parameters['total'].output_file}}"
      touch /minio/beside /.config/x
    """
    # The script is an argument of `sh`, so that KFP replaces placeholders in it.
    use_it = """
      test ! -e /minio/beside
      { cat "{{$.inputs.artifacts['data'].path}}/user"; echo $1 $NAME; } > "{{$.outputs.artifacts['seen'].path}}"
      ls -d /minio /s3 /gcs /.cache
    """
    return {
        "make": _shell(make, image, parameters={"total": "NUMBER_INTEGER"}, artifacts=["data"]),
        "use": _shell(
            use_it,
            image,
            inputs={
                "parameters": {"total": of_task("make", "total")},
                "artifacts": {"data": artifact_of("make", "data")},
            },
            input_types={"total": {"parameterType": "NUMBER_INTEGER"}},
            artifacts=["seen"],
            after=["make"],
            env={"NAME": "n"},
            **use,
        ),
    }


def _left(emulation: Emulation) -> str:
    return _docker("ps", "--all", "--quiet", "--filter", f"label=lockstep.emulate={emulation.root}").stdout.decode()


@pytest.mark.slow
def test_steps_run_in_containers_as_the_images_user(emulation: Emulation, images: dict[str, str]) -> None:
    """Inputs go in, outputs come out, a container leaves nothing but its outputs, and is removed."""
    finished = emulation.run(package(_chain(images["user"])), docker=True)
    assert finished.exit_code == 0, finished.message
    assert emulation.stored()["use/seen"] == "10001\n7 n\n"
    assert _left(emulation) == ""
    assert emulation.run(package(_chain(images["user"])), docker=True).exit_code == 0
    assert emulation.states() == {"make": "cached", "use": "cached"}


@pytest.mark.slow
def test_a_step_that_fails_in_its_container_is_told_as_any_other(emulation: Emulation, images: dict[str, str]) -> None:
    """Exit code and log are the command's; so is a deadline's end, with the container."""
    finished = emulation.run(package({"it": _shell("echo said; exit 4", images["user"])}), docker=True)
    assert finished.message.startswith("it: exit code 4")
    assert "| said" in finished.message
    late = {"it": _shell("sleep 100", images["user"], platform={"activeDeadlineSeconds": "1"})}
    assert "it: ended after 1 s" in emulation.run(package(late), docker=True).message
    assert _left(emulation) == ""


@pytest.mark.slow
def test_a_killed_emulator_leaves_no_container(emulation: Emulation, images: dict[str, str]) -> None:
    """The keeper stops and removes it; the next run starts anew."""
    path = emulation.root.with_name("package.yaml")
    package({"it": _shell("echo begun; sleep 100", images["user"])}).write(path)
    command = Project.command("emulate", str(path), "--root", str(emulation.root), "--docker")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=path.parent) as emulator:
        deadline = time.monotonic() + 60
        while not any("begun" in log.read_text(encoding="utf-8") for log in emulation.root.glob("runs/*/it-0.log")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        emulator.kill()
    deadline = time.monotonic() + 60
    while _left(emulation):
        assert time.monotonic() < deadline, _docker("ps", "--all").stdout.decode()
        time.sleep(0.1)


@pytest.mark.slow
def test_claims_keep_what_steps_write_and_empty_folders_do_not(emulation: Emulation, images: dict[str, str]) -> None:
    """A claim is a folder under the root; an emptyDir belongs to the pod."""
    platform = {
        "pvcMount": [{"constant": "work", "mountPath": "/data"}],
        "emptyDirMounts": [{"volumeName": "scratch", "mountPath": "/scratch"}],
    }
    script = "ls /data /scratch; touch /scratch/x; test ! -e /data/x || touch /data/y; touch /data/x"
    for _ in range(2):
        steps = {"it": _shell(script, images["user"], cache=False, platform=platform)}
        finished = emulation.run(package(steps), docker=True)
        assert finished.exit_code == 0, finished.message
    assert sorted(path.name for path in (emulation.root / "claims" / "work").iterdir()) == ["x", "y"]


@pytest.mark.slow
def test_an_image_that_runs_as_root_or_is_nowhere_is_refused(emulation: Emulation, images: dict[str, str]) -> None:
    """Before anything starts, with what to do."""
    with pytest.raises(ConfigurationError, match=r"tiny:root runs as root, .* end its Dockerfile with USER"):
        emulation.run(package({"it": _shell("true", images["root"])}), docker=True)
    with pytest.raises(ConfigurationError, match=r"localhost:9/no/such:1 is neither here nor can it be pulled"):
        emulation.run(package({"it": _shell("true", "localhost:9/no/such:1")}), docker=True)
    assert not (emulation.root / "runs").exists()


def test_no_engine_is_told_with_the_way_without_it(tmp_path: pathlib.Path) -> None:
    """Whether the program is absent or its daemon is."""
    workload = read_workload(package({"it": step("")}).spec, None)
    pods = {"it": (workload.tasks[0], Pod(env={}, volumes=(), claims=(), deadline_s=None))}
    for program in ("no-such-program", "false"):
        with pytest.raises(ConfigurationError, match=r"--docker: no container engine answers .* leave --docker out"):
            Docker(root=tmp_path, program=program).check(pods)
    assert sys.platform.startswith("linux")
