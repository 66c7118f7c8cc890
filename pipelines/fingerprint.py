"""What a step's result depends on besides its inputs and configuration: code, by content.

TFX's own cache key holds import paths only as names, so an edited function is not seen. The runner therefore adds a
fingerprint of the code to every node.
"""

import ast
import difflib
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import pathlib
import platform
import sys
import sysconfig
from collections.abc import Iterator, Sequence

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.config import PipelineConfig

_PACKAGES = (
    "tfx-lockstep",
    "tfx",
    "tfx-bsl",
    "numpy",
    "pyarrow",
    "tensorflow",
    "keras",
    "tensorflow-transform",
    "tensorflow-model-analysis",
    "tensorflow-data-validation",
    "apache-beam",
)


class StepFingerprints:
    """What each step's result depends on besides its inputs and its configuration.

    Args:
      config: Names the user's functions.
      folder: The user's folder; None for an example.
    """

    def __init__(self, config: PipelineConfig, folder: pathlib.Path | None) -> None:
        self._folder = folder
        trained = (config.run_fn or config.model.build, config.train.augment)
        self._code_of = {"Transform": (config.preprocessing,), "DistributedTrainer": trained}

    def check(self) -> None:
        """Raises ConfigurationError where a function of the user's is not there."""
        for step in self._code_of:
            self.of(step)

    def of(self, step: str) -> str:
        """Returns the fingerprint of a step as its code is now."""
        own = [path for path in self._code_of.get(step, ()) if path and ":" in path]
        return product_fingerprint() + "".join(code_fingerprint(path, self._folder) for path in own)


@functools.cache
def product_fingerprint() -> str:
    """Returns a hash of Lockstep's own source files and of the versions of the packages that decide results."""
    digest = hashlib.sha256(f"Python {platform.python_version()}\n".encode())
    for package in _PACKAGES:
        digest.update(f"{package}=={_version(package)}\n".encode())
    # The source too, not only the version: an installation from a checkout changes without a new version.
    for top in ("components", "transforms", "pipelines"):
        spec = importlib.machinery.PathFinder.find_spec(top, _namespace_path())
        if spec is None or spec.origin is None:
            raise RuntimeError(f"lockstep.{top} is not installed as a package; install tfx-lockstep again")
        folder = pathlib.Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{top}/{path.relative_to(folder).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def code_fingerprint(import_path: str, folder: pathlib.Path | None) -> str:
    """Returns a hash of a user's function: of its module's file, the packages around it, and all local imports.

    Local is what is neither in the standard library nor in an installed package. Only ``import`` statements are
    followed (anywhere in a file, functions included); modules imported by computed names, and data files that the
    code reads, are not seen.

    Args:
      import_path: ``module:function``.
      folder: The user's folder, looked at after the import path, as when the code is run.

    Raises:
      ConfigurationError: there is no such module.
    """
    module = import_path.partition(":")[0]
    search = [*sys.path, *([str(folder)] if folder else [])]
    path = _find(module, search)
    if path is None:
        raise ConfigurationError(
            f"{import_path}: no module {module!r}; it is looked for on the import path and in {folder or 'no folder'}"
        )
    _check_name(import_path, path)
    digest = hashlib.sha256(import_path.encode())
    for name, path in sorted(_local_modules(module, search).items()):
        digest.update(f"\n{name}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _namespace_path() -> list[str]:
    spec = importlib.machinery.PathFinder.find_spec("lockstep")
    return list(spec.submodule_search_locations or []) if spec else []


def _local_modules(module: str, search: Sequence[str]) -> dict[str, pathlib.Path]:
    """Returns name -> file of a module, its packages, and everything local that these import."""
    found: dict[str, pathlib.Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        for part in _with_packages(name):
            path = _find(part, search)
            if part in found or path is None or not _is_local(path):
                continue
            found[part] = path
            waiting.extend(_imports(part, path))
    return found


def _with_packages(name: str) -> Iterator[str]:
    """Yields ``a``, ``a.b``, ``a.b.c`` for ``a.b.c``: importing a module runs the packages around it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def _find(name: str, search: Sequence[str]) -> pathlib.Path | None:
    """Returns the source file of a module without importing anything; None where there is none."""
    path: Sequence[str] | None = search
    spec = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None and end == 1:
            spec = _find_by_hooks(parts[0])
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and end < len(parts):
            return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return pathlib.Path(spec.origin)


def _find_by_hooks(name: str) -> importlib.machinery.ModuleSpec | None:
    """Asks the other finders for a top-level name: editable installations bring finders of their own."""
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # A module that is loaded and says nothing of where it came from, such as __main__.
        return None


def _check_name(import_path: str, path: pathlib.Path) -> None:
    """Raises ConfigurationError where a module's source surely defines no such name at its top."""
    name = import_path.partition(":")[2]
    defined: set[str] = set()
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    if not defined & {name, "*", "__getattr__"}:
        nearest = difflib.get_close_matches(name, defined, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ConfigurationError(f"{import_path}: {path} defines no {name!r}{hint}")


def _parse(path: pathlib.Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as e:
        raise ConfigurationError(f"{path}:{e.lineno}: not valid Python: {e.msg}") from e
    except ValueError as e:
        raise ConfigurationError(f"{path}: not valid Python: {e}") from e


@functools.cache
def _installed_folders() -> tuple[pathlib.Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({pathlib.Path(sysconfig.get_path(name)).resolve() for name in names})


def _is_local(path: pathlib.Path) -> bool:
    resolved = path.resolve()
    return not any(resolved.is_relative_to(folder) for folder in _installed_folders())


def _imports(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yields the absolute names that a source file imports; for ``from a import b`` both ``a`` and ``a.b``."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - (node.level - 1)]
                base = ".".join([*kept, *filter(None, [base])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
