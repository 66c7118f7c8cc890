"""The object store: a folder of this machine, or a real S3 service; and KFP's rules for its URIs.

After ``objectstore/config.go``, ``objectstore/object_store.go`` and ``component/launcher_v2.go``.
"""

import contextlib
import dataclasses
import hashlib
import logging
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lockstep.components import object_store
from lockstep.components.errors import ConfigurationError, StepFailed

if TYPE_CHECKING:
    import s3fs

_BUCKET = re.compile(r"(?P<scheme>[a-z][a-z0-9]+)://(?P<bucket>[^/?]+)(?P<path>/[^?]*)?(?P<query>\?.+)?")
_CHECK_TIMEOUT_S = 10
_FOLDERS = {"gs": "gcs", "minio": "minio", "s3": "s3"}

_logger = logging.getLogger(__name__)


class StoredFile(NamedTuple):
    """An object: its size in bytes, and what changes when its content does."""

    size: int
    tag: str


class Store(Protocol):
    """What the launcher does with an object store."""

    def check(self, uri: str) -> None:
        """Looks whether the store answers.

        Raises:
          StepFailed: It does not.
        """

    def files(self, uri: str) -> dict[str, StoredFile]:
        """Returns what stands below a URI, by the names of ``keys``, with what tells one content from another."""

    def keys(self, uri: str) -> list[str]:
        """Returns what stands below a URI, relative to it; ``[""]`` where the URI is an object, ``[]`` for nothing."""

    def download(self, uri: str, path: pathlib.Path) -> None:
        """Writes an object to a file, whose folder exists."""

    def upload(self, path: pathlib.Path, uri: str) -> None:
        """Writes a file to an object."""

    def place(self, uri: str) -> str:
        """Returns where a person finds what a step calls by its URI; anything else as it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """The bucket, and the folder in it, that a run writes to.

    Args:
      scheme: ``gs``, ``minio`` or ``s3``.
      name: The bucket's name.
      prefix: What all keys begin with, with a slash at its end; may be empty.
    """

    scheme: str
    name: str
    prefix: str

    @classmethod
    def from_uri(cls, uri: str) -> "Bucket":
        """Returns the bucket of a pipeline root.

        Raises:
          ConfigurationError: KFP keeps no artifacts there.
        """
        found = _BUCKET.fullmatch(uri)
        if found is None or found["scheme"] not in _FOLDERS:
            raise ConfigurationError(
                f"pipeline root {uri!r} is not allowed; Kubeflow keeps artifacts in an object store: give"
                " minio://BUCKET/PATH, s3://BUCKET/PATH or gs://BUCKET/PATH"
            )
        path = (found["path"] or "").lstrip("/")
        return cls(scheme=found["scheme"], name=found["bucket"], prefix=path.rstrip("/") + "/" if path else "")

    def check(self, uri: str) -> None:
        """Raises ValueError for a URI that is not in the bucket below the prefix: KFP uploads nowhere else."""
        prefixed = f"{self.scheme}://{self.name}/{self.prefix}".rstrip("/")
        if not uri.startswith(prefixed):
            raise ValueError(f"URI {uri!r} does not have expected bucket prefix {prefixed!r}")
        if not uri[len(prefixed) :].strip("/"):
            raise ValueError(f"URI {uri!r} has empty key given prefixed bucket {prefixed!r}")


def local_path(uri: str, container_dir: pathlib.Path) -> pathlib.Path | None:
    """Returns where KFP's launcher has an object in a container; None for a URI that it leaves alone.

    Args:
      uri: Of an object store.
      container_dir: What stands for the container's ``/``.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in _FOLDERS or ".." in rest.split("/"):
        return None
    return container_dir / _FOLDERS[scheme] / rest


class FolderStore:
    """An object store in a folder: ``minio://b/x`` is ``<root>/minio/b/x``.

    As in a store, a folder without files is nothing. An object is there whole or not at all.

    Args:
      root: The folder; made where missing.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def check(self, uri: str) -> None:
        """See ``Store``: a folder always does."""

    def files(self, uri: str) -> dict[str, StoredFile]:
        """See ``Store``."""
        path = self._path(uri)
        return {key: _stored_file(path / key if key else path) for key in self.keys(uri)}

    def keys(self, uri: str) -> list[str]:
        """See ``Store``."""
        path = self._path(uri)
        if path.is_file():
            return [""]
        return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())

    def download(self, uri: str, path: pathlib.Path) -> None:
        """See ``Store``."""
        shutil.copyfile(self._path(uri), path)

    def upload(self, path: pathlib.Path, uri: str) -> None:
        """See ``Store``."""
        target = self._path(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Not beside the target: what a killed emulator leaves must be no object.
        unfinished_dir = self.root / ".unfinished"
        unfinished_dir.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=unfinished_dir, delete=False) as temporary, path.open("rb") as source:
            shutil.copyfileobj(source, temporary)
        temporary_path = pathlib.Path(temporary.name)
        temporary_path.chmod(0o644)
        temporary_path.replace(target)

    def place(self, uri: str) -> str:
        """See ``Store``."""
        return str(self._path(uri)) if "://" in uri else uri

    def _path(self, uri: str) -> pathlib.Path:
        scheme, _, rest = uri.partition("://")
        if scheme not in _FOLDERS or ".." in rest.split("/"):
            raise StepFailed(f"{uri}: not a URI of the object store; KFP takes minio://, s3:// and gs://")
        return self.root / _FOLDERS[scheme] / rest.rstrip("/")


class S3Store:
    """A real S3 service; buckets of every scheme are its buckets. Buckets are not made, as KFP makes none.

    Args:
      endpoint: Its URL.
      access_key: None takes what the AWS libraries find.
      secret_key: Likewise.
    """

    def __init__(self, endpoint: str, *, access_key: str | None = None, secret_key: str | None = None) -> None:
        self.endpoint = endpoint
        self._access_key, self._secret_key = access_key, secret_key
        self._opened: s3fs.S3FileSystem | None = None

    def place(self, uri: str) -> str:
        """See ``Store``."""
        return uri

    def check(self, uri: str) -> None:
        """See ``Store``; what it answers does not matter here."""
        import botocore.exceptions

        files = self._open(read_timeout_s=_CHECK_TIMEOUT_S, max_attempts=1)
        try:
            files.call_s3("head_bucket", Bucket=_bucket_path(uri).partition("/")[0])
        except (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError) as e:
            raise StepFailed(
                f"--store {self.endpoint}: no answer: {e}; look whether the service runs and can be reached from here,"
                " then run again"
            ) from e
        except Exception as e:  # noqa: BLE001 - an answer all the same: who reads or writes is told what is wrong
            _logger.info("%s: %s", self.endpoint, e)

    def keys(self, uri: str) -> list[str]:
        """See ``Store``."""
        return sorted(self.files(uri))

    def files(self, uri: str) -> dict[str, StoredFile]:
        """See ``Store``."""
        path = _bucket_path(uri)
        with self._errors(uri):
            found: Mapping[str, Mapping[str, Any]] = self._files().find(path, refresh=True, detail=True)
        return {
            "" if key == path else key[len(path) + 1 :]: StoredFile(int(info["size"]), str(info.get("ETag", "")))
            for key, info in found.items()
        }

    def download(self, uri: str, path: pathlib.Path) -> None:
        """See ``Store``."""
        with self._errors(uri):
            self._files().get_file(_bucket_path(uri), str(path))

    def upload(self, path: pathlib.Path, uri: str) -> None:
        """See ``Store``."""
        with self._errors(uri):
            self._files().put_file(str(path), _bucket_path(uri))

    def _files(self) -> "s3fs.S3FileSystem":
        if self._opened is None:
            self._opened = self._open(
                read_timeout_s=object_store.READ_TIMEOUT_S, max_attempts=object_store.MAX_ATTEMPTS
            )
        return self._opened

    def _open(self, *, read_timeout_s: int, max_attempts: int) -> "s3fs.S3FileSystem":
        import s3fs  # takes a second

        files = s3fs.S3FileSystem(
            key=self._access_key,
            secret=self._secret_key,
            endpoint_url=self.endpoint,
            use_listings_cache=False,
            skip_instance_cache=True,
            config_kwargs={
                "connect_timeout": object_store.CONNECT_TIMEOUT_S,
                "read_timeout": read_timeout_s,
                "retries": {"mode": "standard", "total_max_attempts": max_attempts},
            },
        )
        files.retries = 1  # else s3fs makes all these attempts five times
        return files

    @contextlib.contextmanager
    def _errors(self, uri: str) -> Iterator[None]:
        try:
            yield
        except Exception as e:  # botocore's own, translated by s3fs into OSError or not
            raise StepFailed(f"{uri} at {self.endpoint}: {type(e).__name__}: {e}") from e


def _stored_file(path: pathlib.Path) -> StoredFile:
    content = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            content.update(chunk)
        return StoredFile(stream.tell(), content.hexdigest())


def _bucket_path(uri: str) -> str:
    return uri.partition("://")[2].rstrip("/")


def download_artifact(store: Store, uri: str, path: pathlib.Path) -> int:
    """Copies all objects below a URI to a path as KFP's launcher does; returns how many. Nothing there is no error."""
    keys = store.keys(uri)
    for key in keys:
        target = path / key if key else path
        target.parent.mkdir(parents=True, exist_ok=True)
        store.download(f"{uri.rstrip('/')}/{key}" if key else uri, target)
    return len(keys)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uploaded:
    """What an upload moved."""

    num_files: int
    num_bytes: int


def upload_artifact(store: Store, path: pathlib.Path, uri: str) -> Uploaded | None:
    """Copies a file, or all files of a folder, below a URI; None where there is nothing at the path.

    Links are followed, as KFP's launcher does. An empty folder leaves nothing.
    """
    if not path.exists():
        return None
    if not path.is_dir():
        store.upload(path, uri)
        return Uploaded(num_files=1, num_bytes=path.stat().st_size)
    num_files = num_bytes = 0
    for entry in sorted(path.iterdir()):
        below = upload_artifact(store, entry, f"{uri.rstrip('/')}/{entry.name}")
        if below is None:
            raise StepFailed(f"{entry}: a link to nothing cannot be uploaded")
        num_files, num_bytes = num_files + below.num_files, num_bytes + below.num_bytes
    return Uploaded(num_files=num_files, num_bytes=num_bytes)
