"""Tests of `benchmarks.measurement` and `benchmarks.table`."""

import pytest

from benchmarks.measurement import Measurement, RunFailedError, step_seconds
from benchmarks.table import table
from lockstep.pipelines.run_events import RunFinished, RunStarted, StepChanged, to_line


def _measurement(side, total_s, **steps) -> Measurement:
    return Measurement(
        side=side, steps=steps, import_s=2.0, total_s=total_s, processor_s=total_s, peak_bytes=300 * 2**20, load=0.5
    )


def test_seconds_are_read_from_the_events_of_steps_that_are_done() -> None:
    """Progress of a running step counts for nothing; steps that differ in name only share one line."""
    events = [
        RunStarted(steps=("CsvExampleGen", "DistributedTrainer"), versions=""),
        StepChanged(step="CsvExampleGen", state="done", seconds=1.5),
        StepChanged(step="DistributedTrainer", state="running", seconds=7.0, figure="step 10"),
        StepChanged(step="DistributedTrainer", state="done", seconds=9.25),
        RunFinished(exit_code=0, message="the model is pushed"),
    ]

    assert step_seconds(map(to_line, events)) == {"ExampleGen": 1.5, "Trainer": 9.25}


@pytest.mark.parametrize("last", [[], [RunFinished(exit_code=4, message="not blessed: auc 0.5")]])
def test_a_run_that_did_not_push_is_not_measured(last) -> None:
    """Neither one that ended early nor one whose model was refused: it did less."""
    events = [StepChanged(step="CsvExampleGen", state="done", seconds=1.5), *last]

    with pytest.raises(RunFailedError, match=last[0].message if last else "before the pipeline did"):
        step_seconds(map(to_line, events))


def test_one_repetition_shows_seconds_and_ratio() -> None:
    """A step that only one side has shows a dash and no ratio."""
    stock = [_measurement("stock", 22.0, ExampleGen=10.0, Resolver=0.2)]
    lockstep = [_measurement("lockstep", 7.0, ExampleGen=0.5)]

    assert table(15_000, stock, lockstep).splitlines() == [
        "15,000 rows, seconds",
        "                       stock  Lockstep   ratio",
        "imports                  2.0       2.0    1.0x",
        "ExampleGen              10.0       0.5   20.0x",
        "Resolver                 0.2         -",
        "after imports           20.0       5.0    4.0x",
        "in all                  22.0       7.0    3.1x",
        "processor time          22.0       7.0    3.1x",
        "peak memory, MB          300       300    1.0x",
    ]


def test_repetitions_show_minimum_and_median_and_the_ratio_of_minima() -> None:
    """The minimum is the one least disturbed by the rest of the machine."""
    stock = [_measurement("stock", 20.0, Transform=t) for t in (9.0, 8.0, 12.0)]
    lockstep = [_measurement("lockstep", 10.0, Transform=t) for t in (6.0, 4.0, 4.5)]

    lines = table(1_500_000, stock, lockstep).splitlines()

    assert lines[0] == "1,500,000 rows, seconds, best and median of 3"
    assert lines[3] == "Transform                8.0       9.0       4.0       4.5    2.0x"
