"""Which class decodes features that Transform left encoded."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderOptions:
    """What decodes features that Transform left encoded.

    Args:
      build: ``module:class``; made once, it is a ``decoding.Decoder``.
      parameters: Its keyword arguments, of JSON's types.
    """

    build: str
    parameters: Mapping[str, Any]
