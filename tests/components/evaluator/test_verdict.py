"""The gate: which bound decides, what a missing baseline means, and what the sentence says."""

import json
import math

import pytest

from lockstep.components.evaluator.metrics import METRICS, undefined
from lockstep.components.evaluator.options import EvaluateOptions, Threshold
from lockstep.components.evaluator.verdict import BaselineOutcome, Verdict, judge

_NOTHING_SERVED = BaselineOutcome(state="none")


def _judge(threshold: Threshold, value: float | None, baseline: BaselineOutcome = _NOTHING_SERVED) -> Verdict:
    metrics = {} if value is None else {"auc": value}
    return judge(EvaluateOptions(thresholds={"auc": threshold}), metrics, {}, baseline)


def _served(auc: float) -> BaselineOutcome:
    return BaselineOutcome(state="compared", version=7, metrics={"auc": auc})


@pytest.mark.parametrize(
    ("bounds", "value", "blessed"),
    [
        ({"min": 0.9}, 0.9, True),
        ({"min": 0.9}, math.nextafter(0.9, 0), False),
        ({"max": 0.9}, 0.9, True),
        ({"max": 0.9}, math.nextafter(0.9, 1), False),
        ({"min": 0.5, "max": 0.9}, 0.95, False),
    ],
)
def test_a_bound_itself_passes_and_the_next_number_beyond_does_not(
    bounds: dict[str, float], value: float, blessed: bool
) -> None:
    """Bounds are inclusive, to the last digit."""
    assert _judge(Threshold(**bounds), value).blessed is blessed


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_value_that_is_absent_or_not_finite_is_not_blessed(value: float | None) -> None:
    """No comparison with NaN may let a model pass."""
    verdict = _judge(Threshold(max=0.9) if value != math.inf else Threshold(min=0.9), value)
    assert not verdict.blessed
    assert "auc has no value" in verdict.reason


@pytest.mark.parametrize("baseline", [_NOTHING_SERVED, BaselineOutcome(state="compared", metrics={"auc": math.nan})])
def test_an_undefined_metric_lets_no_model_pass(baseline: BaselineOutcome) -> None:
    """Whatever its bounds, also one on the change only; the sentence says why, once."""
    for threshold in (Threshold(min=0.0), Threshold(min_change=-1.0), Threshold(min=0.0, max=1.0, min_change=-1.0)):
        verdict = judge(
            EvaluateOptions(thresholds={"auc": threshold}),
            {"auc": math.nan, "accuracy": 0.9},
            {},
            baseline,
            {"auc": "every label of the eval split is 1"},
        )
        assert not verdict.blessed
        assert verdict.reason == "not blessed: auc is undefined: every label of the eval split is 1"
        assert verdict.summary == "auc undefined, accuracy 0.9; not blessed"
        assert json.loads(verdict.to_json())["metrics"] == {"auc": None, "accuracy": 0.9}


@pytest.mark.parametrize(
    ("label", "names"),
    [
        (1.0, {"auc", "balanced_accuracy", "specificity"}),
        (0.0, {"auc", "auc_precision_recall", "balanced_accuracy", "recall", "f1"}),
    ],
)
def test_metrics_are_undefined_without_the_labels_that_they_need(label: float, names: set[str]) -> None:
    """By their definitions: an area needs both, a recall the ones, a specificity the zeros."""
    assert set(undefined(METRICS, label, "the eval split")) == names


@pytest.mark.parametrize(
    ("bounds", "candidate", "served", "blessed"),
    [
        ({"min_change": 0.0}, 0.8, 0.8, True),
        ({"min_change": 0.0}, 0.8, 0.81, False),
        ({"min_change": -0.25}, 0.5, 0.75, True),
        ({"max_change": 0.0}, 0.81, 0.8, False),
        ({"max_change": 0.25}, 0.75, 0.5, True),
    ],
)
def test_a_change_is_counted_from_the_served_model(
    bounds: dict[str, float], candidate: float, served: float, blessed: bool
) -> None:
    """The change is candidate minus baseline; an equal model passes a bound of zero."""
    assert _judge(Threshold(**bounds), candidate, _served(served)).blessed is blessed


def test_a_better_served_model_is_named_with_both_values() -> None:
    """The sentence says what was compared with what."""
    verdict = _judge(Threshold(min_change=0.0), 0.8, _served(0.85))
    assert verdict.reason == "not blessed: auc 0.8 against 0.85 of version 7: change -0.05 < 0"


def test_a_first_model_passes_bounds_on_change_and_says_so() -> None:
    """With nothing served there is nothing to be worse than."""
    verdict = _judge(Threshold(min=0.7, min_change=0.0), 0.8)
    assert verdict.reason == "blessed: auc 0.8 >= 0.7; auc change >= 0 not applied, nothing is served yet"
    assert [check.applied for check in verdict.checks] == [True, False]


def test_a_first_model_must_reach_absolute_bounds() -> None:
    """The missing baseline excuses from comparisons only."""
    assert not _judge(Threshold(min=0.9, min_change=0.0), 0.8).blessed


def test_an_unusable_baseline_leaves_the_absolute_bounds_and_is_explained() -> None:
    """A served model that cannot be compared with does not block its successor, and is not passed over silently."""
    baseline = BaselineOutcome(state="unusable", version=7, note="version 7 predicts another label")
    verdict = _judge(Threshold(min=0.7, min_change=0.0), 0.8, baseline)
    assert verdict.blessed
    assert verdict.reason.endswith("Compared with nothing: version 7 predicts another label")
    assert not _judge(Threshold(min=0.9, min_change=0.0), 0.8, baseline).blessed


def test_a_near_miss_shows_enough_digits_to_be_seen() -> None:
    """A sentence like "0.9 < 0.9" would read like a mistake of ours."""
    assert _judge(Threshold(min=0.9), 0.89999999).reason == "not blessed: auc 0.89999999 < 0.9"


def test_the_summary_shows_every_metric_and_its_bound() -> None:
    """One line for the console."""
    options = EvaluateOptions(metrics=("auc", "accuracy"), thresholds={"auc": Threshold(min=0.9)})
    assert judge(options, {"auc": 0.945, "accuracy": 0.88}, {}, _NOTHING_SERVED).summary == (
        "auc 0.945 >= 0.9, accuracy 0.88; blessed"
    )
    assert judge(options, {"auc": 0.845, "accuracy": 0.88}, {}, _NOTHING_SERVED).summary == (
        "auc 0.845 < 0.9, accuracy 0.88; not blessed"
    )


def test_an_ungated_model_is_blessed_and_says_so() -> None:
    """The reader of a verdict sees that nothing was asked."""
    verdict = judge(EvaluateOptions(ungated=True), {"auc": 0.1}, {}, _NOTHING_SERVED)
    assert verdict.blessed
    assert verdict.ungated
    assert verdict.summary == "auc 0.1; blessed, ungated"


def test_json_holds_null_where_a_value_is_no_number() -> None:
    """Strict JSON readers refuse NaN."""
    document = json.loads(_judge(Threshold(min=0.9), math.nan).to_json(), parse_constant=pytest.fail)
    assert document["metrics"] == {"auc": None}
    assert document["checks"][0]["limit"] == 0.9
