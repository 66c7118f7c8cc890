"""Runs attempts in containers of the package's image, with nothing mounted but what KFP would give them."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.kubeflow.emulator.engine import Attempt, run_kept
from lockstep.pipelines.kubeflow.emulator.pod import Pod, Volume
from lockstep.pipelines.kubeflow.emulator.workload import Task

# The emptyDir volumes that KFP mounts into every step: argocompiler/container.go.
_SCRATCH = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config")
_STORE_MOUNT = "/lockstep-store"
_ROOT_USERS = ("", "0", "root")
_LABEL = "lockstep.emulate"


class Docker:
    """Runs each attempt in a container of its own, which is removed at its end.

    The container runs as the image's user, without capabilities, as KFP's pods do. Inputs are copied into it and
    outputs out of it; an object store that is a folder is mounted at ``/lockstep-store``, in the network's place. The
    network is the machine's, so that an S3 service on it can be reached. Limits of CPU and memory, and accelerators,
    are left out: this machine is no cluster.

    Args:
      root: The emulator's root; containers that a killed emulation left there are removed.
      store_dir: The object store, where it is a folder.
      program: The engine's command line.
    """

    def __init__(self, *, root: pathlib.Path, store_dir: pathlib.Path | None = None, program: str = "docker") -> None:
        self._root, self._store_dir, self._program = root, store_dir, program
        self._swept = False

    def check(self, pods: Mapping[str, tuple[Task, Pod]]) -> None:
        """See ``Engine``: the engine answers, every image is there, and its user is not root."""
        try:
            self._call("version")
        except (OSError, StepFailed) as e:
            raise ConfigurationError(
                f"--docker: no container engine answers ({e}); start one, or leave --docker out: steps then run as"
                " processes of this machine"
            ) from e
        for image in sorted({task.image for task, _ in pods.values()}):
            self._check_image(image)

    def root(self, container_dir: pathlib.Path) -> pathlib.Path:
        """See ``Engine``."""
        return pathlib.Path("/")

    def run(self, attempt: Attempt) -> int:
        """See ``Engine``."""
        name = f"lockstep-{attempt.container_dir.parent.parent.name}-{attempt.container_dir.name}-{os.getpid()}"
        self._sweep()
        self._create(name, attempt)
        remove = [self._program, "rm", "--force", "--volumes", name]
        try:
            self._copy_in(name, attempt)
            start = [self._program, "start", "--attach", name]
            code = run_kept(attempt, start, env=os.environ, cwd=self._root, cleanup=remove)
            self._copy_out(name, attempt)
            return code
        finally:
            subprocess.run(remove, capture_output=True, check=False)

    def _check_image(self, image: str) -> None:
        try:
            try:
                user = self._call("image", "inspect", "--format", "{{.Config.User}}", image)
            except StepFailed:
                self._call("pull", "--quiet", image)
                user = self._call("image", "inspect", "--format", "{{.Config.User}}", image)
        except StepFailed as e:
            raise ConfigurationError(
                f"--docker: the image {image} is neither here nor can it be pulled ({e}); build it, such as by make"
                f" image IMAGE={image}, or compile with another kubeflow.image"
            ) from e
        if user.strip().partition(":")[0] in _ROOT_USERS:
            raise ConfigurationError(
                f"--docker: the image {image} runs as root, which Kubeflow's pods may not (runAsNonRoot); end its"
                " Dockerfile with USER and a number, such as USER 10001"
            )

    def _sweep(self) -> None:
        """Removes what a killed emulation of this root left; the root's lock is held by now."""
        if not self._swept:
            left = self._call("ps", "--all", "--quiet", "--filter", f"label={_LABEL}={self._root}").split()
            if left:
                self._call("rm", "--force", "--volumes", *left)
            self._swept = True

    def _create(self, name: str, attempt: Attempt) -> None:
        env = {**attempt.pod.env, **attempt.env}
        arguments = ["create", "--name", name, "--label", f"{_LABEL}={self._root}", "--init", "--network", "host"]
        arguments += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        for folder in _SCRATCH:
            arguments += ["--volume", folder]
        if self._store_dir is not None:
            _open_up(self._store_dir)
            arguments += ["--volume", f"{self._store_dir}:{_STORE_MOUNT}"]
            env["LOCKSTEP_STORE_DIR"] = _STORE_MOUNT
        for volume in attempt.pod.volumes:
            arguments += _volume_arguments(volume)
        for variable in env:  # by name alone: a value on the command line could be seen by every user
            arguments += ["--env", variable]
        command, *rest = attempt.command
        self._call(*arguments, "--entrypoint", command, attempt.task.image, *rest, env=env)

    def _copy_in(self, name: str, attempt: Attempt) -> None:
        """Copies what the launcher prepared, open to every user: in a pod it is the container's that has made it."""
        for folder in _SCRATCH:
            (attempt.container_dir / folder[1:]).mkdir(exist_ok=True)
        with subprocess.Popen(
            [self._program, "cp", "-", f"{name}:/"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        ) as copy:
            assert copy.stdin is not None
            assert copy.stderr is not None
            # What the engine refuses is in its own words below.
            with contextlib.suppress(BrokenPipeError), tarfile.open(fileobj=copy.stdin, mode="w|") as tar:
                for entry in sorted(attempt.container_dir.iterdir()):
                    tar.add(entry, arcname=entry.name, filter=_open_member)
            with contextlib.suppress(BrokenPipeError):
                copy.stdin.close()
            said = copy.stderr.read().decode(errors="replace").strip()
        if copy.returncode:
            raise StepFailed(f"{self._program} cp: {said}")

    def _copy_out(self, name: str, attempt: Attempt) -> None:
        for path in attempt.outputs:
            target = attempt.container_dir / path.lstrip("/")
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._call("cp", f"{name}:{path}", str(target))
            except StepFailed as e:
                if "Could not find" not in str(e) and "No such" not in str(e):
                    raise

    def _call(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Returns what the engine says; raises StepFailed with its complaint."""
        done = subprocess.run(
            [self._program, *arguments],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said: Sequence[str] = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise StepFailed(f"{self._program} {arguments[0]}: {said[-1]}")
        return done.stdout


def _volume_arguments(volume: Volume) -> list[str]:
    if volume.source_dir is None:
        if volume.mount_path.rstrip("/") == "/dev/shm":  # noqa: S108 - of a container
            return ["--shm-size", "1g"]
        return ["--mount", f"type=tmpfs,destination={volume.mount_path},tmpfs-mode=1777"]
    if not volume.read_only:
        volume.source_dir.mkdir(parents=True, exist_ok=True)
        volume.source_dir.chmod(0o777)
    return ["--volume", f"{volume.source_dir}:{volume.mount_path}{':ro' if volume.read_only else ''}"]


def _open_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    if member.name == "tmp":
        member.mode = 0o1777
    else:
        member.mode = 0o777 if member.isdir() else 0o666
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _open_up(folder: pathlib.Path) -> None:
    """Lets every user write below a folder, as an emptyDir does, and as the launcher in the pod would."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink() and path.stat().st_uid == os.getuid():
            path.chmod(0o777 if path.is_dir() else 0o666)
