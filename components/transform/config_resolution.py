"""What ``preprocessing_fn`` is told, completed from the statistics of the training split."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from tfx import types
from tfx.types import artifact_utils

from lockstep.components.errors import DataError
from lockstep.components.record_manifest import agreed_raw_columns

FEATURES_NAME = "features.yaml"

_STATISTICS_NAME = "FeatureStats.pb"
_ANALYZED_SPLIT = "train"


def resolve_config(
    resolver: str, custom_config: str, statistics: Sequence[types.Artifact], examples: Sequence[types.Artifact]
) -> tuple[str, str]:
    """Calls a function that completes ``custom_config``.

    Args:
      resolver: Its import path; see ``component.Transform``.
      custom_config: JSON.
      statistics: One artifact.
      examples: Whose columns it is about.

    Returns:
      The new ``custom_config``, as JSON, and the function's text.

    Raises:
      DataError: What the function refuses.
    """
    module, _, name = resolver.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    path = Path(artifact_utils.get_split_uri(list(statistics), _ANALYZED_SPLIT), _STATISTICS_NAME)
    raw = agreed_raw_columns([artifact.uri for artifact in examples])
    try:
        config, text = function(json.loads(custom_config), path.read_bytes(), raw.types if raw else {})
    except ValueError as e:
        raise DataError(str(e)) from e
    return json.dumps(config), text
