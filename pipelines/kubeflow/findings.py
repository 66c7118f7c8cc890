"""What is wrong with a package, and where."""

import dataclasses
import re

# Kubeflow's own, such as {{$.inputs.parameters['x']}}: its launcher puts a value there, and Argo leaves it.
KUBEFLOW_PLACEHOLDER = re.compile(r"\{\{\$[^{}]*(\{[^{}]*\}[^{}]*)*\}\}")

_MAX_SHOWN = 200


def shown(value: object) -> str:
    """Returns a value for a message, the beginning of a long one."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that Kubeflow would refuse, or take for something else than it says.

    Args:
      place: Where in the package, such as ``root.dag.tasks.Transform``.
      reason: What is wrong, with the value, and what is allowed.
      key: The key of the configuration that decides it; None where no key does.
    """

    place: str
    reason: str
    key: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" + (f" (key: {self.key})" if self.key else "")
