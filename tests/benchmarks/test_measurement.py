"""Tests of `benchmarks.measurement` and `benchmarks.table`."""

import pytest

from benchmarks.measurement import Measurement, RunFailedError, differences, step_seconds
from benchmarks.table import table
from lockstep.pipelines.run_events import RunFinished, RunStarted, StepChanged, to_line


def _measurement(side, total_s, **steps) -> Measurement:
    return Measurement(
        side=side,
        steps=steps,
        steps_processor={name: seconds / 2 for name, seconds in steps.items()},
        import_s=2.0,
        import_processor_s=1.0,
        total_s=total_s,
        processor_s=total_s + 1,
        peak_bytes=300 * 2**20,
        load=0.5,
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


def test_what_a_counter_grew_by_goes_to_the_step_that_ended() -> None:
    """From the end of the imports on, in the names of the table."""
    marks = [("", 5.0), ("CsvExampleGen", 7.5), ("Pusher", 7.75)]

    assert differences(marks) == {"ExampleGen": 2.5, "Pusher": 0.25}


def test_one_repetition_shows_seconds_and_ratio() -> None:
    """A step that only one side has shows a dash and no ratio."""
    stock = [_measurement("stock", 22.0, ExampleGen=10.0, Resolver=0.2)]
    lockstep = [_measurement("lockstep", 7.0, ExampleGen=0.5)]

    assert table(15_000, stock, lockstep).splitlines() == [
        "15,000 rows",
        "                                       seconds           processor seconds",
        "                       stock  Lockstep   ratio     stock  Lockstep   ratio",
        "imports                  2.0       2.0    1.0x       1.0       1.0    1.0x",
        "ExampleGen              10.0       0.5   20.0x       5.0       0.2   20.0x",
        "Resolver                 0.2         -               0.1         -",
        "after imports           20.0       5.0    4.0x      22.0       7.0    3.1x",
        "in all                  22.0       7.0    3.1x      23.0       8.0    2.9x",
        "peak memory: stock 300 MB, Lockstep 300 MB",
    ]


def test_repetitions_show_minimum_and_median_and_the_ratio_of_minima() -> None:
    """The minimum is the one least disturbed by the rest of the machine."""
    stock = [_measurement("stock", 20.0, Transform=t) for t in (9.0, 8.0, 12.0)]
    lockstep = [_measurement("lockstep", 10.0, Transform=t) for t in (6.0, 4.0, 4.5)]

    lines = table(1_500_000, stock, lockstep).splitlines()

    assert lines[0] == "1,500,000 rows, best and median of 3"
    assert lines[4] == "Transform                8.0       9.0       4.0       4.5    2.0x       4.0       2.0    2.0x"
