"""What an entry of the ``features`` block may hold, and what is said where it holds something else."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from lockstep.transforms.feature_kinds import (
    LEAST,
    MAX_WIDTH,
    MISSING_OF_KIND,
    OPTIONS_OF_KIND,
    OUTPUTS_OF_KIND,
    SCALES_OF_KIND,
    Part,
)
from lockstep.transforms.time_options import NUM_VALUES_OF_PART, YEAR, parse_time, parse_utc_offset

if TYPE_CHECKING:
    from lockstep.transforms.feature_options import Feature

__all__ = ["check_feature"]

_REQUIRED = (
    ("hash", "num_buckets"),
    ("cross", "num_buckets"),
    ("integer", "num_values"),
    ("image", "height"),
    ("image", "width"),
)


def check_feature(feature: "Feature") -> None:
    """Raises ValueError, which starts with the option's name, for a value that is not allowed or has no effect."""
    if feature.kind not in OPTIONS_OF_KIND:
        raise ValueError(f"kind: {feature.kind!r} is not allowed; give one of {', '.join(OPTIONS_OF_KIND)}")
    _check_choices(feature)
    for name, least in LEAST.items():
        value = getattr(feature, name)
        if value is not None and value < least:
            raise ValueError(f"{name}: {value} is not allowed; give {least} or more")
    _check_options_of_kind(feature)
    _check_default(feature)
    _check_clip(feature)
    _check_edges(feature)
    _check_time(feature)
    _check_columns(feature)
    _check_tokens(feature)
    for kind, name in _REQUIRED:
        if feature.kind == kind and getattr(feature, name) is None:
            raise ValueError(f"{name}: required for kind {kind!r}, but not given")


def _check_choices(feature: "Feature") -> None:
    allowed: dict[str, tuple[Any, ...]] = {
        "scale": SCALES_OF_KIND.get(feature.kind, (feature.scale,)),
        "fit": ("crop", "pad", "stretch"),
        "channels": (1, 3, 4),
        "decode": ("transform", "train"),
        "constant": ("zero", "error"),
        "inexact": ("error", "round"),
        "missing": MISSING_OF_KIND[feature.kind],
        "split": ("words", "whitespace"),
        "output": OUTPUTS_OF_KIND.get(feature.kind, ("indices",)),
    }
    for name, choices in allowed.items():
        value = getattr(feature, name)
        if value not in choices:
            of_kind = f" for kind {feature.kind!r}" if name in ("missing", "output", "scale") else ""
            raise ValueError(f"{name}: {value!r} is not allowed{of_kind}; give one of {', '.join(map(str, choices))}")


def _check_options_of_kind(feature: "Feature") -> None:
    for field in dataclasses.fields(feature):
        value = getattr(feature, field.name)
        if field.name != "kind" and field.name not in OPTIONS_OF_KIND[feature.kind] and value != field.default:
            users = [kind for kind, options in OPTIONS_OF_KIND.items() if field.name in options]
            raise ValueError(
                f"{field.name}: {value!r} has no effect on kind {feature.kind!r}, only on {', '.join(users)}; remove it"
            )


def _check_default(feature: "Feature") -> None:
    if (feature.missing == "constant") != (feature.default is not None):
        raise ValueError(
            "default: required for `missing: constant`, but not given"
            if feature.default is None
            else f"default: {feature.default!r} has no effect on `missing: {feature.missing}`; give"
            " `missing: constant`, or remove it"
        )
    if feature.default is None:
        return
    if isinstance(feature.default, bool):
        raise ValueError(f"default: {feature.default!r} is not allowed; give a number or text")
    if feature.kind in ("numeric", "buckets") and not _is_finite(feature.default):
        raise ValueError(f"default: {feature.default!r} is not allowed for kind {feature.kind!r}; give a finite number")
    if feature.kind == "timestamp":
        if isinstance(feature.default, float):
            raise ValueError(f"default: {feature.default!r} is not allowed for kind 'timestamp'; give a time as text")
        _explained("default", parse_time, feature.default)
    if feature.kind == "integer" and not isinstance(feature.default, int):
        raise ValueError(f"default: {feature.default!r} is not allowed for kind 'integer'; give a whole number")
    if feature.kind in ("vocabulary", "hash", "cross", "text", "list") and isinstance(feature.default, float):
        raise ValueError(
            f"default: {feature.default!r} is not allowed for kind {feature.kind!r}; give text or a whole number"
        )


def _check_clip(feature: "Feature") -> None:
    if feature.clip is None:
        return
    if len(feature.clip) != 2 or any(bound is not None and not _is_finite(bound) for bound in feature.clip):
        raise ValueError(f"clip: {list(feature.clip)} is not allowed; give [least, greatest], null for no bound")
    low, high = feature.clip
    if low is not None and high is not None and low >= high:
        raise ValueError(f"clip: {list(feature.clip)} is not allowed; the least must be below the greatest")


def _check_edges(feature: "Feature") -> None:
    if feature.edges and feature.num_buckets is not None:
        raise ValueError(f"edges: not allowed beside num_buckets: {feature.num_buckets}; keep one of the two")
    if feature.edges and feature.log:
        raise ValueError("log: has no effect on edges, which are compared with the number itself; remove it")
    is_ascending = all(a < b for a, b in itertools.pairwise(feature.edges))
    if not all(map(_is_finite, feature.edges)) or not is_ascending:
        raise ValueError(f"edges: {list(feature.edges)} is not allowed; give finite numbers in ascending order")


def _check_time(feature: "Feature") -> None:
    if feature.kind != "timestamp":
        return
    if not feature.parts and feature.since is None:
        raise ValueError(
            f"parts: required for kind 'timestamp' without `since`; give some of {', '.join(get_args(Part))}"
        )
    for part in feature.parts:
        if part not in get_args(Part):
            raise ValueError(f"parts: {part!r} is not allowed; give some of {', '.join(get_args(Part))}")
    if len(set(feature.parts)) < len(feature.parts):
        raise ValueError(f"parts: {list(feature.parts)} is not allowed; give each part once")
    if feature.cyclic and not set(feature.parts) & set(NUM_VALUES_OF_PART):
        raise ValueError("cyclic: has no effect without parts that come round again, such as hour; remove it")
    if feature.scale != "z_score" and YEAR not in feature.parts and feature.since is None:
        raise ValueError(
            f"scale: {feature.scale!r} has no effect on a timestamp without `since` and without year among its parts;"
            " remove it"
        )
    _explained("utc_offset", parse_utc_offset, feature.utc_offset)
    if feature.since is not None:
        _explained("since", parse_time, feature.since)


def _check_columns(feature: "Feature") -> None:
    if feature.kind != "cross":
        return
    if len(set(feature.columns)) < 2 or len(set(feature.columns)) < len(feature.columns):
        raise ValueError(
            f"columns: {list(feature.columns)} is not allowed for kind 'cross'; give two or more, each once"
        )


def _check_tokens(feature: "Feature") -> None:
    if feature.kind not in ("text", "list"):
        return
    least, most = feature.ngrams if len(feature.ngrams) == 2 else (0, 0)
    if not 1 <= least <= most <= 5:
        raise ValueError(f"ngrams: {list(feature.ngrams)} is not allowed; give [least, most], from 1 to 5")
    if feature.num_buckets is not None:
        for name in ("top_k", "min_frequency", "num_oov"):
            if getattr(feature, name) != getattr(type(feature), name):
                raise ValueError(
                    f"{name}: {getattr(feature, name)} has no effect beside num_buckets; keep one of the two"
                )
    name = "max_tokens" if feature.kind == "text" else "max_values"
    width = getattr(feature, name)
    if feature.output == "indices":
        if width is None:
            raise ValueError(f"{name}: required for kind {feature.kind!r} with `output: indices`, but not given")
        if width > MAX_WIDTH:
            raise ValueError(f"{name}: {width} is not allowed; give {MAX_WIDTH} or less")
        if feature.weights is not None:
            raise ValueError("weights: has no effect on `output: indices`; give `output: multi_hot`, or remove it")
        return
    if width is not None:
        raise ValueError(f"{name}: {width} has no effect on `output: {feature.output}`; remove it")
    if feature.dense_width > MAX_WIDTH:
        key = "top_k" if feature.num_buckets is None else "num_buckets"
        raise ValueError(
            f"{key}: `output: {feature.output}` would give {feature.dense_width} numbers a row, over {MAX_WIDTH}; give"
            " fewer, or `output: indices`"
        )


def _explained(name: str, parse: Callable[[Any], Any], value: Any) -> None:
    try:
        parse(value)
    except ValueError as e:
        raise ValueError(f"{name}: {e}") from e


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
