"""Lines between a worker and its supervisor."""

import io

import pytest

from lockstep.components.trainer.heartbeat import Reporter, WorkerEvent, one_line


def test_an_event_survives_its_line() -> None:
    """What the supervisor reads is what the worker said, on one line."""
    event = WorkerEvent(event="failed", worker=1, time=2.5, message="a\nb", traceback="x\ny", user_error=True)
    line = event.to_line()
    assert "\n" not in line
    assert WorkerEvent.from_line(line + "\n") == event


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 1",
        "LOCKSTEP ",
        "LOCKSTEP 3",
        'LOCKSTEP {"event": "heartbeat", "wor',
        'LOCKSTEP {"event": "party", "worker": 0}',
        'LOCKSTEP {"event": "heartbeat"}',
        'LOCKSTEP {"event": "heartbeat", "worker": 0, "mood": 1}',
        ' LOCKSTEP {"event": "heartbeat", "worker": 0}',
    ],
)
def test_what_is_no_event_is_log(line: str) -> None:
    """Anything a user's code prints, and half a line of a killed worker, is not an event."""
    assert WorkerEvent.from_line(line) is None


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("KeyError: 'fare'", "KeyError: 'fare'"),
        ("KeyError: 'fare'\nand more", "KeyError: 'fare'"),
        ("ValueError: in user code:\n\n  File x.py\n\n  ValueError: no shape\n", "ValueError: no shape"),
        (
            "ValueError: Exception encountered when calling Dense.call().\n\n\x1b[1mno shape\x1b[0m\n\nArguments",
            "ValueError: no shape",
        ),
        ("SystemExit: ", "SystemExit:"),
        ("", ""),
    ],
)
def test_an_error_is_told_by_its_telling_line(message: str, line: str) -> None:
    """Without what TensorFlow and Keras say before and after it, and without colours."""
    assert one_line(message) == line


def test_heartbeats_that_come_too_soon_are_dropped() -> None:
    """A quick training does not flood the log; other events are always written."""
    now = [0.0]
    stream = io.StringIO()
    reporter = Reporter(3, stream, interval_s=0.5, clock=lambda: now[0])
    for step, now[0] in [(1, 0.0), (2, 0.4), (3, 0.6), (4, 0.7)]:
        reporter.beat(step=step)
    reporter.say("checkpoint", step=4)
    events = [WorkerEvent.from_line(line) for line in stream.getvalue().splitlines()]
    assert [(e.event, e.worker, e.step) for e in events if e] == [
        ("heartbeat", 3, 1),
        ("heartbeat", 3, 3),
        ("checkpoint", 3, 4),
    ]
