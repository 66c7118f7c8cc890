"""Names that Kubeflow Pipelines, Argo and Kubernetes take, for any name that TFX takes."""

import hashlib
import re
from collections.abc import Iterable

# Argo's task names: letters, digits and '-', a letter first, 128 characters at most. Kubeflow's compiler appends
# "-driver", and a step with a probe needs "-probe" before that.
MAX_TASK = 128
KUBEFLOW_DRIVER = "-driver"
PROBE = "-probe"
MAX_STEP = MAX_TASK - len(KUBEFLOW_DRIVER) - len(PROBE)
# Kubernetes cuts a generated name to 63 characters, the last five of which it draws.
MAX_PIPELINE = 57
TASK_PATTERN = re.compile(r"[A-Za-z][-A-Za-z0-9]*")
PIPELINE_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# Argo evaluates "NAME.Succeeded && ..." as an expression of the Go library expr: words of that language are no names.
# Kubeflow's own: the root component and the templates that it makes.
RESERVED = frozenset(
    (
        *("and", "or", "not", "in", "matches", "contains", "startsWith", "endsWith", "let", "if", "else"),
        *("true", "false", "nil", "root", "entrypoint", "iteration"),
    )
)


def pipeline_name(name: str) -> str:
    """Returns a pipeline's name in Kubeflow: lower case letters, digits and '-', 57 at most."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if len(plain) > MAX_PIPELINE or not plain:
        plain = f"{plain[: MAX_PIPELINE - 9].strip('-') or 'pipeline'}-{_hash(name)}"
    return plain


def step_names(ids: Iterable[str]) -> dict[str, str]:
    """Returns node id -> name of its task and component in Kubeflow, each its own; an id that can stay does.

    Args:
      ids: Node ids, all different.
    """
    ids = list(ids)
    kept = {node_id for node_id in ids if _may_stay(node_id)}
    return {node_id: node_id if node_id in kept else _made(node_id) for node_id in ids}


def _may_stay(node_id: str) -> bool:
    return (
        TASK_PATTERN.fullmatch(node_id) is not None
        and len(node_id) <= MAX_STEP
        and node_id not in RESERVED
        and not node_id.endswith((KUBEFLOW_DRIVER, PROBE, "-"))
    )


def _made(node_id: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", node_id).strip("-")
    if not plain[:1].isalpha():
        plain = f"step-{plain}".rstrip("-")
    return f"{plain[: MAX_STEP - 9].rstrip('-')}-{_hash(node_id)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
