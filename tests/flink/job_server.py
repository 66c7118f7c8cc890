"""Fetches Beam's Flink job server by Maven into ``.cache``: ``make test-flink``.

The jar that is started holds nothing but the names of the others, and what Java 17 must allow Flink.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import installers

_POM = pathlib.Path(__file__).with_name("pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
_MAIN_CLASS = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# Flink serialises objects of the JDK by their private fields.
_OPEN_PACKAGES = (
    *("java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.math"),
    *("java.base/java.io", "java.base/java.net", "java.base/java.nio", "java.base/sun.nio.ch"),
    *("java.base/java.text", "java.base/java.time", "java.base/java.util", "java.base/java.util.concurrent"),
    *("java.base/java.util.concurrent.atomic", "java.base/java.util.concurrent.locks"),
)
_LOGGING = "org.slf4j.simpleLogger.defaultLogLevel=warn\n"


def jar() -> pathlib.Path:
    """Returns where the job server is; it need not be there."""
    return installers.CACHE / f"flink-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]}" / "job-server.jar"


def fetch(maven: str) -> None:
    """Fetches the job server where it is absent."""
    target = jar()
    if target.exists():
        return
    sys.stdout.write("Flink: fetching Beam's job server; the first time this takes minutes\n")
    sys.stdout.flush()
    partial = target.parent.with_name(f"{target.parent.name}.{os.getpid()}.partial")
    try:
        # What Maven says goes to its log: thousands of lines, one for each file.
        partial.mkdir(parents=True)
        with (partial / "maven.log").open("w") as log:
            command = [maven, "-B", "-f", str(_POM), _COPY, f"-DoutputDirectory={partial / 'lib'}"]
            code = subprocess.run(command, check=False, stdout=log, stderr=log).returncode
        if code:
            lines = (partial / "maven.log").read_text().splitlines()
            raise SystemExit("\n".join([*(line for line in lines if line.startswith("[ERROR]")), "Maven failed"]))
        _write_jar(partial / target.name, sorted((partial / "lib").iterdir()))
        partial.replace(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_jar(path: pathlib.Path, jars: list[pathlib.Path]) -> None:
    headers = {
        "Manifest-Version": "1.0",
        "Main-Class": _MAIN_CLASS,
        "Add-Opens": " ".join(_OPEN_PACKAGES),
        "Class-Path": " ".join(f"lib/{jar.name}" for jar in jars),
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "".join(_header(*header) for header in headers.items()) + "\r\n")
        archive.writestr("simplelogger.properties", _LOGGING)


def _header(name: str, value: str) -> str:
    """Returns a header in lines of 70 characters, as a manifest needs it: Java allows 72 bytes."""
    text = f"{name}: {value}"
    rest = [text[begin : begin + 69] for begin in range(70, len(text), 69)]
    return "".join(f"{line}\r\n" for line in [text[:70], *(f" {line}" for line in rest)])


def main() -> int:
    """Returns 0 where the job server is there in the end, or where this machine has neither Java nor Maven."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if missing:
        sys.stdout.write(f"FLINK IS NOT TESTED: {' and '.join(missing)} not installed (Java 11 or 17, and Maven)\n")
        return 0
    fetch("mvn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
