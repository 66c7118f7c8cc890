"""What setup.py declares, what the locks pin, and what the code imports agree."""

import ast
import importlib.metadata
import importlib.util
import pathlib
import re
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("components", "pipelines", "transforms")

# Modules that belong to a distribution of another name and that several distributions share.
SHARED_NAMESPACES = {"google.protobuf": "protobuf"}


def declared() -> list[Requirement]:
    """What the installed Lockstep says that it needs."""
    requirements = [Requirement(text) for text in importlib.metadata.requires("tfx-lockstep") or []]
    return [one for one in requirements if one.marker is None or "extra" not in str(one.marker)]


def pins(lock_name: str) -> list[Requirement]:
    """The entries of a lock."""
    text = (REPOSITORY / "requirements" / lock_name).read_text(encoding="utf-8")
    return [Requirement(line.rstrip(" \\")) for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]


def imported_modules() -> set[str]:
    """Every module that our packages import, by its full name, lazily or not."""
    modules = set()
    for folder in FOLDERS:
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    modules |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in modules if name.split(".")[0] not in {"lockstep", *sys.stdlib_module_names}}


def installed_owners() -> dict[str, set[str]]:
    """Which distributions install each top-level module (packages_distributions of Python 3.10 knows only some)."""
    owners: dict[str, set[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.metadata["Name"])
        for line in (distribution.read_text("RECORD") or "").splitlines():
            top = re.split(r"[/,]", line, maxsplit=1)[0].removesuffix(".py")
            owners.setdefault(top, set()).add(name)
    return owners


def test_every_import_is_declared() -> None:
    """What the code imports is named in setup.py, not left to come with something else."""
    names = {canonicalize_name(one.name) for one in declared()}
    owners = installed_owners()
    undeclared = {}
    for module in imported_modules():
        shared = next((owner for prefix, owner in SHARED_NAMESPACES.items() if module.startswith(prefix)), None)
        possible = {shared} if shared else owners.get(module.split(".")[0], set())
        if not names & possible:
            undeclared[module] = possible
    assert undeclared == {}


@pytest.mark.parametrize("python_version", ["3.10", "3.11", "3.12", "3.13"])
def test_the_lock_satisfies_what_is_declared_on_every_python(python_version: str) -> None:
    """Each declared range holds the version that the lock pins for that Python, for users and developers alike."""
    environment = {"python_version": python_version, "python_full_version": f"{python_version}.0"}
    needed = [one for one in declared() if one.marker is None or one.marker.evaluate(environment)]
    assert needed
    for lock_name in ("lock.txt", "dev-lock.txt"):
        pinned = {
            canonicalize_name(one.name): next(iter(one.specifier)).version
            for one in pins(lock_name)
            if one.marker is None or one.marker.evaluate(environment)
        }
        unsatisfied = [str(one) for one in needed if not one.specifier.contains(pinned[canonicalize_name(one.name)])]
        assert unsatisfied == [], lock_name


def test_the_development_lock_satisfies_the_extras() -> None:
    """The tests run what the extras install."""
    requirements = [Requirement(text) for text in importlib.metadata.requires("tfx-lockstep") or []]
    extras = [one for one in requirements if one.marker is not None and "extra" in str(one.marker)]
    pinned = {canonicalize_name(one.name): next(iter(one.specifier)).version for one in pins("dev-lock.txt")}
    assert extras
    assert [str(one) for one in extras if not one.specifier.contains(pinned.get(canonicalize_name(one.name), ""))] == []


def test_the_development_lock_is_held_to_the_runtime_one() -> None:
    """Tests run on the versions that users get."""
    runtime, development = ({str(one) for one in pins(name)} for name in ("lock.txt", "dev-lock.txt"))
    assert runtime - development == set()


@pytest.mark.parametrize("lock_name", ["lock.txt", "dev-lock.txt", "tools.txt"])
def test_a_lock_names_no_registry(lock_name: str) -> None:
    """A lock made behind a mirror works with any registry, and every entry has hashes."""
    text = (REPOSITORY / "requirements" / lock_name).read_text(encoding="utf-8")
    assert "://" not in text
    entries = re.findall(r"^[A-Za-z0-9].*(?:\n +--hash.*)*", text, re.MULTILINE)
    assert entries
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_every_folder_with_code_is_packaged() -> None:
    """A folder without __init__.py would be left out of the wheel."""
    folders = {path.parent for name in FOLDERS for path in (REPOSITORY / name).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_version_is_written_in_one_place() -> None:
    """Lockstep's version is in setup.py, and everything else asks the installed distribution."""
    version = importlib.metadata.version("tfx-lockstep")
    files = [path for name in FOLDERS for path in (REPOSITORY / name).rglob("*.py")]
    assert f'version="{version}"' in (REPOSITORY / "setup.py").read_text(encoding="utf-8")
    assert [str(path) for path in files if f'"{version}"' in path.read_text(encoding="utf-8")] == []


def test_the_installed_packages_are_those_of_the_source_tree() -> None:
    """A strict editable install is what linters and type checkers see, file by file."""
    for name in FOLDERS:
        spec = importlib.util.find_spec(f"lockstep.{name}")
        assert spec is not None
        assert spec.origin is not None
        assert pathlib.Path(spec.origin).resolve() == (REPOSITORY / name / "__init__.py").resolve()
