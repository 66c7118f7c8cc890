"""Pushing to an object store, by a real server of its protocol: killed, at once, and with what goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.components import object_store
from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.evaluator.baseline import UsableBaseline, open_baseline
from lockstep.components.evaluator.options import EvaluateOptions, EvaluateSpec, Threshold
from lockstep.components.object_store import StoreFolder
from lockstep.components.pusher import publish, store_lock, store_publish, versions
from lockstep.components.pusher.component import resolve_token
from tests.components.evaluator import tiny_model
from tests.components.pusher.test_versions import make_model
from tests.conftest import Bucket

_PUSH = """
import os, sys
from pathlib import Path
from lockstep.components import object_store
from lockstep.components.pusher import publish, store_publish
import s3fs
object_store.configure(os.environ)
model_dir, push_uri, keep, lease_s = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
folder = object_store.StoreFolder(push_uri)
origin = publish.Origin(source_uri=model_dir)
result = store_publish.push(Path(model_dir), folder, int(keep), origin, lease_s=float(lease_s))
print(result.version.number, result.created)
"""


def _start(bucket: Bucket, model_dir: Path, push_dir: StoreFolder, keep: int, lease_s: float) -> subprocess.Popen[str]:
    """Starts a process that pushes as soon as it is sent a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PUSH, str(model_dir), str(push_dir), str(keep), str(lease_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **bucket.environ},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _push(model_dir: Path, push_dir: StoreFolder, keep: int = 5, **options: Any) -> publish.PushResult:
    origin = publish.Origin(source_uri=str(model_dir), token=options.pop("token", ""))
    return store_publish.push(model_dir, push_dir, keep, origin, **options)


@pytest.fixture(params=["s3", "minio"])
def push_dir(bucket: Bucket, request: pytest.FixtureRequest) -> StoreFolder:
    """A push folder that nobody has pushed to."""
    return StoreFolder(bucket.uri("models/taxi", request.param))


def test_a_push_is_read_back_as_it_was_sent(bucket: Bucket, push_dir: StoreFolder, tmp_path: Path) -> None:
    """In TensorFlow Serving's layout, and nothing else stays."""
    model = make_model(tmp_path / "model")
    result = _push(model, push_dir, token="t")
    number = result.version.number
    assert (result.created, versions.served_version(push_dir)) == (True, result.version)
    assert str(result.version.dir) == f"{push_dir}/{number}"
    assert versions.damaged_files(result.version) == ()
    keys = {key.removeprefix(f"models/taxi/{number}/") for key in bucket.stored()}
    assert keys == {*versions.files_of(model), versions.MANIFEST_NAME}
    content = bucket.client.get_object(Bucket=bucket.name, Key=f"models/taxi/{number}/{versions.MANIFEST_NAME}")["Body"]
    assert json.loads(content.read())["token"] == "t"
    content.close()
    assert not _push(model, push_dir).created


def test_numbers_increase_and_old_versions_go(bucket: Bucket, push_dir: StoreFolder, tmp_path: Path) -> None:
    """All objects of an old version; what is not ours stays, and its number is exceeded."""
    bucket.put("models/taxi/99999999999/saved_model.pb", "a stock Pusher's")
    results = [_push(make_model(tmp_path / name, name), push_dir, keep=2) for name in "abc"]
    numbers = [result.version.number for result in results]
    assert numbers == [100000000000, 100000000001, 100000000002]
    assert [result.removed for result in results] == [(), (), (numbers[0],)]
    assert [version.number for version in versions.list_versions(push_dir)] == numbers[1:]
    assert bucket.stored(f"models/taxi/{numbers[0]}/") == []
    assert bucket.stored("models/taxi/99999999999/") == ["models/taxi/99999999999/saved_model.pb"]


@pytest.mark.parametrize("damage", ["manifest gone", "file gone", "file cut"])
def test_a_version_that_is_not_whole_is_never_served(
    bucket: Bucket, push_dir: StoreFolder, tmp_path: Path, damage: str
) -> None:
    """As in a local folder."""
    first = _push(make_model(tmp_path / "a", "a"), push_dir).version
    second = _push(make_model(tmp_path / "b", "b"), push_dir).version
    key = f"models/taxi/{second.number}/{versions.MANIFEST_NAME if damage == 'manifest gone' else 'saved_model.pb'}"
    if damage == "file cut":
        bucket.put(key, "")
    else:
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert versions.served_version(push_dir) == first


def test_a_model_that_changes_while_it_is_sent_is_not_pushed(
    bucket: Bucket, push_dir: StoreFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was served is, and the objects that were sent go."""
    first = _push(make_model(tmp_path / "a", "a"), push_dir).version
    model = make_model(tmp_path / "b", "b")
    upload = StoreFolder.upload

    def changed(folder: StoreFolder, name: str, path: Path) -> None:
        if name == "saved_model.pb":
            path.write_text("another")
        upload(folder, name, path)

    monkeypatch.setattr(StoreFolder, "upload", changed)
    with pytest.raises(
        StepFailed, match=r"saved_model\.pb holds 7 bytes that are not the 1 of the model.* nothing was"
    ):
        _push(model, push_dir)
    assert versions.list_versions(push_dir) == (first,)
    assert {key.split("/")[2] for key in bucket.stored()} == {str(first.number)}


def test_a_model_without_files_and_a_bucket_that_is_not_there_are_told(
    bucket: Bucket, push_dir: StoreFolder, tmp_path: Path
) -> None:
    """Before anything is written."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(StepFailed, match="holds no files"):
        _push(tmp_path / "empty", push_dir)
    assert bucket.stored() == []
    with pytest.raises(ConfigurationError, match="no such bucket"):
        _push(make_model(tmp_path / "a"), StoreFolder("s3://no-such-bucket/models"))


def test_a_push_waits_for_another_and_not_for_ever(push_dir: StoreFolder, tmp_path: Path) -> None:
    """The holder is alive, however long it takes."""
    model = make_model(tmp_path / "a")
    with store_lock.locked(push_dir, 1.0):
        with pytest.raises(StepFailed, match="did not end within 0 s; end it and run again"):
            _push(model, push_dir, lock_timeout_s=0.0)
        assert versions.version_numbers(push_dir) == ()
    assert _push(model, push_dir).created


def test_a_holder_that_paused_too_long_gives_up(push_dir: StoreFolder) -> None:
    """Another may have begun, so nothing of its own may count any more."""
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_lock, "_clock", lambda: clock[0])
        with store_lock.locked(push_dir, 1.0, lease_s=600.0) as lease:
            clock[0] = 299.0
            lease.check()
            clock[0] = 301.0
            with pytest.raises(StepFailed, match=r"could not be kept for 300 s, and another push may have begun"):
                lease.check()
            with pytest.raises(StepFailed):
                lease.touches((1,))


@pytest.mark.slow
def test_pushes_at_once_make_one_version_each_and_equal_models_one(bucket: Bucket, tmp_path: Path) -> None:
    """Four processes start together, two of them with the same model; no two files of different models meet."""
    push_dir = StoreFolder(bucket.uri("models"))
    models = [make_model(tmp_path / name, name) for name in ("a", "b", "c")]
    processes = [_start(bucket, model, push_dir, 10, 60.0) for model in (*models, models[0])]
    for process in processes:
        _go(process)
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs
    created = [int(line.split()[0]) for line, _ in outputs if line.split()[1] == "True"]
    listed = versions.list_versions(push_dir)
    assert sorted(created) == [version.number for version in listed]
    assert len(listed) in (3, 4)  # Four if another model came between the two equal ones.
    assert [versions.damaged_files(version) for version in listed] == [()] * len(listed)
    assert {key.split("/")[1] for key in bucket.stored()} == {str(version.number) for version in listed}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_push_leaves_whole_versions_only_and_the_next_cleans_up(bucket: Bucket, tmp_path: Path) -> None:
    """SIGKILL at several points of sending, verifying, committing and removing: one good version at the end."""
    push_dir = StoreFolder(bucket.uri("models"))
    models = [make_model(tmp_path / str(i), f"{i} ") for i in range(2)]
    for model in models:
        for number in range(20):
            (model / f"file{number}").write_text(f"{model.name} {number}")
    outcomes = []
    for attempt, kill_after_s in enumerate((0.1, 3.0, 0.3, 5.0, 0.6, 9.0, 1.2, 60.0)):
        before = versions.served_version(push_dir)
        process = _start(bucket, models[attempt % 2], push_dir, 1, 4.0)
        _go(process)
        try:
            # The longest waits for the lock of the one killed before.
            process.wait(timeout=kill_after_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        whole = versions.list_versions(push_dir)
        assert all(versions.damaged_files(version) == () for version in whole)
        served = versions.served_version(push_dir)
        assert before is None or (served is not None and served.number >= before.number)
        outcomes.append("killed" if process.returncode == -signal.SIGKILL else "done")
    assert {"killed", "done"} == set(outcomes), outcomes
    last = _push(make_model(tmp_path / "last", "last"), push_dir, keep=1, lease_s=4.0)
    assert versions.list_versions(push_dir) == (last.version,)
    assert {key.split("/")[1] for key in bucket.stored()} == {str(last.version.number)}


@pytest.mark.slow
def test_a_stopped_push_that_goes_on_later_neither_pushes_nor_disturbs(bucket: Bucket, tmp_path: Path) -> None:
    """SIGSTOP for longer than the lease, as a suspended machine: the other one's version is whole and served."""
    push_dir = StoreFolder(bucket.uri("models"))
    model = make_model(tmp_path / "slow", "slow")
    for number in range(200):
        (model / f"file{number}").write_text(f"{number}")
    process = _start(bucket, model, push_dir, 5, 4.0)
    _go(process)
    deadline = time.monotonic() + 30
    while not any("/file1" in key for key in bucket.stored()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGSTOP)
    other = _push(make_model(tmp_path / "b", "b"), push_dir, lease_s=4.0)
    os.kill(process.pid, signal.SIGCONT)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert "another push may have begun; nothing was pushed" in stderr
    assert versions.list_versions(push_dir) == (other.version,)
    assert versions.damaged_files(other.version) == ()
    assert {key.split("/")[1] for key in bucket.stored()} == {str(other.version.number)}


def test_tokens_and_baselines_are_those_of_a_local_folder(push_dir: StoreFolder, tmp_path: Path) -> None:
    """What the drivers ask before TFX looks into its cache."""
    model, newer = make_model(tmp_path / "a", "a"), make_model(tmp_path / "b", "b")
    assert versions.resolve_baseline(push_dir, model) == versions.NO_BASELINE
    fresh = resolve_token(push_dir, model, blessed=True)
    version = _push(model, push_dir, token=fresh).version
    assert resolve_token(push_dir, model, blessed=True) == fresh
    assert versions.resolve_baseline(push_dir, model) == versions.NO_BASELINE
    found = versions.Baseline.from_json(versions.resolve_baseline(push_dir, newer))
    assert found == versions.Baseline(version=version.number, model_sha256=version.manifest.model_sha256)


def test_a_store_that_denies_access_serves_not_nothing(bucket: Bucket, tmp_path: Path) -> None:
    """Or the gate would take the candidate for the first one ever."""
    object_store.configure({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    with pytest.raises(StepFailed, match="no answer"):
        versions.resolve_baseline(StoreFolder(bucket.uri("models")), make_model(tmp_path / "a"))


@pytest.mark.slow
def test_the_served_model_is_fetched_to_compare_with(push_dir: StoreFolder, tmp_path: Path) -> None:
    """And loaded; one that is gone is told as such."""
    tiny_model.write_examples(tmp_path / "examples", tiny_model.make_rows(10))
    first_file = next((tmp_path / "examples" / "Split-eval").iterdir())
    tiny_model.save_model(tmp_path / "model", weight=1.0)
    _push(tmp_path / "model", push_dir)
    spec = EvaluateSpec(
        options=EvaluateOptions(thresholds={"auc": Threshold(min=0.5)}), label="y", push_dir=str(push_dir)
    )
    baseline = versions.resolve_baseline(push_dir, make_model(tmp_path / "candidate"))
    (tmp_path / "scratch").mkdir()
    opened = open_baseline(spec, baseline, str(first_file), tmp_path / "scratch")
    assert isinstance(opened, UsableBaseline)
    assert (tmp_path / "scratch" / "saved_model.pb").is_file()
    _push(make_model(tmp_path / "other"), push_dir, keep=1)
    opened = open_baseline(spec, baseline, str(first_file), tmp_path / "scratch")
    assert not isinstance(opened, UsableBaseline)
    assert "any more" in opened.note
