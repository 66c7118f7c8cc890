"""A module of TFX's own examples, as it is installed, from a CSV file to predictions."""

import csv
import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_PIPELINE = """
name: stock
data:
  path: package:tfx/examples/chicago_taxi_pipeline/data/simple/data.csv
  splits: {train: 2, eval: 1}
label: {column: tips, transformed: tips_xf}
preprocessing: tfx.examples.chicago_taxi_pipeline.taxi_utils_native_keras:preprocessing_fn
run_fn: tfx.examples.chicago_taxi_pipeline.taxi_utils_native_keras:run_fn
train: {workers: 1, steps: 300}
evaluate: {metrics: [auc], thresholds: {auc: {min: 0.5}}}
"""


def lockstep(*arguments: str, folder: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """Calls the command line and waits for it."""
    program = "import sys; from lockstep.pipelines.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=600)


def test_tfxs_own_taxi_module_runs_unchanged(tmp_path: pathlib.Path) -> None:
    """Its preprocessing, its Keras model and its signatures: evaluated, pushed, and asked about raw rows."""
    (tmp_path / "stock.yaml").write_text(_PIPELINE)
    run = lockstep("run", "stock.yaml", "--root", "root", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    [summary_path] = tmp_path.glob("root/artifacts/DistributedTrainer/model_run/*/summary.json")
    summary = json.loads(summary_path.read_text())
    assert summary["run_fn"] == "tfx.examples.chicago_taxi_pipeline.taxi_utils_native_keras:run_fn"
    assert summary["steps"] == 300
    assert list(summary_path.parent.glob("run_fn/train/events.*")), "what it writes to model_run_dir is kept"

    rows = tmp_path / "rows.csv"
    rows.write_text("fare,trip_miles,company,trip_start_hour,trip_start_day,trip_start_month\n27.05,9.8,,8,3,5\n")
    predicted = lockstep("predict", "root/pushed", "--data", "rows.csv", folder=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    [row] = csv.DictReader(predicted.stdout.splitlines())
    assert 0 <= float(row["prediction"]) <= 1
