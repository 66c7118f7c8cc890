"""What is in an Examples artifact of Lockstep's: how many records each file holds, and how such a folder appears.

Standard library only: ExampleGen and Transform write it, the trainer's workers read it.
"""

import contextlib
import dataclasses
import errno
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.components.errors import DataError, StepFailed

MANIFEST_NAME = "manifest.json"

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of records: its name under the artifact's folder, how many records it holds, and in how many bytes."""

    path: str
    records: int
    size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is in an Examples artifact; ``manifest.json`` at its root, beside the splits' folders.

    Args:
      shards: Split -> its files, in order.
      types: Column -> int, float, string, bool, timestamp, date, or a list of one of the first three.
      missing: Column -> rows without a value, of those written.
      dropped: Reason -> rows that were read and left out.
      quarantined: Rows that could not be used; they are in ``quarantine/rows.jsonl``.
    """

    shards: Mapping[str, Sequence[Shard]]
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    missing: Mapping[str, int] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quarantined: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Split -> rows."""
        return {split: sum(shard.records for shard in shards) for split, shards in self.shards.items()}

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

    Nothing stays, in either place, when the body raises.

    Raises:
      StepFailed: There is no space left, or the folder cannot be written to.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".writing-", dir=target))
        try:
            yield staging
            for item in sorted(staging.iterdir(), key=lambda path: path.name == MANIFEST_NAME):
                item.rename(target / item.name)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as e:
        if e.errno not in _NO_SPACE:
            raise StepFailed(f"cannot write the examples in {target}: {e}") from e
        raise no_space_left(target, str(e.strerror)) from e


def no_space_left(target: Path, reason: str) -> StepFailed:
    """Returns the error of a disk that is full; to be called when the unfinished files are gone."""
    free_mb = shutil.disk_usage(target).free >> 20
    return StepFailed(
        f"no space left to write the examples in {target}: {reason}; {free_mb} MB are free there now that the "
        "unfinished files are gone; make room, or give another folder with --root"
    )
