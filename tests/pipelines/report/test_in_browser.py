"""The report in a browser of this machine: nothing is loaded, nothing complains, nothing sticks out, axe is content."""

import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from lockstep.pipelines import run_events
from lockstep.pipelines.report import report
from lockstep.pipelines.run_files import RunFiles
from tests.pipelines.report.made_runs import MadeRun, whole_run
from tests.pipelines.report.test_report import HOSTILE

pytestmark = pytest.mark.slow

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next((found for name in _NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, headless."""
    if PROGRAM is None:
        pytest.skip(f"NO BROWSER, SO THE REPORT WAS NOT LOOKED AT: install one of {', '.join(_NAMES)}")
    # As root, Chromium's sandbox does not start; the pages are our own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=PROGRAM, args=arguments)
        yield launched
        launched.close()


def failed_run(root: pathlib.Path) -> MadeRun:
    """A run whose training failed."""
    run = MadeRun(root, until="Transform", finished=run_events.RunFinished(exit_code=1, message="workers died"))
    run.write_statistics(["fare"])
    run.write_events()
    return run


def refused_run(root: pathlib.Path) -> MadeRun:
    """A run whose model was not blessed."""
    finished = run_events.RunFinished(exit_code=4, message="not pushed: not blessed: auc 0.9494 < 0.99")
    run = MadeRun(root, until="Evaluator", finished=finished, cached=("ExampleGen", "StatisticsGen"))
    run.write_verdict(blessed=False, slices={"hour=0": {"auc": 0.85}})
    run.write_curves()
    run.write_summary()
    run.write_events()
    return run


def odd_run(root: pathlib.Path) -> MadeRun:
    """A regression with 500 columns, long and hostile names, and words without a space."""
    run = MadeRun(root, name=HOSTILE)
    run.write_statistics([f"{'long' * 30}_{i}" for i in range(498)] + [HOSTILE], {"text": [HOSTILE, "x" * 500]})
    run.write_anomalies({HOSTILE: "y" * 900})
    run.write_verdict(slices={"z" * 300: {"mse": 1.0}, HOSTILE: {"mse": 2.0}})
    run.write_curve("train/loss", [10.0**-i for i in range(6)])
    run.write_curves("regression")
    run.write_events()
    return run


RUNS = {"whole": whole_run, "failed": failed_run, "refused": refused_run, "odd": odd_run}


@pytest.fixture(scope="module", params=RUNS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A report on the disk."""
    folder = tmp_path_factory.mktemp(request.param)
    run = RUNS[request.param](folder / "root")
    report.write_report(RunFiles(run.run_dir), folder / "report.html")
    return folder / "report.html"


def opened(browser: Browser, path: pathlib.Path, **context: object) -> tuple[Page, list[str]]:
    """Returns the page, and what it asked for or complained of."""
    page = browser.new_context(**context).new_page()  # type: ignore[arg-type]
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: heard.append(f"request: {request.url}"))
    page.goto(path.as_uri())
    heard.remove(f"request: {path.as_uri()}")
    return page, [line for line in heard if line != "request: data:,"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_loaded_or_complained_of_and_nothing_sticks_out(
    browser: Browser, path: pathlib.Path, scheme: str, width: int
) -> None:
    """In light and dark, on a telephone and on a desk; the ground follows the reader's system."""
    page, heard = opened(browser, path, color_scheme=scheme, viewport={"width": width, "height": 800})
    for folded in page.locator("summary").all():
        folded.click()
    assert heard == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(251, 251, 249)" if scheme == "light" else "rgb(21, 23, 26)")
    visible = page.locator("svg.graph:visible")
    assert visible.count() == 1
    assert ("tall" if width == 360 else "wide") in str(visible.get_attribute("class"))
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, path: pathlib.Path, scheme: str) -> None:
    """Contrast, names, order of headings, tables, keyboard: none of axe's rules is broken."""
    # axe itself is a script, which the page's policy would refuse.
    page, _ = opened(browser, path, color_scheme=scheme, bypass_csp=True, viewport={"width": 360, "height": 800})
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.context.close()


def test_everything_that_scrolls_is_reached_by_the_keyboard(browser: Browser, path: pathlib.Path) -> None:
    """The link to the content comes first; a table that is wider than the page can be focused and scrolled."""
    page, _ = opened(browser, path, viewport={"width": 360, "height": 800})
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert page.evaluate(f"{wide}.length") > 0
    assert page.evaluate(f"{wide}.every(e => e.tabIndex === 0 && e.getAttribute('aria-label'))")
    page.context.close()


def test_a_script_would_not_run(browser: Browser, tmp_path: pathlib.Path) -> None:
    """The page's own policy refuses one, if it ever came in."""
    run = whole_run(tmp_path / "root")
    report.write_report(RunFiles(run.run_dir), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").write_text(text.replace("<main", "<script>document.title = 'ran'</script><main"))
    page, heard = opened(browser, tmp_path / "report.html")
    assert page.title() == "taxi: done"
    assert len(heard) == 1
    assert "Content Security Policy" in heard[0]
    page.context.close()
