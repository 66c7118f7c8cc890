"""Where in a Model artifact the SavedModel lies."""

from pathlib import Path

from tfx import types
from tfx.types import artifact_utils
from tfx.utils import path_utils

from lockstep.components.errors import ConfigurationError


def saved_model_dir(models: list[types.Artifact]) -> Path:
    """Returns the folder of the SavedModel in the one Model artifact of a channel.

    Raises:
      ConfigurationError: The artifact is not on a local disk: on a cluster the step's entry point fetches it first.
    """
    artifact = artifact_utils.get_single_instance(models)
    uri = path_utils.serving_model_path(artifact.uri, path_utils.is_old_model_artifact(artifact))
    if "://" in uri:
        raise ConfigurationError(f"model: {uri} is not a local path; fetch the model first")
    return Path(uri)
