"""What a run produced, and whether two runs did the same work."""

import dataclasses
from collections.abc import Mapping, Sequence

# Splits, batches and initial weights are not the same, so neither are the models.
_AUC_TOLERANCE = 0.01
# Each side has a hash of its own, so splits differ by some rows.
_SHARE_TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run produced.

    Args:
      rows: Split -> rows, as StatisticsGen counted them.
      columns: Raw columns that have a value in any row.
      features: Transformed feature, label included -> type.
      steps: Training steps done.
      metrics: Metric over the whole evaluation split -> value.
      num_slices: Slices that were evaluated, the whole split included.
      blessed: Whether the model passed the thresholds.
      pushed: Whether it was pushed.
    """

    rows: Mapping[str, int]
    columns: Sequence[str]
    features: Mapping[str, str]
    steps: int
    metrics: Mapping[str, float]
    num_slices: int
    blessed: bool
    pushed: bool


def differences(stock: Outcome, lockstep: Outcome) -> list[str]:
    """Returns why the two runs cannot be compared, a sentence each; empty if they can."""
    found = []
    for name, outcome in (("stock", stock), ("Lockstep", lockstep)):
        if not (outcome.blessed and outcome.pushed):
            found.append(f"{name}: the model was not blessed and pushed (metrics: {dict(outcome.metrics)})")
    pairs = {
        "rows in all": (sum(stock.rows.values()), sum(lockstep.rows.values())),
        "columns": (list(stock.columns), list(lockstep.columns)),
        "transformed features": (dict(stock.features), dict(lockstep.features)),
        "training steps": (stock.steps, lockstep.steps),
        "metrics": (sorted(stock.metrics), sorted(lockstep.metrics)),
        "slices": (stock.num_slices, lockstep.num_slices),
    }
    found += [f"{what} differ: stock {one}, Lockstep {other}" for what, (one, other) in pairs.items() if one != other]
    shares = [o.rows.get("train", 0) / max(1, sum(o.rows.values())) for o in (stock, lockstep)]
    if abs(shares[0] - shares[1]) > _SHARE_TOLERANCE:
        found.append(f"rows in train differ by more than {_SHARE_TOLERANCE:.0%}: {stock.rows}, {lockstep.rows}")
    aucs = stock.metrics.get("auc", 0.0), lockstep.metrics.get("auc", 0.0)
    if not abs(aucs[0] - aucs[1]) <= _AUC_TOLERANCE:
        found.append(f"AUC differs by more than {_AUC_TOLERANCE}: stock {aucs[0]:.4f}, Lockstep {aucs[1]:.4f}")
    return found
