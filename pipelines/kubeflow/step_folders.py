"""Folders of a step's artifacts, which an object store does not have: it keeps files under long names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EMPTY_FOLDERS_KEY = "lockstep_empty_folders"
"""Metadata of an artifact: JSON list of its empty folders, which the next step finds again."""


def make_folders(artifact_dir: Path, metadata: Mapping[str, Any]) -> None:
    """Makes the folder of an artifact, and those in it that were empty when it was made; a file is left alone."""
    if artifact_dir.is_file():
        return
    artifact_dir.mkdir(parents=True, exist_ok=True)
    for name in json.loads(metadata.get(EMPTY_FOLDERS_KEY, "[]")):
        folder = artifact_dir / name
        if not folder.resolve().is_relative_to(artifact_dir.resolve()):
            raise ValueError(f"{EMPTY_FOLDERS_KEY}: {name!r} is not within the artifact")
        folder.mkdir(parents=True, exist_ok=True)


def empty_folders(artifact_dir: Path) -> dict[str, str]:
    """Returns metadata with the folders below one that hold nothing; without an entry if there are none."""
    names = sorted(
        path.relative_to(artifact_dir).as_posix()
        for path in artifact_dir.rglob("*")
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    )
    return {EMPTY_FOLDERS_KEY: json.dumps(names)} if names else {}
