"""What runs one attempt of a task: a process of this machine here; ``docker.py`` has containers."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.kubeflow.emulator import keeper as keeper_module
from lockstep.pipelines.kubeflow.emulator.pod import Pod
from lockstep.pipelines.kubeflow.emulator.workload import Task

_KEEPER = pathlib.Path(__file__).with_name("keeper.py")
_GRACE_S = 30.0  # as Kubernetes
_POLL_S = 0.1
# What makes this machine's Python work. The rest of the user's environment is not in a container either.
_PASSED = (
    *("LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
# What the image sets: see Dockerfile.
_IMAGE_ENV = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of a task's command.

    Args:
      task: The task.
      pod: What its pod has.
      container_dir: Folder of this machine; what the launcher downloaded is below it, as it would be below ``/``.
      command: The command, placeholders replaced.
      outputs: Paths in the container, of the folders and files that the launcher reads afterwards.
      env: Further environment variables.
      log_path: Where output and errors go, appended.
      timeout_s: Seconds after which the attempt is ended; None is never.
      show: Called with what was written to the log since the last call.
    """

    task: Task
    pod: Pod
    container_dir: pathlib.Path
    command: Sequence[str]
    outputs: Sequence[str]
    env: Mapping[str, str]
    log_path: pathlib.Path
    timeout_s: float | None
    show: Callable[[bytes], None]


class Engine(Protocol):
    """Where commands run."""

    def check(self, pods: Mapping[str, tuple[Task, Pod]]) -> None:
        """Looks, before anything starts, whether every task could run.

        Raises:
          ConfigurationError: One could not; the message says what to do.
        """

    def root(self, container_dir: pathlib.Path) -> pathlib.Path:
        """Returns what a command takes for ``/`` where files of KFP's launcher are concerned."""

    def run(self, attempt: Attempt) -> int:
        """Runs a command to its end; returns its exit code, 128 and the signal's number where a signal ended it.

        Nothing of it runs on when this returns or raises, nor when this process is killed.
        """


class Processes:
    """Runs commands as processes of this machine.

    Args:
      working_dir: Stands for the image's working folder; None is an empty one.
      environ: The emulator's environment.
      store_dir: The object store, where it is a folder.
    """

    def __init__(
        self,
        *,
        working_dir: pathlib.Path | None = None,
        store_dir: pathlib.Path | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._working_dir = working_dir
        self._store_dir = store_dir
        self._environ = environ

    def check(self, pods: Mapping[str, tuple[Task, Pod]]) -> None:
        """See ``Engine``: a volume must be mounted here already, since a process cannot have a root of its own."""
        if self._working_dir is not None and not self._working_dir.is_dir():
            raise ConfigurationError(f"--working-dir {self._working_dir}: no such folder")
        for task, pod in pods.values():
            for volume in pod.volumes:
                if not os.access(volume.mount_path, os.R_OK if volume.read_only else os.R_OK | os.W_OK):
                    raise ConfigurationError(
                        f"task {task.name} mounts {volume.kind} at {volume.mount_path}, which no process can do by"
                        " itself; give --docker, or make that folder on this machine, which then stands for it"
                    )

    def root(self, container_dir: pathlib.Path) -> pathlib.Path:
        """See ``Engine``."""
        return container_dir

    def run(self, attempt: Attempt) -> int:
        """See ``Engine``."""
        home_dir = attempt.container_dir / "home"
        home_dir.mkdir(parents=True, exist_ok=True)
        return run_kept(attempt, attempt.command, env=self._env(attempt, home_dir), cwd=self._working_dir or home_dir)

    def _env(self, attempt: Attempt, home_dir: pathlib.Path) -> dict[str, str]:
        env = {name: self._environ[name] for name in _PASSED if name in self._environ}
        python_path = [
            str(pathlib.Path(entry).absolute()) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry
        ]
        if python_path:
            env["PYTHONPATH"] = os.pathsep.join(python_path)
        path = [str(pathlib.Path(sys.executable).parent), self._environ.get("PATH", os.defpath)]
        env |= {**_IMAGE_ENV, "PATH": os.pathsep.join(path), "HOME": str(home_dir)}
        env["LOCKSTEP_CONTAINER_DIR"] = str(attempt.container_dir)
        if self._store_dir is not None:
            env["LOCKSTEP_STORE_DIR"] = str(self._store_dir)
        return {**env, **attempt.pod.env, **attempt.env}


def run_kept(
    attempt: Attempt,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: pathlib.Path,
    cleanup: Sequence[str] = (),
) -> int:
    """Runs a command under a keeper, which ends every process of it when it ends or this process is gone.

    Args:
      attempt: Whose command it is: its log, its deadline.
      command: What is started.
      env: Its environment, all of it.
      cwd: Its working folder.
      cleanup: A command for the keeper where it ends the command before its time.

    Raises:
      StepFailed: The system starts no process: an argument is too long, or there is no memory.
    """
    # A keeper that is killed cannot end what it kept: its processes then come to this one.
    keeper_module.adopt_orphans()
    spared = keeper_module.children()
    request = json.dumps({"command": list(command), "cleanup": list(cleanup), "grace_s": _GRACE_S})
    with attempt.log_path.open("ab") as log:
        try:
            keeper = subprocess.Popen(
                [sys.executable, "-I", str(_KEEPER), request],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as e:
            raise StepFailed(f"the command cannot be started: {e.strerror}") from e
    try:
        return _follow(keeper, attempt)
    finally:
        _end(keeper)
        if keeper.returncode == -signal.SIGKILL:
            keeper_module.end_descendants(spared)


def _follow(keeper: "subprocess.Popen[bytes]", attempt: Attempt) -> int:
    begin = time.monotonic()
    with attempt.log_path.open("rb") as log:
        while True:
            ended = keeper.poll() is not None
            attempt.show(log.read())
            if ended:
                code = keeper.returncode
                return code if code >= 0 else 128 - code
            if attempt.timeout_s is not None and time.monotonic() - begin > attempt.timeout_s:
                raise StepFailed(f"ended after {attempt.timeout_s:.0f} s, its deadline in the package")
            time.sleep(_POLL_S)


def _end(keeper: "subprocess.Popen[bytes]") -> None:
    """Returns when the keeper, and with it everything below, has ended; a further interrupt does not shorten that."""
    assert keeper.stdin is not None
    keeper.stdin.close()
    while keeper.returncode is None:
        with contextlib.suppress(KeyboardInterrupt):
            keeper.wait()


def empty_folder(path: pathlib.Path) -> pathlib.Path:
    """Returns a path of an empty folder: what was there is removed."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def describe_exit(code: int) -> str:
    """Returns an exit code in words."""
    if code > 128:
        try:
            name = signal.Signals(code - 128).name
        except ValueError:
            return f"exit code {code}"
        return f"exit code {code} ({name}{'; perhaps no memory was left' if name == 'SIGKILL' else ''})"
    return f"exit code {code}"


def as_json(document: Any) -> str:
    """Returns a document for a person to read."""
    return json.dumps(document, indent=2, sort_keys=True)
