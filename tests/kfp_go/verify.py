"""Asks Kubeflow's own server code and Argo's validation, in Go, whether they take packages: ``make verify-kfp``.

The modules come by Go's own client, which checks them by ``go.sum``; the program is built into ``.cache``, once.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

import installers

_SOURCE = pathlib.Path(__file__).parent
_GOLDEN_DIR = pathlib.Path(__file__).parents[1] / "golden"


def binary() -> pathlib.Path:
    """Returns where the program of these sources is; it need not be there."""
    sources = b"".join((_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    return installers.CACHE / f"kfp-go-{hashlib.sha256(sources).hexdigest()[:8]}"


def build(go: str) -> None:
    """Builds the program where it is absent."""
    target = binary()
    if target.exists():
        return
    installers.CACHE.mkdir(exist_ok=True)
    sys.stdout.write("Go: building; the first time it downloads Kubeflow's modules and takes minutes\n")
    sys.stdout.flush()
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        subprocess.run(
            [go, "build", "-mod=readonly", "-ldflags=-s -w", "-o", str(partial), "."], cwd=_SOURCE, check=True
        )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def ask(paths: Sequence[pathlib.Path]) -> dict[pathlib.Path, str]:
    """Returns why each package is refused; empty text where it is accepted."""
    printed = subprocess.run(
        [str(binary()), *map(str, paths)], check=False, capture_output=True, text=True, timeout=250
    )
    lines = printed.stdout.splitlines()
    if len(lines) != len(paths):
        raise RuntimeError(f"{len(paths)} packages, {len(lines)} answers: {printed.stderr}")
    answers = {}
    for path, line in zip(paths, lines, strict=True):
        answer = line.partition(f": {path}: ")[2]
        answers[path] = "" if answer == "accepted" else answer.removeprefix("REFUSED: ")
    return answers


def main(arguments: Sequence[str]) -> int:
    """Prints, for each package, whether it is taken and why not; returns 1 if any is refused."""
    go = shutil.which("go")
    if go is None:
        sys.stderr.write(
            "NOT RUN: Kubeflow's compiler and Argo's validation, the half of make verify-kfp in Go; 'go' is absent\n"
        )
        return 0
    try:
        build(go)
    except subprocess.CalledProcessError as e:
        sys.stderr.write(f"Go: the build failed with status {e.returncode}; its modules come from GOPROXY\n")
        return 1
    paths = [pathlib.Path(argument) for argument in arguments] or sorted(_GOLDEN_DIR.glob("*.yaml"))
    return subprocess.run([str(binary()), *map(str, paths)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
