"""Sets up the environment in `.venv`: `make setup` calls this. Needs any Python from 3.8, and nothing installed.

It chooses the dependency line and its Python (interpreters.py), installs the lock with its hashes, then Lockstep itself
as a strict editable install (installers.py). It is safe to kill, to repeat and to run twice at once: one set-up works
at a time, and a stamp, written last, tells the next one what is done already.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import sys
import time
from typing import Dict, Iterator, List, NamedTuple, Optional

import installers
import interpreters
from installers import BUILD_CONSTRAINTS, CACHE, REPOSITORY, REQUIREMENTS, Runner, SetupFailed

PACKAGE_FOLDERS = ("components", "pipelines", "transforms")
LOCKS = {"runtime": REQUIREMENTS / "lock.txt", "dev": REQUIREMENTS / "dev-lock.txt"}


class Options(NamedTuple):
    """What to set up, and where."""

    venv_dir: pathlib.Path
    lock: str  # a key of LOCKS
    wheel: Optional[pathlib.Path]  # None: this source tree, as a strict editable install
    python: Optional[str]  # None: chosen among those of the machine
    installer: str  # "auto", "uv" or "pip"


def set_up(options: Options, lock_fd: int) -> str:
    """Brings the environment up to date and returns one line that says what it is.

    Raises:
      SetupFailed, interpreters.NothingSuitable: with what to do about it.
    """
    stamp_path = options.venv_dir / "lockstep-setup.json"
    stamp = _read_stamp(stamp_path)
    environment_key, sources_key = _environment_key(options, stamp), _sources_key(options)
    same_environment = stamp.get("environment") == environment_key
    if same_environment and stamp.get("sources") == sources_key and _links_exist(options):
        return "Environment {}: up to date ({}).".format(_show(options.venv_dir), stamp["description"])

    CACHE.mkdir(exist_ok=True)
    run = Runner(CACHE / "setup.log", lock_fd)
    start_s = time.monotonic()
    if same_environment:
        installer = installers.find(options.installer, run, options.venv_dir, stamp["python"])
        stamp.pop("sources", None)
        _write_stamp(stamp_path, stamp)  # should this one be killed half-way, the next one starts over
        _say("Installing Lockstep again: its set of files has changed.")
    else:
        choice = _choose(options)
        _say(f"Line {choice.line.name} ({choice.line.versions}) on {choice.interpreter}.")
        _say(f"Why: {choice.reason}.")
        installer = installers.find(options.installer, run, options.venv_dir, choice.interpreter.path)
        _say(f"Installing the locked packages with {installer.name}: {installer.expectation} ...")
        stamp_path.unlink(missing_ok=True)
        installer.make_environment(choice.interpreter.path)
        installer.install_lock(LOCKS[options.lock])
        stamp = {"python": choice.interpreter.path, "description": f"line {choice.line.name}, {choice.interpreter}"}
    installer.install_lockstep(options.wheel)
    stamp["environment"] = _environment_key(options, stamp)
    stamp["sources"] = sources_key
    _write_stamp(stamp_path, stamp)
    return "Environment {}: ready after {:.0f} s ({}).".format(
        _show(options.venv_dir), time.monotonic() - start_s, stamp["description"]
    )


def _choose(options: Options) -> interpreters.Choice:
    problem = interpreters.wrong_platform()
    if problem is not None:
        raise SetupFailed(problem)
    if options.python is not None:
        path = shutil.which(options.python)
        found = interpreters.find([path] if path else [])
        if not found:
            raise SetupFailed(f"the Python that was asked for does not run: {options.python}")
    else:
        found = interpreters.find(interpreters.candidates(dict(os.environ)))
    choice = interpreters.choose(found)
    problem = interpreters.missing_compiler(choice.interpreter, dict(os.environ))
    if problem is not None:
        raise SetupFailed(f"{problem}. One package of TFX's has to be compiled.")
    return choice


def _environment_key(options: Options, stamp: Dict[str, str]) -> str:
    """What the installed packages follow from; another key than the stamp's means to make the environment anew."""
    python = stamp.get("python")
    if python is None or not (options.venv_dir / "bin" / "python").exists():
        return "none"
    if options.python is not None:
        asked = interpreters.find([shutil.which(options.python) or options.python])
        if not asked or os.path.realpath(asked[0].path) != os.path.realpath(python):
            return "another interpreter"
    interpreter = os.stat(python)
    facts = [
        _hash_of(LOCKS[options.lock]),
        _hash_of(BUILD_CONSTRAINTS),
        os.path.realpath(python),
        str(interpreter.st_size),
        str(interpreter.st_mtime_ns),
        # A folder that moved has scripts that start with the old path.
        str(options.venv_dir),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _sources_key(options: Options) -> str:
    """What Lockstep's own installation follows from.

    A strict editable install links single files: their content may change freely, a new or a removed file needs the
    installation again.
    """
    if options.wheel is not None:
        return _hash_of(options.wheel)
    paths = sorted(
        str(path.relative_to(REPOSITORY))
        for folder in PACKAGE_FOLDERS
        for path in (REPOSITORY / folder).rglob("*")
        if "__pycache__" not in path.parts
    )
    return hashlib.sha256("\n".join([_hash_of(REPOSITORY / "setup.py"), *paths]).encode()).hexdigest()


def _links_exist(options: Options) -> bool:
    """Whether the folder of links that an editable install imports from is there."""
    return options.wheel is not None or any((REPOSITORY / "build").glob("__editable__.*"))


def _read_stamp(path: pathlib.Path) -> Dict[str, str]:
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    usable = isinstance(stamp, dict) and os.path.exists(str(stamp.get("python")))
    return stamp if usable else {}


def _write_stamp(path: pathlib.Path, stamp: Dict[str, str]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(stamp, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(str(partial), str(path))


@contextlib.contextmanager
def one_at_a_time() -> Iterator[int]:
    """Waits for other set-ups from this source tree; yields the descriptor that holds the lock."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Another set-up is at work; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _hash_of(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _show(path: pathlib.Path) -> str:
    return os.path.relpath(str(path)) if REPOSITORY in path.parents else str(path)


def _say(text: str) -> None:
    print(text, flush=True)


def _parse(arguments: List[str]) -> Options:
    parser = argparse.ArgumentParser(description="Sets up Lockstep's environment.")
    parser.add_argument("--venv", type=pathlib.Path, default=REPOSITORY / ".venv", help="where (default: .venv)")
    parser.add_argument("--lock", choices=sorted(LOCKS), default="dev", help="packages to install (default: dev)")
    parser.add_argument(
        "--wheel", type=pathlib.Path, help="install Lockstep from this wheel, not from this source tree"
    )
    parser.add_argument("--python", help="the Python to use (default: the best one that the machine has)")
    parser.add_argument(
        "--installer", choices=("auto", "uv", "pip"), default="auto", help="default: uv where it can be had"
    )
    parsed = parser.parse_args(arguments)
    return Options(
        venv_dir=pathlib.Path(os.path.abspath(str(parsed.venv))),
        lock=parsed.lock,
        wheel=parsed.wheel and pathlib.Path(os.path.abspath(str(parsed.wheel))),
        python=parsed.python or None,
        installer=parsed.installer,
    )


def main(arguments: List[str]) -> int:
    """Sets up as `arguments` say; 0 if the environment is ready, 2 if the machine lacks something."""
    options = _parse(arguments)
    try:
        with one_at_a_time() as lock_fd:
            _say(set_up(options, lock_fd))
    except (SetupFailed, interpreters.NothingSuitable, OSError) as e:
        print(f"Set-up: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
