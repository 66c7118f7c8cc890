"""Memory and processor time of a process and everything below it."""

import threading
from collections.abc import Callable
from types import TracebackType

import psutil

_INTERVAL_S = 0.25
_NOTABLE = 0.01  # share by which memory changes before it is looked at closely again


def memory_bytes(pid: int) -> int:
    """Returns the proportional set size of a process and all its descendants; 0 if it is gone.

    Proportional: a page that several processes share, such as TensorFlow's code, counts once in all.
    """
    return int(_sum_over_tree(pid, lambda process: float(process.memory_full_info().pss)))


def processor_s(pid: int) -> float:
    """Returns user and system seconds of a process and all descendants, also those that ended and were waited for.

    0 if the process is gone.
    """
    return _sum_over_tree(pid, _used_s)


def _used_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system + used.children_user + used.children_system)


def _sum_over_tree(pid: int, figure: Callable[[psutil.Process], float]) -> float:
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(_or_zero(process, figure) for process in processes)


def _or_zero(process: psutil.Process, figure: Callable[[psutil.Process], float]) -> float:
    try:
        return figure(process)
    except psutil.Error:  # It ended since, or is ending.
        return 0.0


class PeakMemory:
    """Samples the memory of a process tree four times a second, in a thread, while the context is open.

    Args:
      pid: The tree's root.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        looked_at = 0.0
        while True:
            # The proportional size takes the kernel 15 ms a look. It is never above the resident size, which is cheap.
            resident = _sum_over_tree(self._pid, lambda process: float(process.memory_info().rss))
            if resident > self.peak_bytes and abs(resident - looked_at) > _NOTABLE * looked_at:
                self.peak_bytes = max(self.peak_bytes, memory_bytes(self._pid))
                looked_at = resident
            if self._ended.wait(_INTERVAL_S):
                return
