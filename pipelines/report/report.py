"""One self-contained HTML file about a run: escaped by its templates, without scripts, loading nothing."""

import dataclasses
import importlib.metadata
import logging
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from lockstep.pipelines.report.charts import number
from lockstep.pipelines.report.data_section import data_section
from lockstep.pipelines.report.evaluation_section import evaluation_section
from lockstep.pipelines.report.lineage_section import lineage_section
from lockstep.pipelines.report.pipeline_section import pipeline_section, seconds
from lockstep.pipelines.report.run_record import STATES, RunRecord, read_run
from lockstep.pipelines.report.training_section import training_section
from lockstep.pipelines.run_files import RunFiles

_logger = logging.getLogger(__name__)

_SECTIONS: tuple[tuple[str, str, Callable[[RunRecord], dict[str, Any]]], ...] = (
    ("pipeline", "Pipeline", pipeline_section),
    ("data", "Data", data_section),
    ("training", "Training", training_section),
    ("evaluation", "Evaluation", evaluation_section),
    ("lineage", "Lineage", lineage_section),
)
_WORDS = {"done": "done", "not blessed": "not pushed", "killed": "ended by force", "wrong input": "failed"}
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
      id: Its anchor.
      title: Its heading.
      body: HTML.
    """

    id: str
    title: str
    body: Markup


def write_report(files: RunFiles, path: pathlib.Path) -> None:
    """Writes the report of a run, whole or not at all; replaces an older one.

    Args:
      files: The run's; it may have been cut anywhere, or go on.
      path: The HTML file.

    Raises:
      ConfigurationError: There is no such run.
      OSError: The file cannot be written.
    """
    text = render(read_run(files))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = pathlib.Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as stream:
            stream.write(text)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def render(run: RunRecord) -> str:
    """Returns the page. A section that cannot be made says so in its place; the others are there."""
    sections, known = [], {}
    for id_, title, build in _SECTIONS:
        try:
            known[id_] = build(run)
            body = Markup(_TEMPLATES.get_template(f"{id_}.html").render(known[id_]))  # noqa: S704 - escaped by the template
        except Exception as e:
            _logger.warning("section %s", id_, exc_info=True)
            told = f"This section could not be made: {type(e).__name__}: {e}"
            body = Markup('<p class="absent">{}</p>').format(told[:500])
        sections.append(Section(id_, title, body))
    style = pathlib.Path(__file__).with_name("templates").joinpath("style.css").read_text(encoding="utf-8")
    text = _TEMPLATES.get_template("report.html").render(
        run=run,
        state_word=_WORDS.get(run.state, run.state),
        tone=STATES.get(run.state, "failed"),
        sentence=sentence(run, str(known.get("evaluation", {}).get("reason", ""))),
        further="\n".join(run.message.strip().splitlines()[1:]),
        took=seconds(run.seconds),
        tiles=tiles(run, known),
        sections=sections,
        style=Markup(style),  # noqa: S704 - a file of ours
        version=_version(),
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
    )
    return re.sub(r"\n\s*\n+", "\n", text)


def sentence(run: RunRecord, reason: str = "") -> str:
    """Returns what came of the run, in one sentence; of one that is done, with what decided about the model."""
    if run.message.strip():
        text = run.message.strip().splitlines()[0]
        if run.state == "done" and reason:
            text += f": {reason}"
    elif run.state == "running":
        step = next((step.name for step in run.steps if step.state == "running"), "")
        text = f"The run goes on{f', at {step}' if step else ''}; this is what was known when the report was written"
    else:
        step = next((step.name for step in run.steps if step.state == "killed"), "")
        text = f"The run ended without a word, {f'in {step}' if step else 'before its first step'}"
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def tiles(run: RunRecord, known: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Returns the few figures at the top: (name, value, and something small beside it)."""
    found = []
    data = known.get("data", {})
    if data.get("splits"):
        parts = ", ".join(f"{split['name']} {split['rows']}" for split in data["splits"])
        found.append(("Rows", str(data["total"]), parts))
    facts = dict(known.get("training", {}).get("facts", ()))
    if "Steps" in facts:
        found.append(("Training steps", facts["Steps"], f"{facts['Workers']} workers, {facts['Restarts']} restarts"))
        found.append(("Examples a second", facts["Examples a second"], f"loss at the end {facts['Loss at the end']}"))
    for row in known.get("evaluation", {}).get("metrics", ())[:2]:
        bounds = "; ".join(bound["text"] for bound in row["bounds"])
        found.append((row["name"], row["value"], f"asked: {bounds}" if bounds else ""))
    cached = sum(step.state == "cached" for step in run.steps)
    if run.steps:
        ended = sum(step.state in ("done", "cached") for step in run.steps)
        found.append(
            ("Steps ended", f"{number(ended)} of {len(run.steps)}", f"{cached} from the cache" if cached else "")
        )
    return found


def _version() -> str:
    try:
        return importlib.metadata.version("tfx-lockstep")
    except importlib.metadata.PackageNotFoundError:
        return "from a source tree"


def main(arguments: Sequence[str]) -> int:
    """Writes the report of a run: the process that a run starts when it has ended.

    Args:
      arguments: The run's folder, and the file to write.

    Returns:
      0; what goes wrong is raised.
    """
    logging.basicConfig(level=logging.WARNING, format="report: %(levelname)s %(message)s")
    run_dir, path = map(pathlib.Path, arguments)
    write_report(RunFiles(run_dir), path)
    return 0
