"""What is in an Examples artifact of Lockstep's: how many records each file holds, and how such a folder appears.

Standard library only: ExampleGen and Transform write it, the trainer's workers read it.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.components.errors import DataError, StepFailed

MANIFEST_NAME = "manifest.json"
RAW_COLUMNS_NAME = "raw_columns.json"

_STAGING_PREFIX = ".writing-"

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of records: its name under the artifact's folder, how many records it holds, and in how many bytes."""

    path: str
    records: int
    size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawColumns:
    """What the values of raw columns mean, which a tf.Example does not tell: whether an int64 is a time, or a truth.

    It goes from ExampleGen's manifest beside the transform graph, as ``raw_columns.json``, and from there into the
    model's description, so that a model can be asked about values as they were written.

    Args:
      types: As of ``Manifest``.
      time_zone: Of times that are written without one.
      time_formats: Column -> how its times are written, where that is not ISO 8601.
      list_separator: What stands between the values of a text that is a list; empty where a text is one value.
    """

    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    time_zone: str = "UTC"
    time_formats: Mapping[str, str] = dataclasses.field(default_factory=dict)
    list_separator: str = ""

    def of(self, columns: Collection[str]) -> "RawColumns":
        """Returns what is known of some columns."""
        types, formats = (
            {name: each[name] for name in sorted(each) if name in columns} for each in (self.types, self.time_formats)
        )
        return dataclasses.replace(self, types=types, time_formats=formats)

    def to_document(self) -> dict[str, Any]:
        """Returns what ``from_document`` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "RawColumns":
        """Returns what ``to_document`` was asked of; keys that are not known yet are passed over.

        Raises:
          ValueError, TypeError, AttributeError: It is no such document.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        raw = cls(**{key: value for key, value in document.items() if key in known})
        return raw.of({*raw.types})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is in an Examples artifact; ``manifest.json`` at its root, beside the splits' folders.

    Args:
      shards: Split -> its files, in order.
      types: Column -> int, float, string, bool, timestamp, date, or a list of one of the first three.
      time_zone: As of ``RawColumns``, and so the two below.
      time_formats: Of columns.
      list_separator: Within a text.
      missing: Column -> rows without a value, of those written.
      dropped: Reason -> rows that were read and left out.
      quarantined: Rows that could not be used; they are in ``quarantine/rows.jsonl``.
    """

    shards: Mapping[str, Sequence[Shard]]
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    time_zone: str = "UTC"
    time_formats: Mapping[str, str] = dataclasses.field(default_factory=dict)
    list_separator: str = ""
    missing: Mapping[str, int] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quarantined: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Split -> rows."""
        return {split: sum(shard.records for shard in shards) for split, shards in self.shards.items()}

    @property
    def raw_columns(self) -> RawColumns:
        """What the values of the columns mean."""
        return RawColumns(
            types=self.types,
            time_zone=self.time_zone,
            time_formats=self.time_formats,
            list_separator=self.list_separator,
        )

    def to_json(self) -> str:
        """Returns the text of ``manifest.json``."""
        return json.dumps({"rows": self.rows, **dataclasses.asdict(self)}, indent=2)

    @classmethod
    def load(cls, uri: str) -> "Manifest":
        """Reads the manifest of the artifact at the local folder ``uri``.

        Raises:
          FileNotFoundError: There is none: another component wrote the artifact.
        """
        data: dict[str, Any] = json.loads((Path(uri) / MANIFEST_NAME).read_text())
        del data["rows"]
        shards = {split: tuple(Shard(**shard) for shard in shards) for split, shards in data.pop("shards").items()}
        return cls(shards=shards, **data)


def agreed_raw_columns(artifact_uris: Sequence[str]) -> RawColumns | None:
    """Returns what Examples artifacts say of their columns, where all that say so agree; None where none does.

    Args:
      artifact_uris: Local folders; those without a manifest, of another component's making, say nothing.
    """
    known = []
    for uri in artifact_uris:
        with contextlib.suppress(FileNotFoundError):
            known.append(Manifest.load(uri).raw_columns)
    if not known:
        return None
    newest = known[-1]
    agreed = [name for name, kind in newest.types.items() if all(each.types.get(name) == kind for each in known)]
    return newest.of(agreed)


def write_raw_columns(artifact_uris: Sequence[str], folder: Path) -> None:
    """Writes ``raw_columns.json``, which holds what ``agreed_raw_columns`` returns; nothing where that is None.

    Args:
      artifact_uris: Local folders of Examples artifacts.
      folder: Exists.
    """
    agreed = agreed_raw_columns(artifact_uris)
    if agreed is None:
        return
    text = json.dumps(agreed.to_document(), indent=2, sort_keys=True)
    (folder / RAW_COLUMNS_NAME).write_text(text + "\n", encoding="utf-8")


def read_raw_columns(folder: Path) -> RawColumns:
    """Returns what ``write_raw_columns`` wrote; of no column, where it wrote nothing."""
    try:
        text = (folder / RAW_COLUMNS_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return RawColumns()
    return RawColumns.from_document(json.loads(text))


def recorded_counts(files: Sequence[str]) -> tuple[int, ...] | None:
    """Returns the records in each of the files of Examples artifacts, as their manifests say.

    Args:
      files: Local paths, ``ARTIFACT/Split-NAME/FILE``.

    Returns:
      None where a file's artifact has no manifest, or one that does not list it: another component wrote it.

    Raises:
      DataError: A file has not the size that the manifest says; TensorFlow takes one that was cut for a shorter one.
    """
    shards: dict[Path, Shard] = {}
    for root in {Path(file).parent.parent for file in files}:
        with contextlib.suppress(FileNotFoundError):
            shards |= {root / s.path: s for each in Manifest.load(str(root)).shards.values() for s in each}
    if not all(Path(file) in shards for file in files):
        return None
    for path, shard in ((Path(file), shards[Path(file)]) for file in files):
        size = path.stat().st_size
        if size != shard.size:
            raise DataError(f"{path}: {size} bytes, and {shard.size} were written; run the step that wrote it again")
    return tuple(shards[Path(file)].records for file in files)


@contextlib.contextmanager
def published_folder(target: Path) -> Iterator[Path]:
    """Gives a folder to write into; what is in it moves to ``target`` at the end, the manifest last.

    Nothing stays, in either place, when the body raises. What an attempt left that was killed is replaced.

    Raises:
      StepFailed: There is no space left, the folder cannot be written to, or it holds a whole artifact by then.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=target))
        try:
            with _held(staging):
                yield staging
                _publish(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as e:
        if e.errno not in _NO_SPACE:
            raise StepFailed(f"cannot write the examples in {target}: {e}") from e
        raise no_space_left(target, str(e.strerror)) from e


def _publish(staging: Path, target: Path) -> None:
    if (target / MANIFEST_NAME).exists():
        raise StepFailed(f"{target}: holds examples already; give another folder, or remove it")
    for item in sorted(staging.iterdir(), key=lambda path: path.name == MANIFEST_NAME):
        unfinished = target / item.name  # of an attempt that was killed on these lines
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        item.rename(target / item.name)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Locks a folder, as long as this process lives at most; where its disk knows no locks, it does nothing."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(target: Path) -> None:
    for staging in target.glob(f"{_STAGING_PREFIX}*"):
        try:
            descriptor = os.open(staging, os.O_RDONLY)
        except OSError:  # its owner has just removed it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody writes to it, or the disk knows no locks
            continue
        else:
            shutil.rmtree(staging, ignore_errors=True)
        finally:
            os.close(descriptor)


def no_space_left(target: Path, reason: str) -> StepFailed:
    """Returns the error of a disk that is full; to be called when the unfinished files are gone."""
    free_mb = shutil.disk_usage(target).free >> 20
    return StepFailed(
        f"no space left to write the examples in {target}: {reason}; {free_mb} MB are free there now that the "
        "unfinished files are gone; make room, or give another folder with --root"
    )
