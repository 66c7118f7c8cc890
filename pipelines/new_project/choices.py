"""What a project begins with, picked from its table, each choice with its reason."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.errors import DataError
from lockstep.pipelines.new_project.columns import Column, Table
from lockstep.transforms.auto import Choice, choose

__all__ = ["LabelChoice", "TrainingChoice", "choose_features", "choose_label", "choose_training"]

_MAX_CLASSES = 100
_MAX_NUMBER_CLASSES = 10
_BATCH_SIZES = (24, 48, 96, 240, 480)  # of 24: any usual number of workers sees the same batches
_MIN_STEPS, _MAX_STEPS = 300, 5000
_EPOCHS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelChoice:
    """What is predicted.

    Args:
      options: The ``label`` block, without the column.
      reason: Why.
      metric: Name of the metric that is asked for.
      bound: ``min`` or ``max``.
      value: What a guess that looks at no feature would reach.
      guess: What that guess is, for a person.
      parameters: Of the model.
    """

    options: Mapping[str, Any]
    reason: str
    metric: str
    bound: str
    value: float
    guess: str
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingChoice:
    """How long is trained."""

    batch_size: int
    steps: int


def choose_label(column: Column, table: Table) -> LabelChoice:
    """Picks the kind of label.

    Raises:
      DataError: The column cannot be a label.
    """
    if column.type in ("timestamp", "date") or column.type.startswith("list"):
        raise DataError(
            f"--label: column {column.name!r} holds {column.type}; a label is a number, or one of some texts"
        )
    distinct = column.distinct
    if len(distinct) < 2:
        raise DataError(f"--label: column {column.name!r} has one value in all rows; there is nothing to learn")
    missing = {"missing": "drop"} if column.num_missing else {}
    note = f"; {column.num_missing:,} of {table.num_rows:,} rows have none, and are left out" if missing else ""
    is_text = pa.types.is_binary(column.values.type) or pa.types.is_large_binary(column.values.type)
    if is_text and len(distinct) > _MAX_CLASSES:
        raise DataError(
            f"--label: column {column.name!r} has {len(distinct):,} different texts; a label has {_MAX_CLASSES} classes"
            " at most, or is a number"
        )
    is_whole = is_text or all(float(value).is_integer() for value in distinct)  # type: ignore[arg-type]
    if len(distinct) == 2 and is_whole:
        return _binary(distinct, is_text, missing, note)
    if is_text or (is_whole and len(distinct) <= _MAX_NUMBER_CLASSES):
        what = "texts" if is_text else "whole numbers"
        share = pc.sum(pc.equal(column.values, pa.scalar(distinct[0], column.values.type))).as_py()
        return LabelChoice(
            options={"kind": "multiclass", **missing},
            reason=f"{len(distinct)} different {what}{note}",
            metric="accuracy",
            bound="min",
            value=share / (table.num_rows - column.num_missing),
            guess="always the most frequent class",
        )
    mean, deviation = pc.mean(column.values).as_py(), pc.stddev(column.values).as_py()
    return LabelChoice(
        options={"kind": "regression", **missing},
        reason=f"numbers{note}",
        metric="rmse",
        bound="max",
        value=deviation,
        guess="always the mean",
        parameters={"mean": mean, "deviation": deviation},
    )


def _binary(distinct: list[Any], is_text: bool, missing: Mapping[str, str], note: str) -> LabelChoice:
    """Returns a label of two values; the rarer one is what is looked for, unless they are 0 and 1."""
    common, rare = distinct
    options: dict[str, Any] = {"kind": "binary"}
    if is_text:
        options["positive"] = rare.decode()
    elif set(distinct) != {0, 1}:
        options["positive"] = str(int(rare))
    shown = ", ".join(sorted(value.decode() if is_text else f"{value:g}" for value in (common, rare)))
    return LabelChoice(
        options={**options, **missing},
        reason=f"two values: {shown}{note}",
        metric="auc",
        bound="min",
        value=0.5,
        guess="the same probability for every row",
    )


def choose_features(table: Table, label: str) -> dict[str, Choice]:
    """Picks a feature for each column but the label; those that are left out have the reason.

    Raises:
      DataError: None is left.
    """
    found = {name: _feature(column, table) for name, column in table.columns.items() if name != label}
    if all(choice.feature is None for choice in found.values()):
        raise DataError("--data: there is no column that could tell anything of the label")
    return found


def _feature(column: Column, table: Table) -> Choice:
    present = table.num_rows - column.num_missing
    if not present:
        return Choice(feature=None, reason="no value in any row")
    if column.type in ("int", "string") and present == table.num_rows > 20 and len(column.distinct) == present:
        if column.type == "string" and not _has_blanks(column):
            return Choice(feature=None, reason="another text in each row, as a name or key has")
        if column.type == "int" and pc.max(column.values).as_py() - pc.min(column.values).as_py() == present - 1:
            return Choice(feature=None, reason="it numbers the rows")
    try:
        choice = choose(column.statistics, column.type)
    except ValueError as e:
        return Choice(feature=None, reason=str(e).partition(";")[0])
    if choice.feature is None or not column.num_missing:
        return choice
    share = column.num_missing / table.num_rows
    return dataclasses.replace(choice, reason=f"{choice.reason}; {share:.0%} of rows have none")


def _has_blanks(column: Column) -> bool:
    """Whether most texts are of several words."""
    with_blank = pc.sum(pc.match_substring(column.values, b" ")).as_py() or 0
    return 2 * with_blank > len(column.values)


def choose_training(table: Table, train_share: float) -> TrainingChoice:
    """Picks a batch size, some ten batches an epoch where rows are few, and steps: some 30 epochs within bounds."""
    rows = max(1, int(table.num_rows * train_share))
    batch_size = next((size for size in reversed(_BATCH_SIZES) if rows >= 10 * size), _BATCH_SIZES[0])
    steps = min(_MAX_STEPS, max(_MIN_STEPS, round(_EPOCHS * rows / batch_size)))
    return TrainingChoice(batch_size=batch_size, steps=steps)
