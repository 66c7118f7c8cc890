"""The evaluation: metrics against their bounds and beside the baseline, slices, and the model's curves."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from lockstep.components.evaluator.plots import PLOTS_NAME
from lockstep.pipelines.report.charts import ABSENT, number
from lockstep.pipelines.report.evaluation_charts import binary_charts, regression_charts
from lockstep.pipelines.report.run_record import RunRecord

_STEP = "Evaluator"
_MAX_SLICES = 300
_BOUNDS = {
    "min": "at least",
    "max": "at most",
    "min_change": "change at least",
    "max_change": "change at most",
}

_OTHERS = "all others"
_CLASS_COLUMNS = {
    "count": "rows",
    "predicted": "predicted",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
}
_BOX_COLUMNS = {"count": "boxes", "average_precision": "mean average precision", "average_precision_50": "at IoU 0.5"}

Document = Mapping[str, Any]


def evaluation_section(run: RunRecord) -> dict[str, Any]:
    """Returns what ``evaluation.html`` shows.

    ``reason``: the verdict's; ``blessed``: or None. ``metrics``: rows of ``name``, ``value``, ``baseline``, ``change``,
    ``bounds`` (of ``text``, ``passed``, ``applied``). ``baseline``: what it was compared with, in words. ``slices``:
    ``metrics`` and ``rows`` (name, cells of ``text``, ``state``). ``charts``: as in the training. ``confusion``: one a
    model; ``by_class``: of the first model of several classes, rows of
    ``name`` and ``cells``. ``missing``: what is not there, in sentences.
    """
    evaluation = run.artifact(_STEP, "evaluation")
    verdict = _document(evaluation.dir / "verdict.json") if evaluation else {}
    curves = _document(evaluation.dir / PLOTS_NAME) if evaluation else {}
    models = _mapping(curves, "models")
    missing = []
    if not verdict:
        missing.append(_why(run))
    elif not models:
        missing.append(
            "There are no curves (ROC, calibration, residuals): this evaluation wrote none. One that an earlier version"
            " made, and that the cache gave, has none."
        )
    kind = next((model.get("kind") for model in models.values() if isinstance(model, Mapping)), None)
    draw = {"binary": binary_charts, "regression": regression_charts}.get(str(kind))
    known = {str(name): model for name, model in models.items() if isinstance(model, Mapping)}
    return {
        "reason": str(verdict.get("reason", "")).removeprefix("not ").removeprefix("blessed: "),
        "blessed": verdict.get("blessed"),
        "ungated": bool(verdict.get("ungated")),
        "baseline": _baseline(verdict),
        "is_compared": _mapping(verdict, "baseline").get("state") == "compared",
        "metrics": _metrics(verdict),
        "slices": _slices(verdict),
        "num_slices": len(_mapping(verdict, "slices")),
        "charts": draw(known) if draw else [],
        "confusion": [
            *(_confusion(name, model) for name, model in known.items() if "confusion" in model),
            *(_class_confusion(name, model) for name, model in known.items() if _mapping(model, "matrix")),
        ],
        "by_class": _by_class(next(iter(known.values()), {})),
        "missing": missing,
    }


def _document(path: pathlib.Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _why(run: RunRecord) -> str:
    state = run.step(_STEP).state
    if state in ("done", "cached"):
        return "The evaluation ended well, but its verdict is gone, cut, or was not recorded with this run."
    words = {
        "waiting": "No evaluation: the run did not come so far.",
        "skipped": "No evaluation: the step was skipped.",
        "running": "The evaluation still runs.",
    }
    return words.get(state, "The evaluation did not end well: there is no verdict.")


def _mapping(document: Document, key: str) -> Document:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _baseline(verdict: Document) -> str:
    baseline = _mapping(verdict, "baseline")
    state, version = baseline.get("state"), baseline.get("version")
    if state == "compared":
        return f"Compared with version {version}, which was served then."
    if state == "unusable":
        return f"Compared with nothing: {baseline.get('note')}"
    return "Compared with nothing: no model was served yet." if state == "none" else ""


def _metrics(verdict: Document) -> list[dict[str, Any]]:
    values, before = _mapping(verdict, "metrics"), _mapping(_mapping(verdict, "baseline"), "metrics")
    checks = [check for check in verdict.get("checks") or () if isinstance(check, Mapping)]
    overall = [check for check in checks if check.get("slice", "overall") == "overall"]
    names = dict.fromkeys((*values, *(str(check.get("metric")) for check in overall)))
    rows = []
    for name in names:
        value, baseline = _number(values.get(name)), _number(before.get(name))
        change = value - baseline if value is not None and baseline is not None else None
        rows.append(
            {
                "name": name,
                "value": number(value),
                "baseline": number(baseline),
                "change": ABSENT if change is None else f"{change:+.4g}",
                "bounds": [_bound(check) for check in overall if check.get("metric") == name],
            }
        )
    return rows


def _bound(check: Document) -> dict[str, Any]:
    bound = str(check.get("bound"))
    return {
        "text": f"{_BOUNDS.get(bound, bound)} {number(_number(check.get('limit')))}",
        "passed": bool(check.get("passed")),
        "applied": bool(check.get("applied", True)),
        "reason": str(check.get("reason", "")),
    }


def _slices(verdict: Document) -> dict[str, Any] | None:
    """Returns a table of the metrics by slice; a value beyond its own bound, or else the whole split's, is marked."""
    slices = {str(name): values for name, values in _mapping(verdict, "slices").items() if isinstance(values, Mapping)}
    if not slices:
        return None
    names = list(dict.fromkeys(name for values in slices.values() for name in values))
    checks = [check for check in verdict.get("checks") or () if isinstance(check, Mapping)]
    rows = []
    for slice_name, values in list(slices.items())[:_MAX_SLICES]:
        cells = []
        for name in names:
            value = _number(values.get(name))
            cells.append({"text": number(value), "state": _state(checks, slice_name, name, value)})
        rows.append({"name": slice_name, "cells": cells})
    return {"metrics": names, "rows": rows}


def _state(checks: list[Document], slice_name: str, metric: str, value: float | None) -> str:
    """Returns ``failed`` for a value that its own bound refused, ``under`` for one beyond the whole split's bound."""
    own = [check for check in checks if check.get("slice") == slice_name and check.get("metric") == metric]
    if own:
        return "" if all(check.get("passed") for check in own) else "failed"
    for check in checks:
        limit = _number(check.get("limit"))
        if check.get("metric") != metric or check.get("slice") != "overall" or value is None or limit is None:
            continue
        if (check.get("bound") == "min" and value < limit) or (check.get("bound") == "max" and value > limit):
            return "under"
    return ""


def _confusion(name: str, model: Document) -> dict[str, Any]:
    """Returns the four counts with their share of the label's rows, which is what a cell is shaded by."""
    confusion = _mapping(model, "confusion")
    counts = {
        cell: _number(confusion.get(cell)) or 0.0
        for cell in ("true_negatives", "false_positives", "false_negatives", "true_positives")
    }
    negatives = counts["true_negatives"] + counts["false_positives"]
    positives = counts["false_negatives"] + counts["true_positives"]

    def cell(key: str, of: float) -> dict[str, Any]:
        share = counts[key] / of if of else 0.0
        return {"count": number(counts[key]), "share": f"{100 * share:.1f} %", "shade": round(100 * share)}

    return {
        "model": name,
        "caption": f"predicted 1 over {number(_number(confusion.get('threshold')))}",
        "columns": ["0", "1"],
        "rows": [
            ("0", [cell("true_negatives", negatives), cell("false_positives", negatives)]),
            ("1", [cell("false_negatives", positives), cell("true_positives", positives)]),
        ],
    }


def _class_confusion(name: str, model: Document) -> dict[str, Any]:
    """Returns the matrix of several classes, shaded as that of two."""
    matrix = _mapping(model, "matrix")
    names = [_OTHERS if known is None else str(known) for known in matrix.get("classes") or ()]
    rows = []
    for label, counts in zip(names, matrix.get("counts") or (), strict=False):
        values = [_number(count) or 0.0 for count in counts]
        of = sum(values)
        shares = [value / of if of else 0.0 for value in values]
        cells = [
            {"count": number(value), "share": f"{100 * share:.1f} %", "shade": round(100 * share)}
            for value, share in zip(values, shares, strict=True)
        ]
        rows.append((label, cells))
    told = [f"{_count(model, 'left_out')} rows of classes that training has not are left out"] * bool(
        model.get("left_out")
    ) + [f"{_count(model, 'broken')} rows got no finite answer"] * bool(model.get("broken"))
    caption = "rows are the labels, columns what was predicted"
    return {"model": name, "caption": "; ".join([caption, *told]), "columns": names, "rows": rows}


def _count(model: Document, key: str) -> str:
    return number(_number(model.get(key)))


def _by_class(model: Document) -> dict[str, Any] | None:
    """Returns a table of the classes, the rarest last; the first of them where there are many."""
    found = [item for item in model.get("by_class") or () if isinstance(item, Mapping)]
    if not found:
        return None
    columns = _BOX_COLUMNS if model.get("kind") == "boxes" else _CLASS_COLUMNS
    rows = [
        {"name": str(item.get("class")), "cells": [number(_number(item.get(key))) for key in columns]}
        for item in found[:_MAX_SLICES]
    ]
    return {"columns": list(columns.values()), "rows": rows, "num_classes": len(found)}
