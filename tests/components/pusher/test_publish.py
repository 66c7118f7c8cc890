"""Pushing, with what can go wrong: a full disk, a killed process, two at once."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.components.errors import StepFailed
from lockstep.components.pusher import publish, versions
from tests.components.pusher.test_versions import make_model, push

_PUSH = """
import resource, sys
from pathlib import Path
from lockstep.components.errors import StepFailed
from lockstep.components.pusher import publish
model_dir, push_dir, keep, limit = sys.argv[1:]
if limit != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
print("ready", flush=True)
sys.stdin.readline()
try:
    result = publish.push(Path(model_dir), Path(push_dir), int(keep), publish.Origin(source_uri=model_dir))
except StepFailed as e:
    sys.exit(f"StepFailed: {e}")
print(result.version.number, result.created)
"""


def _start(model_dir: Path, push_dir: Path, keep: int = 3, limit: int = 0) -> subprocess.Popen[str]:
    """Starts a process that pushes as soon as it is sent a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PUSH, str(model_dir), str(push_dir), str(keep), str(limit)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_push_copies_every_file_and_writes_where_it_came_from(tmp_path: Path) -> None:
    """The version is the model, byte for byte, with a manifest where TensorFlow Serving does not look."""
    source = make_model(tmp_path / "model")
    origin = publish.Origin(
        source_uri="/artifacts/model/4",
        blessing_uri="/artifacts/blessing/5",
        evaluation_uri="/artifacts/evaluation/5",
        metrics={"auc": 0.9},
        verdict="blessed: auc 0.9 >= 0.8",
        token="t",
    )
    result = publish.push(source, tmp_path / "push", 2, origin)
    assert result.created
    assert result.version.dir == tmp_path / "push" / str(result.version.number)
    for name in versions.files_of(source):
        assert (result.version.dir / name).read_bytes() == (source / name).read_bytes()
    document = json.loads((result.version.dir / "assets.extra" / "lockstep.push.json").read_text())
    assert document["source_uri"] == "/artifacts/model/4"
    assert document["metrics"] == {"auc": 0.9}
    assert document["files"]["saved_model.pb"]["size"] == 5
    assert versions.damaged_files(result.version) == ()


def test_versions_increase_within_one_second(tmp_path: Path) -> None:
    """Numbers come from the clock, but never twice and never downwards."""
    numbers = [push(make_model(tmp_path / str(i), str(i)), tmp_path / "push", keep=10).version.number for i in range(4)]
    assert numbers == sorted(set(numbers))
    assert abs(numbers[0] - time.time()) < 60


def test_a_number_above_the_clock_is_exceeded(tmp_path: Path) -> None:
    """Even a folder that is not ours takes its number: the server would prefer it to a lower one."""
    (tmp_path / "push" / "99999999999").mkdir(parents=True)
    assert push(make_model(tmp_path / "model"), tmp_path / "push").version.number == 100000000000


def test_no_number_above_int64_is_given(tmp_path: Path) -> None:
    """TensorFlow Serving would pass over the version; the message names the folder that is in the way."""
    push_dir = tmp_path / "push"
    first = push(make_model(tmp_path / "a", "a"), push_dir).version
    (push_dir / "9223372036854775807").mkdir()
    with pytest.raises(StepFailed, match=r"push/9223372036854775807 has the highest number .* remove or rename"):
        push(make_model(tmp_path / "b", "b"), push_dir)
    assert versions.served_version(push_dir) == first
    (push_dir / "9223372036854775807").rmdir()
    assert push(tmp_path / "b", push_dir).version.number > first.number


def test_leftovers_that_are_no_folders_are_removed(tmp_path: Path) -> None:
    """A plain file or a link under such a name stops no push; what the link points at stays."""
    elsewhere = make_model(tmp_path / "elsewhere")
    (tmp_path / "push").mkdir()
    (tmp_path / "push" / ".lockstep-staging-file").write_text("")
    (tmp_path / "push" / ".lockstep-trash-link").symlink_to(elsewhere)
    (tmp_path / "push" / ".lockstep-staging-dangling").symlink_to(tmp_path / "nowhere")
    version = push(make_model(tmp_path / "model"), tmp_path / "push").version
    assert {path.name for path in (tmp_path / "push").iterdir()} == {".lockstep.lock", version.dir.name}
    assert (elsewhere / "saved_model.pb").is_file()


def test_an_old_version_that_is_a_link_is_removed_as_one(tmp_path: Path) -> None:
    """The folder that a person had moved elsewhere is not emptied, and the push succeeds."""
    first = push(make_model(tmp_path / "a", "a"), tmp_path / "push").version
    first.dir.rename(tmp_path / "moved")
    first.dir.symlink_to(tmp_path / "moved")
    result = push(make_model(tmp_path / "b", "b"), tmp_path / "push", keep=1)
    assert (result.removed, result.not_removed) == ((first.number,), ())
    assert (tmp_path / "moved" / "saved_model.pb").is_file()


@pytest.fixture
def unprivileged_dir() -> Iterator[Path]:
    """An empty folder, in a test that the operating system refuses what permissions forbid, even when run by root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.seteuid(user)
            for folder, _, _ in os.walk(name):
                Path(folder).chmod(0o777)


def test_an_old_version_that_cannot_be_removed_does_not_fail_the_push(
    unprivileged_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The new one is served by then: the result says what stays, now and in later pushes nothing is stopped."""
    push_dir = unprivileged_dir / "push"
    first = push(make_model(unprivileged_dir / "a", "a"), push_dir).version
    (first.dir / "variables").chmod(0o555)
    result = push(make_model(unprivileged_dir / "b", "b"), push_dir, keep=1)
    assert versions.list_versions(push_dir) == (result.version,)
    assert result.created
    assert result.removed == ()
    [reason] = result.not_removed
    assert reason.startswith(f"version {first.number} could not be removed: Permission denied (")
    assert push(make_model(unprivileged_dir / "c", "c"), push_dir, keep=2).created
    assert "remove it by hand" in caplog.text


def test_a_model_that_is_served_is_not_pushed_again(tmp_path: Path) -> None:
    """The second push finds the version that serves it."""
    source = make_model(tmp_path / "model")
    first = push(source, tmp_path / "push")
    again = push(source, tmp_path / "push")
    assert not again.created
    assert again.version == first.version
    assert versions.version_numbers(tmp_path / "push") == (first.version.number,)


def test_an_older_model_is_pushed_again(tmp_path: Path) -> None:
    """Served is the newest only, so going back makes a new version."""
    first = push(make_model(tmp_path / "a", "a"), tmp_path / "push")
    push(make_model(tmp_path / "b", "b"), tmp_path / "push")
    back = push(tmp_path / "a", tmp_path / "push")
    assert back.created
    assert back.version.number > first.version.number


def test_only_the_newest_versions_are_kept(tmp_path: Path) -> None:
    """The oldest go; what was pushed just now stays even if one is kept; foreign folders stay."""
    (tmp_path / "push" / "1").mkdir(parents=True)
    for i in range(3):
        result = push(make_model(tmp_path / str(i), str(i)), tmp_path / "push", keep=2)
    assert len(versions.list_versions(tmp_path / "push")) == 2
    assert len(result.removed) == 1
    result = push(make_model(tmp_path / "last", "last"), tmp_path / "push", keep=1)
    assert versions.list_versions(tmp_path / "push") == (result.version,)
    assert (tmp_path / "push" / "1").is_dir()


def test_a_model_without_files_is_not_pushed(tmp_path: Path) -> None:
    """An empty folder would replace a good model."""
    first = push(make_model(tmp_path / "model"), tmp_path / "push")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StepFailed, match="holds no files"):
        push(tmp_path / "empty", tmp_path / "push")
    assert versions.served_version(tmp_path / "push") == first.version


def test_a_write_that_fails_leaves_what_was_served_and_no_leftovers(tmp_path: Path) -> None:
    """A real limit of the operating system stands for a full disk: both fail in the middle of a file."""
    first = push(make_model(tmp_path / "a", "a"), tmp_path / "push").version
    process = _start(make_model(tmp_path / "b", "b" * 50), tmp_path / "push", limit=20_000)
    _, stderr = process.communicate("go\n")
    assert process.returncode == 1
    assert "StepFailed: push: " in stderr
    assert "File too large" in stderr
    assert "the model needs 0.1 MB" in stderr
    assert f"version {first.number} is served" in stderr
    assert versions.served_version(tmp_path / "push") == first
    assert sorted(path.name for path in (tmp_path / "push").iterdir()) == [".lockstep.lock", str(first.number)]


def test_a_push_that_waits_too_long_for_another_says_so(tmp_path: Path) -> None:
    """Blocking for ever would look like a hang."""
    (tmp_path / "push").mkdir()
    with publish._locked(tmp_path / "push", 1.0), pytest.raises(StepFailed, match="did not end within 0 s"):
        publish.push(
            make_model(tmp_path / "a"), tmp_path / "push", 2, publish.Origin(source_uri=""), lock_timeout_s=0.0
        )


def test_pushes_at_once_make_one_version_each_and_equal_models_one(tmp_path: Path) -> None:
    """Four processes start together, two of them with the same model."""
    models = [make_model(tmp_path / name, name) for name in ("a", "b", "c")]
    processes = [_start(model, tmp_path / "push", keep=10) for model in (*models, models[0])]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0].split() for process in processes]
    assert all(process.returncode == 0 for process in processes)
    created = [int(number) for number, new in outputs if new == "True"]
    listed = [version.number for version in versions.list_versions(tmp_path / "push")]
    assert sorted(created) == listed
    assert len(listed) in (3, 4)  # Four if another model came between the two equal ones.


@pytest.mark.slow
def test_a_killed_push_leaves_whole_versions_only_and_the_next_cleans_up(tmp_path: Path) -> None:
    """SIGKILL at random points of copying, synchronising, renaming and removing: never half a version."""
    push_dir = tmp_path / "push"
    generator = random.Random(0)
    models = [make_model(tmp_path / str(i), f"{i} " * 300) for i in range(2)]
    for model in models:
        for number in range(200):
            (model / f"file{number}").write_text(f"{model.name} {number}")
    outcomes = set()
    for attempt in range(25):
        before = versions.served_version(push_dir)
        process = _start(models[attempt % 2], push_dir, keep=2)
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        try:
            process.wait(timeout=generator.uniform(0.0, 0.4))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        whole = versions.list_versions(push_dir)
        assert [version.number for version in whole] == list(versions.version_numbers(push_dir))
        assert all(versions.damaged_files(version) == () for version in whole)
        served = versions.served_version(push_dir)
        assert before is None or (served is not None and served.number >= before.number)
        outcomes.add("killed" if process.returncode == -signal.SIGKILL else "done")
    last = push(make_model(tmp_path / "last", "last"), push_dir, keep=2)
    names = {path.name for path in push_dir.iterdir()}
    assert "killed" in outcomes
    assert names == {".lockstep.lock", *(version.dir.name for version in versions.list_versions(push_dir))}
    assert versions.served_version(push_dir) == last.version
