"""What a person may choose about an emulation. Import-light."""

import dataclasses
import pathlib
import re
from collections.abc import Mapping

NEWEST_KFP = "2.16"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmulateOptions:
    """What a person may choose.

    Args:
      root: Where everything is kept; None is ``lockstep-runs/<pipeline>-kubeflow`` in the working folder.
      parameters: Run-time parameters, as texts.
      store: URL of an S3 service that is the object store; None takes a folder in the root.
      pipeline_root: Where artifacts are kept in the object store; None takes the package's.
      kfp_version: Which Kubeflow Pipelines is followed, such as ``2.16``.
      docker: Each step runs in a container of the package's image.
      working_dir: Stands for the image's working folder, with the user's own modules; None is an empty folder.
    """

    root: pathlib.Path | None = None
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    store: str | None = None
    pipeline_root: str | None = None
    kfp_version: str = NEWEST_KFP
    docker: bool = False
    working_dir: pathlib.Path | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"2\.\d+", self.kfp_version):
            raise ValueError(f"kfp_version: {self.kfp_version!r} is not allowed; give 2.5 to {NEWEST_KFP}")
        if self.store is not None and re.search("[@?#]", self.store):  # not shown: a password may be in it
            raise ValueError(
                "store: '@', '?' and '#' are not allowed; give http://HOST:PORT, and credentials as AWS_ACCESS_KEY_ID"
                " and AWS_SECRET_ACCESS_KEY"
            )
        if self.store is not None and not re.fullmatch(r"https?://[^/\s]+/?", self.store):
            raise ValueError(f"store: {self.store!r} is not allowed; give the URL of an S3 service, http://HOST:PORT")
