"""One entry of the ``features`` block: which kind of feature, and the options that this kind has."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from lockstep.transforms.time_options import NUM_VALUES_OF_PART, YEAR, parse_time, parse_utc_offset

__all__ = ["DEFAULT_NUM_BUCKETS", "OPTIONS_OF_KIND", "Feature", "Kind", "Missing", "Part"]

Kind = Literal["numeric", "buckets", "vocabulary", "hash", "integer", "timestamp", "pass_through"]
Part = Literal["second", "minute", "hour", "hour_of_week", "weekday", "day", "day_of_year", "month", "quarter", "year"]
Missing = Literal["indicator", "mean", "median", "zero", "constant", "error"]

DEFAULT_NUM_BUCKETS = 10

# Which options a kind has; one that it has not would be ignored, and is refused.
OPTIONS_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    "numeric": ("scale", "clip", "log", "missing", "default", "constant", "inexact"),
    "buckets": ("num_buckets", "edges", "clip", "log", "missing", "default", "inexact"),
    "vocabulary": ("top_k", "min_frequency", "num_oov", "missing", "default"),
    "hash": ("num_buckets", "missing", "default"),
    "integer": ("num_values", "missing", "default"),
    "timestamp": ("parts", "cyclic", "since", "utc_offset", "scale", "missing", "default"),
    "pass_through": ("missing", "default"),
}
_MISSING_OF_KIND: Mapping[Kind, tuple[Missing, ...]] = {
    "numeric": get_args(Missing),
    "buckets": get_args(Missing),
    "vocabulary": ("indicator", "constant", "error"),
    "hash": ("indicator", "constant", "error"),
    "integer": ("indicator", "constant", "error"),
    "timestamp": ("indicator", "constant", "error"),
    "pass_through": ("indicator", "zero", "constant", "error"),
}
_LEAST = {"num_buckets": 2, "top_k": 1, "min_frequency": 1, "num_oov": 1, "num_values": 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """How one raw column becomes model inputs, each dense, of shape [batch, 1].

    A value is missing where the column is absent or empty in the row, and where a number is NaN or infinite.

    Args:
      kind: ``numeric``: the number, scaled (float32). ``buckets``: index (int64) of the bucket that a number falls
        into. ``vocabulary``: index (int64) into the values seen in training, most frequent first, then ``num_oov``
        indices, chosen by hash, for values not seen. ``hash``: index (int64) chosen by hash, without any analysis.
        ``integer``: a whole number from 0 to under ``num_values`` as it is (int64), one more index for all others.
        ``timestamp``: a time, int64 seconds since 1970 in UTC as ExampleGen writes times and dates, becomes the outputs
        that ``parts`` and ``since`` name. ``pass_through``: the value as it is (float32, int64 or text). Vocabulary and
        hash take text or whole numbers; in a vocabulary empty text, and text with a line break, counts as not seen.
      missing: What a missing value becomes. ``indicator``: for an index one of its own, the last; for a number the
        mean (``pass_through``: 0 or empty text; sine and cosine: 0) and an output ``<column>_missing`` (float32, 0 or
        1). ``mean``
        and ``median``: that of the values present in training, after ``clip`` and ``log``. ``zero``: 0,
        ``pass_through`` of text: empty text. ``constant``: what ``default`` says. ``error``: the step fails, as does a
        request to the served model. ``mean`` and ``median`` are of numeric and buckets only, ``zero`` of these and of
        pass_through.
      default: ``missing: constant`` only, and required there: the raw value, a number or text (of a timestamp: a time
        in ISO 8601, or its seconds), that stands for a missing one, in training as at serving.
      scale: ``numeric``, and year and days of ``timestamp``. ``z_score``: minus the mean, by the standard deviation.
        ``min_max``: 0 at the least value of training, 1 at the greatest; values beyond them come out beyond 0 and 1.
        ``robust``: minus the median, by the distance of the quartiles. ``none``: as it is. Computed in float64, then
        rounded to float32.
      clip: ``numeric`` and ``buckets``: [least, greatest], a smaller number becomes the least, a greater one the
        greatest; null for no bound. Before everything else.
      log: ``numeric`` and ``buckets`` by quantiles: takes sign(x) * log(1 + abs(x)), which is defined for every
        number, before statistics and scaling.
      constant: ``numeric`` only. What becomes of a column with the same value in all rows of training: ``zero``: 0
        whatever is served (not for ``scale: none``), with a warning; ``error``: the step fails.
      inexact: ``numeric`` and ``buckets``. What becomes of whole numbers that float64 cannot tell apart, of 2^53 and
        more (``scale: none``: float32, over 2^24), in training: ``error``: the step fails; ``round``: they are
        rounded.
      num_buckets: ``buckets``: how many, by quantiles, 2 or more; None is 10. A column with fewer different values
        leaves some of them empty. ``hash``: how many indices, required.
      edges: ``buckets`` only, instead of ``num_buckets``: ascending; a number falls into the bucket after all edges
        that it reaches.
      top_k: ``vocabulary`` only: 1 or more; rarer values count as not seen.
      min_frequency: ``vocabulary`` only: values in fewer rows of training count as not seen; 1 or more.
      num_oov: ``vocabulary`` only: 1 or more.
      num_values: ``integer`` only, and required there: 1 or more.
      parts: ``timestamp`` only: what the model is given of the time, each as ``<column>_<part>``. All but ``year`` are
        indices (int64) from 0 on: Monday, January, and the first day of month and year are 0; ``hour_of_week`` begins
        on Monday at midnight. ``year`` is a number, scaled (float32).
      cyclic: ``timestamp`` only: each part but ``year`` becomes its place on a circle, so that 23 is next to 0: sine
        and cosine (float32), ``<column>_<part>_sin`` and ``<column>_<part>_cos``, instead of an index.
      since: ``timestamp`` only: a date or time in ISO 8601, in UTC where it says no other; gives the days that have
        passed since then (negative before), with their fraction, scaled (float32), as ``<column>_days``.
      utc_offset: ``timestamp`` only: how far the local time of the ``parts`` is ahead of UTC, as +HH:MM or -HH:MM; the
        same all the year.

    Raises:
      ValueError: A value out of range, or one that this kind of feature would ignore.
    """

    kind: Kind
    missing: Missing = "indicator"
    default: int | float | str | None = None
    scale: Literal["z_score", "min_max", "robust", "none"] = "z_score"
    clip: tuple[float | None, float | None] | None = None
    log: bool = False
    constant: Literal["zero", "error"] = "zero"
    inexact: Literal["error", "round"] = "error"
    num_buckets: int | None = None
    edges: tuple[float, ...] = ()
    top_k: int = 1000
    min_frequency: int = 1
    num_oov: int = 1
    num_values: int | None = None
    parts: tuple[Part, ...] = ()
    cyclic: bool = False
    since: str | None = None
    utc_offset: str = "+00:00"

    def __post_init__(self) -> None:
        if self.kind not in OPTIONS_OF_KIND:
            raise ValueError(f"kind: {self.kind!r} is not allowed; give one of {', '.join(OPTIONS_OF_KIND)}")
        # From JSON they are lists.
        for name in ("edges", "parts"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "clip", None if self.clip is None else tuple(self.clip))
        self._check_choices()
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}: {value} is not allowed; give {least} or more")
        self._check_options_of_kind()
        self._check_default()
        self._check_clip()
        self._check_edges()
        self._check_time()
        if self.kind == "buckets" and not self.edges and self.num_buckets is None:
            object.__setattr__(self, "num_buckets", DEFAULT_NUM_BUCKETS)
        for kind, name in (("hash", "num_buckets"), ("integer", "num_values")):
            if self.kind == kind and getattr(self, name) is None:
                raise ValueError(f"{name}: required for kind {kind!r}, but not given")

    def to_json(self) -> dict[str, Any]:
        """Returns the kind and all options that it has."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in OPTIONS_OF_KIND[self.kind]}}

    @property
    def num_indices(self) -> int | None:
        """How many different values an index has; None for a quantity, and a vocabulary, known after the analysis."""
        own = int(self.missing == "indicator")
        if self.kind == "buckets":
            return (len(self.edges) + 1 if self.edges else self.num_buckets or 0) + own
        if self.kind == "hash":
            return (self.num_buckets or 0) + own
        return (self.num_values or 0) + 1 + own if self.kind == "integer" else None

    @property
    def has_indicator(self) -> bool:
        """Whether there is an output of its own that tells missing values."""
        has_numbers = self.cyclic or YEAR in self.parts or self.since is not None
        is_told = self.kind in ("numeric", "pass_through") or (self.kind == "timestamp" and has_numbers)
        return self.missing == "indicator" and is_told

    def _check_choices(self) -> None:
        allowed = {
            "scale": ("z_score", "min_max", "robust", "none"),
            "constant": ("zero", "error"),
            "inexact": ("error", "round"),
            "missing": _MISSING_OF_KIND[self.kind],
        }
        for name, choices in allowed.items():
            value = getattr(self, name)
            if value not in choices:
                of_kind = f" for kind {self.kind!r}" if name == "missing" else ""
                raise ValueError(f"{name}: {value!r} is not allowed{of_kind}; give one of {', '.join(choices)}")

    def _check_options_of_kind(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "kind" and field.name not in OPTIONS_OF_KIND[self.kind] and value != field.default:
                users = [kind for kind, options in OPTIONS_OF_KIND.items() if field.name in options]
                raise ValueError(
                    f"{field.name}: {value!r} has no effect on kind {self.kind!r}, only on {', '.join(users)};"
                    " remove it"
                )

    def _check_default(self) -> None:
        if (self.missing == "constant") != (self.default is not None):
            raise ValueError(
                "default: required for `missing: constant`, but not given"
                if self.default is None
                else f"default: {self.default!r} has no effect on `missing: {self.missing}`; give `missing: constant`,"
                " or remove it"
            )
        if self.default is None:
            return
        if isinstance(self.default, bool):
            raise ValueError(f"default: {self.default!r} is not allowed; give a number or text")
        if self.kind in ("numeric", "buckets") and not _is_finite(self.default):
            raise ValueError(f"default: {self.default!r} is not allowed for kind {self.kind!r}; give a finite number")
        if self.kind == "timestamp":
            if isinstance(self.default, float):
                raise ValueError(f"default: {self.default!r} is not allowed for kind 'timestamp'; give a time as text")
            _explained("default", parse_time, self.default)
        if self.kind == "integer" and not isinstance(self.default, int):
            raise ValueError(f"default: {self.default!r} is not allowed for kind 'integer'; give a whole number")
        if self.kind in ("vocabulary", "hash") and isinstance(self.default, float):
            raise ValueError(
                f"default: {self.default!r} is not allowed for kind {self.kind!r}; give text or a whole number"
            )

    def _check_clip(self) -> None:
        if self.clip is None:
            return
        if len(self.clip) != 2 or any(bound is not None and not _is_finite(bound) for bound in self.clip):
            raise ValueError(f"clip: {list(self.clip)} is not allowed; give [least, greatest], null for no bound")
        low, high = self.clip
        if low is not None and high is not None and low >= high:
            raise ValueError(f"clip: {list(self.clip)} is not allowed; the least must be below the greatest")

    def _check_edges(self) -> None:
        if self.edges and self.num_buckets is not None:
            raise ValueError(f"edges: not allowed beside num_buckets: {self.num_buckets}; keep one of the two")
        if self.edges and self.log:
            raise ValueError("log: has no effect on edges, which are compared with the number itself; remove it")
        is_ascending = all(a < b for a, b in itertools.pairwise(self.edges))
        if not all(map(_is_finite, self.edges)) or not is_ascending:
            raise ValueError(f"edges: {list(self.edges)} is not allowed; give finite numbers in ascending order")

    def _check_time(self) -> None:
        if self.kind != "timestamp":
            return
        if not self.parts and self.since is None:
            raise ValueError(
                f"parts: required for kind 'timestamp' without `since`; give some of {', '.join(get_args(Part))}"
            )
        for part in self.parts:
            if part not in get_args(Part):
                raise ValueError(f"parts: {part!r} is not allowed; give some of {', '.join(get_args(Part))}")
        if len(set(self.parts)) < len(self.parts):
            raise ValueError(f"parts: {list(self.parts)} is not allowed; give each part once")
        if self.cyclic and not set(self.parts) & set(NUM_VALUES_OF_PART):
            raise ValueError("cyclic: has no effect without parts that come round again, such as hour; remove it")
        if self.scale != "z_score" and YEAR not in self.parts and self.since is None:
            raise ValueError(
                f"scale: {self.scale!r} has no effect on a timestamp without `since` and without year among its parts;"
                " remove it"
            )
        _explained("utc_offset", parse_utc_offset, self.utc_offset)
        if self.since is not None:
            _explained("since", parse_time, self.since)


def _explained(name: str, parse: Callable[[Any], Any], value: Any) -> None:
    try:
        parse(value)
    except ValueError as e:
        raise ValueError(f"{name}: {e}") from e


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
