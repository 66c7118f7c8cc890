"""Where everything came from: executions and artifacts, the model that is served, versions, the configuration."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from lockstep.components.object_store import is_object_uri
from lockstep.pipelines.report.run_record import RunRecord

_HIDDEN = ("secret_key", "password", "token", "access_key")
_MAX_CONFIG_CHARS = 60_000


def lineage_section(run: RunRecord) -> dict[str, Any]:
    """Returns what ``lineage.html`` shows.

    ``artifacts``: rows of ``step``, ``execution``, ``key``, ``id``, ``uri``. ``versions``: (name, version). ``pushed``:
    (name, value) of the served version's manifest. ``config``: YAML text without credentials; empty where it cannot be
    read. ``files``: (name, path). ``missing``: what is not there, in sentences.
    """
    artifacts = [
        {
            "step": step.name,
            "execution": step.execution,
            "is_cached": step.state == "cached",
            "key": key,
            "id": item.id,
            "uri": item.uri,
            "is_there": is_object_uri(item.uri) or item.dir.exists(),
        }
        for step in run.steps
        for key, items in step.outputs.items()
        for item in items
    ]
    missing = []
    if not artifacts:
        missing.append("No artifact of this run is recorded: no step ended, or an earlier version of Lockstep ran it.")
    if run.config is None:
        missing.append(f"The configuration cannot be read: {run.files.request_path} is gone or cut.")
    return {
        "artifacts": artifacts,
        "versions": _versions(run),
        "pushed": _pushed(run),
        "config": _config(run.config) if run.config is not None else "",
        "files": [
            ("Log", str(run.files.log_path)),
            ("Events", str(run.files.events_path)),
            ("Request", str(run.files.request_path)),
            ("Root", str(run.root)),
        ],
        "missing": missing,
    }


def _versions(run: RunRecord) -> list[tuple[str, str]]:
    """Returns what the training says it ran with, else what the run said at its start."""
    model_run = run.artifact("DistributedTrainer", "model_run")
    if model_run:
        try:
            versions = json.loads((model_run.dir / "summary.json").read_text(encoding="utf-8"))["versions"]
            return [(str(name), str(version)) for name, version in sorted(versions.items())]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
    parts = [part.rsplit(" ", 1) for part in run.versions.split(", ") if " " in part]
    return [(name, version) for name, version in parts]


def _pushed(run: RunRecord) -> list[tuple[str, str]]:
    pushed = run.artifact("Pusher", "pushed_model")
    if pushed is None:
        return []
    names = (("pushed_version", "Version"), ("pushed_destination", "Folder"))
    return [(told, str(pushed.properties[name])) for name, told in names if pushed.properties.get(name)]


def _config(config: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(_public(config), sort_keys=False, allow_unicode=True, width=100)
    return text if len(text) <= _MAX_CONFIG_CHARS else text[:_MAX_CONFIG_CHARS] + "\n… (cut; see the request)\n"


def _public(value: Any) -> Any:
    """Returns the value without credentials, which a page that is passed around must not carry."""
    if isinstance(value, Mapping):
        return {
            key: "(hidden)" if str(key) in _HIDDEN and isinstance(item, str) else _public(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_public(item) for item in value]
    return value
