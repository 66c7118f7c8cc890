"""A column's values as small bars: several hundred on a page, so written as they are rather than by a chart library."""

from collections.abc import Sequence

from markupsafe import Markup

_WIDTH, _HEIGHT = 120, 30

Bars = Sequence[tuple[float, float, float]]
"""(from, to, count), in ascending order."""


def histogram(bars: Bars, outline: Bars = (), description: str = "") -> Markup:
    """Returns an ``svg`` element: bars of one split, the outline of another over them, each of its own total.

    Args:
      bars: Of the first split.
      outline: Of the second one; may be empty.
      description: The same in words.
    """
    values = [edge for low, high, _ in (*bars, *outline) for edge in (low, high)]
    if not values or not any(count for *_, count in bars):
        return Markup("")
    low, high = min(values), max(values)
    scale = _WIDTH / (high - low) if high > low else 0.0
    shapes = [_steps(part, low, scale) for part in (bars, outline)]
    top = max(y for shape in shapes for _, _, y in shape)
    path = "".join(
        f"M{left:.1f} {_HEIGHT}V{_HEIGHT - y / top * _HEIGHT:.1f}H{right:.1f}V{_HEIGHT}"
        for left, right, y in shapes[0]
        if y
    )
    over = "".join(
        f"{'L' if i else 'M'}{left:.1f} {_HEIGHT - y / top * _HEIGHT:.1f}H{right:.1f}"
        for i, (left, right, y) in enumerate(shapes[1])
    )
    return Markup(
        '<svg class="spark" viewBox="0 -1 {} {}" role="img" aria-label="{}"><path class="bars" d="{}"/>{}</svg>'
    ).format(
        _WIDTH, _HEIGHT + 2, description, path, Markup('<path class="outline" d="{}"/>').format(over) if over else ""
    )


def _steps(bars: Bars, low: float, scale: float) -> list[tuple[float, float, float]]:
    """Returns (left, right, height) in the picture; the height is the share of all values in a unit of width."""
    total = sum(count for *_, count in bars)
    steps = []
    for start, end, count in bars:
        left, right = ((start - low) * scale, (end - low) * scale) if scale else (_WIDTH * 0.4, _WIDTH * 0.6)
        width = max(right - left, 1.0)
        steps.append((left, left + width, count / total / width if total else 0.0))
    return steps
