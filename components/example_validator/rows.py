"""Rows that show an anomaly, by file and line, as ExampleGen kept them (``data.keep_origin``)."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tensorflow.core.example import example_pb2, feature_pb2
from tensorflow_metadata.proto.v0 import schema_pb2

from lockstep.components.example_gen.record_origins import Origin, read_origins
from lockstep.components.example_validator.gate import Finding, domain_values
from lockstep.components.record_manifest import Manifest

_MAX_ROWS = 3
_MAX_RECORDS = 200_000  # of a split, some seconds: that there are such rows is known already
_MAX_SHOWN = 40
_LISTS = {schema_pb2.BYTES: "bytes_list", schema_pb2.INT: "int64_list", schema_pb2.FLOAT: "float_list"}
# Kinds that say that a value is not there.
_ABSENCE = ("not_present", "low_fraction_present", "low_number_present", "no_values", "missing_column")


def example_rows(
    artifact_dir: str, findings: Sequence[Finding], schema: schema_pb2.Schema
) -> dict[Finding, tuple[str, ...]]:
    """Returns three rows at most of each anomaly, such as ``rows.csv:12 ('purple')``; none where no row shows it.

    Reads the first 200,000 records of a split.

    Args:
      artifact_dir: The local folder of ExampleGen's output.
      findings: What to look for.
      schema: What is expected.

    Raises:
      DataError: The folder has no manifest, or no origins.
    """
    manifest = Manifest.load(artifact_dir)
    found: dict[Finding, list[tuple[str, int, str]]] = {finding: [] for finding in findings}
    for split in sorted({finding.split for finding in findings} & set(manifest.shards)):
        wanted = [_Offence(finding, schema) for finding in findings if finding.split == split and finding.column]
        for shard, number, record in _records(artifact_dir, manifest, split):
            wanted = [offence for offence in wanted if len(found[offence.finding]) < _MAX_ROWS]
            if not wanted:
                break
            features = example_pb2.Example.FromString(record).features.feature
            for offence in wanted:
                if (value := offence.of(features)) is not None:
                    found[offence.finding].append((shard, number, value))
    places = _places(artifact_dir, {(shard, number) for rows in found.values() for shard, number, _ in rows})
    return {
        finding: tuple(f"{places[shard, number]}{value}" for shard, number, value in rows)
        for finding, rows in found.items()
    }


def _places(artifact_dir: str, records: Collection[tuple[str, int]]) -> dict[tuple[str, int], Origin]:
    """Returns where records came from; reads each table of origins once."""
    places: dict[tuple[str, int], Origin] = {}
    for shard in {shard for shard, _ in records}:
        numbers = [number for of_shard, number in records if of_shard == shard]
        origins = read_origins(artifact_dir, shard, numbers)
        places.update(zip(((shard, number) for number in numbers), origins, strict=True))
    return places


class _Offence:
    """What a row has to look like to show an anomaly."""

    def __init__(self, finding: Finding, schema: schema_pb2.Schema) -> None:
        self.finding = finding
        self._feature = next((each for each in schema.feature if each.name == finding.column), None)
        allowed = None if self._feature is None else domain_values(self._feature, schema)
        self._allowed = None if allowed is None else {value.encode() for value in allowed}
        self._of_absence = any(word in finding.kind for word in _ABSENCE)

    def of(self, features: Mapping[str, feature_pb2.Feature]) -> str | None:
        """Returns how the row's value is shown, empty for a missing one; None where the row is as expected."""
        if self.finding.column not in features:
            return "" if self._of_absence else None
        feature = features[self.finding.column]
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if not values:
            return "" if self._of_absence else None
        if self._of_absence:
            return None
        odd = next((value for value in values if self._is_odd(kind, value)), None)
        return None if odd is None else f" ({_shown(odd)})"

    def _is_odd(self, kind: str | None, value: Any) -> bool:
        if self._feature is None:  # the schema has no such column
            return True
        if kind != _LISTS.get(self._feature.type) or (kind == "float_list" and not math.isfinite(value)):
            return True
        if self._allowed is not None:
            return value not in self._allowed
        if kind == "bytes_list":  # which may have a domain of numbers too: those that the text is written of
            return False
        for domain in ("int_domain", "float_domain"):
            if self._feature.HasField(domain):
                bounds = getattr(self._feature, domain)
                is_below = bounds.HasField("min") and value < bounds.min
                return bool(is_below or (bounds.HasField("max") and value > bounds.max))
        return False


def _records(artifact_dir: str, manifest: Manifest, split: str) -> Iterator[tuple[str, int, bytes]]:
    import tensorflow as tf

    left = _MAX_RECORDS
    for shard in manifest.shards[split]:
        dataset = tf.data.TFRecordDataset(f"{artifact_dir}/{shard.path}", "GZIP")
        for number, record in enumerate(dataset.take(left).as_numpy_iterator()):
            yield shard.path, number, record
        left -= min(left, shard.records)


def _shown(value: Any) -> str:
    text = repr(value.decode(errors="backslashreplace") if isinstance(value, bytes) else value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
