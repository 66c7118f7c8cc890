"""Serves an earlier version again, by hand: as a new version, so that numbers only ever increase.

A server that takes the highest number, as TensorFlow Serving does, follows without being told, and what is served at
any time can be read from the folder alone. Nothing is removed: the version that was rolled back stays to be looked at.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.object_store import Folder, fetch_tree
from lockstep.components.pusher import publish, store_publish, versions

_KEEP_ALL = 2**31


def rollback(push_dir: Folder) -> publish.PushResult:
    """Serves what was served before the model that is served now, which no run pushes again from then on.

    Called again, it goes back further: models that were rolled back are passed over.

    Raises:
      ConfigurationError: There is no version before.
      StepFailed: A version is damaged, another push came in between, or as ``publish.push``.
    """
    served = _served(push_dir)
    before = _before(push_dir, served)
    if before is None:
        raise ConfigurationError(f"{push_dir}: no version is older than {served.number}, so none can be served instead")
    return _serve(before, push_dir, replaces=served.manifest.model_sha256, withdraws=True)


def promote(push_dir: Folder, number: int, target_dir: Folder | None = None) -> publish.PushResult:
    """Serves one version of a folder, there or in another one; one that was rolled back counts as good again.

    Args:
      push_dir: Where the version is.
      number: Its number; 0 takes the one that is served.
      target_dir: Where it is to be served; None for the same folder.

    Raises:
      ConfigurationError: There is no such version.
      StepFailed: It is damaged, or as ``publish.push``.
    """
    version = versions.read_version(push_dir / str(number)) if number else _served(push_dir)
    if version is None:
        there = ", ".join(str(found.number) for found in versions.list_versions(push_dir)) or "none"
        raise ConfigurationError(f"{push_dir}: no whole version {number}; there are: {there}")
    return _serve(version, push_dir if target_dir is None else target_dir)


def _served(push_dir: Folder) -> versions.Version:
    served = versions.served_version(push_dir)
    if served is None:
        raise ConfigurationError(f"{push_dir}: no version is there; give a push folder, as push.dir names it")
    return served


def _before(push_dir: Folder, served: versions.Version) -> versions.Version | None:
    passed_over = {served.manifest.model_sha256, *served.manifest.withdrawn}
    older = [
        version
        for version in versions.list_versions(push_dir)
        if version.number < served.number and version.manifest.model_sha256 not in passed_over
    ]
    return older[-1] if older else None


def _serve(
    version: versions.Version, push_dir: Folder, *, replaces: str | None = None, withdraws: bool = False
) -> publish.PushResult:
    damaged = versions.damaged_files(version)
    if damaged:
        raise StepFailed(
            f"{version.dir} is damaged: {', '.join(damaged[:3])} is not what was pushed; nothing was changed. Choose"
            " another version: lockstep models promote"
        )
    manifest = version.manifest
    origin = publish.Origin(
        source_uri=manifest.source_uri,
        blessing_uri=manifest.blessing_uri,
        evaluation_uri=manifest.evaluation_uri,
        metrics=manifest.metrics,
        verdict=manifest.verdict,
        baseline=manifest.baseline,
        token=manifest.token,
        restored_from=manifest.restored_from or version.number,
        replaces=replaces,
        withdraws=withdraws,
    )
    with _at_hand(version.dir) as model_dir:
        if isinstance(push_dir, Path):
            return publish.push(model_dir, push_dir, _KEEP_ALL, origin)
        return store_publish.push(model_dir, push_dir, _KEEP_ALL, origin)


@contextlib.contextmanager
def _at_hand(folder: Folder) -> Iterator[Path]:
    if isinstance(folder, Path):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-version-") as scratch:
        fetch_tree(str(folder), Path(scratch))
        yield Path(scratch)
