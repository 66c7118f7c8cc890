"""The table of ``make bench-train``."""

from benchmarks.training import report

_FIGURES = {
    "recipe": 20_000.0,
    "memory": 1_000_000.0,
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
    "checkpoint, small": 0.03,
    "checkpoint, large": 0.6,
}


def test_each_figure_stands_beside_what_it_is_compared_with() -> None:
    """Rates as multiples of their rival's, a checkpoint as its share of the time."""
    lines = {line[:58].strip(): line[58:].split() for line in report(_FIGURES).splitlines()}
    assert lines["Lockstep, from files"] == ["240,000", "12.00", "x", "the", "recipe"]
    assert lines["Lockstep, 10 steps a call"][:2] == ["200,000", "4.00"]
    assert lines["the taxi model, 2 workers"][:2] == ["50,000", "0.50"]
    assert lines["from a kill -9 to the next step, 2 workers"] == ["8.0"]
    assert lines["a checkpoint, 5 million parameters"][:2] == ["0.600", "2.00%"]
