"""A label of several classes from a CSV file to a pushed model, as a user calls it."""

import csv
import json
import pathlib

import pytest
from sklearn import datasets

from tests.pipelines.conftest import Project

_PIPELINE = """
name: iris
data: {path: iris.csv, splits: {train: 7, eval: 3}}
label: {column: species, kind: multiclass}
features:
  sepal length (cm): {kind: numeric}
  sepal width (cm): {kind: numeric}
  petal length (cm): {kind: numeric}
  petal width (cm): {kind: buckets, num_buckets: 5}
train:
  {workers: 1, strategy: one_device, steps: 120, batch_size: 24, learning_rate: 0.02, validate_every: 40}
evaluate:
  metrics: [accuracy, macro_f1, categorical_crossentropy]
  thresholds: {accuracy: {min: 0.85}, macro_f1: {min: 0.85, min_change: -0.1}}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_iris_from_rows_to_named_answers(tmp_path: pathlib.Path) -> None:
    """Scikit-learn's flowers are trained, judged, pushed and predicted by the names of their species."""
    iris = datasets.load_iris()
    names = [str(iris.target_names[target]) for target in iris.target]
    with (tmp_path / "iris.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [[*iris.feature_names, "species"], *([*row, name] for row, name in zip(iris.data, names, strict=True))]
        )
    (tmp_path / "iris.yaml").write_text(_PIPELINE)
    project = Project(tmp_path)
    done = project.lockstep("run", "iris.yaml", "--root", str(project.root))
    assert done.returncode == 0, done.stderr
    [evaluation] = (project.root / "artifacts" / "Evaluator" / "evaluation").iterdir()
    verdict = json.loads((evaluation / "verdict.json").read_text())
    assert verdict["blessed"]
    assert set(verdict["metrics"]) == {"accuracy", "macro_f1", "categorical_crossentropy"}
    report = next(project.root.glob("runs/*/report.html")).read_text()
    assert "Predicted virginica" in report
    predicted = project.lockstep("predict", str(project.root / "pushed"), "--data", "iris.csv")
    assert predicted.returncode == 0, predicted.stderr
    answers = list(csv.DictReader(predicted.stdout.splitlines()))
    assert set(answers[0]) == {"prediction", "p(setosa)", "p(versicolor)", "p(virginica)"}
    right = sum(answer["prediction"] == name for answer, name in zip(answers, names, strict=True))
    assert right > 0.9 * len(names)
    assert all(
        answer["prediction"] == max(iris.target_names, key=lambda name: float(answer[f"p({name})"]))
        for answer in answers
    )
