"""URIs of object stores, and where their files are in the container of a step.

Kubeflow Pipelines' launcher downloads ``minio://bucket/key`` to ``/minio/bucket/key`` before a step's command runs, and
uploads outputs from there afterwards. What runs between the two sees local files only; what it says about them must
name the store again.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

_FOLDERS = {"minio": "minio", "s3": "s3", "gs": "gcs"}
_WORKSPACE = "kfp-workspace/.artifacts"

# A path begins or ends within a text where no character of a name is beside it.
_BEGIN = r"(?<![\w./~-])"
_END = r"(?![\w~-])"


@dataclasses.dataclass(frozen=True)
class ContainerPaths:
    """The launcher's mapping.

    Args:
      root: The container's ``/``, or the folder that stands for it.
    """

    root: str = "/"

    def local_path(self, uri: str, *, in_workspace: bool = False) -> str:
        """Returns the path of what the launcher has downloaded, or will upload.

        Args:
          uri: ``minio://``, ``s3://`` or ``gs://`` with a bucket; ``oci://`` for an image that holds a model.
          in_workspace: The launcher left it in the run's workspace volume, see its metadata ``_kfp_workspace``.

        Raises:
          ValueError: It is none of these.
        """
        scheme, separator, rest = uri.partition("://")
        if scheme == "oci" and rest:
            return self._below(f"oci/{rest.replace('/', '_')}/models")
        if scheme not in _FOLDERS or not separator or not rest.strip("/"):
            raise ValueError(f"{uri!r} is not allowed; give a URI of minio://, s3:// or gs:// with a bucket")
        folder = f"{_FOLDERS[scheme]}/{rest}"
        return self._below(f"{_WORKSPACE}/{folder}" if in_workspace else folder)

    def uri(self, path: str) -> str | None:
        """Returns the URI of a local path in one of the launcher's folders; None of any other path."""
        for scheme, folder in _FOLDERS.items():
            for prefix in (self._below(f"{folder}/"), self._below(f"{_WORKSPACE}/{folder}/")):
                if path.startswith(prefix):
                    return f"{scheme}://{path[len(prefix) :]}"
        return None

    def uris_in(self, text: str) -> str:
        """Returns the text with every local path in it that is in one of the launcher's folders as a URI."""
        for scheme, folder in _FOLDERS.items():
            for prefix in (self._below(f"{_WORKSPACE}/{folder}/"), self._below(f"{folder}/")):
                text = re.sub(rf"(?:file://|{_BEGIN}){re.escape(prefix)}", f"{scheme}://", text)
        return text

    def _below(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}"


class ArtifactPaths:
    """Maps what is said about the artifacts of one step.

    Args:
      paths: The launcher's mapping.
      artifacts: URI and local path of each; the path is another than the launcher's where the artifact has one of its
        own.
    """

    def __init__(self, paths: ContainerPaths, artifacts: Iterable[tuple[str, str]]) -> None:
        self._paths = paths
        # Longest first: `/minio/b/model_run` is not below `/minio/b/model`.
        pairs = sorted(set(artifacts), key=lambda pair: len(pair[1]), reverse=True)
        self._to_uri = [(re.compile(f"(?:file://|{_BEGIN}){re.escape(path)}{_END}"), uri) for uri, path in pairs]
        self._to_path = [(re.compile(f"{_BEGIN}{re.escape(uri)}{_END}"), path) for uri, path in pairs]

    def localized(self, value: Any) -> Any:
        """Returns JSON with the URIs of the step's own artifacts as local paths: nothing else is on this disk."""
        return _map_strings(value, lambda text: _replace(text, self._to_path))

    def restored(self, value: Any) -> Any:
        """Returns JSON without a local path of the launcher's folders: URIs in place of them."""
        return _map_strings(value, lambda text: self._paths.uris_in(self._own(text)))

    def restored_uri(self, path: str) -> str:
        """Returns what the store calls a local path; a URI stays what it is.

        Raises:
          ValueError: It is a local path that the launcher does not upload.
        """
        restored = self._own(path)
        restored = self._paths.uri(restored) or restored
        if "://" not in restored or restored.startswith("file://"):
            raise ValueError(f"{path!r} is a local path that nothing uploads")
        return restored

    def _own(self, text: str) -> str:
        return _replace(text, self._to_uri)


def _replace(text: str, replacements: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in replacements:
        text = pattern.sub(lambda match, to=replacement: to, text)  # type: ignore[misc]
    return text


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_strings(item, change) for key, item in value.items()}
    return value
