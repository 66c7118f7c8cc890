"""The curves that the Evaluator counted, drawn: the candidate, and the baseline beside it where there was one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colors

from lockstep.pipelines.report import charts
from lockstep.pipelines.report.charts import number

Models = Mapping[str, Mapping[str, Any]]
_MAX_BARS = 60


def binary_charts(models: Models) -> list[dict[str, Any]]:
    """Returns ROC, calibration, and the predictions by label of the first model.

    Each has ``title``, ``drawing``, ``legend`` ((colour, name), ...), ``note`` and ``words``.
    """
    colours = dict(zip(models, charts.SERIES, strict=False))
    drawn = []
    with_roc = {name: model for name, model in models.items() if model.get("roc")}
    if with_roc:
        areas = ", ".join(f"{name} {number(model.get('auc'))}" for name, model in with_roc.items())

        def roc(axes: Any) -> None:
            axes.plot([0, 1], [0, 1], color=charts.colour("muted"), linewidth=0.8, linestyle=(0, (4, 3)))
            for name, model in reversed(list(with_roc.items())):
                points = model["roc"]
                xs, ys = [point["fpr"] for point in points], [point["tpr"] for point in points]
                charts.lines(axes, [(xs, ys)], colours.get(name, "muted"))

        drawn.append(
            _entry(
                "ROC",
                charts.chart(
                    roc,
                    f"ROC curve; area under it: {areas}. The diagonal is a guess.",
                    x_label="false positive rate",
                    y_label="true positive rate",
                    square=True,
                ),
                _legend(colours, with_roc, lambda model: f"area {number(model.get('auc'))}"),
                "Area under the curve: " + areas + ".",
            )
        )
    drawn += _calibration({name: model for name, model in models.items() if model.get("calibration")}, colours)
    drawn += [_scores(name, model) for name, model in list(models.items())[:1] if model.get("scores")]
    return drawn


def _calibration(models: Models, colours: Mapping[str, str]) -> list[dict[str, Any]]:
    if not models:
        return []

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=charts.colour("muted"), linewidth=0.8, linestyle=(0, (4, 3)))
        for name, model in reversed(list(models.items())):
            groups = model["calibration"]
            xs, ys = [group["prediction"] for group in groups], [group["label"] for group in groups]
            charts.lines(axes, [(xs, ys)], colours.get(name, "muted"), marker="o")

    errors = {name: _calibration_error(model["calibration"]) for name, model in models.items()}
    words = ", ".join(f"{name} {number(error, 2)}" for name, error in errors.items())
    description = f"Calibration in ten groups of equal size; mean distance from the diagonal: {words}."
    drawing = charts.chart(draw, description, x_label="mean prediction", y_label="share of label 1", square=True)
    return [_entry("Calibration", drawing, _legend(colours, models, lambda _: ""), description)]


def _calibration_error(groups: Sequence[Mapping[str, float]]) -> float:
    total = sum(group["count"] for group in groups)
    return sum(group["count"] * abs(group["prediction"] - group["label"]) for group in groups) / total


def _scores(name: str, model: Mapping[str, Any]) -> dict[str, Any]:
    negatives, positives = (np.array(model["scores"][key], dtype=float) for key in ("negatives", "positives"))
    edges = np.linspace(0, 1, len(negatives) + 1)
    shares = [counts / max(counts.sum(), 1) * 100 for counts in (negatives, positives)]

    def draw(axes: Any) -> None:
        for share, colour in zip(shares, ("series-1", "series-2"), strict=True):
            axes.stairs(share, edges, fill=True, color=charts.colour(colour), alpha=0.25)
            axes.stairs(share, edges, color=charts.colour(colour), linewidth=1.4)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)

    description = (
        f"How the {name}'s predictions are spread: rows of label 0 and of label 1, each in per cent of its own."
    )
    drawing = charts.chart(draw, description, x_label="prediction", y_label="% of the label's rows")
    return _entry("Predictions by label", drawing, [("series-1", "label 0"), ("series-2", "label 1")], description)


def regression_charts(models: Models) -> list[dict[str, Any]]:
    """Returns the residuals' spread, of all models, and the first model's over its predictions."""
    colours = dict(zip(models, charts.SERIES, strict=False))
    drawn = []
    with_residuals = {name: model for name, model in models.items() if model.get("residuals", {}).get("counts")}
    if with_residuals:

        def draw(axes: Any) -> None:
            low, high = _span(with_residuals)
            for name, model in reversed(list(with_residuals.items())):
                edges, counts = _joined(model["residuals"], low, high)
                shares = counts / max(counts.sum(), 1) * 100
                colour = charts.colour(colours.get(name, "muted"))
                axes.stairs(shares, edges, fill=True, color=colour, alpha=0.2)
                axes.stairs(shares, edges, color=colour, linewidth=1.4)
            axes.axvline(0, color=charts.colour("muted"), linewidth=0.8)
            axes.set_ylim(bottom=0)

        words = "; ".join(
            f"{name}: mean {number(model.get('mean'), 3)}, deviation {number(model.get('std'), 3)}"
            for name, model in with_residuals.items()
        )
        description = f"Residuals, label minus prediction. {words}."
        drawing = charts.chart(draw, description, x_label="label minus prediction", y_label="% of the rows")
        drawn.append(_entry("Residuals", drawing, _legend(colours, with_residuals, lambda _: ""), description))
    drawn += [_grid(name, model) for name, model in list(with_residuals.items())[:1] if model["grid"]["counts"]]
    return drawn


def _span(models: Models) -> tuple[float, float]:
    """Returns the range of residuals to show: all but the last thousandth on either side."""
    lows, highs = [], []
    for model in models.values():
        edges = np.array(model["residuals"]["edges"])
        along = np.cumsum(model["residuals"]["counts"])
        first, last = np.searchsorted(along, [0.001 * along[-1], 0.999 * along[-1]])
        lows.append(edges[first])
        highs.append(edges[min(last + 1, len(edges) - 1)])
    return min(lows), max(highs)


def _joined(histogram: Mapping[str, Any], low: float, high: float) -> tuple[Any, Any]:
    """Returns fewer, wider bins between two values; what lies outside is left out."""
    edges, counts = np.array(histogram["edges"], dtype=float), np.array(histogram["counts"], dtype=float)
    inside = (edges[:-1] >= low) & (edges[1:] <= high)
    if not inside.any():
        return edges, counts
    first, last = np.flatnonzero(inside)[[0, -1]]
    edges, counts = edges[first : last + 2], counts[first : last + 1]
    size = max(1, -(-len(counts) // _MAX_BARS))
    starts = np.arange(0, len(counts), size)
    return np.append(edges[starts], edges[-1]), np.add.reduceat(counts, starts)


def _grid(name: str, model: Mapping[str, Any]) -> dict[str, Any]:
    grid = model["grid"]
    counts = np.array(grid["counts"], dtype=float).T
    xs, ys = np.array(grid["prediction_edges"]), np.array(grid["residual_edges"])
    most = counts.max()

    def draw(axes: Any) -> None:
        # Few cells hold anything: each is a rectangle whose opacity tells its count, on a scale that shows single rows.
        for row, column in zip(*np.nonzero(counts), strict=True):
            alpha = 0.12 + 0.88 * np.log1p(counts[row, column]) / np.log1p(most)
            axes.fill_between(
                [xs[column], xs[column + 1]],
                ys[row],
                ys[row + 1],
                color=colors.to_rgba(charts.colour("series-1"), alpha),
                linewidth=0,
            )
        axes.axhline(0, color=charts.colour("muted"), linewidth=0.8)

    description = f"The {name}'s residuals over its predictions; the darker a field, the more rows (logarithmic)."
    drawing = charts.chart(draw, description, x_label="prediction", y_label="label minus prediction")
    return _entry("Residuals by prediction", drawing, [], description)


def _legend(colours: Mapping[str, str], models: Models, told: Any) -> list[tuple[str, str]]:
    return [(colours.get(name, "muted"), f"{name} {told(model)}".strip()) for name, model in models.items()]


def _entry(title: str, drawing: Any, legend: list[tuple[str, str]], words: str) -> dict[str, Any]:
    return {"title": title, "drawing": drawing, "legend": legend, "note": "", "words": words}
