"""What ``lockstep models`` prints: the versions in a push folder, and what a rollback or promotion did."""

import json
from collections.abc import Mapping
from typing import Any

from lockstep.components.errors import ConfigurationError
from lockstep.components.object_store import Folder, open_folder
from lockstep.components.pusher import history, publish, versions

_COLUMNS = ("VERSION", "PUSHED (UTC)", "SIZE", "METRICS")


def list_models(location: str) -> str:
    """Returns a table of the versions, oldest first; ``*`` marks the served one.

    Raises:
      ConfigurationError: There are no versions.
      StepFailed: An object store does not answer.
    """
    rows = describe_models(location)
    cells = [(_mark(row), str(row["version"]), *_cells(row)) for row in rows]
    table = [("", *_COLUMNS), *cells]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([location, *lines])


def describe_models(location: str) -> list[dict[str, Any]]:
    """Returns one mapping a version, oldest first: what its manifest says, ``state`` and ``size`` in bytes.

    ``state`` is ``served``, ``kept``, ``rolled back``, or ``not whole``, of which nothing else is known: a push that
    goes on or was killed, or a folder that is not Lockstep's.

    Raises:
      ConfigurationError: There are no versions.
      StepFailed: An object store does not answer.
    """
    folder = open_folder(location)
    numbers = versions.version_numbers(folder)
    if not numbers:
        raise ConfigurationError(f"{location}: no version is there; give a push folder, as push.dir names it")
    served = versions.served_version(folder)
    found = {version.number: version.manifest for version in versions.list_versions(folder)}
    return [_described(number, found.get(number), served) for number in numbers]


def rollback(location: str) -> str:
    """Rolls back, and returns what is served now in one sentence; raises as ``history.rollback``."""
    folder = _existing(location)
    withdrawn = versions.served_version(folder)
    result = history.rollback(folder)
    number = 0 if withdrawn is None else withdrawn.manifest.restored_from or withdrawn.number
    return f"{_told(result, location)}; version {number} is rolled back, and no run pushes that model again"


def promote(location: str, number: int, target: str | None) -> str:
    """Promotes a version, and returns what is served now in one sentence; raises as ``history.promote``."""
    result = history.promote(_existing(location), number, None if target is None else open_folder(target))
    return _told(result, location if target is None else target)


def _existing(location: str) -> Folder:
    folder = open_folder(location)
    if not versions.version_numbers(folder):
        raise ConfigurationError(f"{location}: no version is there; give a push folder, as push.dir names it")
    return folder


def _told(result: publish.PushResult, location: str) -> str:
    version = result.version
    if not result.created:
        return f"version {version.number} in {location} serves this model already"
    return f"version {version.number} in {location} is served: the model of version {version.manifest.restored_from}"


def _described(number: int, manifest: versions.Manifest | None, served: versions.Version | None) -> dict[str, Any]:
    if manifest is None:
        return {"version": number, "state": "not whole"}
    withdrawn: Mapping[str, int] = {} if served is None else served.manifest.withdrawn
    if served is not None and number == served.number:
        state = "served"
    else:
        state = "rolled back" if manifest.model_sha256 in withdrawn else "kept"
    document = json.loads(manifest.to_json())
    files = document.pop("files")
    document.pop("withdrawn")
    return {"state": state, "size": sum(entry["size"] for entry in files.values()), **document}


def _mark(row: Mapping[str, Any]) -> str:
    return "*" if row["state"] == "served" else " "


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    if row["state"] == "not whole":
        return ("", "", "not whole: never served")
    notes = [", ".join(f"{name} {value:.4g}" for name, value in row["metrics"].items()) or "-"]
    if row["restored_from"]:
        notes.append(f"model of {row['restored_from']}")
    if row["state"] == "rolled back":
        notes.append("rolled back")
    return (row["created"][:16].replace("T", " "), f"{row['size'] / 1e6:.1f} MB", "; ".join(notes))
