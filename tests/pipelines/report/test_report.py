"""The report of runs that went well, failed, or left damaged files: what is on the page, and what never is."""

import json
import pathlib
import re
import sqlite3
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines import cli, run_events
from lockstep.pipelines.report import charts, report, run_record
from lockstep.pipelines.run_files import RunFiles
from tests.pipelines.report.made_runs import DONE, MadeRun, whole_run

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>${7*7}{{7*7}}</style></svg>"


class Page(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        """Collects."""
        self.text += data

    @property
    def words(self) -> str:
        """The text with single spaces."""
        return re.sub(r"\s+", " ", self.text)


def page_of(run: MadeRun) -> Page:
    """Returns the report of a run as a browser would read it."""
    return Page(report.render(run_record.read_run(RunFiles(run.run_dir))))


def test_a_whole_run_has_everything_and_misses_nothing(tmp_path: pathlib.Path) -> None:
    """Every section with its figures; the sentence says what came of it and why; nothing is said to be absent."""
    page = page_of(whole_run(tmp_path))
    for expected in (
        "The model is pushed: auc 0.9494 >= 0.9.",
        "figure of Transform",
        "train 800",
        "Examples contain values missing from the schema: Green (<1%).",
        "0 to 10, mean 4, deviation 2.5",
        "3 different; most often Yellow",
        "Loss over 400 steps: from 0.89 at first to 0.2075 at last.",
        "Throughput over 390 steps",
        "Learning rate over 400 steps",
        "worker 1 was ended by SIGKILL",
        "40,000",
        "Compared with version 3",
        "+0.0094",
        "at least 0.9",
        "Confusion matrix",
        "hour=0",
        "2.16.2",
        "/pushed/7",
    ):
        assert expected in page.words, expected
    assert ("class", "absent") not in page.attributes
    assert page.tags.count("svg") >= 2 + 3 + 3 + 3  # the graph twice, columns, training, evaluation


def test_a_page_loads_nothing_and_runs_nothing(tmp_path: pathlib.Path) -> None:
    """No script, no link out, no image but the empty one; the browser is told to refuse all of them too."""
    page = page_of(whole_run(tmp_path))
    assert not {"script", "iframe", "object", "embed", "form", "img", "base"} & set(page.tags)
    assert all(
        value.startswith("#") for name, value in page.attributes if name in ("src", "href") and value != "data:,"
    )
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert any("default-src 'none'" in value for _, value in page.attributes)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_text_of_the_data_never_becomes_markup(tmp_path: pathlib.Path) -> None:
    """Column names, values, messages, slices, causes, paths and the pipeline's name are shown as they are."""
    finished = run_events.RunFinished(exit_code=4, message=f"not pushed: {HOSTILE}")
    run = MadeRun(tmp_path, name=HOSTILE, finished=finished)
    run.properties["ExampleGen"] = {
        "rows": json.dumps({HOSTILE: 5}),
        "dropped": json.dumps({HOSTILE: 2}),
        "quarantined": 3,
    }
    (run.dir("ExampleGen") / "quarantine").mkdir()
    bad = {"place": HOSTILE, "reason": HOSTILE, "row": HOSTILE}
    (run.dir("ExampleGen") / "quarantine" / "rows.jsonl").write_text(json.dumps(bad) + "\n{cut")
    run.write_statistics([HOSTILE], {f"text {HOSTILE}": [HOSTILE, "b"]})
    run.write_anomalies({HOSTILE: HOSTILE})
    run.write_curve(f"train/loss {HOSTILE}", [1.0, 0.5])
    run.write_curve("train/loss", [1.0, 0.5])
    attempt = {"attempt": HOSTILE, "start_s": 0, "end_s": 1, "cause": HOSTILE, "replacements": [HOSTILE]}
    run.write_summary(attempts=[attempt], options={"strategy": HOSTILE}, versions={HOSTILE: HOSTILE})
    run.write_verdict(slices={HOSTILE: {HOSTILE: 0.5}})
    run.write_curves()
    run.write_events()
    page = page_of(run)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.words.count("<script>alert(1)</script>") >= 15
    assert page.words.count("${7*7}{{7*7}}") >= 15  # and no template's expression


def test_credentials_of_the_configuration_are_hidden(tmp_path: pathlib.Path) -> None:
    """The page is made to be passed around."""
    run = whole_run(tmp_path)
    assert "s3cr3t" not in report.render(run_record.read_run(RunFiles(run.run_dir)))
    assert "(hidden)" in page_of(run).words


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.37, 0.9])
def test_a_run_cut_anywhere_has_a_report(kept: float, tmp_path: pathlib.Path) -> None:
    """Of a killed machine's files, what was whole is there, and the rest is said to be missing."""
    run = whole_run(tmp_path, finished=None)
    path = run.run_dir / "events.jsonl"
    text = path.read_bytes()
    path.write_bytes(text[: int(kept * len(text))])
    page = page_of(run)
    assert "The run ended without a word" in page.words
    assert "This section could not be made" not in page.words
    if kept == 0.0:
        assert "No step is known: the run ended before its pipeline was built." in page.words
    if kept < 0.8:
        assert ("class", "absent") in page.attributes


def test_a_training_that_failed_shows_how_far_it_came(tmp_path: pathlib.Path) -> None:
    """From the events of its own folder, which no metadata know; where that is gone, from what the console showed."""
    finished = run_events.RunFinished(exit_code=1, message="DistributedTrainer: all workers died")
    run = MadeRun(tmp_path, until="Transform", finished=finished)
    run.write_events()
    page = page_of(run)
    assert "DistributedTrainer: all workers died." in page.words
    assert "The training did not end well: there is no summary of it." in page.words
    assert "Loss over 30 steps: from 1.12 at first to 1.12 at last." in page.words
    assert "From what the console showed" in page.words
    assert "No evaluation: the run did not come so far." in page.words
    run.write_curve("train/loss", [0.9, 0.8, 0.7], cut=20)
    assert "Loss over 20 steps: from 0.9 at first to 0.8 at last." in page_of(run).words


def test_a_model_that_was_not_blessed_is_told_in_the_first_sentence(tmp_path: pathlib.Path) -> None:
    """With the metric that decided; its bound is marked as missed."""
    finished = run_events.RunFinished(exit_code=4, message="not pushed: not blessed: auc 0.9494 < 0.99")
    run = MadeRun(tmp_path, until="Evaluator", finished=finished)
    run.write_verdict(blessed=False)
    run.write_events()
    page = page_of(run)
    assert "Not pushed: not blessed: auc 0.9494 < 0.99." in page.words
    assert "missed at least 0.99" in page.words
    assert "This run pushed nothing." in page.words


def test_a_regression_has_residuals(tmp_path: pathlib.Path) -> None:
    """In place of ROC and confusion matrix."""
    run = whole_run(tmp_path)
    run.write_curves("regression")
    page = page_of(run)
    assert "Residuals by prediction" in page.words
    assert "Confusion matrix" not in page.words


def test_several_classes_have_a_matrix_and_a_table(tmp_path: pathlib.Path) -> None:
    """Of the candidate and the baseline, with what was left out; the classes' names are escaped."""
    run = whole_run(tmp_path)
    run.write_curves("multiclass", ["cat & dog", "<b>hen</b>", "é"])
    page = page_of(run)
    assert (
        "candidate; rows are the labels, columns what was predicted; 3 rows of classes that training has" in page.words
    )
    assert "Predicted <b>hen</b>" in page.words
    assert "By class" in page.words
    assert "Calibration" not in page.words
    run.write_curves("multiclass", [f"class {i}" for i in range(50)])
    page = page_of(run)
    assert "Predicted class 29" in page.words
    assert "Predicted class 30" not in page.words
    assert "Predicted all others" in page.words
    assert "class 49" in page.words


def test_artifacts_that_are_gone_or_damaged_are_said_to_be(tmp_path: pathlib.Path) -> None:
    """Neither an empty box nor a failure."""
    run = whole_run(tmp_path)
    for path in (run.root / "artifacts").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:37])
    page = page_of(run)
    for expected in (
        "There are no statistics of the columns: StatisticsGen ended well, but its files are gone, or cut.",
        "its summary is gone, cut, or was not recorded",
        "its verdict is gone, cut, or was not recorded",
        "There are no curves",
    ):
        assert expected in page.words, expected
    assert "This section could not be made" not in page.words


def test_metadata_are_not_needed(tmp_path: pathlib.Path) -> None:
    """Locked by another process or gone: the run's own files say it all."""
    run = whole_run(tmp_path)
    before = page_of(run).tags
    with sqlite3.connect(tmp_path / "metadata.sqlite") as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert page_of(run).tags == before


def test_a_run_of_a_version_that_recorded_no_artifacts_has_a_report(tmp_path: pathlib.Path) -> None:
    """What the events said then is shown; that the rest was not recorded is said."""
    run = whole_run(tmp_path)
    path = run.run_dir / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    old = [
        {name: value for name, value in line.items() if name != "upstream"}
        for line in lines
        if line["type"] != "StepRecorded"
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    page = page_of(run)
    assert "but this run kept no record of its artifacts" in page.words
    assert "figure of Pusher" in page.words


def test_five_hundred_columns_are_one_page_of_bounded_size(tmp_path: pathlib.Path) -> None:
    """All are there, most of them folded away."""
    run = whole_run(tmp_path / "small")
    wide = MadeRun(tmp_path / "wide")
    names = [f"column_{i:03d}" for i in range(500)]
    wide.write_statistics(names)
    wide.write_events()
    html = report.render(run_record.read_run(RunFiles(wide.run_dir)))
    assert all(name in html for name in names)
    assert len(html.encode()) < 1_500_000
    assert "460 more columns" in html
    assert len(report.render(run_record.read_run(RunFiles(run.run_dir))).encode()) < 300_000


def test_long_curves_are_thinned(tmp_path: pathlib.Path) -> None:
    """A million steps take no more room than a few hundred."""
    run = whole_run(tmp_path)
    run.write_curve("train/loss", [1.0 / (1 + i) for i in range(20_000)])
    html = report.render(run_record.read_run(RunFiles(run.run_dir)))
    assert "200,000" in html
    assert len(html.encode()) < 300_000


def test_a_section_that_fails_is_told_in_its_place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are there all the same."""
    run = whole_run(tmp_path)

    def fail(run: run_record.RunRecord) -> dict[str, object]:
        raise ArithmeticError("<b>odd</b>")

    sections = [(i, title, fail if i == "data" else build) for i, title, build in report._SECTIONS]
    monkeypatch.setattr(report, "_SECTIONS", tuple(sections))
    page = page_of(run)
    assert "This section could not be made: ArithmeticError: <b>odd</b>" in page.words
    assert "Confusion matrix" in page.words


def test_the_command_takes_a_run_or_a_root(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A root stands for its newest run; the file goes where it is told, else into the run's folder."""
    run = whole_run(tmp_path / "taxi")
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{run.run_dir / 'report.html'}\n"
    assert cli.main(["report", str(run.run_dir), "-o", str(tmp_path / "there.html")]) == 0
    assert (tmp_path / "there.html").read_text().startswith("<!doctype html>")
    assert cli.main(["report", str(tmp_path / "nowhere")]) == 2
    assert "no runs are there" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path), "-o", str(tmp_path / "no" / "folder.html")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_an_unknown_run_is_an_error(tmp_path: pathlib.Path) -> None:
    """Said with the folder's name."""
    with pytest.raises(ConfigurationError, match="no such run"):
        run_record.read_run(RunFiles(tmp_path / "runs" / "1"))


def test_no_tensorflow_is_needed(tmp_path: pathlib.Path) -> None:
    """Loading it takes longer than the whole report."""
    run = whole_run(tmp_path)
    program = (
        "import sys\nfrom lockstep.pipelines.report.report import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print([name for name in ('tensorflow', 'tfx', 'apache_beam', 'keras') if name in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(run.run_dir), str(tmp_path / "report.html")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
    assert DONE.message.capitalize() in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (0.25, "0.25"), (1500.0, "1,500"), (40000.0, "40k"), (2.5e6, "2.5M"), (-1e9, "-1G"), (2e-5, "2e-05")],
)
def test_ticks_are_short(value: float, told: str) -> None:
    """They have room for about five characters."""
    assert charts.short(value) == told


def test_a_loss_that_falls_far_is_drawn_on_a_logarithmic_scale(tmp_path: pathlib.Path) -> None:
    """Its ticks are plain numbers."""
    run = whole_run(tmp_path)
    run.write_curve("train/loss", [10.0**-i for i in range(5)])
    html = report.render(run_record.read_run(RunFiles(run.run_dir)))
    assert ">0.001<" in html
    assert "math" not in html


def test_workers_have_what_the_summary_says_of_each(tmp_path: pathlib.Path) -> None:
    """Records, bytes, memory and waiting; what a worker did not say is said to be unsaid."""
    run = whole_run(tmp_path)
    known = {"records": 42000, "read_mb": 2.1, "peak_memory_mb": 843.4, "input_share": 0.27}
    run.write_summary(workers=[known, dict.fromkeys(known)], input_share=0.27)
    html = report.render(run_record.read_run(RunFiles(run.run_dir)))
    headings, cells = (" | ".join(re.findall(rf"<{tag}[^>]*>([^<]*)</{tag}>", html)) for tag in ("th", "td"))
    assert "Records read | Read from files (MiB) | Most memory (MiB) | Waited for data" in headings
    assert "42,000 | 2.1 | 843.4 | 27 % | not said | not said | not said | not said" in cells
    assert "27 % of the time" in page_of(run).words


def test_rows_in_quarantine_are_counted_and_the_first_are_shown(tmp_path: pathlib.Path) -> None:
    """With where each came from and why; a line of megabytes is left out."""
    run = MadeRun(tmp_path)
    run.properties["ExampleGen"] |= {"quarantined": 12}
    folder = run.dir("ExampleGen") / "quarantine"
    folder.mkdir()
    rows = [{"place": f"a.csv:{i}", "reason": "column fare: 'x' is no number", "row": f"x,{i}"} for i in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.write_events()
    words = page_of(run).words
    assert "12 rows could not be used and were put aside" in words
    assert "a.csv:9" in words
    assert "a.csv:10" not in words
