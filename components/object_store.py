"""What ``s3://``, ``minio://`` and ``gs://`` mean: objects found, fetched and opened, by fsspec and nothing else.

Access is configured where a process starts (``configure``), never here. Credentials are found as the stores' own
clients find them: for ``s3`` and ``minio`` by ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, a profile or a role;
for ``gs`` by Google's application default credentials; or by fsspec's own ``FSSPEC_S3_KEY`` and its like. ``minio://``
is the S3 protocol at ``AWS_ENDPOINT_URL``, and at Kubeflow's own MinIO where that is not given.
"""

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lockstep.components.errors import ConfigurationError, DataError, StepFailed
from lockstep.components.store_errors import explained

if TYPE_CHECKING:
    import fsspec

STORE_DIR_VARIABLE = "LOCKSTEP_STORE_DIR"
KUBEFLOW_MINIO = "http://minio-service.kubeflow:9000"

_URI = re.compile(r"(?P<scheme>s3|minio|gs)://(?P<bucket>[^/]*)(?:/(?P<key>.*))?", re.DOTALL)
_ANY_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)
_ENDPOINTS = ("FSSPEC_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# Folder below a container's root that Kubeflow's launcher maps a scheme's buckets to.
_MAPPED = {"s3": "s3", "minio": "minio", "gs": "gcs"}
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
MAX_ATTEMPTS = 3
_NUM_THREADS = 4
_BLOCK_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Access:
    """How this process reaches object stores.

    Args:
      store_dir: A folder that stands for all of them: ``minio://b/x`` is ``<store_dir>/minio/b/x``, ``s3`` likewise,
        and ``gs`` is ``gcs``. None takes the real ones.
      endpoint_url: Where the S3 protocol is spoken, from the environment; None is AWS for ``s3://`` and
        ``KUBEFLOW_MINIO`` for ``minio://``.
    """

    store_dir: Path | None = None
    endpoint_url: str | None = None


_access = Access()


def configure(environ: Mapping[str, str]) -> None:
    """Sets how this process reaches object stores; to be called once, where the process starts.

    Args:
      environ: The process's environment: ``LOCKSTEP_STORE_DIR``, ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``, or
        ``FSSPEC_S3_ENDPOINT_URL``.
    """
    global _access
    folder = environ.get(STORE_DIR_VARIABLE)
    endpoint = next((environ[name] for name in _ENDPOINTS if environ.get(name)), None)
    _access = Access(store_dir=Path(folder).absolute() if folder else None, endpoint_url=endpoint)


def is_object_uri(text: str) -> bool:
    """Tells a URI of an object store from a path."""
    return _URI.fullmatch(text) is not None


def check_uri(text: str) -> None:
    """Refuses what looks like a URI and is none that can be used.

    Raises:
      ValueError: Another scheme, no bucket, or a name with ``..`` in it.
    """
    found = _URI.fullmatch(text)
    if found is None and _ANY_URI.fullmatch(text):
        raise ValueError(f"{text!r} is not allowed; give a path, or a URI that begins with s3://, gs:// or minio://")
    if found is not None and not found["bucket"]:
        raise ValueError(f"{text!r} is not allowed; name the bucket, as in {found['scheme']}://bucket/folder")
    if found is not None and ".." in text.split("/"):
        raise ValueError(f"{text!r} is not allowed; '..' is no way up in an object store: write the folder out")


def join(uri: str, *names: str) -> str:
    """Returns the URI of what lies below another one."""
    return "/".join((uri.rstrip("/"), *names))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredObject:
    """One object as it was listed.

    Args:
      uri: Its name.
      size: In bytes.
      tag: What changes when its content does: the ETag or checksum of the store; where there is none, time and size.
        Of a folder that stands for a store, the content's hash.
      modified: When it was written, by the store's clock, in seconds since 1970; to the second in some stores.
    """

    uri: str
    size: int
    tag: str
    modified: float


class StoreFolder:
    """A folder of an object store; ``/`` gives what lies below it, as of a ``Path``.

    Every method raises what ``told`` does: ConfigurationError, StepFailed, and DataError where an object is not there.

    Args:
      uri: The folder's.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")

    def __str__(self) -> str:
        return self._uri

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFolder) and str(other) == self._uri

    def __hash__(self) -> int:
        return hash(self._uri)

    def __truediv__(self, name: str) -> "StoreFolder":
        return StoreFolder(join(self._uri, name))

    @property
    def name(self) -> str:
        """The last part of the URI."""
        return self._uri.rsplit("/", 1)[1]

    def folders(self) -> tuple[str, ...]:
        """Returns the names of the folders directly below; none of a folder that is not there."""
        with told(self._uri):
            filesystem, root = _opened(self._uri)
            try:
                found = filesystem.ls(root, detail=True)
            except FileNotFoundError:
                _check_bucket(filesystem, self._uri)
                return ()
            return tuple(item["name"].rstrip("/").rsplit("/", 1)[1] for item in found if item["type"] == "directory")

    def objects(self) -> dict[str, StoredObject]:
        """Returns all objects below, by their names relative to the folder."""
        return {item.uri.removeprefix(f"{self._uri}/"): item for item in find_objects(self._uri, "**")}

    def read(self, name: str) -> bytes:
        """Returns the content of an object."""
        uri = join(self._uri, name)
        with told(uri):
            filesystem, path = _opened(uri)
            return bytes(filesystem.cat_file(path))

    def write(self, name: str, content: bytes) -> None:
        """Makes an object, or makes it anew: readers see it whole, the old one or the new."""
        uri = join(self._uri, name)
        with told(uri):
            filesystem, path = _opened(uri)
            filesystem.pipe_file(path, content)

    def upload(self, name: str, path: Path) -> None:
        """Makes an object of a local file, which may be large."""
        uri = join(self._uri, name)
        with told(uri):
            filesystem, target = _opened(uri)
            filesystem.put_file(str(path), target)

    def chunks(self, name: str, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
        """Gives the content of an object piece by piece."""
        uri = join(self._uri, name)
        with told(uri):
            filesystem, path = _opened(uri)
            with filesystem.open(path, "rb", cache_type="readahead", block_size=_BLOCK_BYTES) as stream:
                while chunk := stream.read(chunk_bytes):
                    yield chunk

    def remove(self, name: str) -> None:
        """Removes an object; one that is not there is no error."""
        uri = join(self._uri, name)
        with told(uri):
            filesystem, path = _opened(uri)
            with contextlib.suppress(FileNotFoundError):
                filesystem.rm_file(path)


Folder: TypeAlias = Path | StoreFolder


def open_folder(location: str) -> Folder:
    """Returns the folder that a path or URI means; nothing is looked up. A stand-in for the store is a local one."""
    if not is_object_uri(location):
        return Path(location)
    return StoreFolder(location) if _access.store_dir is None else _stand_in(location, _access.store_dir)


def find_objects(folder: str, pattern: str) -> tuple[StoredObject, ...]:
    """Returns the objects below a folder whose names match a pattern, sorted by name; empty objects too.

    Args:
      folder: A URI, taken literally.
      pattern: As of ``glob``: ``*``, ``?``, ``[...]`` within a name, ``**`` over folders.

    Raises:
      ConfigurationError: No credentials, no access, no such bucket, ``..`` in a folder that stands for a store, or
        ``**`` beside other characters.
      StepFailed: The store does not answer.
    """
    with told(folder):
        filesystem, root = _opened(folder)
        prefix = root.rstrip("/") + "/"
        try:
            found = filesystem.glob(_escaped(prefix) + pattern, detail=True)
        except ValueError as e:
            raise ConfigurationError(f"{join(folder, pattern)}: {e}") from e
        except FileNotFoundError:
            found = {}
        if not found:
            _check_bucket(filesystem, folder)
        return tuple(
            _stored(folder, name.removeprefix(prefix), info)
            for name, info in sorted(found.items())
            if info["type"] == "file" and not name.endswith("/")
        )


def fetch(objects: Sequence[StoredObject], folder: Path, root: str) -> dict[str, str]:
    """Copies objects into a local folder, under the names that they have below a folder of the store.

    Args:
      objects: As ``find_objects`` returned them.
      folder: An empty folder.
      root: URI of a folder that all objects are below.

    Returns:
      The local path of each, in their order, and its URI.

    Raises:
      DataError: One is gone.
      ConfigurationError: No access, or a name is no file's, or one's and another's folder.
      StepFailed: The disk is full, the store does not answer, or one has another size by now.
    """
    names = [_file_name(item.uri, root) for item in objects]
    taken = {name.rpartition("/")[0] for name in names}
    for item, name in zip(objects, names, strict=True):
        if name in taken:
            raise ConfigurationError(f"{item.uri}: is an object, and a folder of others; rename it")
    paths = [folder / name for name in names]
    _fetch_all(objects, paths, folder)
    return {str(path): item.uri for path, item in zip(paths, objects, strict=True)}


def fetch_tree(uri: str, folder: Path) -> None:
    """Copies all objects below a URI into a local folder, under the same names.

    Raises:
      DataError: There are none.
      ConfigurationError: No access, or a name would lead out of the folder.
      StepFailed: The disk is full, the store does not answer, or an object changed meanwhile.
    """
    found = find_objects(uri, "**")
    if not found:
        raise DataError(f"{uri}: nothing is there")
    _fetch_all(found, [folder / _file_name(item.uri, uri) for item in found], folder)


def _file_name(uri: str, root: str) -> str:
    name = uri.removeprefix(root.rstrip("/") + "/")
    if {"", ".", ".."} & set(name.split("/")):
        raise ConfigurationError(f"{uri}: no file can have this name; remove the object")
    return name


def _fetch_all(objects: Sequence[StoredObject], paths: Sequence[Path], folder: Path) -> None:
    def fetch_one(item: StoredObject, path: Path) -> None:
        with told(item.uri, scratch=folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            filesystem, name = _opened(item.uri)
            filesystem.get_file(name, str(path))
            if path.stat().st_size != item.size:
                raise StepFailed(f"{item.uri} changed while it was read; run again when nothing writes to it")

    pool = ThreadPoolExecutor(_NUM_THREADS, "fetch")
    try:
        for _ in pool.map(fetch_one, objects, paths):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def told(uri: str, scratch: Path | None = None) -> Iterator[None]:
    """Turns what a store's client raises in the block into one clear error.

    Args:
      uri: What the block works on; of a local path nothing is told otherwise.
      scratch: The local folder that the block writes to, if any.

    Raises:
      ConfigurationError: No credentials, access denied, no such bucket.
      DataError: No such object.
      StepFailed: No answer, another fault of the store, or no space left in ``scratch``.
    """
    try:
        yield
    except (ConfigurationError, DataError, StepFailed):
        raise
    except Exception as e:
        error = explained(e, uri, _endpoint(_scheme(uri)), scratch) if is_object_uri(uri) else None
        if error is None:
            raise
        raise error from e


def _scheme(uri: str) -> str:
    found = _URI.fullmatch(uri)
    assert found is not None, uri
    return found["scheme"]


def _protocol(uri: str) -> str:
    """Returns fsspec's name of the protocol."""
    return "gs" if _scheme(uri) == "gs" else "s3"


def _bucket(uri: str) -> str:
    found = _URI.fullmatch(uri)
    assert found is not None, uri
    return found["bucket"]


def _stand_in(uri: str, store_dir: Path) -> Path:
    found = _URI.fullmatch(uri)
    assert found is not None, uri
    if ".." in uri.split("/"):
        raise ConfigurationError(f"{uri}: '..' is no way up in an object store; write the folder out")
    path = store_dir / _MAPPED[found["scheme"]] / found["bucket"]
    return path / found["key"] if found["key"] else path


def _endpoint(scheme: str) -> str:
    if scheme == "gs":
        return "Google Cloud Storage"
    return _access.endpoint_url or (KUBEFLOW_MINIO if scheme == "minio" else "AWS")


def _storage_options(scheme: str, access: Access) -> dict[str, Any]:
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme == "gs":
        return options
    options["config_kwargs"] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retries": {"mode": "standard", "max_attempts": MAX_ATTEMPTS},
    }
    options["max_concurrency"] = 2  # parts of one upload at once, 50 MB each in memory
    endpoint = access.endpoint_url or (KUBEFLOW_MINIO if scheme == "minio" else None)
    if endpoint:
        options["endpoint_url"] = endpoint
    return options


def _opened(uri: str) -> "tuple[fsspec.AbstractFileSystem, str]":
    """Returns fsspec's file system for a URI, and the path in it."""
    import fsspec

    if _access.store_dir is not None:
        return fsspec.filesystem("file"), str(_stand_in(uri, _access.store_dir))
    options = _storage_options(_scheme(uri), _access)
    return fsspec.filesystem(_protocol(uri), **options), uri.partition("://")[2]


def _check_bucket(filesystem: "fsspec.AbstractFileSystem", uri: str) -> None:
    """Raises ConfigurationError where there is no such bucket: to a store, an absent folder is only an empty one."""
    bucket = _bucket(uri)
    place = _endpoint(_scheme(uri))
    if _access.store_dir is not None:
        bucket, place = str(_stand_in(f"{_scheme(uri)}://{bucket}", _access.store_dir)), str(_access.store_dir)
    try:
        filesystem.ls(bucket, detail=False)
    except FileNotFoundError as e:
        raise ConfigurationError(f"{uri}: no such bucket at {place}; make it, or mend the URI") from e


def _escaped(path: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", path)


def _stored(folder: str, name: str, info: Mapping[str, Any]) -> StoredObject:
    written = info.get("LastModified") or info.get("mtime") or 0.0
    modified = written.timestamp() if isinstance(written, datetime) else float(written)
    if _access.store_dir is not None:
        tag = _content_hash(Path(info["name"]))  # a file can be replaced by one of the same size and time
    else:
        tag = info.get("ETag") or info.get("md5Hash") or info.get("etag") or f"{modified}/{info['size']}"
    return StoredObject(uri=join(folder, name), size=int(info["size"]), tag=str(tag).strip('"'), modified=modified)


def _content_hash(path: Path) -> str:
    content = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            content.update(chunk)
    return content.hexdigest()
