"""The ``push`` block of a pipeline's configuration, and the one JSON property of the Pusher component."""

import dataclasses

from lockstep.components import documents
from lockstep.components.object_store import check_uri


@dataclasses.dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Where blessed models go.

    Args:
      dir: A folder, here or in an object store (``s3://``, ``gs://``, ``minio://``); each pushed model is
        ``<dir>/<version>``, the layout of TensorFlow Serving. Made if absent; a bucket is not.
      keep: How many versions stay, 1 or more; older ones are removed after a push, never the newest. 5 leaves room to
        go back a few steps and bounds the disk used.

    Raises:
      ValueError: An empty ``dir``, a URI of another scheme, or ``keep`` below 1.
    """

    dir: str
    keep: int = 5

    def __post_init__(self) -> None:
        if not self.dir:
            raise ValueError("dir: an empty path is not allowed; give the folder to push to")
        if "\0" in self.dir:
            raise ValueError(f"dir: {self.dir!r} is not allowed; no path holds the character NUL")
        try:
            check_uri(self.dir)
        except ValueError as e:
            raise ValueError(f"dir: {e}") from e
        if self.keep < 1:
            raise ValueError(f"keep: {self.keep} is not allowed; give 1 or more")

    def to_json(self) -> str:
        """Returns the options as JSON, equal for equal options."""
        return documents.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "PushOptions":
        """Returns what ``to_json`` wrote.

        Raises:
          ValueError: Another document.
        """
        return documents.from_json(cls, text, "push")
