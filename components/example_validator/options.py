"""The ``validate`` block of a pipeline's configuration."""

import dataclasses
import difflib

from lockstep.components import documents

USUAL = (
    "enum_type_unexpected_string_values",
    "feature_type_low_fraction_present",
    "feature_type_low_number_present",
    "feature_type_not_present",
    "schema_missing_column",
)
"""What any split may have by chance that training did not: other text, and more missing values."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidateOptions:
    """The ``validate`` block: which anomalies of the data do not stop the pipeline.

    Args:
      allow: Kinds, as TFX's data validation names them (``AnomalyInfo.Type``), in small letters; ``all`` lets
        everything pass. By default nothing passes a schema of ``schema``. Of one that is inferred from the training
        split, other splits may differ by chance: text passes that training did not have, and values that are missing
        in more rows than there; ``features`` say what becomes of both.
    """

    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for kind in self.allow or ():
            if kind == "all" or kind in USUAL:
                continue
            known = anomaly_kinds()
            if kind not in known:
                near = difflib.get_close_matches(kind, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"allow: {kind!r} is not allowed; give kinds of anomalies of TFX, or all{hint}")

    def resolved(self, *, is_reviewed: bool) -> "ValidateOptions":
        """Returns the kinds that pass: those given, else by whether the schema is a reviewed one."""
        return self if self.allow is not None else ValidateOptions(allow=() if is_reviewed else USUAL)

    def to_json(self) -> str:
        """Returns the document, with sorted keys: equal options give equal text."""
        return documents.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "ValidateOptions":
        """Reads what ``to_json`` wrote.

        Raises:
          ValueError: Not JSON, a key is unknown, or a value has the wrong type or is not allowed.
        """
        return documents.from_json(cls, text, "spec")


def anomaly_kinds() -> list[str]:
    """Returns the names of all kinds of anomalies."""
    from tensorflow_metadata.proto.v0 import anomalies_pb2

    return [name.lower() for name in anomalies_pb2.AnomalyInfo.Type.keys()]  # noqa: SIM118 - an enum's, no mapping
