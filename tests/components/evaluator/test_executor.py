"""The Evaluator with real TFMA, on a real SavedModel."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
from tensorflow_model_analysis.api import model_eval_lib

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.evaluator.metrics import METRICS
from lockstep.components.evaluator.options import EvaluateOptions, EvaluateSpec, Threshold
from lockstep.components.evaluator.plots import PLOTS_NAME
from lockstep.components.pusher import publish, versions
from tests.components.evaluator import tiny_model
from tests.components.evaluator.conftest import Evaluation, evaluate

# TFMA divides by zero for the precision at the threshold that nothing is predicted above, and then replaces it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value encountered in divide:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered in divide:RuntimeWarning"),
]

Rows = list[dict[str, object]]

# TFMA counts predictions into 10,000 bins of equal width: two in one bin are a tie. Predictions that spread over
# [0, 1], as the tiny model's do, differ by less than a bin from the exact area.
_AUC_TOLERANCE = 1e-4


def _labels_and_probabilities(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    x = np.array([row["x"] for row in rows], dtype=np.float32)
    return np.array([row["y"] for row in rows]), 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def evaluation(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """Every metric for a binary label, two sliced columns, nothing served."""
    options = EvaluateOptions(
        metrics=tuple(name for name, metric in METRICS.items() if "binary" in metric.kinds),
        thresholds={"auc": Threshold(min=0.7, min_change=0.0)},
        slices=("kind", "size"),
    )
    spec = EvaluateSpec(options=options, label="y", push_dir="/nowhere")
    return evaluate(tmp_path_factory.mktemp("binary"), rows, tiny_model.save_model, spec)


@pytest.mark.slow
def test_metrics_equal_those_of_scikit_learn(evaluation: Evaluation, rows: Rows) -> None:
    """AUC to a bin's width, and all that is counted at the threshold of one half to a rounding error."""
    labels, probabilities = _labels_and_probabilities(rows)
    classes = probabilities > 0.5
    metrics = evaluation.verdict["metrics"]
    assert metrics["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(labels, probabilities), abs=_AUC_TOLERANCE)
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(labels, classes),
        "balanced_accuracy": sklearn.metrics.balanced_accuracy_score(labels, classes),
        "precision": sklearn.metrics.precision_score(labels, classes),
        "recall": sklearn.metrics.recall_score(labels, classes),
        "specificity": sklearn.metrics.recall_score(labels, classes, pos_label=0),
        "f1": sklearn.metrics.f1_score(labels, classes),
        "binary_crossentropy": sklearn.metrics.log_loss(labels, probabilities),
        "mse": sklearn.metrics.mean_squared_error(labels, probabilities),
        "calibration": probabilities.sum() / labels.sum(),
        "mean_label": labels.mean(),
        "example_count": len(rows),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_curves_agree_with_the_metrics(evaluation: Evaluation, rows: Rows) -> None:
    """Counted on the way, over all rows once: the confusion matrix is exact, the area TFMA's to a hundredth."""
    curves = json.loads((evaluation.dir / PLOTS_NAME).read_text())["models"]["candidate"]
    metrics = evaluation.verdict["metrics"]
    assert curves["rows"] == len(rows)
    for name in ("true_positives", "true_negatives", "false_positives", "false_negatives"):
        assert curves["confusion"][name] == metrics[name]
    assert curves["auc"] == pytest.approx(metrics["auc"], abs=1e-2)


@pytest.mark.slow
def test_every_metric_of_the_table_has_a_value(evaluation: Evaluation) -> None:
    """A name that the configuration accepts is one that TFMA computes."""
    binary = {name for name, metric in METRICS.items() if "binary" in metric.kinds}
    assert set(evaluation.verdict["metrics"]) == binary
    assert all(math.isfinite(value) for value in evaluation.verdict["metrics"].values())


@pytest.mark.slow
def test_each_value_of_a_sliced_column_has_its_own_metrics(evaluation: Evaluation, rows: Rows) -> None:
    """Slices are the rows with that value; a missing value is in no slice."""
    slices = evaluation.verdict["slices"]
    assert set(slices) == {"kind=a", "kind=b", "kind=c", "size=0", "size=1"}
    of_kind = [row for row in rows if row["kind"] == "b"]
    labels, probabilities = _labels_and_probabilities(of_kind)
    assert slices["kind=b"]["example_count"] == len(of_kind)
    assert slices["kind=b"]["accuracy"] == pytest.approx(np.mean((probabilities > 0.5) == labels))
    assert slices["kind=b"]["auc"] == pytest.approx(
        sklearn.metrics.roc_auc_score(labels, probabilities), abs=_AUC_TOLERANCE
    )
    assert sum(slices[f"kind={kind}"]["example_count"] for kind in "abc") == sum(
        row["kind"] is not None for row in rows
    )


@pytest.mark.slow
def test_tfma_loads_results_and_validation(evaluation: Evaluation) -> None:
    """What reads TFMA's format, such as its notebook views, reads ours, and agrees with the verdict."""
    result = model_eval_lib.load_eval_result(str(evaluation.dir))
    by_slice = {key: metrics[""][""] for key, metrics in result.slicing_metrics}
    assert by_slice[()]["auc"]["doubleValue"] == evaluation.verdict["metrics"]["auc"]
    assert by_slice[(("kind", "b"),)]["auc"]["doubleValue"] == evaluation.verdict["slices"]["kind=b"]["auc"]
    assert [spec.label_key for spec in result.config.model_specs] == ["y"]
    assert model_eval_lib.load_validation_result(str(evaluation.dir)).validation_ok


@pytest.mark.slow
def test_a_first_model_is_blessed_as_a_stock_pusher_expects(evaluation: Evaluation) -> None:
    """The blessing has the stock file and properties; the verdict says that there was nothing to compare with."""
    assert (Path(evaluation.blessing.uri) / "BLESSED").is_file()
    assert evaluation.blessing.get_int_custom_property("blessed") == 1
    assert evaluation.blessing.get_string_custom_property("current_model").endswith("/model")
    assert evaluation.blessing.get_string_custom_property("baseline") == versions.NO_BASELINE
    assert evaluation.verdict["baseline"]["state"] == "none"
    assert "nothing is served yet" in evaluation.verdict["reason"]


@pytest.mark.slow
def test_every_metric_for_a_regression_has_its_value(rows: Rows, tmp_path: Path) -> None:
    """The second kind of label, against scikit-learn; a value above the bound is not blessed."""
    names = tuple(name for name, metric in METRICS.items() if "regression" in metric.kinds)
    spec = EvaluateSpec(
        options=EvaluateOptions(metrics=names, thresholds={"rmse": Threshold(max=0.1)}),
        label="y",
        label_kind="regression",
    )
    found = evaluate(
        tmp_path,
        rows,
        lambda folder: tiny_model.save_model(folder, weight=0.5, bias=0.5, label_kind="regression"),
        spec,
    )
    labels, _ = _labels_and_probabilities(rows)
    predictions = np.array([row["x"] for row in rows]) * 0.5 + 0.5
    metrics = found.verdict["metrics"]
    assert set(metrics) == set(names)
    assert metrics["mse"] == pytest.approx(sklearn.metrics.mean_squared_error(labels, predictions), rel=1e-5)
    assert metrics["mae"] == pytest.approx(sklearn.metrics.mean_absolute_error(labels, predictions), rel=1e-5)
    assert metrics["rmse"] == pytest.approx(math.sqrt(metrics["mse"]), rel=1e-5)
    assert metrics["squared_correlation"] == pytest.approx(np.corrcoef(labels, predictions)[0, 1] ** 2, rel=1e-4)
    assert (Path(found.blessing.uri) / "NOT_BLESSED").is_file()
    assert found.blessing.get_int_custom_property("blessed") == 0
    failure = model_eval_lib.load_validation_result(str(found.dir)).metric_validations_per_slice[0].failures[0]
    assert failure.metric_key.name == "rmse"
    assert failure.metric_threshold.value_threshold.upper_bound.value == 0.1


@pytest.mark.slow
@pytest.mark.parametrize("label", [0, 1])
def test_a_split_with_one_label_only_has_no_auc_and_blesses_nothing(rows: Rows, tmp_path: Path, label: int) -> None:
    """TFMA says 0, which would read as a bad model; what needs no second label, as accuracy, has its value."""
    spec = EvaluateSpec(options=EvaluateOptions(thresholds={"auc": Threshold(min=0.5)}), label="y")
    found = evaluate(tmp_path, [{**row, "y": label} for row in rows], tiny_model.save_model, spec)
    reason = f"not blessed: auc is undefined: every label of the eval split is {label}"
    assert found.verdict["reason"] == reason
    assert found.blessing.get_string_custom_property("reason") == reason
    assert found.blessing.get_int_custom_property("blessed") == 0
    assert found.blessing.get_string_custom_property("summary").startswith("auc undefined, accuracy 0.")
    assert set(found.verdict["metrics"]) == {"auc", "accuracy"}
    assert set(json.loads(found.blessing.get_string_custom_property("metrics"))) == {"accuracy"}
    assert not model_eval_lib.load_validation_result(str(found.dir)).validation_ok


def _serve(root: Path, **model: object) -> Path:
    """Pushes a model and returns the push folder."""
    model_dir = tiny_model.save_model(root / "served", **model)  # type: ignore[arg-type]
    publish.push(model_dir, root / "push", keep=2, origin=publish.Origin(source_uri=str(model_dir)))
    return root / "push"


def _not_worse(push_dir: Path) -> EvaluateSpec:
    options = EvaluateOptions(thresholds={"auc": Threshold(min=0.1, min_change=0.0)})
    return EvaluateSpec(options=options, label="y", push_dir=str(push_dir))


@pytest.mark.slow
def test_a_better_served_model_withholds_the_blessing(rows: Rows, tmp_path: Path) -> None:
    """A candidate that predicts the opposite passes its absolute bound, but not the comparison."""
    push_dir = _serve(tmp_path)
    found = evaluate(tmp_path, rows, lambda folder: tiny_model.save_model(folder, weight=-1.0), _not_worse(push_dir))
    served = versions.served_version(push_dir)
    assert served is not None
    assert found.blessing.get_int_custom_property("blessed") == 0
    assert f"of version {served.number}: change -" in found.verdict["reason"]
    [absolute, change] = found.verdict["checks"]
    assert (absolute["passed"], change["passed"]) == (True, False)
    assert change["baseline_value"] == pytest.approx(1 - change["value"], abs=_AUC_TOLERANCE)
    result = model_eval_lib.load_eval_result(str(found.dir), model_name="baseline")
    assert result.slicing_metrics[0][1][""][""]["auc"]["doubleValue"] == change["baseline_value"]


@pytest.mark.slow
def test_a_model_equal_to_the_served_one_in_its_predictions_is_not_worse(rows: Rows, tmp_path: Path) -> None:
    """Equal predictions give a change of exactly zero, whatever the order in which Beam adds up."""
    push_dir = _serve(tmp_path, weight=1.0)
    # Another file content, since a constant differs by nothing that a float32 prediction shows.
    found = evaluate(
        tmp_path, rows, lambda folder: tiny_model.save_model(folder, weight=1.0, bias=1e-30), _not_worse(push_dir)
    )
    assert found.verdict["baseline"]["state"] == "compared"
    assert found.verdict["checks"][1]["value"] == found.verdict["checks"][1]["baseline_value"]
    assert found.verdict["blessed"]


@pytest.mark.slow
def test_a_served_model_of_another_label_leaves_the_absolute_bounds(rows: Rows, tmp_path: Path) -> None:
    """What cannot be compared does not block its successor; the verdict says why it was not compared."""
    push_dir = _serve(tmp_path, label="size")
    found = evaluate(tmp_path, rows, tiny_model.save_model, _not_worse(push_dir))
    assert found.verdict["blessed"]
    assert found.verdict["baseline"]["state"] == "unusable"
    assert "predicts 'size' (binary), the candidate 'y' (binary)" in found.verdict["reason"]


@pytest.mark.slow
def test_a_baseline_named_by_the_driver_but_gone_is_not_compared(rows: Rows, tmp_path: Path) -> None:
    """Between the driver and the executor, or from the cache of an older push, a version may have gone."""
    gone = versions.Baseline(version=3, model_sha256="0" * 64).to_json()
    found = evaluate(
        tmp_path, rows, tiny_model.save_model, _not_worse(tmp_path / "push"), properties={"baseline": gone}
    )
    assert found.verdict["blessed"]
    assert "version 3 is not in" in found.verdict["reason"]


def test_a_sliced_column_that_is_not_in_the_schema_names_the_nearest(rows: Rows, tmp_path: Path) -> None:
    """The message tells what to write, before anything is computed."""
    spec = EvaluateSpec(options=EvaluateOptions(ungated=True, slices=("kin",)), label="y")
    message = (
        r"^evaluate\.slices: 'kin' is not a column with a value in the training split, did you mean 'kind'\? "
        "Known are kind, size, x, y$"
    )
    with pytest.raises(ConfigurationError, match=message):
        evaluate(tmp_path, rows, tiny_model.save_model, spec)


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    """No rows give no verdict."""
    spec = EvaluateSpec(options=EvaluateOptions(ungated=True), label="y")
    with pytest.raises(DataError, match="split 'eval' has no rows"):
        evaluate(tmp_path, [], tiny_model.save_model, spec)


def test_a_split_that_the_examples_lack_is_refused(rows: Rows, tmp_path: Path) -> None:
    """A split that is only named holds no files."""
    spec = EvaluateSpec(options=EvaluateOptions(ungated=True), label="y", split="train")
    with pytest.raises(DataError, match="split 'train' has no files"):
        evaluate(tmp_path, rows, tiny_model.save_model, spec)


def test_a_file_that_was_cut_is_named(rows: Rows, tmp_path: Path) -> None:
    """TensorFlow takes it for a shorter one, and the metrics would be those of the rows that are left."""

    def save_and_cut(folder: Path) -> None:
        tiny_model.save_model(folder)
        *_, last = sorted((tmp_path / "examples" / "Split-eval").iterdir())
        last.write_bytes(last.read_bytes()[:-9])

    spec = EvaluateSpec(options=EvaluateOptions(ungated=True), label="y")
    with pytest.raises(DataError, match=r"^\S*-00001-of-00002\.gz: not a whole gzip TFRecord"):
        evaluate(tmp_path, rows, save_and_cut, spec)


def test_a_candidate_without_the_label_is_refused(rows: Rows, tmp_path: Path) -> None:
    """A preprocessing function that drops the label leaves nothing to compare predictions with."""
    spec = EvaluateSpec(options=EvaluateOptions(ungated=True), label="y")
    with pytest.raises(ConfigurationError, match=r"transform_features gives no 'y', only \['size', 'x'\]"):
        evaluate(tmp_path, rows, lambda folder: tiny_model.save_model(folder, label="size"), spec)
