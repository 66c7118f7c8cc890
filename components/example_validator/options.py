"""The ``validate`` block of a pipeline's configuration."""

import dataclasses
import difflib

from lockstep.components import documents

# What any split may have that training did not: text that has an index of its own, and missing values.
_USUAL = ("enum_type_unexpected_string_values", "feature_type_low_fraction_present")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidateOptions:
    """The ``validate`` block: which anomalies of the data do not stop the pipeline.

    Args:
      allow: Kinds, as TFX's data validation names them (``AnomalyInfo.Type``), in small letters; ``all`` lets
        everything pass. By default text passes that training did not have, and values that are missing in more rows
        than in training: ``features`` say what becomes of both.
    """

    allow: tuple[str, ...] = _USUAL

    def __post_init__(self) -> None:
        for kind in self.allow:
            if kind == "all" or kind in _USUAL:
                continue
            known = anomaly_kinds()
            if kind not in known:
                near = difflib.get_close_matches(kind, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"allow: {kind!r} is not allowed; give kinds of anomalies of TFX, or all{hint}")

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
