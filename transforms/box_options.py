"""What a label of the kind ``boxes`` may say, and what is said where it says something else."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.transforms.features import Label

__all__ = ["BOX_OPTIONS", "check_box_label"]

BOX_OPTIONS = ("class_column", "image", "max_boxes", "box_unit", "box_format", "min_visibility", "invalid_boxes")
"""Options of a label that only the kind ``boxes`` has."""


def check_box_label(label: "Label") -> None:
    """Raises ValueError, which starts with the option's name, for a value that is not allowed or has no effect."""
    if label.kind != "boxes":
        for name in BOX_OPTIONS:
            value = getattr(label, name)
            if value != getattr(type(label), name):
                raise ValueError(f"{name}: {value!r} has no effect on kind {label.kind!r}, only on boxes; remove it")
        return
    for name in ("class_column", "image", "max_boxes"):
        if not getattr(label, name):
            raise ValueError(f"{name}: required for kind 'boxes', but not given")
    if label.max_boxes is not None and label.max_boxes < 1:
        raise ValueError(f"max_boxes: {label.max_boxes} is not allowed; give 1 or more")
    choices = {
        "box_unit": ("pixel", "normalized"),
        "box_format": ("xyxy", "yxyx", "xywh"),
        "invalid_boxes": ("error", "drop"),
    }
    for name, allowed in choices.items():
        if getattr(label, name) not in allowed:
            raise ValueError(f"{name}: {getattr(label, name)!r} is not allowed; give {' or '.join(allowed)}")
    if not 0 <= label.min_visibility <= 1:
        raise ValueError(f"min_visibility: {label.min_visibility} is not allowed; give a number from 0 to 1")
    if label.missing != "error":
        raise ValueError(
            f"missing: {label.missing!r} has no effect on kind 'boxes', where a row without boxes is an image without"
            " objects; remove it"
        )
    if len({label.column, label.class_column, label.image}) < 3:
        raise ValueError(
            f"class_column: column {label.column!r}, class_column {label.class_column!r} and image {label.image!r} are"
            " not allowed; give three different names"
        )
