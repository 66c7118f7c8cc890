"""What counts as a version, which one is served, and what a candidate is judged against."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.components.pusher import publish, versions


def make_model(model_dir: Path, content: str = "graph") -> Path:
    """Makes a folder with the files of a SavedModel; nothing here loads it."""
    for name, text in {
        "saved_model.pb": content,
        "variables/variables.data": content * 1000,
        "assets.extra/lockstep.json": "{}",
    }.items():
        path = model_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return model_dir


def push(model_dir: Path, push_dir: Path, keep: int = 5, **origin: str) -> publish.PushResult:
    """Pushes with an origin that nothing is asked about."""
    return publish.push(model_dir, push_dir, keep, publish.Origin(source_uri=str(model_dir), **origin))  # type: ignore[arg-type]


def test_a_folder_that_does_not_exist_serves_nothing(tmp_path: Path) -> None:
    """Before the first push there is no folder."""
    assert versions.served_version(tmp_path / "push") is None
    assert versions.list_versions(tmp_path / "push") == ()


def test_the_highest_whole_version_is_served(tmp_path: Path) -> None:
    """Numbers are compared as numbers, and every version can be listed."""
    for content in ("a", "b", "c"):
        push(make_model(tmp_path / content, content), tmp_path / "push")
    listed = [version.number for version in versions.list_versions(tmp_path / "push")]
    served = versions.served_version(tmp_path / "push")
    assert served is not None
    assert listed == sorted(set(listed))
    assert len(listed) == 3
    assert served.number == listed[-1]


@pytest.mark.parametrize("damage", ["manifest gone", "manifest cut", "file gone", "file cut", "renamed", "not ours"])
def test_a_version_that_is_not_whole_is_never_served(tmp_path: Path, damage: str) -> None:
    """The version before it is; what a stock Pusher or a person put there is left alone."""
    first = push(make_model(tmp_path / "a", "a"), tmp_path / "push").version
    second = push(make_model(tmp_path / "b", "b"), tmp_path / "push").version
    manifest = second.dir / versions.MANIFEST_NAME
    if damage == "manifest gone":
        manifest.unlink()
    elif damage == "manifest cut":
        manifest.write_text(manifest.read_text()[:100])
    elif damage == "file gone":
        (second.dir / "saved_model.pb").unlink()
    elif damage == "file cut":
        (second.dir / "variables" / "variables.data").write_text("")
    elif damage == "renamed":
        second.dir.rename(second.dir.parent / str(second.number + 5))
    else:
        manifest.write_text('{"version": 1}')
    assert versions.served_version(tmp_path / "push") == first


@pytest.mark.parametrize("damage", ["folder", "loop", "file too long"])
def test_a_version_that_cannot_be_read_is_logged_and_stops_nothing(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What was whole before it is served, and the next push exceeds it."""
    first = push(make_model(tmp_path / "a", "a"), tmp_path / "push").version
    second = push(make_model(tmp_path / "b", "b"), tmp_path / "push").version
    manifest = second.dir / versions.MANIFEST_NAME
    if damage == "file too long":
        manifest.write_text(manifest.read_text().replace("saved_model.pb", "n" * 300))
    else:
        manifest.unlink()
        if damage == "folder":
            manifest.mkdir()
        else:
            manifest.symlink_to(manifest)
    assert versions.served_version(tmp_path / "push") == first
    assert f"{second.dir} is passed over, as it cannot be read" in caplog.text
    third = push(make_model(tmp_path / "c", "c"), tmp_path / "push").version
    assert versions.list_versions(tmp_path / "push") == (first, third)
    assert third.number > second.number


def test_a_number_beyond_int64_is_no_version(tmp_path: Path) -> None:
    """TensorFlow Serving passes over it, so it takes no number."""
    (tmp_path / "push" / str(2**63)).mkdir(parents=True)
    assert versions.version_numbers(tmp_path / "push") == ()
    assert push(make_model(tmp_path / "a"), tmp_path / "push").version.number < 2**62


def test_changed_content_of_the_same_size_is_found_by_checksum(tmp_path: Path) -> None:
    """Checksums cost a read of every byte, so they are compared on request."""
    version = push(make_model(tmp_path / "a"), tmp_path / "push").version
    assert versions.damaged_files(version) == ()
    (version.dir / "saved_model.pb").write_text("hparg")
    assert versions.damaged_files(version) == ("saved_model.pb",)


def test_a_checksum_depends_on_names_and_contents_only(tmp_path: Path) -> None:
    """A pushed copy, with its manifest, has its source's checksum."""
    source = make_model(tmp_path / "a")
    version = push(source, tmp_path / "push").version
    assert versions.content_sha256(version.dir) == versions.content_sha256(source)
    assert versions.content_sha256(make_model(tmp_path / "b", "other")) != versions.content_sha256(source)
    (tmp_path / "a" / "saved_model.pb").rename(tmp_path / "a" / "saved_model.txt")
    assert versions.content_sha256(version.dir) != versions.content_sha256(source)


@given(st.dictionaries(st.text(min_size=1), st.integers(min_value=0)), st.text(), st.text())
def test_a_manifest_survives_json(files: dict[str, int], verdict: str, token: str) -> None:
    """What a push writes is what a reader finds."""
    manifest = versions.Manifest(
        version=3,
        model_sha256="ab",
        source_uri="/models/1",
        blessing_uri="/blessing/1",
        evaluation_uri="",
        metrics={"auc": 0.1 + 0.2},
        verdict=verdict,
        baseline=versions.NO_BASELINE,
        token=token,
        created="2026-01-01T00:00:00+00:00",
        files={name: versions.FileEntry(size=size, sha256="cd") for name, size in files.items()},
    )
    assert versions.Manifest.from_json(manifest.to_json()) == manifest


def test_a_new_candidate_is_judged_against_what_is_served(tmp_path: Path) -> None:
    """Also after a roll-back: served is what counts, not the newest model ever blessed."""
    first = push(make_model(tmp_path / "a", "a"), tmp_path / "push").version
    second = push(make_model(tmp_path / "b", "b"), tmp_path / "push").version
    candidate = make_model(tmp_path / "c", "c")
    baseline = versions.Baseline.from_json(versions.resolve_baseline(tmp_path / "push", candidate))
    assert baseline == versions.Baseline(version=second.number, model_sha256=second.manifest.model_sha256)
    second.dir.rename(tmp_path / "rolled back")
    baseline = versions.Baseline.from_json(versions.resolve_baseline(tmp_path / "push", candidate))
    assert baseline == versions.Baseline(version=first.number, model_sha256=first.manifest.model_sha256)


def test_a_served_candidate_keeps_what_it_was_judged_against(tmp_path: Path) -> None:
    """So a run in which nothing changed has the cache key of the run that pushed, letter by letter."""
    push_dir = tmp_path / "push"
    first, second = make_model(tmp_path / "a", "a"), make_model(tmp_path / "b", "b")
    before_first = versions.resolve_baseline(push_dir, first)
    push(first, push_dir, baseline=before_first)
    assert versions.resolve_baseline(push_dir, first) == before_first == versions.NO_BASELINE
    before_second = versions.resolve_baseline(push_dir, second)
    push(second, push_dir, baseline=before_second)
    assert versions.resolve_baseline(push_dir, second) == before_second != versions.NO_BASELINE


def test_without_a_push_folder_there_is_no_baseline(tmp_path: Path) -> None:
    """An Evaluator can be used without a Pusher."""
    assert versions.resolve_baseline(None, tmp_path) == versions.NO_BASELINE
    assert versions.Baseline.from_json(versions.NO_BASELINE) is None
