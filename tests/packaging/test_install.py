"""The set-up script as a process: it runs one at a time and fails quickly and plainly."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import installers
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A source tree with the set-up script and one package folder, and nothing set up."""
    shutil.copytree(
        REPOSITORY / "requirements", tmp_path / "requirements", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(REPOSITORY / "setup.py", tmp_path)
    for folder in ("components", "pipelines", "transforms"):
        (tmp_path / folder).mkdir()
    return tmp_path


def start(checkout: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    """The script of `checkout`, with what it prints readable."""
    return subprocess.Popen(
        [sys.executable, str(checkout / "requirements" / "install.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_python_that_does_not_run_ends_set_up_with_2(checkout: pathlib.Path) -> None:
    """One line says which Python was asked for; no environment is left behind."""
    process = start(checkout, "--python", "/nowhere/python")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stderr.strip() == "Set-up: the Python that was asked for does not run: /nowhere/python"
    assert not (checkout / ".venv").exists()


def test_a_second_set_up_waits_for_the_first(checkout: pathlib.Path) -> None:
    """While the lock is held, the script says that it waits; it goes on as soon as the lock is free."""
    (checkout / ".cache").mkdir()
    with (checkout / ".cache" / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(checkout, "--python", "/nowhere/python")
        assert process.stdout is not None
        assert process.stdout.readline() == "Another set-up is at work; waiting for it ...\n"
        assert process.poll() is None
    process.communicate(timeout=60)
    assert process.returncode == 2


def test_a_failing_installer_is_reported_with_the_end_of_its_output(tmp_path: pathlib.Path) -> None:
    """The message has the installer's last words and the path of the whole log; the log keeps the command."""
    run = installers.Runner(tmp_path / "log", os.open(tmp_path, os.O_RDONLY))
    with pytest.raises(installers.SetupFailed, match=r"sh ended with exit code 3:\n(.*\n)*  no such package\n"):
        run(["sh", "-c", "echo no such package >&2; exit 3"])
    assert (tmp_path / "log").read_text(encoding="utf-8").startswith("$ sh -c ")


def test_an_installer_does_not_see_another_environment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that would send packages elsewhere are kept from it; those that name a registry are not."""
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "registry")
    run = installers.Runner(tmp_path / "log", os.open(tmp_path, os.O_RDONLY))
    run(["sh", "-c", 'echo "[$PIP_TARGET][$VIRTUAL_ENV][$PIP_INDEX_URL][$MORE]"'], MORE="more")
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines()[-1] == "[][][registry][more]"


def test_the_lock_of_set_up_outlives_a_killed_script(tmp_path: pathlib.Path) -> None:
    """The installer that a killed set-up leaves behind still holds the lock, so no other one works beside it."""
    script = (
        "import fcntl, sys, installers, pathlib\n"
        "lock = open(sys.argv[1], 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "run = installers.Runner(pathlib.Path(sys.argv[1] + '.log'), lock.fileno())\n"
        "run(['sh', '-c', 'echo $$ > ' + sys.argv[2] + '; exec cat ' + sys.argv[2]])\n"
    )
    lock_path, fifo = tmp_path / "lock", tmp_path / "fifo"
    os.mkfifo(fifo)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "requirements")}
    process = subprocess.Popen([sys.executable, "-c", script, str(lock_path), str(fifo)], env=environment)
    with fifo.open() as reader:
        assert int(reader.readline()) > 0
    process.kill()
    process.wait(timeout=60)
    with lock_path.open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with fifo.open("w") as writer:
            writer.write("the installer ends when it reads the end of this")
        fcntl.flock(lock, fcntl.LOCK_EX)
