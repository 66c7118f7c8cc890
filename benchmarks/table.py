"""The measurements of one size as a table."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from benchmarks.measurement import Measurement

_WIDTH = 18


def table(num_rows: int, stock: Sequence[Measurement], lockstep: Sequence[Measurement]) -> str:
    """Returns one line a step and the sums: minimum and median of each side, and how many times quicker Lockstep is.

    Args:
      num_rows: Of the data.
      stock: Its repetitions, one or more.
      lockstep: Likewise.
    """
    repetitions = len(stock)
    heads = ["stock", "Lockstep"] if repetitions == 1 else ["stock", "median", "Lockstep", "median"]
    what = "seconds" if repetitions == 1 else f"seconds, best and median of {repetitions}"
    lines = [
        f"{num_rows:,} rows, {what}",
        f"{'':<{_WIDTH}}" + "".join(f"{head:>10}" for head in heads) + f"{'ratio':>8}",
    ]
    for name, value in _figures(stock, lockstep).items():
        ours, theirs = [value(m) for m in lockstep], [value(m) for m in stock]
        cells = [aggregate(values) for values in (theirs, ours) for aggregate in _aggregates(repetitions)]
        decimals = 0 if name.startswith("peak") else 1
        text = "".join(f"{cell:>10,.{decimals}f}" if cell else f"{'-':>10}" for cell in cells)
        ratio = f"{min(theirs) / min(ours):>7.1f}x" if min(theirs) and min(ours) else ""
        lines.append(f"{name:<{_WIDTH}}{text}{ratio}".rstrip())
    return "\n".join(lines)


def _aggregates(repetitions: int) -> list[Callable[[Sequence[float]], float]]:
    return [min] if repetitions == 1 else [min, statistics.median]


def _figures(
    stock: Sequence[Measurement], lockstep: Sequence[Measurement]
) -> Mapping[str, Callable[[Measurement], float]]:
    """Returns name of a line -> what it shows of a measurement; 0 for a step that a side does not have."""
    names = list(dict.fromkeys([*lockstep[0].steps, *stock[0].steps]))

    def seconds_of(name: str) -> Callable[[Measurement], float]:
        return lambda measurement: measurement.steps.get(name, 0.0)

    return {
        "imports": lambda m: m.import_s,
        **{name: seconds_of(name) for name in names},
        "after imports": lambda m: m.total_s - m.import_s,
        "in all": lambda m: m.total_s,
        "processor time": lambda m: m.processor_s,
        "peak memory, MB": lambda m: m.peak_bytes / 2**20,
    }
