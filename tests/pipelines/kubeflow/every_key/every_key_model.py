"""A model of a user's; only its source is read here."""

from typing import Any


def build_model(inputs: Any) -> Any:
    """Is never called: packages are compiled, not run."""
    raise NotImplementedError
