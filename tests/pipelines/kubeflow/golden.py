"""The golden packages: whole packages as they are compiled, but for versions and fingerprints. ``make golden``."""

import json
import os
import pathlib
import re
import subprocess
import sys

from lockstep.pipelines.kubeflow.package import Package

GOLDEN_DIR = pathlib.Path(__file__).parents[2] / "golden"
SOURCES = {"taxi": "taxi", "every_key": str(pathlib.Path(__file__).parent / "every_key" / "pipeline.yaml")}
_COMPILE = "import sys; from lockstep.pipelines.cli import main; sys.exit(main())"


def compile_to(
    path: pathlib.Path, source: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Compiles as a user does, in a process and a folder of its own."""
    return subprocess.run(
        [sys.executable, "-c", _COMPILE, "compile", source, "-o", str(path), *arguments],
        cwd=path.parent,
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def normalised(package: Package) -> Package:
    """Returns the package without what differs from release to release and from edit to edit."""
    text = json.dumps(package.spec)
    text = re.sub(r"--code_fingerprint=[0-9a-f]{64,}", "--code_fingerprint=CODE", text)
    text = re.sub(r'"sdkVersion": "tfx-[^"]*"', '"sdkVersion": "tfx-VERSION"', text)
    text = re.sub(r'"image": "lockstep:[^"]*"', '"image": "lockstep:VERSION"', text)
    return Package(spec=json.loads(text), platform=package.platform)


def main() -> None:
    """Writes all golden packages anew."""
    GOLDEN_DIR.mkdir(exist_ok=True)
    for name, source in SOURCES.items():
        path = GOLDEN_DIR / f"{name}.yaml"
        done = compile_to(path, source)
        if done.returncode:
            sys.exit(done.stderr)
        normalised(Package.read(path)).write(path)


if __name__ == "__main__":
    main()
