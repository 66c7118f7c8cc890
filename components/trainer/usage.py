"""What each worker uses of its machine, and how long it waits for its input; the chief knows it of all."""

import contextlib
import dataclasses
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

_MIB = 2**20
_LOOK_S = 0.5  # between two looks at what the process uses

WIDTH = 4
"""Numbers that workers tell each other in a call: cpu, memory_mb, gpu_memory_mb (-1 for none), seconds waited."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """What one process used.

    Args:
      cpu: Processor seconds a second since the last look, all threads: 1.0 is a core.
      memory_mb: Resident memory now, in MiB.
      gpu_memory_mb: Memory in use of the first GPU that the process drives, in MiB; None without one.
    """

    cpu: float
    memory_mb: float
    gpu_memory_mb: float | None = None


class UsageMeter:
    """Looks at this process.

    Args:
      has_gpu: Whether to ask TensorFlow for ``GPU:0``.
      clock: Seconds that only grow.
      processor_s: Seconds of processor time of this process.
    """

    def __init__(
        self,
        *,
        has_gpu: bool = False,
        clock: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._has_gpu = has_gpu
        self._clock, self._processor_s = clock, processor_s
        self._last = clock(), processor_s()
        self._usage = Usage(cpu=0.0, memory_mb=memory_mb(), gpu_memory_mb=self._gpu_memory_mb())

    def look(self, *, every_s: float = 0.0) -> Usage:
        """Returns what was used since the last look; the same again within ``every_s`` seconds of it."""
        now_s = self._clock()
        if now_s - self._last[0] <= every_s:
            return self._usage
        used_s = self._processor_s()
        cpu = (used_s - self._last[1]) / (now_s - self._last[0])
        self._last = now_s, used_s
        self._usage = Usage(cpu=round(cpu, 3), memory_mb=memory_mb(), gpu_memory_mb=self._gpu_memory_mb())
        return self._usage

    def _gpu_memory_mb(self) -> float | None:
        if not self._has_gpu:
            return None
        import tensorflow as tf

        return round(float(tf.config.experimental.get_memory_info("GPU:0")["current"]) / _MIB, 1)


def memory_mb() -> float:
    """Returns this process' resident memory in MiB; the most that it ever was where the system has no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_memory_mb()
    return round(pages * os.sysconf("SC_PAGE_SIZE") / _MIB, 1)


def peak_memory_mb() -> float:
    """Returns the most resident memory that this process ever had, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def read_mb() -> float | None:
    """Returns how much this process has read from files so far, in MiB, from the page cache too; None without /proc."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:  # some containers forbid it
        return None
    return round(int(dict(line.split(": ") for line in lines)["rchar"]) / _MIB, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shares:
    """What a worker did between two marks.

    Args:
      usage: What it uses.
      input_share: Part of the time in which it waited for its input, 0 to 1.
    """

    usage: Usage
    input_share: float


class GroupMeter:
    """Gathers what all workers use with the calls that train: each puts a row into a table that they add up.

    Args:
      worker: This worker's index.
      num_workers: Workers that train.
      has_gpu: Whether this process drives a GPU.
      clock: Seconds that only grow.
    """

    def __init__(
        self,
        worker: int = 0,
        num_workers: int = 1,
        *,
        has_gpu: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker = worker
        self._meter = UsageMeter(has_gpu=has_gpu, clock=clock)
        self._clock = clock
        self._table = np.zeros([num_workers, WIDTH], np.float32)
        self._looked_s = float("-inf")
        self._usages = np.zeros([num_workers, WIDTH - 1])
        self._waited_s = np.zeros(num_workers)
        self._marked_waited_s = np.zeros(num_workers)
        self._marked_s = self._begin_s = clock()

    def table(self) -> "npt.NDArray[np.float32]":
        """Returns [workers, WIDTH], zeros but for this worker's row; its last number is for the call to fill in."""
        now_s = self._clock()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            usage = self._meter.look()
            gpu = -1.0 if usage.gpu_memory_mb is None else usage.gpu_memory_mb
            self._table = np.zeros_like(self._table)
            self._table[self.worker] = usage.cpu, usage.memory_mb, gpu, 0.0
        return self._table

    def take(self, table: "npt.NDArray[np.float32]") -> None:
        """Takes the sum of all workers' tables of a call."""
        values = table.astype(np.float64)
        self._usages, self._waited_s = values[:, :-1], self._waited_s + values[:, -1]

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time within as this process' waiting for input, where a call does not measure it itself."""
        began_s = self._clock()
        yield
        table = self.table().copy()
        table[self.worker, -1] = self._clock() - began_s
        self.take(table)

    def begin(self) -> None:
        """Forgets what was before: the first call traces."""
        self._waited_s = np.zeros_like(self._waited_s)
        self._marked_waited_s = self._waited_s
        self._marked_s = self._begin_s = self._clock()

    def mark(self) -> tuple[Shares, ...]:
        """Returns what each worker did since the last mark, by worker."""
        now_s = self._clock()
        shares = self._input_shares(self._waited_s - self._marked_waited_s, now_s - self._marked_s)
        self._marked_waited_s, self._marked_s = self._waited_s, now_s
        return tuple(
            Shares(
                usage=Usage(
                    cpu=round(float(cpu), 3),
                    memory_mb=round(float(memory), 1),
                    gpu_memory_mb=None if gpu < 0 else round(float(gpu), 1),
                ),
                input_share=share,
            )
            for (cpu, memory, gpu), share in zip(self._usages, shares, strict=True)
        )

    def input_share(self) -> float:
        """Returns the part of the time since ``begin`` in which this worker waited for its input."""
        return self._input_shares(self._waited_s, self._clock() - self._begin_s)[self.worker]

    @staticmethod
    def _input_shares(waited_s: "npt.NDArray[np.float64]", elapsed_s: float) -> list[float]:
        return [round(min(1.0, float(one) / max(elapsed_s, 1e-9)), 4) for one in waited_s]
