"""Rolling back and promoting: what is served, what a run may push afterwards, and what comes in between."""

import threading
from pathlib import Path

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.object_store import Folder, StoreFolder
from lockstep.components.pusher import history, publish, store_publish, versions
from tests.components.pusher.test_versions import make_model
from tests.conftest import Bucket


@pytest.fixture(params=["local", "s3"])
def push_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A push folder that nobody has pushed to."""
    if request.param == "local":
        return tmp_path / "push"
    bucket: Bucket = request.getfixturevalue("bucket")
    return StoreFolder(bucket.uri("models/taxi", "s3"))


def push(push_dir: Folder, content: str, tmp_path: Path, *, keep: int = 9, replaces: str | None = None) -> int:
    """Pushes a model with that content; returns its version."""
    model = make_model(tmp_path / content, content)
    origin = publish.Origin(source_uri=str(model), metrics={"auc": 0.9}, token=content, replaces=replaces)
    to_folder = publish.push if isinstance(push_dir, Path) else store_publish.push
    return to_folder(model, push_dir, keep, origin).version.number  # type: ignore[arg-type]


def served(push_dir: Folder) -> versions.Version:
    """Returns the served version, every byte of which was compared with its manifest."""
    version = versions.served_version(push_dir)
    assert version is not None
    assert versions.damaged_files(version) == ()
    return version


def test_a_rollback_serves_the_model_before_as_a_new_version(push_dir: Folder, tmp_path: Path) -> None:
    """Same bytes, a higher number, nothing removed, and where it came from is told."""
    first, second = push(push_dir, "a", tmp_path), push(push_dir, "b", tmp_path)
    result = history.rollback(push_dir)
    version = served(push_dir)
    assert result.created
    assert version.number == result.version.number > second
    assert version.manifest.model_sha256 == versions.content_sha256(tmp_path / "a")
    assert version.manifest.restored_from == first
    assert version.manifest.metrics == {"auc": 0.9}
    assert versions.version_numbers(push_dir) == (first, second, version.number)


def test_a_second_rollback_goes_back_further(push_dir: Folder, tmp_path: Path) -> None:
    """Not to the model that was just rolled back; and there is an end to it."""
    for content in "abc":
        push(push_dir, content, tmp_path)
    history.rollback(push_dir)
    history.rollback(push_dir)
    assert served(push_dir).manifest.model_sha256 == versions.content_sha256(tmp_path / "a")
    with pytest.raises(ConfigurationError, match="no version is older"):
        history.rollback(push_dir)
    assert served(push_dir).manifest.model_sha256 == versions.content_sha256(tmp_path / "a")


def test_no_run_pushes_what_was_rolled_back(push_dir: Folder, tmp_path: Path) -> None:
    """The same command again would otherwise undo what a person did; other models pass, and pass the word on."""
    push(push_dir, "a", tmp_path)
    bad = push(push_dir, "b", tmp_path)
    history.rollback(push_dir)
    restored = served(push_dir).number
    with pytest.raises(StepFailed, match=rf"rolled back as version {bad} .*promote .* {bad}"):
        push(push_dir, "b", tmp_path)
    assert served(push_dir).number == restored
    third = push(push_dir, "c", tmp_path)
    assert served(push_dir).number == third
    with pytest.raises(StepFailed, match=f"rolled back as version {bad}"):
        push(push_dir, "b", tmp_path)


def test_a_promoted_model_counts_as_good_again(push_dir: Folder, tmp_path: Path) -> None:
    """A person may change their mind; to roll back from there leads to what was served last."""
    push(push_dir, "a", tmp_path)
    bad = push(push_dir, "b", tmp_path)
    history.rollback(push_dir)
    history.promote(push_dir, bad)
    assert served(push_dir).manifest.restored_from == bad
    assert not served(push_dir).manifest.withdrawn
    assert not history.promote(push_dir, bad).created
    history.rollback(push_dir)
    assert served(push_dir).manifest.model_sha256 == versions.content_sha256(tmp_path / "a")


def test_a_version_is_promoted_to_another_folder(push_dir: Folder, tmp_path: Path) -> None:
    """With the lineage that it had."""
    push(push_dir, "a", tmp_path)
    target = tmp_path / "production"
    history.promote(push_dir, 0, target)
    version = served(target)
    assert version.manifest.model_sha256 == served(push_dir).manifest.model_sha256
    assert version.manifest.source_uri == served(push_dir).manifest.source_uri


def test_a_damaged_version_is_not_served_again(tmp_path: Path) -> None:
    """What changed since it was pushed is found by its checksum, and nothing is changed."""
    push_dir = tmp_path / "push"
    first, second = push(push_dir, "a", tmp_path), push(push_dir, "b", tmp_path)
    graph = push_dir / str(first) / "saved_model.pb"
    graph.write_bytes(b"x" * graph.stat().st_size)
    with pytest.raises(StepFailed, match=r"is damaged: saved_model\.pb"):
        history.rollback(push_dir)
    assert served(push_dir).number == second


def test_unknown_versions_and_empty_folders_are_named(push_dir: Folder, tmp_path: Path) -> None:
    """With what there is instead."""
    with pytest.raises(ConfigurationError, match=r"no version is there; give a push folder"):
        history.rollback(push_dir)
    first = push(push_dir, "a", tmp_path)
    with pytest.raises(ConfigurationError, match=rf"no whole version 5; there are: {first}"):
        history.promote(push_dir, 5)
    with pytest.raises(ConfigurationError, match=rf"no version is older than {first}"):
        history.rollback(push_dir)


def test_a_push_replaces_only_what_it_was_judged_against(push_dir: Folder, tmp_path: Path) -> None:
    """Between verdict and push another pipeline may push: then nothing is known of how the two compare."""
    push(push_dir, "a", tmp_path, replaces="")
    of_a = served(push_dir).manifest.model_sha256
    second = push(push_dir, "b", tmp_path, replaces=of_a)
    for judged_against in (of_a, ""):
        with pytest.raises(StepFailed, match=f"version {second} came meanwhile, against which nothing was judged"):
            push(push_dir, "c", tmp_path, replaces=judged_against)
    assert served(push_dir).number == second


def test_old_versions_go_and_the_restored_one_stays(push_dir: Folder, tmp_path: Path) -> None:
    """``keep`` counts from the newest, which is what is served."""
    for content in "abc":
        push(push_dir, content, tmp_path)
    restored = history.rollback(push_dir).version.number
    fourth = push(push_dir, "d", tmp_path, keep=2)
    assert versions.version_numbers(push_dir) == (restored, fourth)
    history.rollback(push_dir)
    assert served(push_dir).manifest.model_sha256 == versions.content_sha256(tmp_path / "b")


def test_rollbacks_at_once_make_one_change(tmp_path: Path) -> None:
    """The second finds that another came before it, or that it is done."""
    push_dir = tmp_path / "push"
    for content in "abc":
        push(push_dir, content, tmp_path)
    begin, outcomes = threading.Barrier(4), []

    def attempt() -> None:
        begin.wait()
        try:
            outcomes.append(history.rollback(push_dir).created)
        except (StepFailed, ConfigurationError) as e:
            outcomes.append(str(e))

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each goes back by one from what it saw; never from what it did not see.
    changed = outcomes.count(True)
    assert 1 <= changed <= 2
    expected = "b" if changed == 1 else "a"
    assert served(push_dir).manifest.model_sha256 == versions.content_sha256(tmp_path / expected)
