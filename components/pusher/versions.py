"""What a push folder holds: versions, their manifests, which one is served. Never writes.

The folder is a local one or one of an object store; what is said of it holds for both. Of a store, every function
raises ConfigurationError where it denies access and StepFailed where it does not answer: a served version that cannot
be seen is not one that is not there.
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lockstep.components.errors import DataError
from lockstep.components.object_store import Folder

# In `assets.extra`, which TensorFlow Serving leaves alone, beside the trainer's own `lockstep.json`.
MANIFEST_NAME = "assets.extra/lockstep.push.json"
NO_BASELINE = "null"
# TensorFlow Serving reads the names of versions as int64 and passes over what does not fit.
MAX_NUMBER = 2**63 - 1

_logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Size in bytes and SHA-256 (hexadecimal) of one file."""

    size: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What one pushed version is, and where it came from.

    Args:
      version: The name of its folder.
      model_sha256: ``content_sha256`` of the model that was pushed.
      source_uri: The Model artifact that it was copied from.
      blessing_uri: The ModelBlessing artifact that let it pass.
      evaluation_uri: The ModelEvaluation artifact with TFMA's results and ``verdict.json``; empty if not known.
      metrics: Name -> value over the whole eval split.
      verdict: The verdict in one sentence.
      baseline: What the model was judged against, as ``resolve_baseline`` gave it, letter by letter: a later run in
        which nothing changed must find the same cache key.
      token: Names the push that made this version; part of the Pusher's cache key.
      created: Time of the push, ISO 8601, UTC.
      restored_from: The version whose model a person made served again by this one; 0 for a run's push.
      withdrawn: Models that were rolled back, by ``model_sha256`` -> version; no run pushes them again.
      files: Path relative to the version's folder, with slashes -> size and checksum; without the manifest itself.
    """

    version: int
    model_sha256: str
    source_uri: str
    blessing_uri: str
    evaluation_uri: str
    metrics: Mapping[str, float]
    verdict: str
    baseline: str
    token: str
    created: str
    files: Mapping[str, FileEntry]
    restored_from: int = 0
    withdrawn: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the manifest as indented JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Returns what ``to_json`` wrote.

        Raises:
          ValueError: Not JSON, or a key is absent or not known.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            document["files"] = {name: FileEntry(**entry) for name, entry in document["files"].items()}
            return cls(**document)
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"manifest: not one of Lockstep's: {e}") from e


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """A whole version in a push folder."""

    dir: Folder
    manifest: Manifest

    @property
    def number(self) -> int:
        """The version's number, also the name of its folder."""
        return self.manifest.version


def files_of(model_dir: Path) -> tuple[str, ...]:
    """Returns the files of a model, relative with slashes, sorted, without a push's manifest."""
    paths = (path.relative_to(model_dir) for path in model_dir.rglob("*") if path.is_file())
    return tuple(sorted(name for path in paths if (name := path.as_posix()) != MANIFEST_NAME))


def file_entry(path: Path) -> FileEntry:
    """Returns size and checksum of a file."""
    with path.open("rb") as file:
        return entry_of(iter(lambda: file.read(_CHUNK_BYTES), b""))


def entry_of(chunks: Iterable[bytes]) -> FileEntry:
    """Returns size and checksum of a content that comes piece by piece."""
    digest = hashlib.sha256()
    size = 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return FileEntry(size=size, sha256=digest.hexdigest())


def combined_sha256(files: Mapping[str, FileEntry]) -> str:
    """Returns one checksum over the names and contents of files, whatever their order."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{files[name].sha256}  {name}\n".encode())
    return digest.hexdigest()


def content_sha256(model_dir: Path) -> str:
    """Returns a checksum of a model's folder: equal for equal names and contents, wherever the folder is."""
    return combined_sha256({name: file_entry(model_dir / name) for name in files_of(model_dir)})


def version_numbers(push_dir: Folder) -> tuple[int, ...]:
    """Returns the numbers that folders in a push folder are named by, whole or not, ascending, ``MAX_NUMBER`` at most.

    Larger ones are no versions to a server, so neither here.
    """
    if isinstance(push_dir, Path):
        names = [path.name for path in push_dir.iterdir() if path.is_dir()] if push_dir.is_dir() else []
    else:
        names = list(push_dir.folders())
    numbers = (int(name) for name in names if name.isdecimal())
    return tuple(sorted(number for number in numbers if number <= MAX_NUMBER))


def read_version(version_dir: Folder) -> Version | None:
    """Returns the version in a folder, or None if it is not whole.

    Whole means: a manifest of this very number, and every file that it lists with the size that it says. The
    checksums are not read; ``damaged_files`` does. One that the operating system refuses to read is not whole either,
    and is logged, so that it does not stop the others from being served and new ones from being pushed.
    """
    try:
        manifest = Manifest.from_json(_read(version_dir, MANIFEST_NAME).decode())
        sizes = _sizes(version_dir, manifest.files)
    except (FileNotFoundError, NotADirectoryError, ValueError, DataError):
        return None
    except OSError as e:
        _logger.warning("%s is passed over, as it cannot be read: %s", version_dir, e)
        return None
    whole = str(manifest.version) == version_dir.name and all(
        sizes.get(name) == entry.size for name, entry in manifest.files.items()
    )
    return Version(dir=version_dir, manifest=manifest) if whole else None


def _read(folder: Folder, name: str) -> bytes:
    return (folder / name).read_bytes() if isinstance(folder, Path) else folder.read(name)


def _sizes(folder: Folder, names: Iterable[str]) -> dict[str, int]:
    if isinstance(folder, Path):
        return {name: (folder / name).stat().st_size for name in names}
    return {name: item.size for name, item in folder.objects().items()}


def _entry(folder: Folder, name: str) -> FileEntry:
    return file_entry(folder / name) if isinstance(folder, Path) else entry_of(folder.chunks(name))


def list_versions(push_dir: Folder) -> tuple[Version, ...]:
    """Returns the whole versions in a push folder, oldest first; empty if the folder does not exist."""
    found = (read_version(push_dir / str(number)) for number in version_numbers(push_dir))
    return tuple(version for version in found if version is not None)


def served_version(push_dir: Folder) -> Version | None:
    """Returns the version that is served: the highest whole one; None if there is none."""
    for number in reversed(version_numbers(push_dir)):
        version = read_version(push_dir / str(number))
        if version is not None:
            return version
    return None


def damaged_files(version: Version) -> tuple[str, ...]:
    """Returns the files of a version whose content is not what its manifest says; reads every byte."""
    entries = sorted(version.manifest.files.items())
    return tuple(name for name, entry in entries if _entry(version.dir, name) != entry)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """The version that a candidate is judged against."""

    version: int
    model_sha256: str

    def to_json(self) -> str:
        """Returns the baseline as JSON, equal for equal baselines."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Baseline | None":
        """Returns what ``to_json`` wrote; None for ``NO_BASELINE``."""
        document = json.loads(text)
        return None if document is None else cls(**document)


def resolve_baseline(push_dir: Folder | None, candidate_dir: Path) -> str:
    """Returns what a candidate is to be judged against, as JSON: a ``Baseline`` or ``NO_BASELINE``.

    A candidate that is served already was judged when it was pushed, against what was served then; that is returned
    again, letter by letter, so that a run in which nothing changed finds its cached verdict. Any other candidate is
    judged against the version served now.
    """
    served = None if push_dir is None else served_version(push_dir)
    if served is None:
        return NO_BASELINE
    if served.manifest.model_sha256 == content_sha256(candidate_dir):
        return served.manifest.baseline
    return Baseline(version=served.number, model_sha256=served.manifest.model_sha256).to_json()
