"""Copies a model into a push folder so that a reader sees a whole version or none, whenever the writer dies."""

import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from lockstep.components.durable_files import sync
from lockstep.components.errors import StepFailed
from lockstep.components.object_store import Folder
from lockstep.components.pusher import versions

_logger = logging.getLogger(__name__)

_LOCK_NAME = ".lockstep.lock"
_STAGING_PREFIX = ".lockstep-staging-"
_TRASH_PREFIX = ".lockstep-trash-"
_CHUNK_BYTES = 1 << 20
_LOCK_POLL_S = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model comes from, for its manifest, and what must be served for it to be pushed.

    Args:
      replaces: ``model_sha256`` of the model that must be served now, "" if none may be; None takes any. A model that
        was judged against one that is served no more was not judged against what it replaces.
      withdraws: The model that is replaced was rolled back: no run pushes it again.
      others: As in ``versions.Manifest``.
    """

    source_uri: str
    blessing_uri: str = ""
    evaluation_uri: str = ""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    verdict: str = ""
    baseline: str = versions.NO_BASELINE
    token: str = ""
    restored_from: int = 0
    replaces: str | None = None
    withdraws: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PushResult:
    """What a push did.

    Args:
      version: The version that serves the model now.
      created: True if this push made it, False if it was there before.
      removed: Numbers of the versions that ``keep`` removed.
      not_removed: For each one that it could not remove, which and why, in words.
    """

    version: versions.Version
    created: bool
    removed: tuple[int, ...] = ()
    not_removed: tuple[str, ...] = ()


def push(model_dir: Path, push_dir: Path, keep: int, origin: Origin, lock_timeout_s: float = 600.0) -> PushResult:
    """Makes a model the served version of a push folder; blocks while another push to the folder runs.

    Atomic: the model is copied beside the versions, synchronised to the disk, and renamed to its number at last. A
    killed push leaves the versions as they were; what it had begun is removed by the next one. A model that is
    served already is not pushed again. Numbers are seconds since 1970, or one more than the highest there is. An old
    version that cannot be removed does not fail a push, as the new one is served by then: the result tells.

    Args:
      model_dir: The SavedModel.
      push_dir: The folder of versions; made if absent.
      keep: Whole versions that stay, 1 or more; the newest always stays.
      origin: What goes into the manifest.
      lock_timeout_s: How long to wait for another push, in seconds.

    Returns:
      The served version and what changed.

    Raises:
      StepFailed: The disk is full, the folder cannot be written, the model changed meanwhile, another push did not
        end in time, no number is left, the model was rolled back or not judged against what is served now: what was
        served is served still. Or the disk failed after the new version came into its place: the message says that it
        is served.
    """
    try:
        push_dir.mkdir(parents=True, exist_ok=True)
        with _locked(push_dir, lock_timeout_s):
            _remove_leftovers(push_dir)
            served = versions.served_version(push_dir)
            if served is not None and served.manifest.model_sha256 == versions.content_sha256(model_dir):
                return _remove_old(push_dir, keep, PushResult(version=served, created=False))
            withdrawn = withdrawn_models(push_dir, served, versions.content_sha256(model_dir), origin)
            version = _publish(model_dir, push_dir, origin, withdrawn)
            return _remove_old(push_dir, keep, PushResult(version=version, created=True))
    except OSError as e:
        raise StepFailed(_failure(e, model_dir, push_dir)) from e


def _publish(model_dir: Path, push_dir: Path, origin: Origin, withdrawn: Mapping[str, int]) -> versions.Version:
    number = next_number(push_dir)
    version_dir = push_dir / str(number)
    staging_dir = push_dir / f"{_STAGING_PREFIX}{uuid.uuid4().hex}"
    try:
        files = {name: _copy(model_dir / name, staging_dir / name) for name in versions.files_of(model_dir)}
        if not files:
            raise StepFailed(f"push: {model_dir} holds no files; the trainer must export a SavedModel there")
        if versions.combined_sha256(files) != versions.content_sha256(model_dir):
            raise StepFailed(f"push: {model_dir} changed while it was copied; run again when nothing writes to it")
        manifest = manifest_of(number, files, origin, withdrawn)
        _write(staging_dir / versions.MANIFEST_NAME, manifest.to_json().encode())
        for folder, _, _ in os.walk(staging_dir):
            sync(Path(folder))
        staging_dir.rename(version_dir)
    except BaseException:
        shutil.rmtree(staging_dir, ignore_errors=True)
        raise
    try:
        sync(push_dir)
    except OSError as e:
        raise StepFailed(
            f"push: version {number} is served, but {push_dir} could not be synchronised to the disk: {_cause(e)}; a"
            " power failure may still lose it. Mend the disk, then run again"
        ) from e
    return versions.Version(dir=version_dir, manifest=manifest)


def withdrawn_models(
    push_dir: Folder, served: versions.Version | None, model_sha256: str, origin: Origin
) -> dict[str, int]:
    """Checks that a model may follow the one that is served; to be called by who holds the folder's lock.

    Returns:
      ``Manifest.withdrawn`` of the version that follows.

    Raises:
      StepFailed: The model was rolled back, or another one is served than ``origin.replaces`` says.
    """
    withdrawn = {} if served is None else dict(served.manifest.withdrawn)
    now = "" if served is None else served.manifest.model_sha256
    if model_sha256 in withdrawn and not origin.restored_from:
        raise StepFailed(
            f"push: this very model was rolled back as version {withdrawn[model_sha256]} of {push_dir}; nothing was"
            f" pushed. Train another, or serve it after all: lockstep models promote {push_dir}"
            f" {withdrawn[model_sha256]}"
        )
    if origin.replaces is not None and origin.replaces != now:
        meanwhile = "no version is served any more" if served is None else f"version {served.number} came meanwhile"
        raise StepFailed(
            f"push: {push_dir}: {meanwhile}, against which nothing was judged; nothing was pushed. Run again"
        )
    withdrawn.pop(model_sha256, None)
    if origin.withdraws and served is not None:
        withdrawn[now] = served.manifest.restored_from or served.number
    return withdrawn


def manifest_of(
    number: int, files: Mapping[str, versions.FileEntry], origin: Origin, withdrawn: Mapping[str, int]
) -> versions.Manifest:
    """Returns the manifest of a version that is pushed now."""
    of_push = ("replaces", "withdraws")
    told = {field.name: getattr(origin, field.name) for field in dataclasses.fields(origin)}
    return versions.Manifest(
        version=number,
        model_sha256=versions.combined_sha256(files),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        files=files,
        withdrawn=withdrawn,
        **{name: value for name, value in told.items() if name not in of_push},
    )


def next_number(push_dir: Folder, also_taken: Iterable[int] = ()) -> int:
    """Returns the number of a new version: seconds since 1970, or one more than the highest there is.

    Args:
      push_dir: The folder of versions.
      also_taken: Numbers of versions that are not to be seen there.

    Raises:
      StepFailed: There is none left.
    """
    taken = sorted({*versions.version_numbers(push_dir), *also_taken})
    number = max(int(time.time()), *(number + 1 for number in taken), 1)
    if number > versions.MAX_NUMBER:
        raise StepFailed(
            f"push: {push_dir / str(taken[-1])} has the highest number that TensorFlow Serving reads, so that no"
            " version can come after it; remove or rename that folder, then run again"
        )
    return number


def _remove_old(push_dir: Path, keep: int, result: PushResult) -> PushResult:
    """Removes whole versions beyond the newest ``keep``; folders that are not ours, or not whole, are left alone."""
    removed, not_removed = [], []
    try:
        old = versions.list_versions(push_dir)[: -max(keep, 1)]
    except OSError as e:
        return dataclasses.replace(result, not_removed=(f"old versions could not be looked for: {_cause(e)}",))
    for version in old:
        # A reader that lists versions while this one is being deleted must not find half of it.
        trash_dir = push_dir / f"{_TRASH_PREFIX}{version.number}-{uuid.uuid4().hex}"
        try:
            (push_dir / str(version.number)).rename(trash_dir)
            _remove(trash_dir)
            removed.append(version.number)
        except OSError as e:
            # The version that counts is served; to fail now would say that it is not.
            not_removed.append(f"version {version.number} could not be removed: {_cause(e)}")
    return dataclasses.replace(result, removed=tuple(removed), not_removed=tuple(not_removed))


def _remove_leftovers(push_dir: Path) -> None:
    """Removes what killed pushes left. Safe under the lock only: nobody else is staging then."""
    for path in push_dir.iterdir():
        if path.name.startswith((_STAGING_PREFIX, _TRASH_PREFIX)):
            _logger.info("removing %s, left by a push that was killed", path)
            try:
                _remove(path)
            except OSError as e:
                # No server reads it, so it must not stop this push and all later ones.
                _logger.warning("%s could not be removed: %s; remove it by hand", path, _cause(e))


def _remove(path: Path) -> None:
    """Removes a folder; of a link, which a person may have made, the link only."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def _locked(push_dir: Path, timeout_s: float) -> Iterator[None]:
    """Holds the folder's lock, which the operating system drops when its holder dies, however it dies."""
    deadline = time.monotonic() + timeout_s
    with (push_dir / _LOCK_NAME).open("ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as e:
                if time.monotonic() >= deadline:
                    raise StepFailed(
                        f"push: another push to {push_dir} did not end within {timeout_s:g} s; end it and run again"
                    ) from e
                time.sleep(_LOCK_POLL_S)
        yield


def _copy(source: Path, target: Path) -> versions.FileEntry:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    size = 0
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return versions.FileEntry(size=size, sha256=digest.hexdigest())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as writer:
        writer.write(content)
        writer.flush()
        os.fsync(writer.fileno())


def _cause(error: OSError) -> str:
    """Says what the operating system refused, and of which file where it says so."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{reason} ({error.filename})"


def _failure(error: OSError, model_dir: Path, push_dir: Path) -> str:
    """Says what went wrong, how much room is needed and there, and what is served still."""
    parts = [f"push: {model_dir} could not be copied to {push_dir}: {_cause(error)}"]
    with contextlib.suppress(OSError):
        needed = sum((model_dir / name).stat().st_size for name in versions.files_of(model_dir))
        free = shutil.disk_usage(push_dir).free
        parts.append(f"the model needs {needed / 1e6:.1f} MB, {free / 1e6:.1f} MB are free")
    with contextlib.suppress(OSError):
        served = versions.served_version(push_dir)
        parts.append("nothing was pushed" if served is None else f"version {served.number} is served")
    return "; ".join(parts) + ". Make room or mend the folder, then run again"
