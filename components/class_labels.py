"""Labels of several classes, as trainer and Evaluator are told of them. Standard library only."""

import dataclasses
from typing import Literal

LabelKind = Literal["binary", "regression", "multiclass", "boxes"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassOptions:
    """What is known of the classes of a ``multiclass`` label, or of one of ``boxes``, before training.

    Args:
      vocabulary: Name of the file in the transform graph that holds the classes, one a line, in the order of their
        indices. Where the graph has no such file, the classes are the whole numbers of the label's range in the
        transformed schema.
      unseen: What becomes of a record of the evaluation split whose class training has not (its label is no index of a
        class): ``error`` fails; ``leave_out`` counts it, and measures without it.
    """

    vocabulary: str
    unseen: Literal["error", "leave_out"] = "error"


def check_classes(label_kind: LabelKind, classes: ClassOptions | None) -> None:
    """Raises `ValueError` unless there are class options for a label that has classes, and for no other."""
    if (label_kind in ("multiclass", "boxes")) != (classes is not None):
        needs = "required for" if classes is None else "not allowed for"
        raise ValueError(f"classes: {needs} label_kind {label_kind!r}")


def unseen_message(label: str, count: int, where: str) -> str:
    """Returns what is said of records whose class training has not.

    Args:
      label: Name of the label.
      count: How many there are.
      where: What they are records of, as ``the evaluation split``.
    """
    records = "record has" if count == 1 else "records have"
    return (
        f"label.column: {count:,} {records} in {label!r} no class that the training split has, in {where}; give "
        "training more rows, or measure without them by label.unseen: leave_out"
    )
