"""Puts a model into a push folder of an object store so that a reader sees a whole version or none.

Objects cannot be renamed, so a version is made in place: its manifest comes last, and without it, or with a file that
is not there in full, no reader of Lockstep takes it for one (``versions.read_version``). TensorFlow Serving knows no
manifest: ``saved_model.pb``, without which it loads nothing, comes when all else is there and verified, and goes first.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from lockstep.components.errors import StepFailed, UserError
from lockstep.components.object_store import StoreFolder
from lockstep.components.pusher import store_lock, versions
from lockstep.components.pusher.publish import Origin, PushResult, manifest_of, next_number, withdrawn_models

_logger = logging.getLogger(__name__)

_GRAPH_NAME = "saved_model.pb"


def push(
    model_dir: Path,
    push_dir: StoreFolder,
    keep: int,
    origin: Origin,
    lock_timeout_s: float = 600.0,
    lease_s: float = store_lock.LEASE_S,
) -> PushResult:
    """Makes a model the served version of a push folder; blocks while another push to the folder goes on.

    As ``publish.push`` for a local folder: atomic, numbers never collide, a model that is served already is not pushed
    again, and old versions beyond ``keep`` are removed. Every object is read back and its checksum compared before
    the version counts. What a killed push left is removed by the next one; parts of a large object that the store never
    showed are for a rule of the bucket's to remove.

    Args:
      model_dir: The SavedModel.
      push_dir: The folder of versions.
      keep: Whole versions that stay, 1 or more; the newest always stays.
      origin: What goes into the manifest.
      lock_timeout_s: How long to wait for another push, in seconds.
      lease_s: After how many seconds without a sign of life another push counts as killed.

    Raises:
      StepFailed: The store failed or does not answer, an object is not what was sent, the model changed meanwhile,
        another push did not end in time, or the model was rolled back or not judged against what is served now; what
        was served is served still.
      ConfigurationError: The store denies access, or there is no such bucket.
    """
    with store_lock.locked(push_dir, lock_timeout_s, lease_s) as lease:
        _remove_leftovers(push_dir, lease)
        served = versions.served_version(push_dir)
        if served is not None and served.manifest.model_sha256 == versions.content_sha256(model_dir):
            return _remove_old(push_dir, keep, PushResult(version=served, created=False), lease)
        withdrawn = withdrawn_models(push_dir, served, versions.content_sha256(model_dir), origin)
        version = _publish(model_dir, push_dir, origin, withdrawn, lease)
        return _remove_old(push_dir, keep, PushResult(version=version, created=True), lease)


def _publish(
    model_dir: Path, push_dir: StoreFolder, origin: Origin, withdrawn: Mapping[str, int], lease: store_lock.Lease
) -> versions.Version:
    files = {name: versions.file_entry(model_dir / name) for name in versions.files_of(model_dir)}
    if not files:
        raise StepFailed(f"push: {model_dir} holds no files; the trainer must export a SavedModel there")
    number = next_number(push_dir, lease.left)
    folder = push_dir / str(number)
    manifest = manifest_of(number, files, origin, withdrawn)
    lease.touches((number,))
    try:
        for name in sorted(files, key=lambda name: (name == _GRAPH_NAME, name)):
            lease.check()
            folder.upload(name, model_dir / name)
            _verify(folder, name, files[name])
        lease.check()
        folder.write(versions.MANIFEST_NAME, manifest.to_json().encode())
        lease.check()
        version = versions.read_version(folder)
        if version is None:
            raise StepFailed(
                f"push: {folder} is not whole after it was written; run again when nothing else writes there"
            )
    except BaseException:
        _remove_version(folder, suppress=True)
        raise
    lease.touches(())
    return version


def _verify(folder: StoreFolder, name: str, entry: versions.FileEntry) -> None:
    found = versions.entry_of(folder.chunks(name))
    if found != entry:
        raise StepFailed(
            f"push: {folder / name} holds {found.size} bytes that are not the {entry.size} of the model: it changed"
            " on the way, or the model while it was sent; nothing was pushed. Run again"
        )


def _remove_leftovers(push_dir: StoreFolder, lease: store_lock.Lease) -> None:
    """Removes what killed pushes were writing or removing; a version that is whole stays."""
    for number in lease.left:
        if versions.read_version(push_dir / str(number)) is None:
            _logger.info("removing %s, left by a push that was killed", push_dir / str(number))
            lease.check()
            _remove_version(push_dir / str(number), suppress=False)


def _remove_old(push_dir: StoreFolder, keep: int, result: PushResult, lease: store_lock.Lease) -> PushResult:
    """Removes whole versions beyond the newest ``keep``; what is not ours, or not whole, is left alone."""
    removed, not_removed = [], []
    try:
        old = [version.number for version in versions.list_versions(push_dir)[: -max(keep, 1)]]
        lease.touches(old)
    except (StepFailed, UserError) as e:
        return PushResult(version=result.version, created=result.created, not_removed=(f"old versions stay: {e}",))
    for number in old:
        try:
            lease.check()
            _remove_version(push_dir / str(number), suppress=False)
            removed.append(number)
        except (StepFailed, UserError) as e:  # noqa: PERF203 - a removal takes far longer
            # The version that counts is served; to fail now would say that it is not.
            not_removed.append(f"version {number} could not be removed: {e}")
    return PushResult(
        version=result.version, created=result.created, removed=tuple(removed), not_removed=tuple(not_removed)
    )


def _remove_version(folder: StoreFolder, *, suppress: bool) -> None:
    """Removes a version's objects, those first without which it is none."""
    try:
        names = folder.objects()
        for name in sorted(names, key=lambda name: (name != versions.MANIFEST_NAME, name != _GRAPH_NAME, name)):
            folder.remove(name)
    except (StepFailed, UserError) as e:
        if not suppress:
            raise
        _logger.warning("%s could not be removed: %s; the next push will", folder, e)
