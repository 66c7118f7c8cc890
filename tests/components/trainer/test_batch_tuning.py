"""The search for batch sizes, and trials with real workers."""

from collections.abc import Callable

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.batch_tuning import Trial, quickest, search, try_batch
from tests.components.trainer.conftest import MakeSpec

GB = 2**30


def machine(fits: int, rate: Callable[[int], float], tried: list[int]) -> Callable[[int], Trial]:
    """A machine on which sizes above ``fits`` run out of memory; notes what it is asked."""

    def measure(size: int) -> Trial:
        tried.append(size)
        if size > fits:
            return Trial(batch_size=size, examples_per_s=None, peak_bytes=0, problem="out of memory")
        return Trial(batch_size=size, examples_per_s=rate(size), peak_bytes=size)

    return measure


def test_the_largest_size_is_found_between_doublings() -> None:
    """Doubling finds a size that fails, the gap below is halved twice, and every size is a multiple of the unit."""
    tried: list[int] = []
    trials = search(
        machine(3000, float, tried), configured=240, unit=24, limit=10**6, is_time_left=lambda: len(tried) < 50
    )
    assert 3000 * 0.85 < max(t.batch_size for t in trials if not t.problem) <= 3000
    assert all(size % 24 == 0 for size in tried)
    assert len(tried) == len(set(tried)) < 16
    assert [t.batch_size for t in trials] == sorted(tried)


def test_the_quickest_size_may_be_smaller_than_the_configured_one() -> None:
    """Smaller sizes are tried as long as they are not much slower."""
    tried: list[int] = []
    trials = search(
        machine(10**9, lambda size: 1e6 / size, tried), configured=960, unit=24, limit=4000, is_time_left=lambda: True
    )
    best = quickest(trials)
    assert best is not None
    assert best.batch_size == 24


def test_of_equally_quick_sizes_the_smallest_is_taken() -> None:
    """Some per cent are noise: a larger batch would be given for nothing."""
    trials = [Trial(batch_size=b, examples_per_s=r, peak_bytes=0) for b, r in ((24, 50.0), (48, 97.0), (96, 100.0))]
    best = quickest(trials)
    assert best is not None
    assert best.batch_size == 48
    assert quickest([Trial(batch_size=24, examples_per_s=None, peak_bytes=0, problem="out of memory")]) is None


def test_the_time_ends_the_search() -> None:
    """The configured size is always tried, and nothing after the time is over; never more than the records."""
    tried: list[int] = []
    search(machine(10**9, float, tried), configured=240, unit=24, limit=10**6, is_time_left=lambda: False)
    assert tried == [240]
    tried.clear()
    search(machine(10**9, float, tried), configured=240, unit=24, limit=1000, is_time_left=lambda: True)
    assert max(tried) == 984


@pytest.mark.slow
def test_a_size_is_measured_with_real_workers(make_spec: MakeSpec) -> None:
    """Two workers train for some seconds; a size that no group can have says why."""
    spec = make_spec(workers=2)
    trial = try_batch(spec, 128, budget_bytes=64 * GB, timeout_s=200)
    assert trial.problem is None
    assert trial.examples_per_s is not None
    assert trial.examples_per_s > 1000
    assert 0.2 * GB < trial.peak_bytes < 8 * GB
    indivisible = try_batch(spec, 100, budget_bytes=64 * GB, timeout_s=200)
    assert indivisible.problem is not None
    assert indivisible.problem.startswith("batch_size: 100 is not allowed")


@pytest.mark.slow
def test_a_group_above_the_budget_is_ended(make_spec: MakeSpec) -> None:
    """Memory is looked at while the workers start."""
    trial = try_batch(make_spec(workers=1), 128, budget_bytes=GB // 10, timeout_s=200)
    assert trial.problem == "more than 0.1 GB of memory"


@pytest.mark.slow
def test_a_model_that_cannot_be_built_is_told_at_once(make_spec: MakeSpec) -> None:
    """No other size would mend it."""
    with pytest.raises(ConfigurationError, match="no_such_function"):
        try_batch(make_spec(build="sample_models:no_such_function"), 128, budget_bytes=64 * GB, timeout_s=200)
