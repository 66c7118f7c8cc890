"""The training: curves, restarts on a time line, what each worker read and used."""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.pipelines.report import charts
from lockstep.pipelines.report.charts import ABSENT, number
from lockstep.pipelines.report.curves import Curve, of_tag, read_curves
from lockstep.pipelines.report.pipeline_section import seconds
from lockstep.pipelines.report.run_record import RunRecord
from lockstep.pipelines.run_files import RootFiles

_STEP = "DistributedTrainer"
_PROGRESS = re.compile(r"step ([\d,]+)/[\d,]+, loss ([\d.eE+-]+)(?:, ([\d,.]+) examples/s)?")
_MAX_VALIDATIONS = 3
_WORKER_HEADINGS = {
    "records": "Records read",
    "read_mb": "Read from files (MiB)",
    "peak_memory_mb": "Most memory (MiB)",
    "input_share": "Waited for data",
}


def training_section(run: RunRecord) -> dict[str, Any]:
    """Returns what ``training.html`` shows.

    ``facts``: (name, value). ``charts``: of ``title``, ``drawing``, ``legend`` (colour, name), ``note``. ``attempts``:
    a row each, for the time line. ``workers``: ``columns`` and ``rows``. ``evaluation``: (metric, value).
    ``missing``: what is not there, in sentences. ``logs``: folder of the workers' logs; may be empty.
    """
    model_run = run.artifact(_STEP, "model_run")
    summary = _summary(model_run.dir) if model_run else {}
    folder = model_run.dir if model_run else _unfinished(run)
    curves = read_curves(folder) if folder else []
    missing = []
    if not summary:
        missing.append(_why_no_summary(run))
    drawn = _charts(curves, run.progress.get(_STEP, ()))
    if not drawn:
        missing.append("There are no curves: nothing was written for TensorBoard, and no progress was told.")
    logs = folder / "logs" if folder and (folder / "logs").is_dir() else None
    return {
        "facts": _facts(summary),
        "charts": drawn,
        "attempts": attempts(summary),
        "restarts": summary.get("restarts"),
        "workers": _workers(summary),
        "evaluation": [(name, number(_float(value))) for name, value in _mapping(summary, "evaluation").items()],
        "logs": str(logs or ""),
        "missing": missing,
    }


def _summary(folder: pathlib.Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _unfinished(run: RunRecord) -> pathlib.Path | None:
    """Returns the folder of a training that did not end, which the metadata give to nobody, by its time."""
    began = run.first_moment()
    if began is None or run.step(_STEP).state in ("waiting", "skipped", "done", "cached"):
        return None
    folders = [path for path in RootFiles(run.root).artifacts_dir.glob(f"{_STEP}/model_run/*") if path.is_dir()]
    newest = max(folders, key=lambda path: path.stat().st_mtime, default=None)
    return newest if newest is not None and newest.stat().st_mtime >= began else None


def _why_no_summary(run: RunRecord) -> str:
    step = run.step(_STEP)
    if step.state in ("done", "cached"):
        return "The training ended well, but its summary is gone, cut, or was not recorded with this run."
    words = {
        "waiting": "No training: the run did not come so far.",
        "skipped": "No training: the step was skipped.",
        "running": "The training still runs: there is no summary of it yet.",
    }
    return words.get(step.state, "The training did not end well: there is no summary of it.")


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not summary:
        return []
    options = _mapping(summary, "options")
    workers = summary.get("num_workers", options.get("workers"))
    facts = [
        ("Steps", number(_float(summary.get("steps")))),
        ("Loss at the end", number(_float(summary.get("loss")))),
        ("Examples a second", number(_float(summary.get("examples_per_s")), 3)),
        ("Workers", number(_float(workers))),
        ("Strategy", str(options.get("strategy", ABSENT))),
        ("Batch size", number(_float(options.get("batch_size")))),
        ("Optimizer", str(options.get("optimizer", ABSENT))),
        ("Restarts", number(_float(summary.get("restarts")))),
        ("Took", seconds(_float(_mapping(summary, "seconds").get("total")) or 0.0)),
    ]
    validation = _mapping(summary, "validation")
    if validation.get("best_step"):
        facts.append(("Best validation", f"step {number(_float(validation['best_step']))}"))
        facts.append(("Ended early", "yes" if validation.get("has_stopped") else "no"))
    if (waited := _float(summary.get("input_share"))) is not None:
        facts.append(("Waited for data", f"{100 * waited:.0f} % of the time"))
    return facts


def _charts(curves: Sequence[Curve], progress: Sequence[tuple[float, str]]) -> list[dict[str, Any]]:
    losses = [curve for curve in of_tag(curves, "loss") if not curve.tag.startswith("eval")]
    drawn = []
    told = [found for _, figure in progress if (found := _PROGRESS.search(figure))]
    steps = [float(found[1].replace(",", "")) for found in told]
    note = ""
    if not losses and told:
        losses = [Curve("loss", "", tuple(steps), tuple(float(found[2]) for found in told), (0.0,) * len(told))]
        note = "From what the console showed; the events for TensorBoard are gone."
    if losses:
        validation = [
            curve for curve in of_tag(curves, "loss") if curve.tag.startswith("eval") and len(curve.steps) > 1
        ]
        drawn.append(_chart("Loss", [*losses, *validation], "loss", note=note))
    rates = of_tag(curves, "examples_per_s", "examples_per_second")
    if not rates and any(found[3] for found in told):
        points = [(step, float(found[3].replace(",", ""))) for step, found in zip(steps, told, strict=True) if found[3]]
        moments, told_rates = zip(*points, strict=True)
        rates = [Curve("examples/s", "", moments, told_rates, (0.0,) * len(points))]
    if rates:
        drawn.append(_chart("Throughput", rates, "examples/s", from_zero=True))
    others = [curve for curve in curves if curve.tag.startswith("validation/") and not curve.tag.endswith("/loss")]
    others = [curve for curve in others if not curve.tag.endswith(("/examples", "/weight"))]
    for tag in list(dict.fromkeys(curve.tag for curve in others))[:_MAX_VALIDATIONS]:
        name = tag.removeprefix("validation/")
        drawn.append(_chart(f"Validation: {name}", [curve for curve in others if curve.tag == tag], name))
    if rates_of_learning := of_tag(curves, "learning_rate"):
        drawn.append(_chart("Learning rate", rates_of_learning, "learning rate", from_zero=True))
    return drawn


def _chart(
    title: str, curves: Sequence[Curve], unit: str, *, note: str = "", from_zero: bool = False
) -> dict[str, Any]:
    names = list(dict.fromkeys(_name(curve) for curve in curves))
    colours = dict(zip(names, charts.SERIES, strict=False))

    def draw(axes: Any) -> None:
        for curve in curves:
            charts.lines(axes, [(curve.steps, curve.values)], colours.get(_name(curve), "muted"))
        values = [value for curve in curves for value in curve.values]
        if from_zero:
            axes.set_ylim(0, max(values) * 1.05 or 1.0)
        elif min(values) > 0 and max(values) > 30 * min(values):
            axes.set_yscale("log")

    first, last = curves[0].values[0], curves[-1].values[-1]
    steps = number(max(curve.steps[-1] for curve in curves))
    description = f"{title} over {steps} steps: from {number(first)} at first to {number(last)} at last."
    drawing = charts.chart(draw, description, x_label="step", y_label=unit)
    legend = [(colours.get(name, "muted"), name) for name in names] if len(names) > 1 else []
    return {"title": title, "drawing": drawing, "legend": legend, "note": note, "words": description}


def _name(curve: Curve) -> str:
    return f"{curve.source.removeprefix('tensorboard').strip('/')} {curve.tag}".strip()


def attempts(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the starts of the group of workers on one time line, in per cent of all of it.

    ``number``, ``workers``, ``begin``, ``starting`` and ``training`` (widths), ``from_step``, ``to_step``, ``when``,
    ``outcome``, ``is_good``, ``replacements``.
    """
    found = summary.get("attempts")
    rows = [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
    whole = max((_float(row.get("end_s")) or 0.0 for row in rows), default=0.0) or 1.0
    drawn = []
    for row in rows:
        start, end = _float(row.get("start_s")) or 0.0, _float(row.get("end_s")) or 0.0
        training = _float(row.get("training_s"))
        ready = min(start + training, end) if training is not None else end
        cause = row.get("cause")
        drawn.append(
            {
                "number": row.get("attempt", ABSENT),
                "workers": row.get("num_workers", ABSENT),
                "begin": round(100 * start / whole, 2),
                "starting": round(100 * (ready - start) / whole, 2),
                "training": round(100 * (end - ready) / whole, 2),
                "from_step": number(_float(row.get("resumed_step"))),
                "to_step": number(_float(row.get("last_step"))),
                "when": f"{seconds(start)} to {seconds(end)}",
                "outcome": str(cause) if cause else "finished",
                "is_good": not cause,
                "replacements": [str(text) for text in row.get("replacements") or ()],
            }
        )
    return drawn


def _workers(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns a table, a row a worker, of all that the summary says by worker; earlier versions said only records."""
    workers, records = summary.get("workers"), summary.get("records_per_worker")
    if not isinstance(workers, list):
        workers = [{"records": count} for count in records] if isinstance(records, list) else []
    rows = [worker for worker in workers if isinstance(worker, Mapping)]
    names = list(dict.fromkeys(str(name) for row in rows for name in (*_WORKER_HEADINGS, *row) if name in row))
    if not names:
        return None
    return {
        "columns": [_WORKER_HEADINGS.get(name, name.replace("_", " ")) for name in names],
        "rows": [[_cell(name, row.get(name)) for name in names] for row in rows],
    }


def _cell(name: str, value: object) -> str:
    share = _float(value) if name.endswith("_share") else None
    return _text(value) if share is None else f"{100 * share:.0f} %"


def _text(value: object) -> str:
    if value is None:
        return "not said"
    return number(_float(value)) if isinstance(value, int | float) else str(value)


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}
