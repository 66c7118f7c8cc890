"""A step's artifacts where the workers of a Beam cluster see them: in the pod they lie in folders of the pod alone."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfx import types

from lockstep.pipelines.beam_engines import temporary_files_in

__all__ = ["shared_artifacts"]

Artifacts = Mapping[str, list[types.Artifact]]


@contextlib.contextmanager
def shared_artifacts(inputs: Artifacts, outputs: Artifacts, shared_dir: str | None) -> Iterator[None]:
    """Copies inputs into a shared folder, and outputs out of it where the block ends well.

    Temporary files are in that folder, too. All of it is removed at the end.

    Args:
      inputs: Changed while the block runs.
      outputs: Likewise; their folders are there, and empty.
      shared_dir: None changes nothing.

    Raises:
      OSError: The folder is not there, or full.
    """
    with temporary_files_in(shared_dir) as folder:
        if folder is None:
            yield
            return
        places = {
            f"{kind}/{key}/{number}": artifact
            for kind, artifacts in (("inputs", inputs), ("outputs", outputs))
            for key, several in artifacts.items()
            for number, artifact in enumerate(several)
        }
        uris = {place: artifact.uri for place, artifact in places.items()}
        for place, artifact in places.items():
            _copy(Path(artifact.uri), folder / place)
            artifact.uri = str(folder / place)
        try:
            yield
            for place, uri in uris.items():
                if place.startswith("outputs/"):
                    _copy(folder / place, Path(uri))
        finally:
            for place, artifact in places.items():
                artifact.uri = uris[place]
                for name, value in artifact.mlmd_artifact.custom_properties.items():
                    if str(folder) in value.string_value:
                        artifact.set_string_custom_property(name, _own_places(value.string_value, folder, uris))


def _own_places(text: str, folder: Path, uris: Mapping[str, str]) -> str:
    """Returns what an executor says of its artifacts with their own places."""
    for place, uri in uris.items():
        text = text.replace(str(folder / place), uri)
    return text


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():  # an artifact of one value is a file, which an output becomes later
        shutil.copyfile(source, target)
