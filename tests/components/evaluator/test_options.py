"""The ``evaluate`` block refuses what would let a bad model pass, and says what to write instead."""

import pytest

from lockstep.components.evaluator.metrics import METRICS
from lockstep.components.evaluator.options import EvaluateOptions, EvaluateSpec, Threshold


def test_an_unknown_metric_names_the_nearest_known_one() -> None:
    """A typing error in ``metrics`` is answered with what was probably meant."""
    with pytest.raises(ValueError, match="metrics: 'acuracy' is not known, did you mean 'accuracy'"):
        EvaluateOptions(metrics=("acuracy",), ungated=True)


def test_a_threshold_on_an_unknown_metric_names_the_nearest_known_one() -> None:
    """A typing error in ``thresholds`` must not silently gate nothing."""
    with pytest.raises(ValueError, match="thresholds: 'acu' is not known, did you mean 'auc'"):
        EvaluateOptions(thresholds={"acu": Threshold(min=0.9)})


def test_no_threshold_is_refused_unless_ungated_is_said() -> None:
    """Forgotten thresholds push nothing; ``ungated`` says that none are wanted."""
    with pytest.raises(ValueError, match="ungated: true"):
        EvaluateOptions()
    assert EvaluateOptions(ungated=True).thresholds == {}


def test_ungated_beside_thresholds_is_refused() -> None:
    """One of the two would be ignored."""
    with pytest.raises(ValueError, match="ungated"):
        EvaluateOptions(thresholds={"auc": Threshold(min=0.9)}, ungated=True)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({}, "needs a bound"),
        ({"min": float("nan")}, "min: nan is not allowed"),
        ({"min": 0.9, "max": 0.1}, "min: 0.9 is above max: 0.1"),
        ({"min_change": 0.2, "max_change": 0.1}, "min_change: 0.2 is above max_change: 0.1"),
    ],
)
def test_a_threshold_that_decides_nothing_or_everything_is_refused(bounds: dict[str, float], message: str) -> None:
    """A bound is finite, there is at least one, and some value passes."""
    with pytest.raises(ValueError, match=message):
        Threshold(**bounds)


@pytest.mark.parametrize("key", ["metrics", "slices"])
def test_a_name_given_twice_is_refused(key: str) -> None:
    """Doubles are a mistake of the writer."""
    with pytest.raises(ValueError, match=f"{key}: 'auc' is given twice"):
        EvaluateOptions(ungated=True, **{key: ("auc", "auc")})  # type: ignore[arg-type]


def test_metrics_follow_the_label_and_thresholds_add_theirs() -> None:
    """Without ``metrics`` the usual ones are computed, and always those that a threshold needs."""
    options = EvaluateOptions(thresholds={"precision": Threshold(min=0.5), "auc": Threshold(min=0.5)})
    assert options.computed_metrics("binary") == ("auc", "accuracy", "precision")
    assert EvaluateOptions(ungated=True).computed_metrics("regression") == ("mse", "mae")


def test_a_metric_that_does_not_suit_the_label_is_refused() -> None:
    """An AUC of a regression is refused when the specification is made, not after training."""
    options = EvaluateOptions(thresholds={"auc": Threshold(min=0.5)})
    with pytest.raises(ValueError, match=r"'auc' does not suit a regression label; give .*rmse"):
        EvaluateSpec(options=options, label="fare", label_kind="regression")


def test_a_specification_survives_json() -> None:
    """What the component gets is what the configuration said."""
    spec = EvaluateSpec(
        options=EvaluateOptions(
            metrics=tuple(name for name, metric in METRICS.items() if "binary" in metric.kinds),
            thresholds={"auc": Threshold(min=0.9, min_change=-0.01)},
            slices=("kind",),
        ),
        label="y",
        push_dir="/models",
    )
    assert EvaluateSpec.from_json(spec.to_json()) == spec


def test_an_unknown_key_in_a_specification_is_refused() -> None:
    """A specification of another version of Lockstep is not half understood."""
    spec = EvaluateSpec(options=EvaluateOptions(ungated=True), label="y")
    with pytest.raises(ValueError, match="unknown key 'slice'; did you mean 'slices'"):
        EvaluateSpec.from_json(spec.to_json().replace('"slices"', '"slice"'))
