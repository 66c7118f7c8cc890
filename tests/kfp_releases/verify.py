"""Asks the two newest kfp releases whether they take packages: ``make verify-kfp``.

Each release is installed into an environment of its own under ``.cache``, once; that needs the package index.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import installers

RELEASES = ("2.16.1", "2.17.3")
_PARSE = pathlib.Path(__file__).with_name("parse.py")
_GOLDEN_DIR = pathlib.Path(__file__).parents[1] / "golden"


def environment(release: str) -> pathlib.Path:
    """Returns the folder of a release's environment; it need not be there."""
    return installers.CACHE / f"kfp-{release}"


def install(release: str) -> None:
    """Makes a release's environment where it is absent; one that was cut off is made anew."""
    stamp = environment(release) / "complete"
    if stamp.exists():
        return
    installers.CACHE.mkdir(exist_ok=True)
    with (installers.CACHE / "lock-kfp").open("w") as lock:
        run = installers.Runner(installers.CACHE / f"kfp-{release}.log", lock.fileno())
        uv = installers.find_uv(run, sys.executable)
        run([uv, "venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, str(environment(release))])
        names = ("kfp", "kfp-kubernetes", "kfp-pipeline-spec", "kfp-server-api")
        pinned = [f"{name}=={release}" for name in names]
        run([uv, "pip", "install", "--quiet", "--python", str(_python(release)), *pinned, "protobuf>=6.33,<7"])
    stamp.touch()


def ask(release: str, paths: Sequence[pathlib.Path]) -> dict[str, Any]:
    """Returns what ``parse.py`` prints in a release's environment."""
    printed = subprocess.run(
        [str(_python(release)), "-I", str(_PARSE), *map(str, paths)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return answer


def main(arguments: Sequence[str]) -> int:
    """Prints, for each package and release, whether it is taken and why not; returns 1 if any is refused."""
    paths = [pathlib.Path(argument) for argument in arguments] or sorted(_GOLDEN_DIR.glob("*.yaml"))
    refused = 0
    for release in RELEASES:
        install(release)
        for path, reason in ask(release, paths)["refused"].items():
            sys.stdout.write(f"kfp {release}: {path}: {f'REFUSED: {reason}' if reason else 'accepted'}\n")
            refused += bool(reason)
    return 1 if refused else 0


def _python(release: str) -> pathlib.Path:
    return environment(release) / "bin" / "python"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
