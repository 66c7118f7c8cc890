"""Shared by the tests of ExampleGen: ingest a text, and read what came out with TensorFlow's own reader."""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.example_gen.files import matched_files, split_path
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.record_manifest import Manifest

Row = dict[str, list[Any]]


@dataclasses.dataclass(frozen=True)
class Ingested:
    """An artifact's folder and its manifest."""

    folder: Path
    manifest: Manifest

    def rows(self, split: str | None = None) -> list[Row]:
        """Returns the rows of one split or all, each column -> values; a missing value's column is absent."""
        shards = [shard for name, found in self.manifest.shards.items() if split in (None, name) for shard in found]
        return [row for shard in shards for row in read_rows(self.folder / shard.path)]

    def column(self, name: str) -> list[Any]:
        """Returns a column's values, sorted, with None for a missing one."""
        values = [row[name][0] if name in row else None for row in self.rows()]
        return sorted(values, key=lambda value: (value is None, value))


def read_rows(path: Path) -> list[Row]:
    """Returns the rows of one gzip TFRecord file."""
    import tensorflow as tf

    rows = []
    # In batches: a step of the iterator takes longer than the rest for a record.
    for records in tf.data.TFRecordDataset(str(path), compression_type="GZIP").batch(1000).as_numpy_iterator():
        for record in records:
            features = tf.train.Example.FromString(record).features.feature
            kinds = {name: value.WhichOneof("kind") for name, value in features.items()}
            rows.append({name: list(getattr(features[name], kind).value) for name, kind in kinds.items()})
    return rows


@pytest.fixture
def ingest_path(tmp_path: Path) -> Callable[..., Ingested]:
    """Ingests a file, folder or glob into one split of one shard, unless told otherwise."""
    made = 0

    def run(path: Path, requirements: Requirements = Requirements(), **options: Any) -> Ingested:  # noqa: B008
        nonlocal made
        made += 1
        data = DataOptions(path=str(path), **{"splits": {"all": 1}, "num_shards": 1, **options})
        folder = tmp_path / f"examples-{made}"
        root, pattern = split_path(data.path)
        return Ingested(folder, ingest(matched_files(root, pattern), data, folder, requirements, root=root))

    return run


@pytest.fixture
def ingest_text(tmp_path: Path, ingest_path: Callable[..., Ingested]) -> Callable[..., Ingested]:
    """Ingests the text, or bytes, of one CSV file, ``rows.csv``."""

    def run(text: str | bytes, requirements: Requirements = Requirements(), **options: Any) -> Ingested:  # noqa: B008
        path = tmp_path / "rows.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return ingest_path(path, requirements, **options)

    return run


@pytest.fixture
def scratch_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; empty at the end, whatever happened."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
