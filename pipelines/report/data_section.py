"""The data: rows by split, what was left out, anomalies, and every column with its values."""

import itertools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import message
from markupsafe import Markup
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

from lockstep.components.example_gen.quarantine import QUARANTINE_NAME
from lockstep.pipelines.report.charts import ABSENT, number
from lockstep.pipelines.report.run_record import Artifact, RunRecord
from lockstep.pipelines.report.sparklines import Bars, histogram

_TYPES = {0: "int", 1: "float", 2: "string", 3: "bytes", 4: "struct"}
_SHOWN_COLUMNS = 40
_MAX_COLUMNS = 1000
_MAX_ANOMALIES = 200
_TOP_VALUES = 12
_MAX_QUARANTINED = 10
_MAX_LINE_CHARS = 1 << 16

Features = Mapping[str, "statistics_pb2.FeatureNameStatistics"]


def data_section(run: RunRecord) -> dict[str, Any]:
    """Returns what ``data.html`` shows.

    ``splits``: rows of ``name``, ``rows``, ``share`` (per cent). ``dropped``: of ``reason``, ``rows``. ``anomalies``:
    of ``split``, ``column``, ``what``; None where it is not known. ``columns``: see ``_column``, the first ones apart
    from the ``further`` ones. ``missing``: what is not there, in sentences.
    """
    missing = []
    examples = run.artifact("ExampleGen", "examples")
    rows, dropped = _rows(examples)
    if not rows:
        missing.append("How many rows there were was not recorded: " + _why(run, "ExampleGen"))
    statistics = _statistics(run.artifact("StatisticsGen", "statistics"))
    if not statistics:
        missing.append("There are no statistics of the columns: " + _why(run, "StatisticsGen"))
    anomalies = _anomalies(run.artifact("ExampleValidator", "anomalies"))
    if anomalies is None:
        missing.append("Nobody looked for anomalies: " + _why(run, "ExampleValidator"))
    columns = list(_columns(statistics, {item["column"] for item in anomalies or ()}))
    if len(columns) > _MAX_COLUMNS:
        missing.append(f"Of {len(columns):,} columns the first {_MAX_COLUMNS:,} are shown.")
        columns = columns[:_MAX_COLUMNS]
    total = sum(rows.values())
    return {
        "splits": [
            {"name": split, "rows": f"{count:,}", "share": f"{100 * count / total:.1f}" if total else ABSENT}
            for split, count in rows.items()
        ],
        "total": f"{total:,}",
        "origin": (run.config or {}).get("data", {}).get("path", ""),
        "dropped": [{"reason": reason, "rows": f"{count:,}"} for reason, count in dropped.items()],
        "quarantine": _quarantine(examples),
        "anomalies": (anomalies or [])[:_MAX_ANOMALIES],
        "num_anomalies": len(anomalies or ()),
        "is_validated": anomalies is not None,
        "columns": columns[:_SHOWN_COLUMNS],
        "further": columns[_SHOWN_COLUMNS:],
        "split_names": list(statistics)[:2],
        "missing": missing,
    }


def _why(run: RunRecord, step: str) -> str:
    state = run.step(step).state
    if state in ("done", "cached"):
        kept = "its files are gone, or cut." if run.has_records else "this run kept no record of its artifacts."
        return f"{step} ended well, but {kept}"
    words = {"waiting": "did not begin", "skipped": "was skipped", "running": "still runs"}
    return f"{step} {words.get(state, 'did not end well')}."


def _rows(examples: Artifact | None) -> tuple[dict[str, int], dict[str, int]]:
    return _counts(examples, "rows"), _counts(examples, "dropped")


def _counts(examples: Artifact | None, name: str) -> dict[str, int]:
    """Returns a property that holds counts by name as JSON; nothing where it is not there, or something else."""
    try:
        document = json.loads(examples.properties[name]) if examples else {}
        return {str(key): int(value) for key, value in document.items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def _quarantine(examples: Artifact | None) -> dict[str, Any] | None:
    """Returns how many rows were put aside, and the first of them; None where none were, or nobody counted."""
    count = examples.properties.get("quarantined") if examples else None
    if examples is None or not isinstance(count, int | float) or not count:
        return None
    rows = []
    path = examples.dir / QUARANTINE_NAME
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in itertools.islice(file, _MAX_QUARANTINED):
                row = json.loads(line[:_MAX_LINE_CHARS])
                rows.append(
                    {"place": str(row["place"]), "reason": str(row["reason"]), "row": _cut(str(row.get("row", "")))}
                )
    except (OSError, ValueError, KeyError, TypeError):  # gone, cut, or a row of many megabytes: the count remains
        pass
    return {"count": f"{int(count):,}", "rows": rows, "path": str(path)}


def _statistics(artifact: Artifact | None) -> dict[str, "statistics_pb2.DatasetFeatureStatistics"]:
    """Returns split -> statistics, those of training first."""
    found = {}
    for split, path in _split_files(artifact, "FeatureStats.pb"):
        parsed = _parsed(statistics_pb2.DatasetFeatureStatisticsList(), path)
        if parsed is not None and parsed.datasets:
            found[split] = parsed.datasets[0]
    return dict(sorted(found.items(), key=lambda item: item[0] != "train"))


def _anomalies(artifact: Artifact | None) -> list[dict[str, str]] | None:
    found: list[dict[str, str]] = []
    files = _split_files(artifact, "SchemaDiff.pb")
    for split, path in files:
        parsed = _parsed(anomalies_pb2.Anomalies(), path)
        if parsed is None:
            return None
        for feature, info in sorted(parsed.anomaly_info.items()):
            found.append({"split": split, "column": feature, "what": f"{info.short_description}. {info.description}"})
        if parsed.HasField("dataset_anomaly_info"):
            found.append({"split": split, "column": "(all)", "what": parsed.dataset_anomaly_info.description})
    return found if files else None


def _split_files(artifact: Artifact | None, name: str) -> list[tuple[str, pathlib.Path]]:
    if artifact is None or not artifact.dir.is_dir():
        return []
    return [(path.parent.name.removeprefix("Split-"), path) for path in sorted(artifact.dir.glob(f"Split-*/{name}"))]


def _parsed(empty: Any, path: pathlib.Path) -> Any:
    try:
        empty.ParseFromString(path.read_bytes())
    except (OSError, message.DecodeError):
        return None
    return empty


def _columns(statistics: Mapping[str, Any], anomalous: set[str]) -> Iterator[dict[str, Any]]:
    by_split = [
        {".".join(feature.path.step) or feature.name: feature for feature in split.features}
        for split in list(statistics.values())[:2]
    ]
    for name in dict.fromkeys(name for features in by_split for name in features):
        present = [features[name] for features in by_split if name in features]
        yield _column(name, present, is_anomalous=name in anomalous)


def _column(name: str, splits: Sequence[Any], *, is_anomalous: bool) -> dict[str, Any]:
    """Returns a row: ``name``, ``type``, ``missing`` (per cent), ``words``, ``drawing``, ``is_anomalous``, ..."""
    feature = splits[0]
    kind = feature.WhichOneof("stats") or ""
    common = getattr(feature, kind).common_stats if kind else None
    count = common.num_missing + common.num_non_missing if common else 0
    values, drawing = "", Markup("")
    if kind == "num_stats":
        values = _numeric_words(feature.num_stats)
        bars = [_numeric_bars(split.num_stats) for split in splits]
        drawing = histogram(bars[0], bars[1] if len(bars) > 1 else (), f"Values of {name}: {values}")
    elif kind == "string_stats":
        top = [(bucket.label, bucket.sample_count) for bucket in feature.string_stats.rank_histogram.buckets]
        values = f"{feature.string_stats.unique:,} different" + (f"; most often {_cut(top[0][0])}" if top else "")
        drawing = _ranked(splits, [label for label, _ in top[:_TOP_VALUES]], f"Values of {name}: {values}")
    elif kind == "bytes_stats":
        values = f"{feature.bytes_stats.unique:,} different"
    return {
        "name": name,
        "type": _TYPES.get(feature.type, "other"),
        "missing": f"{100 * common.num_missing / count:.1f} %" if count and common else ABSENT,
        "is_incomplete": bool(common and common.num_missing),
        "words": values,
        "drawing": drawing,
        "is_anomalous": is_anomalous,
    }


def _numeric_words(stats: Any) -> str:
    return f"{number(stats.min)} to {number(stats.max)}, mean {number(stats.mean)}, deviation {number(stats.std_dev)}"


def _numeric_bars(stats: Any) -> Bars:
    standard = [found for found in stats.histograms if found.type == 0]
    buckets = standard[0].buckets if standard else []
    finite = [(bucket.low_value, bucket.high_value, bucket.sample_count) for bucket in buckets]
    return [bar for bar in finite if all(abs(edge) < 1e300 for edge in bar[:2])]


def _ranked(splits: Sequence[Any], labels: Sequence[str], description: str) -> Markup:
    """Returns the most frequent values of the first split as bars, in both splits."""
    drawn: list[Bars] = []
    for split in splits:
        counts = {bucket.label: bucket.sample_count for bucket in split.string_stats.rank_histogram.buckets}
        drawn.append([(float(i), i + 0.8, counts.get(label, 0.0)) for i, label in enumerate(labels)])
    return histogram(drawn[0], drawn[1] if len(drawn) > 1 else (), description)


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
