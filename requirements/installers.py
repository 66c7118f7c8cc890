"""The two that can fill an environment, uv and pip, and where they come from. Standard library, Python 3.8."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
from typing import List, Optional, Tuple

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
REQUIREMENTS = REPOSITORY / "requirements"
CACHE = REPOSITORY / ".cache"
BUILD_CONSTRAINTS = REQUIREMENTS / "build-constraints.txt"
TOOLS = REQUIREMENTS / "tools.txt"

# Older ones lack an option that is used here.
MIN_UV = (0, 5)

# What points at another environment would send packages there.
_UNWANTED_VARIABLES = (
    *("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "UV_TARGET", "UV_PREFIX"),
)


class SetupFailed(Exception):
    """The set-up cannot go on; the message is for the person at the console."""


class Runner:
    """Runs the installers: their output goes to a log, and its end into the error if one fails."""

    def __init__(self, log_path: pathlib.Path, lock_fd: int):
        self._log_path = log_path
        self._lock_fd = lock_fd
        log_path.write_bytes(b"")

    def __call__(self, command: List[str], **settings: str) -> None:
        """Runs `command` in the repository; `settings` are further environment variables.

        Raises:
          SetupFailed: it cannot be started or does not end with exit code 0.
        """
        environment = {name: value for name, value in os.environ.items() if name not in _UNWANTED_VARIABLES}
        environment.update(settings)
        with self._log_path.open("ab") as log:
            log.write("$ {}\n".format(" ".join(command)).encode())
            log.flush()
            # The child holds the lock too: should this process be killed, the next set-up waits for the child's end.
            code = subprocess.call(
                command,
                cwd=str(REPOSITORY),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._lock_fd,),
            )
        if code != 0:
            end = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            raise SetupFailed(
                "{} ended with exit code {}:\n  {}\nAll of its output is in {}.".format(
                    pathlib.Path(command[0]).name, code, "\n  ".join(end), self._log_path
                )
            )


class Installer:
    """uv or pip: both make an environment without pip in it and install the same files into it."""

    def __init__(self, run: Runner, venv_dir: pathlib.Path, uv: Optional[str], pip_python: Optional[str]):
        self._run = run
        self._uv = uv
        self._pip_python = pip_python
        self._venv_dir = venv_dir
        self._python = str(venv_dir / "bin" / "python")

    @property
    def name(self) -> str:
        """As messages show it."""
        return "uv" if self._uv else "pip"

    @property
    def expectation(self) -> str:
        """How long the whole lock takes it."""
        return "about a minute" if self._uv else "some minutes"

    def make_environment(self, python: str) -> None:
        """Makes the environment anew on the interpreter at `python`."""
        if self._venv_dir.exists():
            shutil.rmtree(self._venv_dir)
        if self._uv:
            self._run([self._uv, "venv", "--quiet", "--no-project", "--python", python, str(self._venv_dir)])
        else:
            self._run([python, "-m", "venv", "--without-pip", str(self._venv_dir)])

    def install_lock(self, lock_path: pathlib.Path) -> None:
        """Installs exactly what the lock lists, checked against its hashes, with bytecode."""
        options = ["--no-deps", "--require-hashes", "--requirement", str(lock_path)]
        if self._uv:
            constraints = ["--build-constraints", str(BUILD_CONSTRAINTS)]
            self._run([*self._uv_install(), "--compile-bytecode", *constraints, *options])
        else:
            self._run([*self._pip_install(), *options], PIP_BUILD_CONSTRAINT=str(BUILD_CONSTRAINTS))

    def install_lockstep(self, wheel: Optional[pathlib.Path]) -> None:
        """Installs Lockstep: the wheel, or this source tree as a strict editable install."""
        if wheel is None:
            # No isolation: setuptools is in the environment, and an isolated build would fetch it again.
            options = ["--no-deps", "--no-build-isolation", "--config-settings", "editable_mode=strict"]
            target = ["--editable", str(REPOSITORY)]
        else:
            options, target = ["--no-deps"], [str(wheel)]
        install = self._uv_install() if self._uv else self._pip_install()
        reinstall = "--reinstall" if self._uv else "--force-reinstall"
        self._run([*install, reinstall, *options, *target])

    def _uv_install(self) -> List[str]:
        return [str(self._uv), "pip", "install", "--quiet", "--python", self._python]

    def _pip_install(self) -> List[str]:
        quiet = ["--disable-pip-version-check", "--no-input"]
        return [str(self._pip_python), "-m", "pip", "--python", self._python, "install", *quiet]


def find(wanted: str, run: Runner, venv_dir: pathlib.Path, python: str) -> Installer:
    """The installer for the environment in `venv_dir`.

    Args:
      wanted: "uv", "pip", or "auto" for uv where it can be had.
      run: runs its commands, and those that install it where necessary.
      venv_dir: where the environment is, or will be.
      python: an interpreter with a venv module.

    Raises:
      SetupFailed: the one that was wanted cannot be had, or neither.
    """
    if wanted != "pip":
        try:
            return Installer(run, venv_dir, uv=find_uv(run, python), pip_python=None)
        except SetupFailed:
            if wanted == "uv":
                raise
    return Installer(run, venv_dir, uv=None, pip_python=_install_tool("pip", run, python))


def find_uv(run: Runner, python: str) -> str:
    """A uv that runs: from the path, or from the cache, into which it is installed if necessary.

    Raises:
      SetupFailed: it cannot be had.
    """
    on_path = shutil.which("uv")
    if on_path is not None and _uv_version(on_path) >= MIN_UV:
        return on_path
    uv = str(pathlib.Path(_install_tool("uv", run, python)).with_name("uv"))
    if _uv_version(uv) < MIN_UV:
        raise SetupFailed(f"uv was installed and does not run: {uv}")
    return uv


def _install_tool(name: str, run: Runner, python: str) -> str:
    """Installs `name` as tools.txt pins it into the cache's own environment, and returns that environment's Python."""
    tools_dir = _tools_dir()
    tools_python = tools_dir / "bin" / "python"
    done_path = tools_dir / f"{name}.done"
    made_path = tools_dir / "made"
    if not (made_path.exists() and tools_python.exists()):
        run([python, "-m", "venv", "--clear", str(tools_dir)])
        made_path.touch()
    if not done_path.exists():
        wanted = tools_dir / f"{name}.txt"
        wanted.write_text(_entry(TOOLS.read_text(encoding="utf-8"), name), encoding="utf-8")
        run([str(tools_python), "-m", "pip", "install", "--no-deps", "--require-hashes", "--requirement", str(wanted)])
        done_path.touch()
    return str(tools_python)


def _entry(lock: str, name: str) -> str:
    """The lines of one package in the text of a lock."""
    match = re.search(rf"^{re.escape(name)}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    if match is None:
        raise SetupFailed(f"{TOOLS} does not pin {name}; run `make lock`")
    return match.group()


def _tools_dir() -> pathlib.Path:
    return CACHE / f"tools-{hashlib.sha256(TOOLS.read_bytes()).hexdigest()[:8]}"


def _uv_version(uv: str) -> Tuple[int, ...]:
    """Its version; (0,) if it does not run, as a shim may not."""
    try:
        said = subprocess.check_output([uv, "--version"], stderr=subprocess.DEVNULL, timeout=10).decode()
    except (OSError, subprocess.SubprocessError):
        return (0,)
    return tuple(int(part) for part in re.findall(r"\d+", said)[:2]) or (0,)
