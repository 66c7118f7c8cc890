"""Functions of the user's, found by import path."""

import importlib
from typing import Any

from lockstep.components.errors import ConfigurationError


def user_function(key: str, name: str) -> Any:
    """Returns the function ``module:function``.

    Args:
      key: Of the configuration, for what is told.
      name: Its import path.

    Raises:
      ConfigurationError: There is no such module, or no such function in it.
      Exception: What the module raised as it was imported; its traceback is worth showing.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        # A module that exists and imports something absent is the user's code failing.
        if e.name is None or not (module_name == e.name or module_name.startswith(f"{e.name}.")):
            raise
        raise ConfigurationError(
            f"{key}: there is no module {module_name!r}; it is looked for on the import path and in the folder of the"
            " configuration file"
        ) from e
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigurationError(f"{key}: module {module_name!r} has no function {function_name!r}")
    return function
