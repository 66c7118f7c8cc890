"""A run whose data come from an object store and whose model goes there; a real server on loopback."""

import json
import pathlib

import pytest

from lockstep.components.object_store import StoreFolder
from lockstep.components.pusher import versions
from tests.conftest import Bucket
from tests.pipelines.conftest import make_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_run_from_store_to_store_is_cached_redone_and_predicted_from(bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """As with local files: only what changed runs again, and the closing lines work when they are called."""
    project = make_project(tmp_path / "project")
    data = project.folder / "data" / "hills.csv"
    uri = bucket.put("data/hills.csv", data.read_bytes())
    push_dir = StoreFolder(bucket.uri("models/hills"))
    arguments = ("--set", f"data.path={uri}", "--set", f"push.dir={push_dir}")

    first = project.run(*arguments)
    assert first.returncode == 0, first.stderr
    served = versions.served_version(push_dir)
    assert served is not None
    assert f"served: {push_dir}/{served.number}\n" in first.stdout
    assert f"predict {push_dir}/{served.number} --data {uri}\n" in first.stdout
    assert str(tmp_path) not in json.dumps(sorted(bucket.stored()))

    again = project.run(*arguments)
    assert again.returncode == 0, again.stderr
    assert set(project.states().values()) == {"cached"}

    predicted = project.lockstep("predict", f"{push_dir}/{served.number}", "--data", uri)
    assert predicted.returncode == 0, predicted.stderr
    assert len(predicted.stdout.splitlines()) == 601
    assert project.lockstep("predict", str(push_dir), "--data", str(data)).stdout == predicted.stdout

    bucket.put("data/hills.csv", data.read_text().replace("north", "norte"))
    third = project.run(*arguments)
    assert third.returncode == 0, third.stderr
    assert project.states()["ExampleGen"] == "done"
    verdicts = sorted(
        project.root.glob("artifacts/Evaluator/evaluation/*/verdict.json"), key=lambda p: int(p.parent.name)
    )
    assert json.loads(verdicts[-1].read_text())["baseline"]["version"] == served.number


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data.path", "s3://no-such-bucket/x.csv", "s3://no-such-bucket: no such bucket at http://127.0.0.1"),
        ("data.path", "s3://{bucket}/nothing.csv", "data.path: no such object, and no folder of that name: s3://"),
        ("data.path", "hdfs://b/x", "data.path: 'hdfs://b/x' is not allowed; give a path, or a URI that begins"),
        ("push.dir", "http://b/x", "push.dir: 'http://b/x' is not allowed; give a path, or a URI that begins"),
    ],
)
def test_what_cannot_be_used_is_told_at_once(
    bucket: Bucket, tmp_path: pathlib.Path, key: str, value: str, message: str
) -> None:
    """Before anything heavy is loaded, with exit code 2."""
    done = make_project(tmp_path / "project").run("--set", f"{key}={value.replace('{bucket}', bucket.name)}")
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) == 1
