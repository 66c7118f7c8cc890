"""How much memory new processes may take."""

import contextlib
from pathlib import Path

__all__ = ["free_bytes"]


def free_bytes() -> int:
    """Returns what the kernel has, or less if a control group allows less.

    Raises:
      OSError: The system does not tell.
    """
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    free = [int(meminfo["MemAvailable"].split()[0]) * 1024]
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # another version of control groups, or no limit: "max"
            group = Path("/sys/fs/cgroup")
            free.append(int((group / limit).read_text()) - int((group / used).read_text()))
    return max(0, min(free))
