"""Finds the Pythons of this machine and chooses one, and with it the dependency line. Standard library, Python 3.8."""

import json
import os
import pathlib
import platform
import shutil
import subprocess
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

Version = Tuple[int, int]

PROBE_TIMEOUT_S = 10

# Runs in the candidate: only it knows its C library, its headers, and whether it works at all (pyenv's shims do not).
# In a virtual environment the base interpreter counts: an environment made from another breaks with it.
_PROBE = """
import importlib.util, json, os, struct, sys, sysconfig
try:
    glibc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (AttributeError, ValueError, OSError):
    glibc = ""
in_venv = sys.prefix != sys.base_prefix
print(json.dumps({
    "path": os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2]) if in_venv else sys.executable,
    "version": list(sys.version_info[:3]),
    "implementation": sys.implementation.name,
    "bits": struct.calcsize("P") * 8,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "glibc": glibc.split(" ")[-1],
    "has_venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
    "include_dir": sysconfig.get_path("include"),
    "compilers": [(sysconfig.get_config_var(one) or other).split()[0] for one, other in (("CC", "cc"), ("CXX", "c++"))],
}))
"""


class Line(NamedTuple):
    """A set of versions that were tested together (docs/adr/0001-dependency-lines.md)."""

    name: str
    versions: str
    pythons: Tuple[Version, ...]  # best first
    min_glibc: Version


# The better line first.
LINES = (
    Line("B", "TFX 1.21, TensorFlow 2.21", ((3, 13), (3, 12), (3, 11)), (2, 39)),
    Line("A", "TFX 1.16, TensorFlow 2.16", ((3, 10),), (2, 17)),
)


class Interpreter(NamedTuple):
    """A Python that ran when it was asked what it is."""

    path: str
    version: Tuple[int, int, int]
    glibc: Optional[Version]  # None: another C library
    has_venv: bool
    include_dir: str
    compilers: Tuple[str, str]  # of C and C++: what builds of extensions call, unless CC and CXX say otherwise
    suitable: bool = True  # CPython with 64 bits and a global lock: the only builds that TensorFlow has wheels for

    @property
    def python(self) -> Version:
        """Major and minor version."""
        return self.version[:2]

    @property
    def has_headers(self) -> bool:
        """Whether C extensions can be built for it."""
        return os.path.isfile(os.path.join(self.include_dir, "Python.h"))

    def __str__(self) -> str:
        """Version and path, as messages show it."""
        return "Python {}.{}.{} ({})".format(*self.version, self.path)


class Choice(NamedTuple):
    """The interpreter to use, the line that it serves, and why not a better one."""

    interpreter: Interpreter
    line: Line
    reason: str


class NothingSuitable(Exception):
    """No line can be had on this machine; the message says what was found and what to install."""


def candidates(environment: Dict[str, str]) -> List[str]:
    """Paths that may be a Python of a version that a line serves, most promising first, none of them tried yet.

    Args:
      environment: the variables PATH, HOME and PYENV_ROOT are read from it.
    """
    minors = sorted({python for line in LINES for python in line.pythons}, reverse=True)
    names = ["python{}.{}".format(*minor) for minor in minors] + ["python3", "python"]
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    found = [os.path.join(folder, name) for name in names for folder in folders]
    home = pathlib.Path(environment.get("HOME") or os.path.expanduser("~"))
    pyenv_versions = pathlib.Path(environment.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv_pythons = home / ".local" / "share" / "uv" / "python"
    for major, minor in minors:
        name = f"python{major}.{minor}"
        found += [str(path) for path in sorted(pyenv_versions.glob(f"{major}.{minor}*/bin/{name}"))]
        found += [str(path) for path in sorted(uv_pythons.glob(f"cpython-{major}.{minor}.*/bin/{name}"))]
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def probe(path: str) -> Optional[Interpreter]:
    """What the Python at `path` says about itself; None if it does not run."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
        said = json.loads(done.stdout.decode())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Interpreter(
        path=said["path"],
        version=tuple(said["version"]),
        glibc=_parse_version(said["glibc"]),
        has_venv=said["has_venv"],
        include_dir=said["include_dir"],
        compilers=tuple(said["compilers"]),
        suitable=said["implementation"] == "cpython" and said["bits"] == 64 and not said["free_threaded"],
    )


def find(paths: Iterable[str]) -> List[Interpreter]:
    """The interpreters behind `paths` that run, each once."""
    found: Dict[str, Interpreter] = {}
    seen = set()
    for path in paths:
        real_path = os.path.realpath(path)
        if real_path in seen:
            continue
        # One file may stand behind many names, and act by its name, if it is a shim: then each name is tried.
        if "python" in os.path.basename(real_path):
            seen.add(real_path)
        interpreter = probe(path)
        if interpreter is not None:
            seen.add(os.path.realpath(interpreter.path))
            found.setdefault(os.path.realpath(interpreter.path), interpreter)
    return list(found.values())


def choose(interpreters: List[Interpreter]) -> Choice:
    """The best line that one of `interpreters` serves, on its newest Python.

    Raises:
      NothingSuitable: none of them serves a line.
    """
    for position, line in enumerate(LINES):
        for python in line.pythons:
            for interpreter in interpreters:
                if interpreter.python == python and obstacle(interpreter, line) is None:
                    return Choice(interpreter, line, _why_not_better(interpreters, LINES[:position]))
    raise NothingSuitable(_advice(interpreters))


def obstacle(interpreter: Interpreter, line: Line) -> Optional[str]:
    """Why `interpreter` cannot serve `line`; None if it can."""
    if interpreter.python not in line.pythons:
        return f"line {line.name} needs Python {_list_pythons(line)}"
    if not interpreter.suitable:
        return "not a 64-bit CPython with a global lock"
    if interpreter.glibc is None:
        return "its C library is not glibc"
    if interpreter.glibc < line.min_glibc:
        return f"glibc {_show(interpreter.glibc)} is older than {_show(line.min_glibc)}, which line {line.name} needs"
    if not interpreter.has_venv:
        package = f"python{_show(interpreter.python)}-venv"
        return f"it has no venv module with ensurepip (Debian and Ubuntu: apt-get install {package})"
    if not interpreter.has_headers:
        return f"it has no Python.h (Debian and Ubuntu: apt-get install python{_show(interpreter.python)}-dev)"
    return None


def missing_compiler(interpreter: Interpreter, environment: Dict[str, str]) -> Optional[str]:
    """What keeps a C++ extension for `interpreter` from compiling, with what to install; None if one compiles."""
    compilers = [environment.get(name) or own for name, own in zip(("CC", "CXX"), interpreter.compilers)]
    for compiler in compilers:
        if shutil.which(compiler.split()[0]) is None:
            return (
                f"the compiler {compiler} was not found (Debian and Ubuntu: apt-get install g++; Fedora and RHEL: "
                "dnf install gcc-c++; or name another one in CC and CXX)"
            )
    compiled = subprocess.run(
        [*compilers[1].split(), "-fsyntax-only", "-x", "c++", "-I" + interpreter.include_dir, "-"],
        input=b"#include <Python.h>\n#include <string>\n",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if compiled.returncode != 0:
        first_line = next((line for line in compiled.stderr.decode(errors="replace").splitlines() if line.strip()), "")
        return f"the C++ compiler {compilers[1]} cannot compile an extension for {interpreter}: {first_line}"
    return None


def wrong_platform() -> Optional[str]:
    """Why no Python of this machine can serve; None if it can."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) == ("Linux", "x86_64"):
        return None
    return (
        f"this machine is {system} on {machine}; TFX has packages for Linux on x86_64 only. "
        "Use such a machine, or a container of that platform."
    )


def _why_not_better(interpreters: List[Interpreter], better_lines: Tuple[Line, ...]) -> str:
    reasons = []
    for line in better_lines:
        right_version = [one for one in interpreters if one.python in line.pythons]
        obstacles = dict.fromkeys(obstacle(one, line) for one in right_version)
        glibc = max((one.glibc for one in interpreters if one.glibc), default=None)
        if glibc is not None and glibc < line.min_glibc:
            text = f"glibc {_show(glibc)} is older than {_show(line.min_glibc)}, which it needs"
        elif obstacles:
            text = "; ".join(str(one) for one in obstacles)
        else:
            text = f"no Python {_list_pythons(line)} was found"
        reasons.append(f"not line {line.name} ({line.versions}): {text}")
    return "; ".join(reasons) or "the newest that Lockstep serves"


def _advice(interpreters: List[Interpreter]) -> str:
    glibc = max((one.glibc for one in interpreters if one.glibc), default=None)
    lines = ["no Python on this machine can run Lockstep.", "Found:"]
    for one in sorted(interpreters, key=lambda one: one.version, reverse=True):
        served = next((line for line in LINES if one.python in line.pythons), None)
        reason = obstacle(one, served) if served else "no line serves this version"
        lines.append(f"  {one}: {reason}")
    if not interpreters:
        lines.append("  no Python that runs, neither on the path nor in pyenv's versions folder")
    lines.append("The C library is {}.".format("glibc " + _show(glibc) if glibc else "not glibc, or unknown"))
    line_b, line_a = LINES
    lines.append("Install one of these, with its venv module and headers:")
    if glibc is not None and glibc >= line_b.min_glibc:
        lines.append("  Python 3.11, 3.12 or 3.13 (apt-get install python3 python3-venv python3-dev)")
    if glibc is None or glibc >= line_a.min_glibc:
        lines.append("  Python 3.10 (pyenv install 3.10, or uv python install 3.10), for glibc 2.17 or newer")
    if glibc is None or glibc < line_b.min_glibc:
        lines.append("or use a system with glibc 2.39 or newer (Debian 13, Ubuntu 24.04) and its own Python.")
    return "\n".join(lines)


def _parse_version(text: str) -> Optional[Version]:
    try:
        major, minor = text.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        return None


def _show(version: Version) -> str:
    return "{}.{}".format(*version)


def _list_pythons(line: Line) -> str:
    oldest, newest = min(line.pythons), max(line.pythons)
    return _show(oldest) if oldest == newest else f"{_show(oldest)} to {_show(newest)}"
