"""The pipeline as a graph: every step with its state and time, from left to right, or from top to bottom."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from lockstep.pipelines.report.charts import ABSENT
from lockstep.pipelines.report.run_record import RunRecord, Step

_NODE_WIDTH, _NODE_HEIGHT, _GAP, _LANE_GAP = 162, 58, 26, 16
_TALL_GAP = 26
_NAME_CHARS = 19

WORDS = {
    "done": "done",
    "cached": "from the cache",
    "failed": "failed",
    "skipped": "skipped",
    "running": "running",
    "killed": "ended by force",
    "waiting": "not begun",
}


def pipeline_section(run: RunRecord) -> dict[str, Any]:
    """Returns what ``pipeline.html`` shows: both graphs, and a row a step.

    A row has ``name``, ``state``, ``word``, ``began``, ``time``, ``share`` (of the longest, in per cent), ``figure``.
    """
    longest = max((step.seconds for step in run.steps), default=0.0)
    rows = [
        {
            "name": step.name,
            "state": step.state,
            "word": WORDS.get(step.state, step.state),
            "time": ABSENT if step.state in ("waiting", "skipped") else seconds(step.seconds),
            "share": round(100 * step.seconds / longest, 1) if longest else 0.0,
            "figure": step.figure,
            "began": ABSENT if step.began is None else time.strftime("%H:%M:%S", time.localtime(step.began)),
        }
        for step in run.steps
    ]
    return {"rows": rows, "wide": graph(run.steps, tall=False), "tall": graph(run.steps, tall=True)}


def seconds(value: float) -> str:
    """Returns a time for a reader: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@dataclasses.dataclass(frozen=True)
class _Place:
    step: Step
    rank: int
    lane: int


def graph(steps: Sequence[Step], *, tall: bool) -> Markup:
    """Returns the graph as an ``svg`` element; empty where no step is known.

    Args:
      steps: In the order of running.
      tall: From top to bottom, for a narrow page.
    """
    if not steps:
        return Markup("")
    places = {place.step.name: place for place in _placed(steps)}
    ranks = 1 + max(place.rank for place in places.values())
    lanes = 1 + max(place.lane for place in places.values())
    if tall:
        width = lanes * (_NODE_WIDTH + _LANE_GAP) - _LANE_GAP
        height = ranks * (_NODE_HEIGHT + _TALL_GAP) - _TALL_GAP
    else:
        width = ranks * (_NODE_WIDTH + _GAP) - _GAP
        height = lanes * (_NODE_HEIGHT + _LANE_GAP) - _LANE_GAP
    edges = Markup("").join(
        _edge(_corner(places[name], tall), _corner(place, tall), tall=tall)
        for place in places.values()
        for name in _direct(place.step, places)
    )
    nodes = Markup("").join(_node(place.step, *_corner(place, tall)) for place in places.values())
    told = "; ".join(f"{step.name}: {WORDS.get(step.state, step.state)}" for step in steps)
    return Markup(
        '<svg class="graph {}" viewBox="-2 -2 {} {}" role="img" aria-label="{}" style="--w:{}px">'
        '<g class="edges">{}</g>{}</svg>'
    ).format("tall" if tall else "wide", width + 4, height + 4, f"Steps: {told}", width + 4, edges, nodes)


def _placed(steps: Sequence[Step]) -> list[_Place]:
    """Puts each step a rank behind the last of those it waits for, and in the first lane that is free there."""
    known = {step.name for step in steps}
    ranks: dict[str, int] = {}
    taken: dict[int, int] = {}
    places = []
    for i, step in enumerate(steps):
        before = [ranks[name] for name in step.upstream if name in ranks]
        if before or any(other.upstream for other in steps if other.name in known):
            rank = 1 + max(before) if before else 0
        else:  # nobody said what depends on what: one after the other, as they ran
            rank = i
        ranks[step.name] = rank
    # What others wait for comes first, so that the way to the last step is a straight line.
    waited_for = {name for step in steps for name in step.upstream}
    for step in sorted(steps, key=lambda step: step.name not in waited_for):
        rank = ranks[step.name]
        places.append(_Place(step, rank, taken.get(rank, 0)))
        taken[rank] = taken.get(rank, 0) + 1
    return places


def _direct(step: Step, places: Mapping[str, _Place]) -> list[str]:
    """Returns the steps to draw an edge from: not those that another one of them depends on already."""
    before = [name for name in step.upstream if name in places]

    def reaches(start: str, goal: str) -> bool:
        return any(name == goal or reaches(name, goal) for name in places[start].step.upstream if name in places)

    return [name for name in before if not any(reaches(other, name) for other in before if other != name)]


def _corner(place: _Place, tall: bool) -> tuple[int, int]:
    if tall:
        return place.lane * (_NODE_WIDTH + _LANE_GAP), place.rank * (_NODE_HEIGHT + _TALL_GAP)
    return place.rank * (_NODE_WIDTH + _GAP), place.lane * (_NODE_HEIGHT + _LANE_GAP)


def _edge(start: tuple[int, int], end: tuple[int, int], *, tall: bool) -> Markup:
    if tall:
        x1, y1 = start[0] + _NODE_WIDTH // 2, start[1] + _NODE_HEIGHT
        x2, y2 = end[0] + _NODE_WIDTH // 2, end[1]
        bend = (y2 - y1) // 2
        path = f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"
    else:
        x1, y1 = start[0] + _NODE_WIDTH, start[1] + _NODE_HEIGHT // 2
        x2, y2 = end[0], end[1] + _NODE_HEIGHT // 2
        bend = (x2 - x1) // 2
        path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    return Markup('<path d="{}"/>').format(path)


def _node(step: Step, x: int, y: int) -> Markup:
    name = step.name if len(step.name) <= _NAME_CHARS else step.name[: _NAME_CHARS - 1] + "…"
    told = WORDS.get(step.state, step.state)
    if step.state not in ("waiting", "skipped"):
        told += f", {seconds(step.seconds)}"
    return Markup(
        '<g class="node {}"><rect x="{}" y="{}" width="{}" height="{}" rx="8"/>'
        '<circle cx="{}" cy="{}" r="4.5"/><text x="{}" y="{}" class="name">{}</text>'
        '<text x="{}" y="{}" class="told">{}</text></g>'
    ).format(
        *(step.state, x, y, _NODE_WIDTH, _NODE_HEIGHT, x + 14, y + 21),
        *(x + 24, y + 25, name, x + 24, y + 43, told),
    )
