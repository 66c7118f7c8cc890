"""The table of ``make bench-train``."""

from benchmarks.training import report

_FIGURES = {
    "recipe": 20_000.0,
    "memory": 1_000_000.0,
    "disk": 900_000.0,
    "files": 240_000.0,
    "fit-1": 50_000.0,
    "fit-10": 100_000.0,
    "lockstep-1": 75_000.0,
    "lockstep-10": 200_000.0,
    "small, 1 worker": 100_000.0,
    "small, 2 workers": 50_000.0,
    "large, 1 worker": 3_000.0,
    "large, 2 workers": 3_300.0,
    "recovery": 8.04,
    "recovery, standby": 3.04,
    "checkpoint, small": 0.03,
    "checkpoint, large": 0.6,
}


def test_each_figure_stands_beside_what_it_is_compared_with() -> None:
    """Rates as multiples of their rival's, a checkpoint as its share of the time."""
    table = report({name: (value, value / 2) for name, value in _FIGURES.items()})
    lines = {line[:46].strip(): line[46:].split("  ") for line in table.splitlines()}
    cells = {name: [cell.strip() for cell in line if cell.strip()] for name, line in lines.items()}
    assert cells["Lockstep, from files"] == ["240,000", "12.00x the recipe", "120,000", "12.00x the recipe"]
    assert cells["Lockstep, 10 steps a call"][1] == "4.00x fit-1, 2.00x fit-10"
    assert cells["the taxi model, 2 workers"][:2] == ["50,000", "0.50x 1 worker"]
    assert cells["from a kill -9 to the next step, 2 workers"] == ["8.0"]
    assert cells["a checkpoint, 5 million parameters"] == ["0.600", "2.00% of the time if every 30 s"]
