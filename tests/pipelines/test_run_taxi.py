"""The main job on real input, with a worker killed on the way."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from lockstep.components.pusher.versions import served_version
from lockstep.pipelines.config import load_config
from tests.pipelines.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TEXT = ("payment_type", "company")
LABEL = ("tips", "fare")


class TaxiRun:
    """One run of ``lockstep run taxi`` in which worker 1 is killed once training goes on."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.root = folder / "root"
        # More calls and checkpoints than usual, so that there is a middle to be killed in.
        slower = ("--set", "train.steps_per_call=1", "--set", "train.checkpoint_every=50")
        command = Project.command("run", "taxi", "--root", str(self.root), *slower)
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.killed_pid = self._kill_a_worker(process)
        self.stdout, self.stderr = process.communicate(timeout=600)
        self.exit_code = process.returncode

    def artifact(self, step: str, output: str) -> pathlib.Path:
        """Returns the folder of a step's only artifact."""
        [folder] = (self.root / "artifacts" / step / output).iterdir()
        return folder

    def _kill_a_worker(self, process: subprocess.Popen[str]) -> int:
        while process.poll() is None:
            time.sleep(0.05)  # Training is seen by the events of another process; there is nothing to wait on.
            if not self._is_past_a_checkpoint():
                continue
            for pid in self._workers():
                os.kill(pid, signal.SIGKILL)
                return pid
        raise AssertionError(f"the run ended before it trained: {process.communicate()}")

    def _is_past_a_checkpoint(self) -> bool:
        return any(self.root.glob("training/*/**/ckpt*.index")) or any(self.root.glob("training/**/*.index"))

    def _workers(self) -> Iterator[int]:
        """Yields the processes of this run's worker 1."""
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes().decode(errors="replace")
                environment = (path / "environ").read_bytes().decode(errors="replace")
            except (OSError, ProcessLookupError):
                continue
            if str(self.root) in command and '"index": 1' in environment:
                yield int(path.name)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TaxiRun:
    """The run that all tests here look at."""
    return TaxiRun(tmp_path_factory.mktemp("taxi"))


def test_a_killed_worker_still_ends_in_a_pushed_model(run: TaxiRun) -> None:
    """Exit code 0, a whole version served, and the summary shows the restart with its cause."""
    assert run.exit_code == 0, run.stderr
    served = served_version(run.root / "pushed")
    assert served is not None
    summary = json.loads((run.artifact("DistributedTrainer", "model_run") / "summary.json").read_text())
    assert summary["restarts"] == 1
    first = summary["attempts"][0]
    assert (first["worker"], first["signal_name"]) == (1, "SIGKILL")
    assert summary["attempts"][1]["resumed_step"] > 0
    assert "1 restart" in run.stdout
    assert not list((run.root / "training").rglob("*.index")), "checkpoints go after success"


def test_every_step_has_a_line_with_its_figure(run: TaxiRun) -> None:
    """Rows and splits, steps and loss, metric against threshold, the pushed version, and what to do next."""
    lines = {line.split()[0]: line for line in run.stdout.splitlines() if line.startswith("  ") and " done " in line}
    assert "15,002 rows: train 10,154, eval 4,848" in lines["ExampleGen"]
    assert "600 steps on 2 workers, loss 0." in lines["DistributedTrainer"]
    assert "auc 0.9" in lines["Evaluator"]
    assert ">= 0.9" in lines["Evaluator"]
    assert "version" in lines["Pusher"]
    assert "lockstep predict" in run.stdout
    assert "run.log" in run.stdout


def test_the_run_has_its_report(run: TaxiRun) -> None:
    """Named in the closing lines; with the restart and its cause, both splits' rows, curves and what decided."""
    [named] = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("report:")]
    text = (run.root.parent / named).read_text(encoding="utf-8")
    assert 'class="absent"' not in text, "nothing of this run is missing"
    for expected in ("train 10,154, eval 4,848", "SIGKILL", "ROC", "Learning rate", "trip_start_hour=0", "auc 0.9"):
        assert expected in text


def test_the_model_is_as_good_as_gradient_boosting_on_the_same_split(run: TaxiRun) -> None:
    """AUC within 0.01 of scikit-learn's HistGradientBoosting on the same rows and columns."""
    features = load_config("taxi", root=run.root)[0].config.features
    train_x, train_y = _table(run.artifact("ExampleGen", "examples") / "Split-train", list(features))
    eval_x, eval_y = _table(run.artifact("ExampleGen", "examples") / "Split-eval", list(features))
    trees = HistGradientBoostingClassifier(random_state=0).fit(train_x, train_y)
    expected = roc_auc_score(eval_y, trees.predict_proba(eval_x)[:, 1])
    verdict = json.loads((run.artifact("Evaluator", "evaluation") / "verdict.json").read_text())
    assert expected > 0.94, "the comparison itself is sound"
    assert verdict["metrics"]["auc"] > expected - 0.01


def test_the_served_model_answers_raw_rows(run: TaxiRun, tmp_path: pathlib.Path) -> None:
    """`lockstep predict` on the example's own file: a probability a row, which tells tips from no tips."""
    source = pathlib.Path(load_config("taxi", root=run.root)[0].config.data.path)
    rows = list(csv.DictReader(source.open(newline="")))[:500]
    data = tmp_path / "rows.csv"
    with data.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [name for name in rows[0] if name != "tips"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    output = tmp_path / "predictions.csv"
    command = Project.command("predict", str(run.root / "pushed"), "--data", str(data), "-o", str(output))
    subprocess.run(command, check=True, capture_output=True)
    predictions = [float(row["prediction"]) for row in csv.DictReader(output.open(newline=""))]
    labels = [float(row["tips"]) > 0.2 * float(row["fare"]) for row in rows]
    assert roc_auc_score(labels, predictions) > 0.9


def _table(folder: pathlib.Path, columns: list[str]) -> tuple["np.ndarray", "np.ndarray"]:
    """Returns a split's features [rows, columns], text as a hash, missing as NaN, and its labels [rows]."""
    rows, labels = [], []
    for record in tf.data.TFRecordDataset(sorted(map(str, folder.iterdir())), compression_type="GZIP"):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        rows.append([_value(feature, name) for name in columns])
        tips, fare = (_value(feature, name) for name in LABEL)
        labels.append(tips > 0.2 * fare)
    return np.array(rows), np.array(labels)


def _value(feature: object, name: str) -> float:
    if name not in feature:  # type: ignore[operator]
        return float("nan")
    kind = feature[name].WhichOneof("kind")  # type: ignore[index]
    values = getattr(feature[name], kind).value if kind else []  # type: ignore[index]
    if not values:
        return float("nan")
    return float(int.from_bytes(values[0][:6], "big")) if kind == "bytes_list" else float(values[0])
