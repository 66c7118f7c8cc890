"""The Evaluator on a label of several classes, as the step runs it, on a real SavedModel."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from tensorflow_model_analysis.api import model_eval_lib

from lockstep.components.class_labels import ClassOptions
from lockstep.components.errors import DataError
from lockstep.components.evaluator.metrics import METRICS
from lockstep.components.evaluator.options import EvaluateOptions, EvaluateSpec, Threshold
from lockstep.components.evaluator.plots import PLOTS_NAME
from lockstep.components.pusher import publish
from tests.components.evaluator import tiny_model
from tests.components.evaluator.class_model import save_class_model
from tests.components.evaluator.conftest import Evaluation, evaluate
from tests.components.evaluator.test_class_counts import in_sum_one

CLASSES = ("low", "mid", "high")
SLOPES = np.array([-1.0, 0.1, 1.0], np.float32)
NAMES = tuple(name for name, metric in METRICS.items() if "multiclass" in metric.kinds)

Rows = list[dict[str, Any]]


def class_rows(num_rows: int, *, unseen: int = 0) -> Rows:
    """Rows whose class follows from x, roughly; the last ones are of a class that no model knows."""
    made = tiny_model.make_rows(num_rows)
    for number, row in enumerate(made):
        level = float(row["x"]) + ((number * 37) % 100 - 50) / 60  # type: ignore[arg-type]
        row["y"] = CLASSES[int(level > -0.5) + int(level > 0.5)]
        row["y"] = "unheard" if number >= num_rows - unseen else row["y"]
    return made


def probabilities(rows: Rows) -> np.ndarray[Any, Any]:
    """What the model gives."""
    powers = np.exp(np.array([row["x"] for row in rows], np.float32)[:, None] * SLOPES)
    return powers / powers.sum(axis=1, keepdims=True)


def spec(*, push_dir: Path | None = None, unseen: Any = "error", **threshold: float) -> EvaluateSpec:
    """All metrics, two sliced columns, a bound of the accuracy."""
    options = EvaluateOptions(
        metrics=NAMES, thresholds={"accuracy": Threshold(**threshold or {"min": 0.5})}, slices=("kind", "size")
    )
    classes = ClassOptions(vocabulary="vocabulary_y", unseen=unseen)
    return EvaluateSpec(
        options=options, label="y", label_kind="multiclass", classes=classes, push_dir=push_dir and str(push_dir)
    )


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """One evaluation of 300 rows, nothing served."""
    return evaluate(tmp_path_factory.mktemp("classes"), class_rows(300), save_class_model, spec())


def test_metrics_of_the_split_and_of_each_slice_are_scikit_learns(evaluation: Evaluation) -> None:
    """To a millionth; the bound decides, and the files are TFMA's."""
    rows = class_rows(300)
    slices = evaluation.verdict["slices"]
    assert set(slices) == {"kind=a", "kind=b", "kind=c", "size=0", "size=1"}
    for found, part in (
        (evaluation.verdict["metrics"], rows),
        (slices["kind=b"], [row for row in rows if row["kind"] == "b"]),
        (slices["size=1"], [row for row in rows if row["size"] == 1]),
    ):
        given, labels = probabilities(part), [CLASSES.index(row["y"]) for row in part]
        expected = {
            "accuracy": metrics.accuracy_score(labels, given.argmax(axis=1)),
            "macro_f1": metrics.f1_score(labels, given.argmax(axis=1), average="macro"),
            "categorical_crossentropy": metrics.log_loss(labels, in_sum_one(given), labels=[0, 1, 2]),
            "top_3_accuracy": 1.0,
            "example_count": len(part),
        }
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert set(evaluation.verdict["metrics"]) == set(NAMES)
    assert evaluation.verdict["blessed"]
    assert evaluation.verdict["reason"].startswith("blessed: accuracy 0.")
    result = model_eval_lib.load_eval_result(str(evaluation.dir))
    by_slice = {key: of_slice[""][""] for key, of_slice in result.slicing_metrics}
    assert by_slice[()]["macro_f1"]["doubleValue"] == evaluation.verdict["metrics"]["macro_f1"]
    assert by_slice[(("kind", "b"),)]["accuracy"]["doubleValue"] == slices["kind=b"]["accuracy"]


def test_the_confusion_matrix_is_kept_with_the_names(evaluation: Evaluation) -> None:
    """For the report, and for whoever wants to know which class is taken for which."""
    rows = class_rows(300)
    labels = [CLASSES.index(row["y"]) for row in rows]
    curves = json.loads((evaluation.dir / PLOTS_NAME).read_text())["models"]["candidate"]
    assert (curves["kind"], curves["rows"], curves["left_out"]) == ("multiclass", 300, 0)
    assert curves["matrix"]["classes"] == list(CLASSES)
    expected = metrics.confusion_matrix(labels, probabilities(rows).argmax(axis=1))
    np.testing.assert_array_equal(curves["matrix"]["counts"], expected)
    assert [item["class"] for item in curves["by_class"]] == list(CLASSES)


def test_rows_of_unseen_classes_stop_the_step_or_are_counted(tmp_path: Path) -> None:
    """As declared; never as if they were something else."""
    rows = class_rows(100, unseen=7)
    with pytest.raises(DataError, match=r"7 records have in 'y' no class .* split 'eval'; .* label.unseen: leave_out"):
        evaluate(tmp_path / "error", rows, save_class_model, spec())
    options = EvaluateOptions(metrics=("accuracy",), thresholds={"macro_f1": Threshold(min=0.1)})
    classes = ClassOptions(vocabulary="vocabulary_y", unseen="leave_out")
    lenient = EvaluateSpec(options=options, label="y", label_kind="multiclass", classes=classes)
    verdict = evaluate(tmp_path / "leave_out", rows, save_class_model, lenient).verdict
    right = probabilities(rows[:93]).argmax(axis=1) == [CLASSES.index(row["y"]) for row in rows[:93]]
    assert verdict["metrics"]["accuracy"] == pytest.approx(right.mean(), rel=1e-9)
    assert (list(verdict["metrics"]), verdict["metrics"]["unseen_count"]) == (
        ["accuracy", "macro_f1", "unseen_count"],
        7,
    )
    assert "unseen_count 7" in verdict["summary"]


def _serve(root: Path, **model: Any) -> Path:
    model_dir = save_class_model(root / "served", **model)
    publish.push(model_dir, root / "push", keep=2, origin=publish.Origin(source_uri=str(model_dir)))
    return root / "push"


def test_a_baseline_with_its_classes_in_another_order_is_compared_by_name(tmp_path: Path) -> None:
    """The order follows from how often each occurred in its training; the same function of x is not worse."""
    push_dir = _serve(tmp_path, classes=("high", "low", "mid"), slopes=(1.0, -1.0, 0.1))
    verdict = evaluate(tmp_path, class_rows(100), save_class_model, spec(push_dir=push_dir, min_change=0.0)).verdict
    assert verdict["baseline"]["state"] == "compared"
    assert verdict["baseline"]["metrics"]["macro_f1"] == pytest.approx(verdict["metrics"]["macro_f1"], rel=1e-12)
    assert verdict["blessed"]


def test_a_baseline_of_other_classes_is_not_compared_with(tmp_path: Path) -> None:
    """It could not answer the same question; the verdict says so."""
    push_dir = _serve(tmp_path, classes=("low", "mid", "top"))
    verdict = evaluate(tmp_path, class_rows(100), save_class_model, spec(push_dir=push_dir, min_change=0.0)).verdict
    assert verdict["baseline"]["state"] == "unusable"
    assert "knows other classes than the candidate: 'high', 'top'" in verdict["baseline"]["note"]
    assert verdict["blessed"]


def test_a_model_that_tells_no_classes_is_refused(tmp_path: Path) -> None:
    """As one of a trainer that writes none."""

    def save(folder: Path) -> None:
        (save_class_model(folder) / "assets.extra" / "lockstep.json").unlink()

    with pytest.raises(Exception, match="does not say which classes it knows; give a model that Lockstep trained"):
        evaluate(tmp_path, class_rows(10), save, spec())
