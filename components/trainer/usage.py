"""What a worker uses of its machine: processor, memory, a GPU's memory, bytes read. Standard library, and TensorFlow for the GPU."""

import dataclasses
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

_MIB = 2**20


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

        return round(tf.config.experimental.get_memory_info("GPU:0")["current"] / _MIB, 1)


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
