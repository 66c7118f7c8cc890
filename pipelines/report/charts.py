"""Charts as SVG text for a page: drawn by Matplotlib, coloured by the page's own style, so in light and dark alike.

Text stays text and takes the page's typeface. A chart has a sentence in place of what is seen, for who cannot see it.
"""

import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib import figure, ticker
from matplotlib.backends import backend_svg

# What is drawn in a colour here is shown in the page's one of that name.
_COLOURS = {
    "ink": "#0a0a01",
    "muted": "#0a0a02",
    "line": "#0a0a03",
    "surface": "#0a0a04",
    "series-1": "#0a0a11",
    "series-2": "#0a0a12",
    "series-3": "#0a0a13",
    "bad": "#0a0a14",
}
ABSENT = "\u2013"
"""What stands where there is no value."""

SERIES = ("series-1", "series-2", "series-3")
_WIDTH_IN, _HEIGHT_IN = 5.0, 3.0  # 360 by 216 units: as wide as a telephone, so that text is never made smaller there
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lockstep",
    "text.parse_math": False,  # a column may be called $x$
    "font.size": 10.5,
    "axes.edgecolor": _COLOURS["line"],
    "axes.labelcolor": _COLOURS["muted"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": _COLOURS["line"],
    "grid.linewidth": 0.6,
    "xtick.color": _COLOURS["line"],
    "ytick.color": _COLOURS["line"],
    "xtick.labelcolor": _COLOURS["muted"],
    "ytick.labelcolor": _COLOURS["muted"],
    "text.color": _COLOURS["ink"],
    "path.simplify": True,
    "path.simplify_threshold": 0.5,
}
_numbers = itertools.count()


def chart(
    draw: Callable[[Any], None], description: str, *, x_label: str = "", y_label: str = "", square: bool = False
) -> Markup:
    """Returns one chart as an ``svg`` element that is as wide as its place.

    Args:
      draw: Draws into Matplotlib's axes; its colours are those of ``colour``.
      description: The chart in a sentence or two.
      x_label: Under the horizontal axis, with the unit.
      y_label: Beside the vertical one.
      square: One unit is as long in both directions, and both go from 0 to 1.
    """
    with mpl.rc_context(_SETTINGS):
        drawn = figure.Figure(figsize=(_WIDTH_IN, _WIDTH_IN * 0.8 if square else _HEIGHT_IN))
        # Margins that hold five characters and a label: to find the least ones takes longer than to draw.
        drawn.subplots_adjust(left=0.15, right=0.97, bottom=0.16 if square else 0.2, top=0.97)
        axes = drawn.add_subplot()
        axes.tick_params(length=3)
        draw(axes)
        for axis in (axes.xaxis, axes.yaxis):
            _short_ticks(axis)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if square:
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        text = io.StringIO()
        backend_svg.FigureCanvasSVG(drawn).print_svg(
            text, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _for_page(text.getvalue(), description)


def colour(name: str) -> str:
    """Returns what Matplotlib takes for one of the page's colours: ``series-1`` to ``3``, ``muted``, ``bad``, ..."""
    return _COLOURS[name]


def lines(
    axes: Any, curves: Sequence[tuple[Sequence[float], Sequence[float]]], name: str = "series-1", *, marker: str = ""
) -> None:
    """Draws curves of one colour; a curve of one point alone is drawn as a dot."""
    for xs, ys in curves:
        axes.plot(
            xs, ys, color=_COLOURS[name], linewidth=1.6, marker=marker or ("o" if len(xs) == 1 else ""), markersize=4
        )


def _short_ticks(axis: Any) -> None:
    """Gives an axis few numbers, short ones, and none with an offset."""
    if axis.get_scale() == "log":
        axis.set_minor_formatter(ticker.NullFormatter())
    else:
        axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """Returns a number in about five characters: ``40k``, ``1.5M``, ``0.25``, ``2e-05``."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size <= abs(value) < 1e15:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.4g}{letter}"
    return f"{value:.3g}" if abs(value) < 1e3 or abs(value) >= 1e15 else f"{value:,.0f}"


def number(value: float | None, digits: int = 4) -> str:
    """Returns a number for a reader: commas, at most ``digits`` significant digits, and no exponent where it can be."""
    if value is None or not np.isfinite(value):
        return ABSENT
    if value == round(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if 1e4 <= size < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}" if size >= 1e-4 else f"{value:.{max(1, digits - 2)}g}"


def _for_page(svg: str, description: str) -> Markup:
    """Takes from Matplotlib's file the element, gives it the page's colours, and ids that occur once in the page."""
    body = svg[svg.index("<svg") : svg.rindex("</svg>") + len("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    head, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box
    rest = re.sub(r'<g id="[^"]*">', "<g>", rest)
    prefix = f"c{next(_numbers)}-"
    rest = re.sub(r'\bid="', f'id="{prefix}', rest)
    rest = rest.replace("url(#", f"url(#{prefix}").replace('href="#', f'href="#{prefix}').replace("xlink:href", "href")
    rest = re.sub(r"\n\s*", " ", rest)
    for name, value in _COLOURS.items():
        rest = rest.replace(value, f"var(--{name})")
    rest = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", rest)
    # Matplotlib has escaped the text in what it wrote.
    parts = Markup(box.group()), description, Markup(rest)  # noqa: S704
    return Markup('<svg {} role="img" aria-label="{}" class="chart">{}').format(*parts)
