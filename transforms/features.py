"""The ``features`` and ``label`` blocks of a pipeline's configuration."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """How one raw column becomes model inputs.

    Args:
      kind: ``numeric``: z-score (float32) and, if ``missing`` is ``indicator``, a second output
        ``<column>_missing`` (float32, 0 or 1). ``buckets``: index (int64) of the quantile bucket, ``num_buckets`` of
        them, one more index for a missing value. ``vocabulary``: index (int64) into the values seen in training,
        then ``num_oov`` indices for values not seen, one more for a missing value.
      missing: What a missing numeric value becomes before scaling: the column's mean (so 0 after the z-score).
        ``indicator`` adds the second output, ``mean`` does not.
    """

    kind: Literal["numeric", "buckets", "vocabulary"]
    missing: Literal["indicator", "mean"] = "indicator"
    num_buckets: int = 10
    top_k: int = 1000
    num_oov: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """What the model learns to predict; the transformed label keeps the name of its column.

    Args:
      column: The raw column.
      kind: ``binary`` (float32 0 or 1) or ``regression`` (float32).
      threshold: ``binary`` only: the label is 1 where ``column > threshold``; None takes the column as it is (0 or 1).
      relative_to: A second column: the label is 1 where ``column > threshold * relative_to``.
    """

    column: str
    kind: Literal["binary", "regression"] = "binary"
    threshold: float | None = None
    relative_to: str | None = None
