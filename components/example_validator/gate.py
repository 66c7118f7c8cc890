"""Which anomalies stop the pipeline, and what is said of them."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

_MAX_FINDINGS = 10
_MAX_VALUES = 8
_TYPES = {schema_pb2.BYTES: "text", schema_pb2.INT: "whole numbers", schema_pb2.FLOAT: "numbers"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One anomaly.

    Args:
      split: Where it was found.
      column: Empty where it is of the whole split.
      kind: As in ``validate.allow``.
      seen: What was seen, in TFX's words.
    """

    split: str
    column: str
    kind: str
    seen: str


def findings(anomalies: Mapping[str, anomalies_pb2.Anomalies]) -> Iterator[Finding]:
    """Gives what TFX found, split by split.

    Args:
      anomalies: Split -> the document.
    """
    for split, document in anomalies.items():
        if document.HasField("dataset_anomaly_info"):
            yield from _reasons(split, "", document.dataset_anomaly_info)
        for key, info in sorted(document.anomaly_info.items()):
            yield from _reasons(split, ".".join(info.path.step) or key, info)


def _reasons(split: str, column: str, info: anomalies_pb2.AnomalyInfo) -> Iterator[Finding]:
    for reason in info.reason:
        kind = anomalies_pb2.AnomalyInfo.Type.Name(reason.type).lower()
        seen = f"{reason.short_description}. {reason.description}".strip()
        yield Finding(split=split, column=column, kind=kind, seen=seen)


def stopping(found: Iterable[Finding], allow: Sequence[str]) -> list[Finding]:
    """Returns those that are not let pass."""
    return [] if "all" in allow else [finding for finding in found if finding.kind not in allow]


def message(stopped: Sequence[Finding], schema: schema_pb2.Schema, rows: Mapping[Finding, Sequence[str]] | None) -> str:
    """Returns what the user reads: for each anomaly what was seen, what is expected, and where; then what to do.

    Args:
      stopped: At least one.
      schema: What is expected.
      rows: Anomaly -> some of its rows; None where the origins were not kept.
    """
    features = {feature.name: feature for feature in schema.feature}
    lines = [f"{len(stopped)} {'anomaly' if len(stopped) == 1 else 'anomalies'} in the data"]
    for finding in stopped[:_MAX_FINDINGS]:
        where = f"{finding.split}, column {finding.column!r}" if finding.column else finding.split
        lines.append(f"  {where}: {finding.seen}")
        if finding.column in features:
            lines.append(f"    expected: {expectation(features[finding.column], schema)}")
        if rows and rows.get(finding):
            lines.append(f"    rows: {', '.join(rows[finding])}")
    if len(stopped) > _MAX_FINDINGS:
        lines.append(f"  and {len(stopped) - _MAX_FINDINGS} more")
    if rows is None:
        lines.append("  which rows: data.keep_origin: true names them")
    kinds = ", ".join(sorted({finding.kind for finding in stopped}))
    lines.append(f"  mend the data, or let such anomalies pass: validate.allow: [{kinds}]")
    return "\n".join(lines)


def expectation(feature: schema_pb2.Feature, schema: schema_pb2.Schema) -> str:
    """Returns what a schema says of a column, in words."""
    parts = [_TYPES.get(feature.type, "a value")]
    if (values := domain_values(feature, schema)) is not None:
        shown = ", ".join(values[:_MAX_VALUES])
        parts.append(f"of {len(values)} values: {shown}{', ...' if len(values) > _MAX_VALUES else ''}")
    for domain in ("int_domain", "float_domain"):
        if feature.HasField(domain):
            bounds = getattr(feature, domain)
            least = f"from {bounds.min:g}" if bounds.HasField("min") else ""
            most = f"to {bounds.max:g}" if bounds.HasField("max") else ""
            parts.append(" ".join(filter(None, (least, most))))
    if feature.presence.min_fraction == 1:
        parts.append("in every row")
    elif feature.presence.min_fraction:
        parts.append(f"in {feature.presence.min_fraction:.3%} of the rows or more")
    return ", ".join(filter(None, parts))


def domain_values(feature: schema_pb2.Feature, schema: schema_pb2.Schema) -> list[str] | None:
    """Returns the values that a schema allows of a column of text; None where it allows all."""
    if feature.HasField("string_domain"):
        return list(feature.string_domain.value)
    if feature.HasField("domain"):
        return next((list(domain.value) for domain in schema.string_domain if domain.name == feature.domain), None)
    return None
