"""The measurements of one size as a table."""

import statistics
from collections.abc import Callable, Sequence

from benchmarks.measurement import Measurement

_Figure = Callable[[Measurement], float]
_Aggregate = Callable[[Sequence[float]], float]
_WIDTH = 18


def table(num_rows: int, stock: Sequence[Measurement], lockstep: Sequence[Measurement]) -> str:
    """Returns one line a step and the sums: seconds and processor seconds of each side, with ratios.

    The ratio says how many times less Lockstep takes, best against best.

    Args:
      num_rows: Of the data.
      stock: Its repetitions, one or more.
      lockstep: Likewise.
    """
    repetitions = len(stock)
    aggregates: list[_Aggregate] = [min] if repetitions == 1 else [min, statistics.median]
    times = "" if repetitions == 1 else f", best and median of {repetitions}"
    sides = [head for side in ("stock", "Lockstep") for head in ([side] if repetitions == 1 else [side, "median"])]
    group = 10 * len(sides) + 8
    lines = [
        f"{num_rows:,} rows{times}",
        f"{'':<{_WIDTH}}{'seconds':>{group}}{'processor seconds':>28}",
        f"{'':<{_WIDTH}}" + "".join(f"{head:>10}" for head in sides) + "   ratio" + "     stock  Lockstep   ratio",
    ]
    for name, figures in _lines(stock, lockstep):
        cells = [_cells(figures[0], stock, lockstep, aggregates)]
        cells += [_cells(figure, stock, lockstep, [min]) for figure in figures[1:]]
        lines.append(f"{name:<{_WIDTH}}{''.join(cells)}".rstrip())
    stock_mb, lockstep_mb = (max(m.peak_bytes for m in side) / 2**20 for side in (stock, lockstep))
    lines.append(f"peak memory: stock {stock_mb:,.0f} MB, Lockstep {lockstep_mb:,.0f} MB")
    return "\n".join(lines)


def _cells(
    figure: _Figure,
    stock: Sequence[Measurement],
    lockstep: Sequence[Measurement],
    aggregates: Sequence[_Aggregate],
) -> str:
    theirs, ours = [figure(m) for m in stock], [figure(m) for m in lockstep]
    shown = [aggregate(values) for values in (theirs, ours) for aggregate in aggregates]
    ratio = f"{min(theirs) / min(ours):.1f}x" if min(theirs) and min(ours) else ""
    return "".join(f"{value:>10,.1f}" if value else f"{'-':>10}" for value in shown) + f"{ratio:>8}"


def _lines(stock: Sequence[Measurement], lockstep: Sequence[Measurement]) -> list[tuple[str, tuple[_Figure, _Figure]]]:
    """Returns name of a line -> its seconds and processor seconds; 0 for a step that a side does not have."""
    names = dict.fromkeys([*lockstep[0].steps, *stock[0].steps])

    def step(name: str) -> tuple[_Figure, _Figure]:
        return lambda m: m.steps.get(name, 0.0), lambda m: m.steps_processor.get(name, 0.0)

    return [
        ("imports", (lambda m: m.import_s, lambda m: m.import_processor_s)),
        *((name, step(name)) for name in names),
        ("after imports", (lambda m: m.total_s - m.import_s, lambda m: m.processor_s - m.import_processor_s)),
        ("in all", (lambda m: m.total_s, lambda m: m.processor_s)),
    ]
