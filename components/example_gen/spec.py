"""What one ExampleGen does, as one JSON document."""

import dataclasses
import json
from typing import Any

from lockstep.components.example_gen.options import CsvOptions, DataOptions, Requirements


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
        try:
            data = dict(document["data"])
            options = CsvOptions(**_tuples(data.pop("options")))
            requirements = Requirements(**_tuples(document["requirements"]))
            return cls(data=DataOptions(path="(input_base)", options=options, **data), requirements=requirements)
        except (TypeError, KeyError, AttributeError) as e:
            raise ValueError(f"spec: not a document of this version of ExampleGen: {e!r}") from e


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
