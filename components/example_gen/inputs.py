"""The input of one run, wherever it is: found, fingerprinted, and at hand as local files while it is read.

Local files are read where they are. Objects of a store are fetched into a scratch folder first, which is removed
afterwards, and errors name their URIs.
"""

import contextlib
import dataclasses
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lockstep.components import object_store
from lockstep.components.errors import DataError, StepFailed, UserError
from lockstep.components.example_gen.file_search import is_visible
from lockstep.components.example_gen.files import (
    UnchangedInput,
    input_fingerprint,
    is_literal,
    literal_name,
    local_folder,
    matched_files,
    shown,
)
from lockstep.components.object_store import StoredObject, is_object_uri

_progress = logging.getLogger("lockstep.progress")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalInput:
    """Files to read.

    Args:
      files: Local paths, sorted by the names of what they hold.
      root: The folder that they were found in; below it they have the names that they have there.
      check: Raises StepFailed if the input is not any more what the expected fingerprint says.
      split_of: File -> TFX's input split.
    """

    files: tuple[str, ...]
    root: str
    check: Callable[[], None]
    split_of: Mapping[str, str] = dataclasses.field(default_factory=dict)


def fingerprint(folder: str, patterns: Mapping[str, str]) -> str:
    """Returns what TFX's metadata keep of the input; a step's output is used again only where it is the same.

    Of local files by names and bytes; of objects by names and ETags, or sizes and times where a store gives no ETag.

    Args:
      folder: As ``split_path`` returned it.
      patterns: TFX's input split -> pattern, spans and versions filled in.

    Raises:
      DataError: No file matches one of them.
      ConfigurationError: The store denies access, or there is no such bucket.
      StepFailed: The store does not answer.
    """
    if is_object_uri(folder):
        found = {split: matched_objects(folder, pattern) for split, pattern in patterns.items()}
        return _objects_fingerprint(folder, found)
    local = local_folder(folder)
    return input_fingerprint(local, {split: matched_files(local, pattern) for split, pattern in patterns.items()})


def check_found(folder: str, pattern: str) -> None:
    """Raises what ``fingerprint`` would where there is nothing to read, without reading it."""
    if is_object_uri(folder):
        matched_objects(folder, pattern)
    else:
        matched_files(local_folder(folder), pattern)


@contextlib.contextmanager
def opened_input(
    folder: str, pattern: str, *, split: str = "", expected: str | None = None, scratch: Path | None = None
) -> Iterator[LocalInput]:
    """Gives the files that a pattern matches as local ones, for as long as the block runs.

    Args:
      folder: As ``split_path`` returned it.
      pattern: Spans and versions filled in.
      split: TFX's input split, which is part of the fingerprint.
      expected: The ``fingerprint`` that they must have all the while; None checks nothing.
      scratch: Where objects are fetched to, under the names that they have below ``folder``, and stay; None makes a
        folder for as long as the block runs.

    Raises:
      DataError: No file matches.
      ConfigurationError: The store denies access, or there is no such bucket.
      StepFailed: The store does not answer, the disk is full, or an object changed while it was fetched.
    """
    if not is_object_uri(folder):
        local = local_folder(folder)
        files = matched_files(local, pattern)
        if expected is None:
            yield LocalInput(files=files, root=local, check=lambda: None)
        else:
            yield LocalInput(files=files, root=local, check=UnchangedInput(local, {split: files}, expected).check)
        return
    objects = matched_objects(folder, pattern)
    seen = _UnchangedObjects(
        folder, pattern, split, objects, expected or _objects_fingerprint(folder, {split: objects})
    )
    seen.check(objects)
    with _scratch_folder() if scratch is None else contextlib.nullcontext(scratch) as target:
        _check_room(folder, objects, target)
        uris = object_store.fetch(objects, target, folder)
        is_folder = is_literal(pattern) and objects[0].uri != object_store.join(folder, literal_name(pattern))
        root = target / literal_name(pattern) if is_folder else target
        with _named_by_uri(uris):
            yield LocalInput(files=tuple(uris), root=str(root), check=seen.check)


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    scratch = Path(tempfile.mkdtemp(prefix="lockstep-data-"))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def opened_splits(folder: str, patterns: Mapping[str, str], expected: str) -> Iterator[LocalInput]:
    """Gives the files of several input splits as local ones, for as long as the block runs; see ``opened_input``.

    Args:
      folder: As ``split_path`` returned it.
      patterns: Input split -> pattern, spans and versions filled in.
      expected: The ``fingerprint`` of all that they must have all the while.

    Raises:
      DataError: No file matches a pattern, or a file is of two splits.
    """
    lines = expected.split("\n")
    if len(patterns) != len(lines):
        raise StepFailed(f"{folder}: the fingerprint is of {len(lines)} splits, and there are {len(patterns)}")
    found: dict[str, LocalInput] = {}
    with contextlib.ExitStack() as stack:
        # One for all splits: a file has the same name below it as below ``folder``, whichever split it is of.
        scratch = stack.enter_context(_scratch_folder()) if is_object_uri(folder) and len(patterns) > 1 else None
        for (split, pattern), line in zip(patterns.items(), lines, strict=True):
            opened = opened_input(folder, pattern, split=split, expected=line, scratch=scratch)
            found[split] = stack.enter_context(opened)
        split_of: dict[str, str] = {}
        for split, each in found.items():
            for path in each.files:
                if path in split_of:
                    raise DataError(f"{path}: in the splits {split_of[path]!r} and {split!r}; mend data.split_by.paths")
                split_of[path] = split

        def check() -> None:
            for each in found.values():
                each.check()

        root = next(iter(found.values())).root if scratch is None else str(scratch)
        yield LocalInput(files=tuple(split_of), root=root, check=check, split_of=split_of)


def matched_objects(folder: str, pattern: str) -> tuple[StoredObject, ...]:
    """Returns the objects under ``folder`` that ``pattern`` matches, sorted by name.

    Hidden objects and objects named ``_*``, and those in folders named so, are left out, unless the pattern is one
    object's own name. A name that is no object's means what is directly in the folder of that name, and if there is
    nothing, all below it; so does a pattern that matches folders and no object.

    Raises:
      DataError: No object matches.
      ConfigurationError: The store denies access, or there is no such bucket.
      StepFailed: The store does not answer.
    """
    found = object_store.find_objects(folder, pattern)
    if found and is_literal(pattern):
        return found
    if is_literal(pattern):
        below = object_store.join(folder, literal_name(pattern))
        # Of those directly in it, markers such as _SUCCESS do not count.
        found = _visible(below, object_store.find_objects(below, "*"))
        found = found or _visible(below, object_store.find_objects(below, "**"))
    else:
        found = _visible(folder, found) or _visible(folder, object_store.find_objects(folder, f"{pattern}/**"))
    if not found:
        name = literal_name(pattern) if is_literal(pattern) else None
        if name is not None:
            raise DataError(f"data.path: no such object, and no folder of that name: {object_store.join(folder, name)}")
        raise DataError(
            f"data.path: no object in {folder} matches {pattern!r} (hidden objects and objects named _* do not count)"
        )
    return found


def _visible(folder: str, objects: Sequence[StoredObject]) -> tuple[StoredObject, ...]:
    return tuple(item for item in objects if is_visible(item.uri.removeprefix(folder)))


def _objects_fingerprint(folder: str, objects_by_split: Mapping[str, Sequence[StoredObject]]) -> str:
    lines = []
    for split, objects in objects_by_split.items():
        whole = hashlib.blake2b(digest_size=16)
        for item in objects:
            whole.update(f"{item.uri.removeprefix(folder)}\0{item.tag}\0".encode())
        lines.append(f"split:{split},num_files:{len(objects)},tags:{whole.hexdigest()}")
    return "\n".join(lines)


class _UnchangedObjects:
    """Tells whether objects are to the end of the reading what the fingerprint says that they are."""

    def __init__(self, folder: str, pattern: str, split: str, objects: Sequence[StoredObject], expected: str) -> None:
        self._folder, self._pattern, self._split = folder, pattern, split
        self._seen = {item.uri: item for item in objects}
        self._expected = expected

    def check(self, now: Sequence[StoredObject] | None = None) -> None:
        """Raises StepFailed where the objects, as they are listed now, differ."""
        if now is None:
            try:
                now = matched_objects(self._folder, self._pattern)
            except DataError:  # all were removed
                now = ()
        if _objects_fingerprint(self._folder, {self._split: now}) != self._expected:
            tags = {item.uri: item for item in now}
            changed = sorted(uri for uri in tags.keys() | self._seen if tags.get(uri) != self._seen.get(uri))
            raise StepFailed(
                f"{shown(changed or list(self._seen))} changed while it was read; run again when nothing writes to it"
            )


def _check_room(folder: str, objects: Sequence[StoredObject], scratch: Path) -> None:
    size_mb, free_mb = sum(item.size for item in objects) >> 20, shutil.disk_usage(scratch).free >> 20
    if size_mb >= free_mb:
        raise StepFailed(
            f"{folder}: {size_mb} MB are to be fetched, but {free_mb} MB are free in {scratch.parent}; make room, or"
            " set TMPDIR to a larger disk"
        )
    _progress.info("fetching %d object%s, %d MB", len(objects), "s" if len(objects) > 1 else "", size_mb)


@contextlib.contextmanager
def _named_by_uri(uris: Mapping[str, str]) -> Iterator[None]:
    """Puts an object's URI for the path of its copy in the messages of errors."""
    try:
        yield
    except (UserError, StepFailed) as e:
        message = str(e)
        for path, uri in uris.items():
            message = message.replace(path, uri)
        if message == str(e):
            raise
        raise type(e)(message) from e
