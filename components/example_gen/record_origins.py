"""Where each record came from: a table beside the examples, so that later steps can name file and line.

``data.keep_origin: true`` makes ExampleGen write ``origins/Split-<name>/<shard>.parquet`` for each file of records, a
row for a record, in their order: ``file`` and ``position`` (a line or row from 1, or a byte from 0).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.components.errors import DataError
from lockstep.components.record_manifest import Manifest

ORIGINS_DIR = "origins"

_PLACE = b"lockstep.place"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a record came from; its text is as error messages have it, such as ``rows.csv:12``."""

    file: str
    position: int
    place: str

    def __str__(self) -> str:
        return self.place


def read_origins(artifact_dir: str, shard: str, records: Sequence[int] | None = None) -> list[Origin]:
    """Returns the origins of records of one file, in the order asked for.

    Args:
      artifact_dir: The local folder of ExampleGen's output.
      shard: The file's name under it, as in the manifest: ``Split-train/data_tfrecord-00000-of-00004.gz``.
      records: Numbers of records in the file, from 0; None takes all.

    Raises:
      DataError: The origins were not kept, or there is no such record.
    """
    path = origins_path(Path(artifact_dir), shard)
    try:
        table = pq.read_table(path)
    except FileNotFoundError as e:
        raise DataError(f"{path}: the origins of the records were not kept; set data.keep_origin: true") from e
    if records is not None:
        outside = [number for number in records if not 0 <= number < table.num_rows]
        if outside:
            raise DataError(f"{shard}: no record {outside[0]}; it holds {table.num_rows}")
        table = table.take(pa.array(records, pa.int64()))
    pattern = table.schema.metadata[_PLACE].decode()
    files, positions = table.column("file").to_pylist(), table.column("position").to_pylist()
    return [
        Origin(file, position, pattern.replace("{path}", file).replace("{position}", str(position)))
        for file, position in zip(files, positions, strict=True)
    ]


def iterate_origins(artifact_dir: str, split: str) -> Iterator[Origin]:
    """Gives the origin of each record of a split, file by file, in the order in which the files hold the records.

    Raises:
      DataError: The origins were not kept.
    """
    for shard in (shard for shard in Manifest.load(artifact_dir).shards[split] if shard.records):
        yield from read_origins(artifact_dir, shard.path)


def origins_path(folder: Path, shard: str) -> Path:
    """Returns the table that belongs to a file of records."""
    return folder / ORIGINS_DIR / Path(shard).with_suffix(".parquet")


class OriginWriter:
    """Writes the tables, one file of a split at a time; a context manager.

    Args:
      folder: The artifact's.
      place: How a place is written: ``{path}:{position}``.
    """

    def __init__(self, folder: Path, place: str) -> None:
        self._folder = folder
        self._schema = pa.schema([("file", pa.string()), ("position", pa.int64())], {_PLACE: place.encode()})
        self._open: dict[Path, tuple[str, pq.ParquetWriter]] = {}

    def __enter__(self) -> "OriginWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open.values():
            each[1].close()

    def append(self, shard: str, origins: pa.RecordBatch) -> None:
        """Adds the origins of records to a file's table: the same as before or a later one of the split."""
        folder = Path(shard).parent
        current = self._open.get(folder)
        if current is None or current[0] != shard:
            if current is not None:
                current[1].close()
            path = origins_path(self._folder, shard)
            path.parent.mkdir(parents=True, exist_ok=True)
            current = shard, pq.ParquetWriter(path, self._schema, compression="zstd")
            self._open[folder] = current
        current[1].write_table(pa.table(list(origins.columns), schema=self._schema))
