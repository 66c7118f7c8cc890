"""URIs, against a server that speaks S3's protocol, and what is said when it cannot be used."""

import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from lockstep.components import object_store
from lockstep.components.errors import ConfigurationError, DataError, StepFailed
from lockstep.components.object_store import find_objects
from tests.conftest import Bucket


@pytest.mark.parametrize("uri", ["s3://bucket/a b/c.csv", "minio://bucket", "gs://bucket/", "s3://bucket/x\ny"])
def test_a_uri_of_a_store_is_known_by_its_scheme(uri: str) -> None:
    """Nothing else is looked at, and nothing else passes for one."""
    object_store.check_uri(uri)
    assert object_store.is_object_uri(uri)


@pytest.mark.parametrize("path", ["/data/x.csv", "x.csv", "C:/x", "s3:/bucket/x", "package:a/b.csv", "s3"])
def test_a_path_is_no_uri(path: str) -> None:
    """And is allowed as what it is."""
    object_store.check_uri(path)
    assert not object_store.is_object_uri(path)


@pytest.mark.parametrize("uri", ["http://host/x", "file:///x", "hdfs://x", "s3:///x", "gs://"])
def test_another_scheme_or_no_bucket_is_refused(uri: str) -> None:
    """With what is allowed."""
    with pytest.raises(ValueError, match=r"is not allowed; (give a path, or a URI that begins with|name the bucket)"):
        object_store.check_uri(uri)


@pytest.mark.parametrize("uri", ["minio://bucket/../../x", "s3://../x", "gs://b/a/.."])
def test_a_way_up_is_refused(uri: str, tmp_path: Path) -> None:
    """By the options, and where a folder stands for the store: it would lead out of it."""
    with pytest.raises(ValueError, match=r"is not allowed; '\.\.' is no way up"):
        object_store.check_uri(uri)
    object_store.configure({"LOCKSTEP_STORE_DIR": str(tmp_path)})
    try:
        with pytest.raises(ConfigurationError, match=r"'\.\.' is no way up"):
            object_store.open_folder(uri)
        with pytest.raises(ConfigurationError, match=r"'\.\.' is no way up"):
            find_objects(uri, "*")
    finally:
        object_store.configure({})


def test_patterns_match_as_they_do_on_disk(bucket: Bucket) -> None:
    """Names, sizes and ETags come from listings; an object that is its folder's own marker does not count."""
    for key in ("data/a.csv", "data/b.csv", "data/sub/c.csv", "data/x[1].csv", "data/", "data/empty.csv"):
        bucket.put(key, "" if key.endswith(("/", "empty.csv")) else key)
    folder = bucket.uri("data")

    def names(pattern: str) -> list[str]:
        return [item.uri.removeprefix(f"{folder}/") for item in find_objects(folder, pattern)]

    assert names("*.csv") == ["a.csv", "b.csv", "empty.csv", "x[1].csv"]
    assert names("?.csv") == ["a.csv", "b.csv"]
    assert names("*/*.csv") == ["sub/c.csv"]
    assert names("**") == ["a.csv", "b.csv", "empty.csv", "sub/c.csv", "x[1].csv"]
    assert names("x[[]1].csv") == ["x[1].csv"]
    assert names("a.csv") == ["a.csv"]
    assert names("nothing*") == []
    [found] = find_objects(folder, "a.csv")
    assert found.size == len("data/a.csv")
    bucket.put("data/a.csv", "data/A.csv")
    assert find_objects(folder, "a.csv")[0].tag != found.tag


def test_minio_is_s3_at_the_given_endpoint(bucket: Bucket) -> None:
    """The same object under both names, and each named as it was asked for."""
    bucket.put("x/y.csv", "1")
    assert [item.uri for item in find_objects(bucket.uri("x", "minio"), "*")] == [bucket.uri("x/y.csv", "minio")]
    assert object_store.StoreFolder(bucket.uri("x", "minio")).read("y.csv") == b"1"


def test_objects_of_the_same_name_are_fetched_side_by_side(bucket: Bucket, tmp_path: Path) -> None:
    """Each keeps its name, which tells its format, in the order of the objects."""
    for key in ("d/1/x.csv", "d/2/x.csv"):
        bucket.put(key, key)
    fetched = object_store.fetch(find_objects(bucket.uri("d"), "*/x.csv"), tmp_path, bucket.uri("d"))
    assert [Path(path).read_text() for path in fetched] == ["d/1/x.csv", "d/2/x.csv"]
    assert list(fetched.values()) == [bucket.uri("d/1/x.csv"), bucket.uri("d/2/x.csv")]
    assert {Path(path).name for path in fetched} == {"x.csv"}


def test_an_object_that_went_or_grew_is_told(bucket: Bucket, tmp_path: Path) -> None:
    """Between the listing and the fetching."""
    bucket.put("x.csv", "1")
    objects = find_objects(bucket.uri(), "*")
    bucket.put("x.csv", "12")
    with pytest.raises(StepFailed, match=r"x\.csv changed while it was read"):
        object_store.fetch(objects, tmp_path, bucket.uri())
    bucket.client.delete_object(Bucket=bucket.name, Key="x.csv")
    with pytest.raises(DataError, match=r"x\.csv: no such object"):
        object_store.fetch(objects, tmp_path, bucket.uri())


def test_a_tree_is_fetched_under_its_names(bucket: Bucket, tmp_path: Path) -> None:
    """As a model is, to be loaded."""
    for key in ("m/1/saved_model.pb", "m/1/variables/v.data"):
        bucket.put(key, key)
    object_store.fetch_tree(bucket.uri("m/1"), tmp_path)
    assert (tmp_path / "variables" / "v.data").read_text() == "m/1/variables/v.data"
    with pytest.raises(DataError, match="m/2: nothing is there"):
        object_store.fetch_tree(bucket.uri("m/2"), tmp_path)


def test_a_name_that_leads_out_of_the_folder_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    """Whoever may write to the bucket may not write to this disk."""
    bucket.put("m/1/saved_model.pb", "x")
    bucket.put("m/1/../../../escaped", "x")
    with pytest.raises(ConfigurationError, match=r"m/1/\.\./\.\./\.\./escaped: no file can have this name"):
        object_store.fetch_tree(bucket.uri("m/1"), tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")
def test_a_full_disk_is_told(bucket: Bucket, tmp_path: Path) -> None:
    """With the room that there is, and how to get more."""
    bucket.put("x.csv", b"x" * 1_000_000)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mount is not allowed here")
    try:
        with pytest.raises(StepFailed, match=r"x\.csv: no space left for it here; 0 MB are free in .*set TMPDIR to a"):
            object_store.fetch(find_objects(bucket.uri(), "x.csv"), tmp_path, bucket.uri())
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_an_absent_bucket_is_told(bucket: Bucket) -> None:
    """While an absent folder is an empty one."""
    with pytest.raises(ConfigurationError, match=r"s3://no-such-bucket/x: no such bucket at http://127\.0\.0\.1"):
        find_objects("s3://no-such-bucket/x", "*")
    assert find_objects(bucket.uri("nowhere"), "*") == ()


def test_absent_credentials_are_told(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the names of the variables."""
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(ConfigurationError, match=r"no credentials for the object store: .*; set AWS_ACCESS_KEY_ID and"):
        find_objects(bucket.uri("x"), "*")
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_server_that_is_gone_is_told(bucket: Bucket) -> None:
    """Within seconds, with its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    object_store.configure({"AWS_ENDPOINT_URL": endpoint})
    began = time.monotonic()
    with pytest.raises(StepFailed, match=f"no answer from the object store at {endpoint}: .*set AWS_ENDPOINT_URL to"):
        find_objects(bucket.uri("x"), "*")
    assert time.monotonic() - began < 60


def test_a_folder_of_a_store_is_written_and_read(bucket: Bucket, tmp_path: Path) -> None:
    """Listings are never old."""
    folder = object_store.open_folder(bucket.uri("f"))
    assert isinstance(folder, object_store.StoreFolder)
    assert (folder.folders(), folder.objects()) == ((), {})
    folder.write("a/x", b"one")
    (tmp_path / "file").write_bytes(b"two" * 1_000_000)
    folder.upload("b/c/y", tmp_path / "file")
    assert sorted(folder.folders()) == ["a", "b"]
    assert {name: item.size for name, item in folder.objects().items()} == {"a/x": 3, "b/c/y": 3_000_000}
    assert abs(folder.objects()["a/x"].modified - time.time()) < 60
    assert ((folder / "a").read("x"), b"".join(folder.chunks("b/c/y"))) == (b"one", b"two" * 1_000_000)
    (folder / "a").remove("x")
    (folder / "a").remove("x")
    assert (folder / "b").name == "b"
    assert folder.folders() == ("b",)
    with pytest.raises(DataError, match="f/a/x: no such object"):
        folder.read("a/x")
    with pytest.raises(ConfigurationError, match="no such bucket"):
        object_store.StoreFolder("s3://no-such-bucket/f").folders()


def test_a_folder_stands_for_the_store(tmp_path: Path) -> None:
    """As in the emulator: the folders are those that Kubeflow's launcher maps buckets to."""
    object_store.configure({"LOCKSTEP_STORE_DIR": str(tmp_path)})
    try:
        for uri, folder in {"minio://b/x": "minio/b/x", "s3://b/x": "s3/b/x", "gs://b/x": "gcs/b/x"}.items():
            assert object_store.open_folder(uri) == tmp_path / folder
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "y.csv").write_text("1")
            assert [item.uri for item in find_objects(uri, "*")] == [f"{uri}/y.csv"]
        [before] = find_objects("s3://b/x", "*")
        path = tmp_path / "s3/b/x/y.csv"
        times = path.stat()
        path.write_text("2")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        [after] = find_objects("s3://b/x", "*")
        assert (after.size, after.modified) == (before.size, before.modified)
        assert after.tag != before.tag
        with pytest.raises(ConfigurationError, match="s3://c/x: no such bucket at"):
            find_objects("s3://c/x", "*")
    finally:
        object_store.configure({})


def test_denied_access_is_told(bucket: Bucket) -> None:
    """With what the store says; the server begins to ask who comes."""

    def ask_after(requests: str) -> None:
        url = f"{bucket.environ['AWS_ENDPOINT_URL']}/moto-api/reset-auth"
        headers = {"Content-Type": "text/plain"}
        with urllib.request.urlopen(urllib.request.Request(url, requests.encode(), headers, method="POST")):
            pass

    ask_after("0")
    try:
        with pytest.raises(ConfigurationError, match=r"the object store denies access: .*; set AWS_ACCESS_KEY_ID"):
            find_objects(bucket.uri("x"), "*")
    finally:
        ask_after("inf")


def test_what_is_no_fault_of_a_store_is_not_rephrased(bucket: Bucket) -> None:
    """A fault of ours keeps its traceback."""
    with pytest.raises(KeyError), object_store.told(bucket.uri("x")):
        raise KeyError("x")
