"""Events survive the pipe."""

import pytest

from lockstep.pipelines import run_events


@pytest.mark.parametrize(
    "event",
    [
        run_events.RunStarted(steps=("A", "B"), versions="TFX 1"),
        run_events.RunStarted(steps=("A", "B"), versions="TFX 1", upstream={"A": [], "B": ["A"]}),
        run_events.StepRecorded(
            step="A",
            execution=3,
            inputs={},
            outputs={"o": [{"id": 1, "type": "T", "uri": "/a", "properties": {"n": 1}}]},
            began=1.5,
        ),
        run_events.StepChanged(step="A", state="running", figure="step 1/2\nloss é", seconds=1.5),
        run_events.RunFinished(exit_code=4, message="not pushed", pushed=""),
    ],
)
def test_an_event_is_one_line_and_comes_back_equal(event: run_events.RunEvent) -> None:
    """Newlines and letters beyond ASCII inside do not break the line."""
    line = run_events.to_line(event)
    assert line.count("\n") == 1
    assert run_events.from_line(line) == event


def test_a_line_of_something_else_is_refused() -> None:
    """A line that is JSON, but no event, is an error and not a guess."""
    with pytest.raises(ValueError, match="not a run event"):
        run_events.from_line('{"type": "Other"}\n')
