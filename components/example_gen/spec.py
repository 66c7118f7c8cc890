"""What one ExampleGen does, as one JSON document."""

import dataclasses
import json
from typing import Any

from lockstep.components import documents
from lockstep.components.example_gen.options import DataOptions, Requirements


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleGenSpec:
    """How rows are read, split and written, and what they must have.

    Args:
      data: The ``data`` block. ``path`` is not part of the document: TFX carries it, resolved, as ``input_base`` and
        ``input_config``.
      requirements: What the rest of the pipeline needs of the rows.
    """

    data: DataOptions
    requirements: Requirements = Requirements()

    def to_json(self) -> str:
        """Returns the document; equal specs give equal text, and the order of splits is kept: it tells buckets."""
        document = dataclasses.asdict(self)
        del document["data"]["path"]
        document["data"]["types"] = dict(sorted(self.data.types.items()))
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> "ExampleGenSpec":
        """Reads what ``to_json`` wrote; ``data.path`` is "(input_base)".

        Raises:
          ValueError: Not such a document.
        """
        document: dict[str, Any] = json.loads(text)
        return documents.from_document(cls, document | {"data": document["data"] | {"path": "(input_base)"}}, "spec")
