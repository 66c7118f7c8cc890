"""What a training wrote for TensorBoard, read without TensorFlow; a file that was cut gives what came before it."""

import dataclasses
import math
import pathlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf import message

_MAX_FILES = 100
_MAX_BYTES = 64 << 20
_MAX_POINTS = 400


@dataclasses.dataclass(frozen=True)
class Curve:
    """One scalar as one process wrote it, in one go.

    Args:
      tag: Its name, such as ``train/loss``.
      source: The folder of its file, relative to the one searched; empty for that itself.
      steps: Of the training.
      values: As many; finite.
      times: When each was written, in seconds since the epoch.
    """

    tag: str
    source: str
    steps: tuple[float, ...]
    values: tuple[float, ...]
    times: tuple[float, ...]


def read_curves(folder: pathlib.Path) -> list[Curve]:
    """Returns the scalars of all event files below a folder, by tag, then by time; none where it is gone.

    A long curve is thinned to a few hundred points, each the mean of its neighbourhood but the first and the last.
    """
    found: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for path in sorted(folder.rglob("events.out.tfevents.*"))[:_MAX_FILES]:
        source = str(path.parent.relative_to(folder))
        for tag, step, value, moment in _scalars(path):
            found.setdefault((tag, "" if source == "." else source, path.name), []).append((step, value, moment))
    curves = []
    for (tag, source, _), points in found.items():
        steps, values, times = _thinned(np.array(points)).T.tolist()
        curves.append(Curve(tag, source, tuple(steps), tuple(values), tuple(times)))
    return sorted(curves, key=lambda curve: (curve.tag, curve.times[0]))


def of_tag(curves: Sequence[Curve], *words: str) -> list[Curve]:
    """Returns the curves whose tag holds one of the words."""
    return [curve for curve in curves if any(word in curve.tag for word in words)]


def _thinned(points: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    if len(points) <= _MAX_POINTS:
        return points
    means = [part.mean(axis=0) for part in np.array_split(points[1:-1], _MAX_POINTS)]
    return np.array([points[0], *means, points[-1]])


def _scalars(path: pathlib.Path) -> Iterator[tuple[str, float, float, float]]:
    from tensorboard.compat.proto import event_pb2

    for record in _records(path):
        try:
            event = event_pb2.Event.FromString(record)
        except message.DecodeError:
            return
        for value in event.summary.value:
            scalar = _scalar(value)
            if scalar is not None and math.isfinite(scalar):
                yield value.tag, float(event.step), scalar, event.wall_time


def _scalar(value: Any) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or any(dim.size != 1 for dim in value.tensor.tensor_shape.dim):
        return None
    tensor = value.tensor
    if tensor.dtype not in (1, 2):  # DT_FLOAT, DT_DOUBLE
        return None
    values = tensor.float_val or tensor.double_val
    if values:
        return float(values[0])
    layout = "<f" if tensor.dtype == 1 else "<d"
    if len(tensor.tensor_content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, tensor.tensor_content)[0])


def _records(path: pathlib.Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file until its end, a cut, or more than is sensible to read."""
    try:
        with path.open("rb") as file:
            while len(header := file.read(12)) == 12 and file.tell() < _MAX_BYTES:
                (length,) = struct.unpack("<Q4x", header)
                if length > _MAX_BYTES or len(content := file.read(length + 4)) < length + 4:
                    return
                yield content[:-4]
    except OSError:
        return
