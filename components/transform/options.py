"""The ``transform`` block of a pipeline's configuration."""

import dataclasses

from lockstep.components import documents


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformOptions:
    """The ``transform`` block.

    Args:
      num_shards: Files of transformed records a split, 1 to 1000. Training deals whole files to its virtual shards
        where that comes out even, so that each worker reads only its own: best is a multiple of
        ``train.num_virtual_shards``. 48 is one of the usual 16 and 24.
    """

    num_shards: int = 48

    def __post_init__(self) -> None:
        if not 1 <= self.num_shards <= 1000:
            raise ValueError(f"num_shards: {self.num_shards} is not allowed; give 1 to 1000")

    def to_json(self) -> str:
        """Returns the document, with sorted keys: equal options give equal text."""
        return documents.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "TransformOptions":
        """Reads what ``to_json`` wrote.

        Raises:
          ValueError: Not JSON, a key is unknown, or a value has the wrong type or is not allowed.
        """
        return documents.from_json(cls, text, "spec")
