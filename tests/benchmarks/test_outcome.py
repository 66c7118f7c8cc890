"""Tests of `benchmarks.outcome`."""

import dataclasses

import pytest

from benchmarks.outcome import Outcome, differences

_OUTCOME = Outcome(
    rows={"train": 100, "eval": 50},
    columns=("fare", "tips"),
    features={"fare": "FLOAT", "tips": "FLOAT"},
    steps=600,
    metrics={"auc": 0.95, "accuracy": 0.9},
    num_slices=25,
    blessed=True,
    pushed=True,
)


def test_runs_that_differ_by_hash_and_chance_alone_are_compared() -> None:
    """Another hash moves some rows to another split, and AUC by less than 0.01."""
    other = dataclasses.replace(_OUTCOME, rows={"train": 99, "eval": 51}, metrics={"auc": 0.945, "accuracy": 0.88})

    assert differences(_OUTCOME, other) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": {"train": 100, "eval": 49}}, "rows in all differ: stock 150, Lockstep 149"),
        ({"rows": {"train": 90, "eval": 60}}, "rows in train differ by more than 2%"),
        ({"columns": ("fare",)}, "columns differ"),
        ({"features": {"fare": "FLOAT"}}, "transformed features differ"),
        ({"steps": 500}, "training steps differ: stock 600, Lockstep 500"),
        ({"metrics": {"auc": 0.95}}, "metrics differ"),
        ({"metrics": {"auc": 0.93, "accuracy": 0.9}}, "AUC differs by more than 0.01: stock 0.9500, Lockstep 0.9300"),
        ({"metrics": {"auc": float("nan"), "accuracy": 0.9}}, "AUC differs"),
        ({"num_slices": 1}, "slices differ"),
        ({"blessed": False}, "Lockstep: the model was not blessed and pushed"),
        ({"pushed": False}, "Lockstep: the model was not blessed and pushed"),
    ],
)
def test_a_side_that_did_less_is_named(change, message) -> None:
    """Each thing that makes a pipeline quicker by doing less refuses the comparison, with both values."""
    [found] = differences(_OUTCOME, dataclasses.replace(_OUTCOME, **change))

    assert message in found
