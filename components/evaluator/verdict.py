"""Whether a model may be pushed, decided from its metrics, with every reason; the only place that decides it."""

import dataclasses
import json
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from lockstep.components.evaluator.options import EvaluateOptions, Threshold

OVERALL = "overall"
VERDICT_NAME = "verdict.json"

Bound = Literal["min", "max", "min_change", "max_change"]
_LOWER: tuple[Bound, ...] = ("min", "min_change")
_CHANGES: tuple[Bound, ...] = ("min_change", "max_change")
_NONE: Mapping[str, str] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaselineOutcome:
    """What the candidate is compared with.

    Args:
      state: ``none``: nothing is served yet. ``unusable``: something is, but it cannot be compared with. ``compared``.
      version: Its version; None if there is none.
      note: Why it is not compared with; empty if it is.
      metrics: Name -> value over the whole split; empty unless compared.
    """

    state: Literal["none", "unusable", "compared"]
    version: int | None = None
    note: str = ""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One bound of one threshold, applied.

    Args:
      metric: Name of the metric.
      slice: ``overall``; thresholds apply to the whole split.
      bound: Which bound.
      limit: The bound's value; it passes itself.
      value: The candidate's value; None if TFMA gave none.
      baseline_value: The baseline's; None if not compared.
      applied: False for a bound on the change with nothing to compare with: that passes.
      passed: Whether it holds.
      reason: The same in words.
    """

    metric: str
    slice: str
    bound: Bound
    limit: float
    value: float | None
    baseline_value: float | None
    applied: bool
    passed: bool
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision about a candidate.

    Args:
      blessed: Whether it may be pushed.
      reason: One sentence that names what decided.
      summary: Metrics against their bounds, in one line for a console.
      ungated: True if it is blessed only because the configuration asks for no thresholds.
      checks: Every bound.
      metrics: Name -> value over the whole split.
      slices: Name of slice -> name of metric -> value; without the whole split.
      baseline: What it was compared with.
    """

    blessed: bool
    reason: str
    summary: str
    ungated: bool
    checks: tuple[Check, ...]
    metrics: Mapping[str, float]
    slices: Mapping[str, Mapping[str, float]]
    baseline: BaselineOutcome

    def to_json(self) -> str:
        """Returns the verdict as indented JSON; values that are not numbers become null, as JSON has no NaN."""
        return json.dumps(_finite(dataclasses.asdict(self)), indent=2, allow_nan=False) + "\n"


def judge(
    options: EvaluateOptions,
    metrics: Mapping[str, float],
    slices: Mapping[str, Mapping[str, float]],
    baseline: BaselineOutcome,
    undefined: Mapping[str, str] = _NONE,
) -> Verdict:
    """Returns the verdict: blessed if every bound holds.

    A value that is absent or not finite fails, and so does any bound on a metric that is undefined: data that cannot
    tell a good model from a bad one let none pass. A bound on the change passes, and says that it was not applied, if
    there is nothing to compare with: a first model must be able to come in, and one that cannot be compared any more
    must be replaceable.

    Args:
      options: Thresholds.
      metrics: Name -> the candidate's value over the whole split.
      slices: Slice -> name -> value; recorded.
      baseline: What to compare with.
      undefined: Name -> why the rows leave the metric without a value.
    """
    checks = tuple(
        _check(name, bound, limit, metrics.get(name), baseline, undefined.get(name))
        for name, threshold in options.thresholds.items()
        for bound, limit in _bounds(threshold)
    )
    # Several bounds of one metric can fail for one reason.
    failed = tuple(dict.fromkeys(check.reason for check in checks if not check.passed))
    blessed = not failed
    if options.ungated:
        reason = "blessed: ungated, no threshold was asked for"
    elif failed:
        reason = "not blessed: " + "; ".join(failed)
    else:
        reason = "blessed: " + "; ".join(check.reason for check in checks)
    if baseline.state == "unusable":
        reason += f". Compared with nothing: {baseline.note}"
    return Verdict(
        blessed=blessed,
        reason=reason,
        summary=_summary(options, metrics, blessed),
        ungated=options.ungated,
        checks=checks,
        metrics=dict(metrics),
        slices={name: dict(values) for name, values in slices.items()},
        baseline=baseline,
    )


def _bounds(threshold: Threshold) -> Iterator[tuple[Bound, float]]:
    for bound in (*_LOWER, "max", "max_change"):
        limit = getattr(threshold, bound)
        if limit is not None:
            yield bound, limit


def _check(
    name: str, bound: Bound, limit: float, value: float | None, baseline: BaselineOutcome, undefined: str | None
) -> Check:
    is_change = bound in _CHANGES
    sign = ">=" if bound in _LOWER else "<="
    baseline_value = baseline.metrics.get(name)
    applied = not is_change or baseline.state == "compared" or undefined is not None
    if undefined is not None:
        passed = False
        reason = f"{name} is undefined: {undefined}"
    elif not applied:
        passed = True
        why = "nothing is served yet" if baseline.state == "none" else f"version {baseline.version} cannot be compared"
        reason = f"{name} change {sign} {limit:g} not applied, {why}"
    elif value is None or not math.isfinite(value):
        passed = False
        reason = f"{name} has no value ({value}), {bound} {limit:g} is asked"
    elif not is_change:
        passed = value >= limit if bound == "min" else value <= limit
        reason = _compare(name, value, limit, bound in _LOWER, passed)
    elif baseline_value is None or not math.isfinite(baseline_value):
        passed = False
        reason = f"{name} of version {baseline.version} has no value ({baseline_value}), so there is no change"
    else:
        change = value - baseline_value
        passed = change >= limit if bound == "min_change" else change <= limit
        against = f"{name} {_number(value)} against {_number(baseline_value)} of version {baseline.version}: change"
        reason = _compare(against, change, limit, bound in _LOWER, passed)
    return Check(
        metric=name,
        slice=OVERALL,
        bound=bound,
        limit=limit,
        value=value,
        baseline_value=baseline_value,
        applied=applied,
        passed=passed,
        reason=reason,
    )


def _compare(name: str, value: float, limit: float, is_lower: bool, passed: bool) -> str:
    sign = (">=" if passed else "<") if is_lower else ("<=" if passed else ">")
    shown, limit_shown = _number(value), f"{limit:g}"
    if not passed and float(shown) == float(limit_shown):
        # Rounded, the two would look equal, and the sentence would seem wrong.
        shown, limit_shown = repr(value), repr(limit)
    return f"{name} {shown} {sign} {limit_shown}"


def _summary(options: EvaluateOptions, metrics: Mapping[str, float], blessed: bool) -> str:
    parts = []
    for name, value in metrics.items():
        text = f"{name} {_number(value)}"
        threshold = options.thresholds.get(name) if math.isfinite(value) else None
        if threshold is not None and threshold.min is not None:
            text += f" {'>=' if value >= threshold.min else '<'} {threshold.min:g}"
        if threshold is not None and threshold.max is not None:
            text += f" {'<=' if value <= threshold.max else '>'} {threshold.max:g}"
        parts.append(text)
    outcome = "blessed" if blessed else "not blessed"
    return f"{', '.join(parts)}; {outcome}{', ungated' if options.ungated else ''}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "undefined"
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.6g}"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
