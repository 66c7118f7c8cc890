"""The object store, as a folder and as a real S3 service."""

import pathlib
import socket
import time

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.kubeflow.emulator.store import (
    Bucket,
    FolderStore,
    S3Store,
    Store,
    download_artifact,
    local_path,
    upload_artifact,
)
from tests.pipelines.kubeflow.emulator.conftest import Emulation, artifact_of, package, step


@pytest.fixture(scope="module")
def endpoint(s3_environ: dict[str, str]) -> str:
    """Returns the URL of an S3 service with the bucket ``bucket``."""
    import boto3

    url = s3_environ["AWS_ENDPOINT_URL"]
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="minio", aws_secret_access_key="minio123", region_name="us-east-1"
    )
    client.create_bucket(Bucket="bucket")
    client.close()
    return url


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Store:
    """Returns a store of each kind."""
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    return S3Store(request.getfixturevalue("endpoint"), access_key="minio", secret_key="minio123")


def test_a_folder_comes_back_file_by_file_and_without_its_empty_folders(store: Store, tmp_path: pathlib.Path) -> None:
    """What goes up comes down; names with blanks and umlauts too; a neighbour of a similar name stays out."""
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "a b.txt").write_bytes(b"1")
    (source / "deep" / "er" / "ü").write_bytes(b"22")
    uploaded = upload_artifact(store, source, "minio://bucket/root/model")
    assert uploaded is not None
    assert (uploaded.num_files, uploaded.num_bytes) == (2, 3)
    store.upload(source / "a b.txt", "minio://bucket/root/model_run/x")
    assert store.keys("minio://bucket/root/model") == ["a b.txt", "deep/er/ü"]
    files = store.files("minio://bucket/root/model")
    assert [files[key].size for key in sorted(files)] == [1, 2]
    store.upload(source / "deep" / "er" / "ü", "minio://bucket/root/model/a b.txt")
    assert store.files("minio://bucket/root/model")["a b.txt"] != files["a b.txt"]
    store.upload(source / "a b.txt", "minio://bucket/root/model/a b.txt")
    assert store.files("minio://bucket/root/model") == files
    target = tmp_path / "target"
    assert download_artifact(store, "minio://bucket/root/model", target) == 2
    assert {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()} == {
        "a b.txt": b"1",
        "deep/er/ü": b"22",
    }


def test_one_file_is_an_object(store: Store, tmp_path: pathlib.Path) -> None:
    """An artifact may be a file; it comes back under its own name."""
    (tmp_path / "file").write_bytes(b"content")
    upload_artifact(store, tmp_path / "file", "minio://bucket/one/file")
    assert store.keys("minio://bucket/one/file") == [""]
    assert download_artifact(store, "minio://bucket/one/file", tmp_path / "deep" / "copy") == 1
    assert (tmp_path / "deep" / "copy").read_bytes() == b"content"


def test_nothing_is_no_error(store: Store, tmp_path: pathlib.Path) -> None:
    """As in KFP's launcher, on the way up and on the way down."""
    assert upload_artifact(store, tmp_path / "absent", "minio://bucket/absent") is None
    assert store.keys("minio://bucket/absent") == []
    assert download_artifact(store, "minio://bucket/absent", tmp_path / "target") == 0


def test_a_bucket_that_is_not_there_is_told(endpoint: str, tmp_path: pathlib.Path) -> None:
    """Buckets are not made: KFP makes none."""
    (tmp_path / "file").write_bytes(b"x")
    store = S3Store(endpoint, access_key="minio", secret_key="minio123")
    with pytest.raises(StepFailed, match="minio://nobody/x at http"):
        store.upload(tmp_path / "file", "minio://nobody/x")


def test_a_service_that_does_not_answer_is_told(tmp_path: pathlib.Path) -> None:
    """With the endpoint, and what the client said."""
    store = S3Store("http://127.0.0.1:9", access_key="minio", secret_key="minio123")
    with pytest.raises(StepFailed, match=r"minio://bucket/x at http://127\.0\.0\.1:9: EndpointConnectionError"):
        store.keys("minio://bucket/x")


def test_a_service_that_takes_connections_and_stays_silent_is_told_at_once(emulation: Emulation) -> None:
    """Before anything starts; a wrong key or an absent bucket is an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(
            StepFailed, match=f"--store {endpoint}: no answer: Read timeout.*look whether the service runs"
        ):
            emulation.run(package({"it": step("")}), store=endpoint)
        assert time.monotonic() - began < 30
    assert not emulation.root.exists()


def test_any_answer_of_a_service_is_one(endpoint: str) -> None:
    """What is wrong with a bucket or with credentials is told where they are used."""
    S3Store(endpoint, access_key="minio", secret_key="minio123").check("minio://nobody/x")
    S3Store(endpoint, access_key="minio", secret_key="minio123").check("minio://bucket/x")


def test_a_package_runs_on_a_real_s3_service_with_the_credentials_of_kubeflows_secret(
    emulation: Emulation, endpoint: str
) -> None:
    """Nothing is in a folder; the step gets the endpoint in place of the cluster's, and no folder."""
    make = """
    output("data").mkdir()
    (output("data") / "x").write_text(json.dumps([
        os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_ACCESS_KEY_ID"], os.environ.get("LOCKSTEP_STORE_DIR")]))
    """
    use = "output('seen').write_text((source('data') / 'x').read_text())"
    keys = [{"secretKey": "accesskey", "envVar": "AWS_ACCESS_KEY_ID"}]
    secret = {"secretAsEnv": [{"secretName": "mlpipeline-minio-artifact", "keyToEnv": keys}]}
    steps = {
        "make": step(make, artifacts=["data"], env={"AWS_ENDPOINT_URL": "http://cluster"}, platform=secret),
        "use": step(
            use, inputs={"artifacts": {"data": artifact_of("make", "data")}}, artifacts=["seen"], after=["make"]
        ),
    }
    finished = emulation.run(package(steps), store=endpoint)
    assert finished.exit_code == 0, finished.message
    assert not (emulation.root / "store").exists()
    store = S3Store(endpoint, access_key="minio", secret_key="minio123")
    (seen,) = [key for key in store.keys("minio://bucket/root") if key.endswith("/seen")]
    store.download(f"minio://bucket/root/{seen}", emulation.root / "seen")
    assert (emulation.root / "seen").read_text(encoding="utf-8") == f'["{endpoint}", "minio", null]'
    assert emulation.run(package(steps), store=endpoint).exit_code == 0
    assert emulation.states() == {"make": "cached", "use": "cached"}


@pytest.mark.parametrize("root", ["/tmp/x", "minio://", "file:///x", "http://bucket/x", "MINIO://bucket"])
def test_a_pipeline_root_outside_an_object_store_is_refused(root: str) -> None:
    """KFP knows minio, s3 and gs."""
    with pytest.raises(ConfigurationError, match="is not allowed; Kubeflow keeps artifacts in an object store"):
        Bucket.from_uri(root)


def test_local_paths_are_where_kfps_launcher_has_them() -> None:
    """The folders of the three schemes; nothing that leads out of the container's folder."""
    there = pathlib.Path("/c")
    assert local_path("minio://b/x", there) == pathlib.Path("/c/minio/b/x")
    assert local_path("gs://b/x/y", there) == pathlib.Path("/c/gcs/b/x/y")
    assert local_path("s3://b/x", there) == pathlib.Path("/c/s3/b/x")
    for uri in ("/minio/b/x", "http://b/x", "minio://b/../../x"):
        assert local_path(uri, there) is None
