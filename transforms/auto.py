"""Picks a kind for columns of ``kind: auto``, from the statistics of the training split: the same give the same."""

import dataclasses
import io
from collections.abc import Mapping
from typing import Any

import yaml
from tensorflow_metadata.proto.v0 import statistics_pb2

from lockstep.transforms.feature_kinds import OPTIONS_OF_KIND, SCALES_OF_KIND
from lockstep.transforms.feature_options import Feature
from lockstep.transforms.features import from_config

__all__ = ["Choice", "choose", "feature_line", "flow", "resolve"]

_FLOAT = statistics_pb2.FeatureNameStatistics.FLOAT

# Up to so many different values a column is a category with a vocabulary of all of them.
_MAX_CATEGORIES = 1000
# Whole numbers from 0 to under this are categories: codes, levels, small counts.
_MAX_INTEGERS = 100
_MAX_BUCKETS = 1 << 17
_MAX_VALUES, _MAX_TOKENS = 32, 128
# What statistics show in the place of bytes that are not UTF-8.
_BYTES = "__BYTES_VALUE__"
# From here on floating point cannot tell whole numbers apart.
_FIRST_INEXACT = 1 << 53


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """What was picked for a column, None to leave it out, and why."""

    feature: Feature | None
    reason: str


def choose(statistics: statistics_pb2.FeatureNameStatistics, type_name: str | None = None) -> Choice:
    """Picks a kind for a column.

    Args:
      statistics: Of its values in training.
      type_name: As ExampleGen knows it: ``timestamp`` and ``date`` are whole numbers else.

    Raises:
      ValueError: The column has no value, several numbers with a decimal point in a row, or bytes that are no text.
    """
    common = (statistics.string_stats if statistics.HasField("string_stats") else statistics.num_stats).common_stats
    if not common.num_non_missing:
        raise ValueError("the column has no value in any row of the training split; leave it out")
    is_text = statistics.HasField("string_stats")
    if common.max_num_values > 1:
        if not is_text and statistics.type == _FLOAT:
            raise ValueError("the column has several numbers with a decimal point in a row, of which no kind is made")
        most = common.max_num_values
        feature = Feature(kind="list", max_values=min(most, _MAX_VALUES))
        return Choice(feature=feature, reason=f"up to {most} values a row")
    if type_name in ("timestamp", "date"):
        hour = ("hour",) if type_name == "timestamp" else ()
        return Choice(feature=Feature(kind="timestamp", parts=(*hour, "weekday", "month", "year")), reason=type_name)
    return _of_text(statistics, common) if is_text else _of_numbers(statistics, common)


def resolve(
    custom_config: Mapping[str, Any], statistics: bytes, types: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Returns the configuration with a kind in the place of every ``auto``, and its ``features`` block as YAML.

    Args:
      custom_config: Of `lockstep.transforms.preprocessing.preprocessing_fn`.
      statistics: Of the training split: a serialised DatasetFeatureStatisticsList.
      types: Column -> its type as ExampleGen knows it, where it does.

    Raises:
      ValueError: There is nothing to pick for a column, or every column is left out; the message names the key.
    """
    features, _, _ = from_config(custom_config)
    (data,) = statistics_pb2.DatasetFeatureStatisticsList.FromString(statistics).datasets
    known = {feature.path.step[0] if feature.path.step else feature.name: feature for feature in data.features}
    picked: dict[str, Feature] = {}
    lines = ["features:"]
    for name, feature in features.items():
        choice = Choice(feature=feature, reason="")
        if feature.kind == "auto":
            try:
                choice = choose(known.get(name, statistics_pb2.FeatureNameStatistics()), types.get(name))
            except ValueError as e:
                raise ValueError(f"features.{name}: {e}") from e
        lines.append(feature_line(name, choice))
        if choice.feature is not None:
            picked[name] = choice.feature
    if not picked:
        raise ValueError("features: kind auto leaves out every column, of which each has one value only")
    config = {**custom_config, "features": {name: feature.to_json() for name, feature in picked.items()}}
    return config, "\n".join(lines) + "\n"


def _of_text(statistics: statistics_pb2.FeatureNameStatistics, common: statistics_pb2.CommonStatistics) -> Choice:
    unique, rows = statistics.string_stats.unique, common.num_non_missing
    examples = [bucket.label for bucket in statistics.string_stats.rank_histogram.buckets]
    if examples and all(example == _BYTES for example in examples):
        raise ValueError(
            "the column holds bytes that are no text, of which no kind is picked; images have no size to pick: declare"
            " it, as {kind: image, height: 96, width: 96}, or leave the column out"
        )
    if unique == 1 and not common.num_missing:
        return Choice(feature=None, reason="constant")
    if unique <= _MAX_CATEGORIES:
        return Choice(feature=Feature(kind="vocabulary"), reason=f"{unique} different texts")
    with_blanks = sum(" " in example.strip() for example in examples)
    if 2 * unique > rows and 2 * with_blanks > len(examples):
        feature = Feature(kind="text", max_tokens=_MAX_TOKENS, top_k=10_000, min_frequency=2)
        return Choice(feature=feature, reason=f"{unique} different texts of several words in {rows} rows")
    num_buckets = min(1 << (unique - 1).bit_length(), _MAX_BUCKETS)
    return Choice(feature=Feature(kind="hash", num_buckets=num_buckets), reason=f"{unique} different texts")


def _of_numbers(statistics: statistics_pb2.FeatureNameStatistics, common: statistics_pb2.CommonStatistics) -> Choice:
    least, greatest = statistics.num_stats.min, statistics.num_stats.max
    if least == greatest and not common.num_missing:
        return Choice(feature=None, reason="constant")
    if statistics.type == _FLOAT:
        return Choice(feature=Feature(kind="numeric"), reason="numbers with a decimal point")
    found = f"whole numbers from {int(least)} to {int(greatest)}"
    if least >= 0 and greatest < _MAX_INTEGERS:
        return Choice(feature=Feature(kind="integer", num_values=int(greatest) + 1), reason=found)
    if max(-least, greatest) >= _FIRST_INEXACT:
        return Choice(feature=Feature(kind="hash", num_buckets=_MAX_BUCKETS), reason=f"{found}, inexact as numbers")
    return Choice(feature=Feature(kind="numeric"), reason=found)


def feature_line(name: str, choice: Choice) -> str:
    """Returns an entry of the ``features`` block, without options as by default; a comment if it is left out."""
    if choice.feature is None:
        return f"  # {flow(name)}: left out, {choice.reason}"
    defaults = {field.name: field.default for field in dataclasses.fields(Feature)}
    defaults["scale"] = SCALES_OF_KIND.get(choice.feature.kind, (None,))[0]
    options: dict[str, Any] = {"kind": choice.feature.kind}
    for option in OPTIONS_OF_KIND[choice.feature.kind]:
        value = getattr(choice.feature, option)
        if value != defaults[option]:
            options[option] = list(value) if isinstance(value, tuple) else value
    return f"  {flow(name)}: {flow(options)}" + (f"  # {choice.reason}" if choice.reason else "")


def flow(value: Any) -> str:
    """Returns a value as YAML in one line."""
    stream = io.StringIO()
    yaml.safe_dump(value, stream, default_flow_style=True, allow_unicode=True, width=float("inf"), sort_keys=False)
    return stream.getvalue().removesuffix("...\n").strip()
