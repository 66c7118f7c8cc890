"""Folders that mean something, splits by path, and spans, in an object store as on the disk."""

import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tfx.types import standard_artifacts

from lockstep.components.errors import DataError
from lockstep.components.example_gen.component import ExampleGen
from lockstep.components.example_gen.driver import ContentDriver
from lockstep.components.example_gen.executor import Executor
from lockstep.components.example_gen.options import DataOptions
from lockstep.components.example_gen.split_options import SplitBy
from lockstep.components.record_manifest import Manifest
from tests.components.example_gen.conftest import Ingested
from tests.conftest import Bucket

pytestmark = pytest.mark.usefixtures("scratch_dir")

_JPEG = b"\xff\xd8\xff\xe0"


def _run(path: str, folder: Path, **options: Any) -> Ingested:
    """Runs driver and executor; nothing stays in the scratch folder."""
    shutil.rmtree(folder, ignore_errors=True)
    component = ExampleGen(DataOptions(path=path, **{"splits": {"all": 1}, "num_shards": 1, **options}))
    properties = ContentDriver(None).resolve_exec_properties(dict(component.exec_properties), None, None)
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    Executor().Do({}, {"examples": [examples]}, dict(properties))
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    return Ingested(folder, Manifest.load(str(folder)))


def _both(bucket: Bucket, tmp_path: Path, files: dict[str, bytes], path: str, **options: Any) -> Ingested:
    """Returns what comes of files in a store, which is what comes of them on the disk."""
    for name, content in files.items():
        bucket.put(f"d/{name}", content)
        local = tmp_path / "local" / name
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(content)
    stored = _run(bucket.uri(f"d/{path}".rstrip("/")), tmp_path / "of objects", **options)
    on_disk = _run(str(tmp_path / "local" / path), tmp_path / "of files", **options)
    assert {split: stored.rows(split) for split in stored.manifest.rows} == {
        split: on_disk.rows(split) for split in on_disk.manifest.rows
    }
    return stored


def _parquet(**columns: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("path", ["", "**", "year=*/**/*.parquet"])
def test_folders_of_keys_and_values_become_columns(bucket: Bucket, tmp_path: Path, path: str) -> None:
    """As Hive and Spark write them, markers and escaped values included."""
    files = {
        "year=2023/city=a%20b/part-0.parquet": _parquet(x=[1]),
        "year=2024/city=__HIVE_DEFAULT_PARTITION__/part-0.parquet": _parquet(x=[2, 3]),
        "year=2024/city=c/part-0.parquet": _parquet(x=[4]),
        "_SUCCESS": b"",
        "year=2024/_committed": b"",
    }
    result = _both(bucket, tmp_path, files, path)
    rows = sorted(result.rows(), key=lambda row: row["x"])
    assert rows == [
        {"x": [1], "year": [2023], "city": [b"a b"]},
        {"x": [2], "year": [2024]},
        {"x": [3], "year": [2024]},
        {"x": [4], "year": [2024], "city": [b"c"]},
    ]


def test_folders_of_classes_become_labels(bucket: Bucket, tmp_path: Path) -> None:
    """Bytes, labels and names, as on the disk."""
    files = {
        "cat/1.jpg": _JPEG + b"a",
        "dog/1.jpg": _JPEG + b"b",
        "dog/x y/2.jpg": _JPEG + b"c",
        "dog/.hidden.jpg": b"",
    }
    rows = sorted(_both(bucket, tmp_path, files, "").rows(), key=lambda row: row["path"])
    assert rows == [
        {"image": [_JPEG + b"a"], "label": [b"cat"], "path": [b"cat/1.jpg"]},
        {"image": [_JPEG + b"b"], "label": [b"dog"], "path": [b"dog/1.jpg"]},
        {"image": [_JPEG + b"c"], "label": [b"x y"], "path": [b"dog/x y/2.jpg"]},
    ]


def test_a_list_of_images_finds_them(bucket: Bucket, tmp_path: Path) -> None:
    """By paths relative to the list; one that is not there is named by its URI."""
    files = {
        "list.csv": b"path,y\nphotos/1.jpg,1\nphotos/sub/2.jpg,0\n",
        "photos/1.jpg": _JPEG,
        "photos/sub/2.jpg": _JPEG + b"2",
    }
    result = _both(bucket, tmp_path, files, "**", format="image_list")
    assert sorted(result.rows(), key=lambda row: row["y"]) == [
        {"image": [_JPEG + b"2"], "path": [b"photos/sub/2.jpg"], "y": [0]},
        {"image": [_JPEG], "path": [b"photos/1.jpg"], "y": [1]},
    ]
    uri = bucket.put("d/list.csv", b"path,y\nphotos/3.jpg,1\n")
    with pytest.raises(DataError, match=rf"{uri}:2: .*photos/3\.jpg"):
        _run(bucket.uri("d/**"), tmp_path / "gone", format="image_list")


def test_images_in_folders_of_splits_keep_labels_and_names(bucket: Bucket, tmp_path: Path) -> None:
    """Below the folder of all splits."""
    files = {"train/cat/1.jpg": _JPEG, "train/dog/1.jpg": _JPEG + b"2", "eval/cat/1.jpg": _JPEG + b"3"}
    by = SplitBy(paths={"train": "train", "eval": "eval/**"})
    result = _both(bucket, tmp_path, files, "", splits={"train": 1, "eval": 1}, split_by=by)
    assert sorted((row["label"][0], row["path"][0]) for row in result.rows("train")) == [
        (b"cat", b"train/cat/1.jpg"),
        (b"dog", b"train/dog/1.jpg"),
    ]
    assert [(row["label"][0], row["path"][0]) for row in result.rows("eval")] == [(b"cat", b"eval/cat/1.jpg")]


def test_partitions_in_folders_of_splits_are_columns(bucket: Bucket, tmp_path: Path) -> None:
    """Of one type in both."""
    files = {
        "train/day=1/a.parquet": _parquet(x=[1]),
        "train/day=2/a.parquet": _parquet(x=[2]),
        "eval/day=x/a.parquet": _parquet(x=[3]),
    }
    by = SplitBy(paths={"train": "train", "eval": "eval"})
    result = _both(bucket, tmp_path, files, "", splits={"train": 1, "eval": 1}, split_by=by)
    assert sorted(row["day"][0] for row in result.rows("train")) == [b"1", b"2"]
    assert [row["day"][0] for row in result.rows("eval")] == [b"x"]


def test_an_object_of_two_splits_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    """By its URI, as a file is by its path."""
    uri = bucket.put("d/a.csv", "x\n1\n")
    by = SplitBy(paths={"train": "*.csv", "eval": "a.csv"})
    with pytest.raises(DataError, match=rf"{uri}: in the splits 'train' and 'eval'"):
        _run(bucket.uri("d"), tmp_path / "out", splits={"train": 1, "eval": 1}, split_by=by)


_SPANS = {
    f"{split}/span-{span}/v{version}/rows.csv": f"x,t\n{span}{version},2024-01-0{span}\n"
    for split in ("train", "eval")
    for span, version in ((1, 1), (2, 1), (2, 2))
}


@pytest.mark.parametrize(
    ("path", "paths"),
    [
        ("", {"train": "train/span-{SPAN}/v{VERSION}/*", "eval": "eval/span-{SPAN}/v{VERSION}"}),
        ("", {"train": "train/span-{SPAN}/v{VERSION}/rows.csv", "eval": "eval/span-{SPAN}/v{VERSION}/**"}),
    ],
)
def test_the_newest_span_and_version_of_each_split_are_taken(
    bucket: Bucket, tmp_path: Path, path: str, paths: dict[str, str]
) -> None:
    """By TFX's rules: all splits of the same span."""
    files = {name: text.encode() for name, text in _SPANS.items()}
    splits = {"train": 1, "eval": 1}
    result = _both(bucket, tmp_path, files, path, splits=splits, split_by=SplitBy(paths=paths))
    assert [row["x"] for split in splits for row in result.rows(split)] == [[22], [22]]


def test_splits_within_a_span_are_found(bucket: Bucket, tmp_path: Path) -> None:
    """The span is in ``path``, the splits are below it; the fingerprint is of the newest files alone."""
    files = {f"span-{span}/{split}/rows.csv": b"x\n%d\n" % span for span in (1, 2) for split in ("train", "eval")}
    options = {"splits": {"train": 1, "eval": 1}, "split_by": SplitBy(paths={"train": "train", "eval": "eval/*"})}
    result = _both(bucket, tmp_path, files, "span-{SPAN}", **options)
    assert [row["x"] for split in ("train", "eval") for row in result.rows(split)] == [[2], [2]]


def test_splits_of_different_spans_are_refused(bucket: Bucket, tmp_path: Path) -> None:
    """A model would be evaluated with rows of another time than it seems."""
    for name, text in _SPANS.items():
        bucket.put(f"d/{name}", text)
    bucket.put("d/train/span-3/v1/rows.csv", "x,t\n3,2024-01-03\n")
    by = SplitBy(paths={split: f"{split}/span-{{SPAN}}/v{{VERSION}}/*" for split in ("train", "eval")})
    with pytest.raises(DataError, match=r"data\.path: .*same"):
        _run(bucket.uri("d"), tmp_path / "out", splits={"train": 1, "eval": 1}, split_by=by)


@pytest.mark.parametrize(
    ("by", "kept"),
    [
        (SplitBy(columns=("c",)), None),
        (SplitBy(time="t", until={"train": "2024-01-05"}), [{1, 2, 3, 4}, {5, 6, 7, 8, 9}]),
        (SplitBy(time="t"), [{1, 2, 3, 4, 5, 6}, {7, 8, 9}]),
    ],
)
def test_splits_by_key_and_by_time_are_those_of_the_disk(
    bucket: Bucket, tmp_path: Path, by: SplitBy, kept: list[set[int]] | None
) -> None:
    """Of a compressed object too, whose rows come out as they would of a file."""
    text = "x,t,c\n" + "".join(f"{i},2024-01-0{i},c{i % 4}\n" for i in range(1, 10))
    options = {"splits": {"train": 2, "eval": 1}, "split_by": by, "types": {"t": "timestamp"}}
    result = _both(bucket, tmp_path, {"rows.csv": text.encode()}, "rows.csv", **options)
    train, evaluation = ({row["x"][0] for row in result.rows(split)} for split in ("train", "eval"))
    assert train | evaluation == set(range(1, 10))
    if kept is None:
        assert not {i % 4 for i in train} & {i % 4 for i in evaluation}
    else:
        assert [train, evaluation] == kept
    assert json.loads((result.folder / "manifest.json").read_text())["types"]["t"] == "timestamp"
