"""What an Examples artifact says of itself, and how it appears."""

import json
from pathlib import Path

import pytest

from lockstep.components.errors import StepFailed
from lockstep.components.record_manifest import (
    MANIFEST_NAME,
    Manifest,
    RawColumns,
    Shard,
    published_folder,
    read_raw_columns,
    write_raw_columns,
)


def _artifact(folder: Path, **said: object) -> str:
    folder.mkdir()
    (folder / MANIFEST_NAME).write_text(Manifest(shards={}, **said).to_json())  # type: ignore[arg-type]
    return str(folder)


def test_a_manifest_is_read_back() -> None:
    """And one from before there were times is still one."""
    manifest = Manifest(
        shards={"train": (Shard(path="Split-train/a", records=3, size=9),)},
        types={"t": "timestamp"},
        time_zone="Europe/Berlin",
        time_formats={"t": "%d.%m.%Y"},
        list_separator="|",
    )
    document = json.loads(manifest.to_json())
    assert manifest.rows == {"train": 3}
    for key in ("time_zone", "time_formats", "list_separator"):
        del document[key]
    assert document["types"] == {"t": "timestamp"}


def test_what_artifacts_agree_on_goes_with_the_graph(tmp_path: Path) -> None:
    """A column that is a time in one and a number in another is neither; a stock artifact says nothing."""
    (tmp_path / "stock").mkdir()
    first = _artifact(tmp_path / "a", types={"t": "timestamp", "x": "int", "b": "bool"}, time_formats={"t": "unix"})
    second = _artifact(
        tmp_path / "b", types={"t": "timestamp", "x": "float", "b": "bool"}, time_formats={"t": "unix_ms"}
    )
    (tmp_path / "graph").mkdir()
    assert read_raw_columns(tmp_path / "graph") == RawColumns()
    write_raw_columns([str(tmp_path / "stock")], tmp_path / "graph")
    assert list((tmp_path / "graph").iterdir()) == []
    write_raw_columns([first, str(tmp_path / "stock"), second], tmp_path / "graph")
    found = read_raw_columns(tmp_path / "graph")
    assert found == RawColumns(types={"t": "timestamp", "b": "bool"}, time_formats={"t": "unix_ms"})
    assert RawColumns.from_document(found.to_document() | {"later": 1}) == found


def _fill(staging: Path, name: str) -> None:
    (staging / "Split-train").mkdir()
    (staging / "Split-train" / name).touch()
    (staging / MANIFEST_NAME).write_text(name)


def test_what_a_killed_attempt_left_is_replaced(tmp_path: Path) -> None:
    """Splits without a manifest are no artifact, and a folder that nobody writes to any more is rubbish."""
    out = tmp_path / "out"
    (out / "Split-train").mkdir(parents=True)
    (out / "Split-train" / "half").touch()
    (out / ".writing-dead" / ".rows").mkdir(parents=True)
    with published_folder(out) as staging:
        assert not (out / ".writing-dead").exists()
        _fill(staging, "whole")
    assert sorted(path.name for path in out.rglob("*")) == ["Split-train", MANIFEST_NAME, "whole"]


def test_a_second_attempt_at_once_does_not_disturb_the_first(tmp_path: Path) -> None:
    """Who comes first publishes; the other is told, and leaves nothing."""
    out = tmp_path / "out"

    def attempt_twice() -> None:
        with published_folder(out) as second:
            with published_folder(out) as first:
                assert second.exists()
                _fill(first, "first")
            _fill(second, "second")

    with pytest.raises(StepFailed, match="holds examples already"):
        attempt_twice()
    assert sorted(path.name for path in out.rglob("*")) == ["Split-train", "first", MANIFEST_NAME]
    assert (out / MANIFEST_NAME).read_text() == "first"
