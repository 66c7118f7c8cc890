"""When a failed training is tried again: bounds, waits, and failures that come again."""

import signal
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.trainer.group_watch import Failure
from lockstep.components.trainer.restarts import RestartPolicy
from lockstep.components.trainer.spec import TrainOptions

DAY_S = 86_400.0


def policy(**options: Any) -> RestartPolicy:
    """The policy of a training that nothing has happened to."""
    return RestartPolicy(TrainOptions(**options))


def death(step: int | None = 5, *, worker: int = 1, by: signal.Signals = signal.SIGKILL, num_lost: int = 0) -> Failure:
    """A worker that a signal killed."""
    cause = f"worker {worker} was killed by {by.name} at step {step}"
    return Failure(worker=worker, cause=cause, log_path=Path("log"), signature=by.name, step=step, num_lost=num_lost)


def error(message: str, *, step: int = 5, worker: int = 1) -> Failure:
    """An error that a worker told."""
    return Failure(
        worker=worker,
        cause=f"worker {worker} failed at step {step}: {message}",
        log_path=Path("log"),
        is_own_error=True,
        signature=message.partition(":")[0],
        step=step,
        traceback="\n".join([f"line {number}" for number in range(30)] + [message]),
    )


def faults_until_the_end(one: RestartPolicy, every_s: float, *, got_on: bool, most: int) -> int:
    """How many failures, each of another kind, a training lives through until it is given up."""
    for number in range(most):
        one.failed(death(number, by=(signal.SIGKILL, signal.SIGSEGV)[number % 2]), got_on=got_on)
        if one.reason_to_stop(number + 1, every_s * number) is not None:
            return number
        one.restarted(every_s * number)
    return most


def test_a_fault_a_day_never_ends_a_training() -> None:
    """A restart counts no more when the window is over."""
    assert faults_until_the_end(policy(), DAY_S, got_on=True, most=1000) == 1000


def test_ten_crashes_in_a_minute_end_it() -> None:
    """Whether or not there was a checkpoint in between; the message names the bounds."""
    for got_on in (True, False):
        one = policy()
        assert faults_until_the_end(one, 6.0, got_on=got_on, most=10) == 3
        assert one.reason_to_stop(4, 18.0) == (
            "training failed in attempt 4, and max_restarts: 3 allows no more within restart_window_s: 3600"
        )


def test_slow_failures_without_a_checkpoint_end_it_too() -> None:
    """A training that hangs anew each day would go on for ever."""
    one = policy()
    assert faults_until_the_end(one, DAY_S, got_on=False, most=1000) == 3
    reason = one.reason_to_stop(4, 3 * DAY_S)
    assert reason == ("training failed 4 times in a row without a new checkpoint, and max_restarts: 3 allows no more")


def test_without_restarts_the_first_failure_is_the_end() -> None:
    """``max_restarts: 0``."""
    assert faults_until_the_end(policy(max_restarts=0), 1.0, got_on=True, most=9) == 0


def test_waits_grow_up_to_a_bound_and_begin_anew_after_a_checkpoint() -> None:
    """The first restart in a row comes at once."""
    one = policy(restart_delay_s=2.0, max_restart_delay_s=15.0)
    delays = []
    for got_on in (False, False, False, False, False, False, True, False):
        one.failed(death(), got_on=got_on)
        delays.append(one.delay_s)
    assert delays == [0.0, 2.0, 4.0, 8.0, 15.0, 15.0, 0.0, 2.0]
    for _ in range(3000):
        one.failed(death(), got_on=False)
    assert one.delay_s == 15.0


def test_no_delay_never_waits() -> None:
    """``restart_delay_s: 0``."""
    one = policy(restart_delay_s=0.0)
    for _ in range(9):
        one.failed(death(), got_on=False)
    assert one.delay_s == 0.0


def stops_after(*failures: tuple[Failure, bool]) -> str | None:
    """The reason to stop after these failures, each with whether there was a checkpoint; none before the last."""
    one = policy(max_restarts=99)
    for number, (failure, got_on) in enumerate(failures, start=1):
        assert number == 1 or one.reason_to_stop(number - 1, number) is None
        one.failed(failure, got_on=got_on)
        one.restarted(number)
    return one.reason_to_stop(len(failures), len(failures))


ALIKE = "training failed 3 times in a row at step {} in the same way, so it is not tried again"


def test_a_death_that_comes_again_is_the_end() -> None:
    """The heartbeats of a killed process may be some steps old, so that another step may be the same place."""
    assert stops_after((death(5), True), (death(5), False), (death(5), False)) == ALIKE.format(5)
    assert stops_after((death(5), True), (death(7), False), (death(6), False)) == ALIKE.format(6)
    assert stops_after((death(5), False), (death(5), True), (death(5), True)) == ALIKE.format(5)
    reason = stops_after(*[(death(None), False)] * 3)
    assert reason == "training failed 3 times in a row while starting in the same way, so it is not tried again"


@pytest.mark.parametrize(
    "other",
    [death(5, worker=0), death(5, by=signal.SIGSEGV), death(None), error("ValueError: x")],
)
def test_another_death_is_no_repetition(other: Failure) -> None:
    """Another worker, or another way."""
    assert stops_after((death(5), False), (death(5), False), (other, False), (death(5), False)) is None


def test_deaths_of_a_training_that_gets_on_are_no_repetition() -> None:
    """A worker that is taken away now and then."""
    assert stops_after(*[(death(step), True) for step in range(0, 500, 10)]) is None


def test_an_error_that_comes_again_is_the_end() -> None:
    """The whole message twice, its type three times: a message may hold an address."""
    end = "training failed twice at step 5 in the same way, so it is not tried again"
    assert stops_after((error("ValueError: x"), True), (error("ValueError: x"), False)) == end
    several = [error("ValueError: at 0x1"), error("ValueError: at 0x2", worker=0), error("ValueError: at 0x3")]
    assert stops_after(*[(one, False) for one in several]) == ALIKE.format(5)


def test_another_error_or_place_is_no_repetition() -> None:
    """Errors of one type at different steps, and of several types at one."""
    assert stops_after(*[(error("OSError: x", step=step), False) for step in range(9)]) is None
    kinds = ("OSError", "KeyError", "ValueError")
    assert stops_after(*[(error(f"{kinds[number % 3]}: {number}"), False) for number in range(9)]) is None


def test_what_only_follows_from_a_peer_s_end_is_no_repetition() -> None:
    """An echo has no signature."""
    echo = Failure(worker=0, cause="worker 0 failed at step 5: UnavailableError", log_path=Path("log"), step=5)
    assert stops_after(*[(echo, False)] * 9) is None


def test_the_traceback_s_last_lines_are_told() -> None:
    """Those with the user's code and the error."""
    one = policy()
    one.failed(error("ValueError: x"), got_on=False)
    lines = one.traceback().splitlines()
    assert (len(lines), lines[1], lines[-1]) == (21, "  line 11", "  ValueError: x")


def test_a_worker_that_is_lost_at_every_start_cannot_be_had() -> None:
    """Twice in a row, before a first step; a resize begins anew."""
    one = policy()
    lost = [0]
    for failure in (death(None, num_lost=1), death(7), death(None, num_lost=1), death(None, num_lost=2)):
        one.failed(failure, got_on=False)
        lost.append(one.num_lost)
    assert lost == [0, 0, 0, 0, 2]
    one.resized()
    assert (one.num_lost, one.delay_s, one.num_recent(0.0)) == (0, 0.0, 0)
