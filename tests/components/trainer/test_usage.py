"""What each worker uses, and how long it waits for its input."""

import time
from pathlib import Path

import numpy as np
import pytest

from lockstep.components.trainer.usage import WIDTH, GroupMeter, UsageMeter, memory_mb, peak_memory_mb, read_mb


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def test_the_processor_s_share_is_since_the_last_look() -> None:
    """Two threads that are busy all the time are 2.0."""
    clock, used = Clock(), Clock()
    meter = UsageMeter(clock=clock, processor_s=used)
    clock.now_s, used.now_s = 102.0, 104.0
    assert meter.look().cpu == 2.0
    clock.now_s, used.now_s = 104.0, 105.0
    assert meter.look().cpu == 0.5
    assert meter.look(every_s=1.0).cpu == 0.5


def test_this_process_is_seen() -> None:
    """Memory that was taken shows, and is remembered; so does a file that was read."""
    before = memory_mb()
    block = np.ones(100 * 2**20, np.uint8)  # so large that it is never taken from what was freed before
    assert memory_mb() > before + 80
    assert peak_memory_mb() >= memory_mb() - 1
    assert block[-1]
    first = read_mb()
    content = Path(np.__file__).read_bytes()
    second = read_mb()
    if first is not None and second is not None:
        assert second >= first
        assert content


def test_workers_add_up_their_tables() -> None:
    """Each knows of all what they use, and their share of the time since the last mark."""
    clock = Clock()
    meters = [GroupMeter(worker, 2, clock=clock) for worker in range(2)]
    for meter in meters:
        meter.begin()
    for waited_s in ((0.5, 0.0), (1.0, 0.25)):
        clock.now_s += 1.0
        tables = [meter.table().copy() for meter in meters]
        for worker, table in enumerate(tables):
            assert table.shape == (2, WIDTH)
            assert not table[1 - worker].any()
            table[worker, -1] = waited_s[worker]
        for meter in meters:
            meter.take(sum(tables))
    for meter in meters:
        shares = meter.mark()
        assert [share.input_share for share in shares] == [0.75, 0.125]
        assert all(share.usage.memory_mb > 10 for share in shares)
        assert all(share.usage.gpu_memory_mb is None for share in shares)
    clock.now_s += 1.0
    assert [share.input_share for share in meters[0].mark()] == [0.0, 0.0]
    assert meters[1].input_share() == pytest.approx(0.25 / 3, abs=1e-4)


def test_waiting_in_python_is_counted() -> None:
    """Where a strategy takes batches outside of its compiled step."""
    meter = GroupMeter()
    meter.begin()
    with meter.waiting():
        time.monotonic()
    assert 0 <= meter.mark()[0].input_share <= 1
