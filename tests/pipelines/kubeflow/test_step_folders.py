"""Folders through an object store."""

import json
from pathlib import Path

import pytest

from lockstep.pipelines.kubeflow.step_folders import EMPTY_FOLDERS_KEY, empty_folders, make_folders


def test_empty_folders_are_there_again(tmp_path: Path) -> None:
    """An object store drops them (fact 14); a SavedModel without assets, or an empty split, has some."""
    made, received = tmp_path / "made", tmp_path / "received"
    for name in ("Split-eval", "model/assets", "model/variables"):
        (made / name).mkdir(parents=True)
    (made / "model" / "variables" / "x").write_text("x")
    metadata = empty_folders(made)
    make_folders(received, metadata)
    assert sorted(path.relative_to(received).as_posix() for path in received.rglob("*")) == [
        "Split-eval",
        "model",
        "model/assets",
    ]


def test_a_folder_with_nothing_in_it_is_made(tmp_path: Path) -> None:
    """The launcher has downloaded nothing, and TFX expects a folder."""
    make_folders(tmp_path / "a" / "b", {})
    assert (tmp_path / "a" / "b").is_dir()
    assert empty_folders(tmp_path / "a" / "b") == {}


def test_a_file_stays_a_file(tmp_path: Path) -> None:
    """An importer may bring an artifact that is one file."""
    (tmp_path / "x").write_text("x")
    make_folders(tmp_path / "x", {})
    assert (tmp_path / "x").read_text() == "x"


def test_no_folder_is_made_outside(tmp_path: Path) -> None:
    """Metadata come from whoever can write to the store."""
    with pytest.raises(ValueError, match=r"'\.\./other' is not within the artifact"):
        make_folders(tmp_path / "x", {EMPTY_FOLDERS_KEY: json.dumps(["../other"])})
    assert not (tmp_path / "other").exists()
