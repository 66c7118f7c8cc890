"""Curves over batches: against scikit-learn's and NumPy's over all rows at once."""

import json

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import calibration as sklearn_calibration
from sklearn import metrics as sklearn_metrics

from lockstep.components.evaluator import plots
from lockstep.components.evaluator.histograms import DoublingHistogram

Column = npt.NDArray[np.float32]


def _binary_rows(num_rows: int, rare: float = 0.3) -> tuple[Column, Column]:
    rng = np.random.default_rng(7)
    labels = (rng.random(num_rows) < rare).astype(np.float32)
    logits = rng.normal(np.log(rare / (1 - rare)) + 1.5 * labels, 1.2)
    return labels, (1 / (1 + np.exp(-logits))).astype(np.float32)


def _counted(labels: Column, predictions: Column, kind: str, batch: int = 999) -> plots.Plots:
    counted = plots.new_plots("binary" if kind == "binary" else "regression")
    for start in range(0, len(labels), batch):
        counted.update(labels[start : start + batch], predictions[start : start + batch])
    return counted


@pytest.mark.parametrize("rare", [0.3, 0.001])
def test_every_point_of_the_roc_is_the_rates_at_its_threshold(rare: float) -> None:
    """Each point equals the rates that NumPy counts, and the area scikit-learn's to a thousandth."""
    labels, predictions = _binary_rows(50_000, rare)
    document = _counted(labels, predictions, "binary").to_document()
    inner = [point for point in document["roc"] if point["threshold"] is not None]
    assert 50 < len(inner) <= 202
    for point in inner:
        over = predictions.astype(np.float64) > point["threshold"]
        assert point["tpr"] == pytest.approx(np.mean(over[labels == 1]), abs=1e-12)
        assert point["fpr"] == pytest.approx(np.mean(over[labels == 0]), abs=1e-12)
    assert document["auc"] == pytest.approx(sklearn_metrics.roc_auc_score(labels, predictions), abs=1e-3)
    assert (document["roc"][0]["fpr"], document["roc"][-1]["tpr"]) == (0.0, pytest.approx(1.0))


def test_the_confusion_matrix_is_scikit_learns_at_one_half() -> None:
    """A prediction of exactly 0.5 counts as negative, as TFMA's accuracy has it."""
    labels, predictions = _binary_rows(5_000)
    predictions[:10] = 0.5
    found = _counted(labels, predictions, "binary").to_document()["confusion"]
    names = ("true_negatives", "false_positives", "false_negatives", "true_positives")
    assert [found[name] for name in names] == sklearn_metrics.confusion_matrix(
        labels, predictions > 0.5
    ).ravel().tolist()


def test_calibration_is_scikit_learns_by_quantiles() -> None:
    """Ten groups of equal number: mean prediction and share of positives as scikit-learn computes them."""
    labels, predictions = _binary_rows(100_000)
    groups = _counted(labels, predictions, "binary").to_document()["calibration"]
    shares, means = sklearn_calibration.calibration_curve(labels, predictions, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([group["prediction"] for group in groups], means, atol=5e-3)
    np.testing.assert_allclose([group["label"] for group in groups], shares, atol=1e-2)
    assert sum(group["count"] for group in groups) == 100_000


def test_scores_hold_every_row_by_label() -> None:
    """The two histograms of predictions add up to the labels."""
    labels, predictions = _binary_rows(3_000)
    scores = _counted(labels, predictions, "binary").to_document()["scores"]
    assert (sum(scores["negatives"]), sum(scores["positives"])) == (np.sum(labels == 0), np.sum(labels == 1))
    expected, _ = np.histogram(predictions, 20, (0, 1))
    np.testing.assert_allclose(np.add(scores["negatives"], scores["positives"]), expected, atol=40)


def test_one_label_alone_gives_no_roc() -> None:
    """There are no rates of what never occurs; everything else is there."""
    document = _counted(np.ones(10, np.float32), np.full(10, 0.7, np.float32), "binary").to_document()
    assert (document["roc"], document["auc"]) == ([], None)
    assert document["calibration"] == [{"count": 10.0, "prediction": pytest.approx(0.7), "label": 1.0}]


def test_rows_without_a_finite_number_are_left_out_and_counted() -> None:
    """A missing label is NaN; it must not make everything NaN."""
    labels = np.array([0, 1, np.nan, 1], np.float32)
    predictions = np.array([0.2, np.inf, 0.5, 0.9], np.float32)
    for kind in ("binary", "regression"):
        document = _counted(labels, predictions, kind).to_document()
        assert (document["rows"], document["left_out"]) == (2, 2)
        json.dumps(document, allow_nan=False)


def test_weights_count_rows_as_often_as_they_say() -> None:
    """A row of weight 3 is the row three times."""
    labels, predictions = _binary_rows(500)
    weights = np.arange(500) % 4
    for kind in ("binary", "regression"):
        weighted = plots.new_plots("binary" if kind == "binary" else "regression")
        weighted.update(labels, predictions, weights)
        repeated = _counted(np.repeat(labels, weights), np.repeat(predictions, weights), kind)
        first, second = weighted.to_document(), repeated.to_document()
        del first["rows"], second["rows"]
        assert json.loads(json.dumps(first), parse_float=lambda t: round(float(t), 9)) == json.loads(
            json.dumps(second), parse_float=lambda t: round(float(t), 9)
        )


def test_residuals_are_numpys() -> None:
    """Counts by bin, mean and deviation of the residuals as NumPy computes them from all rows."""
    rng = np.random.default_rng(3)
    predictions = rng.normal(100, 30, 20_000).astype(np.float32)
    labels = (predictions + rng.normal(2, 5, 20_000)).astype(np.float32)
    document = _counted(labels, predictions, "regression").to_document()
    residuals = labels.astype(np.float64) - predictions
    assert document["mean"] == pytest.approx(residuals.mean())
    assert document["std"] == pytest.approx(residuals.std())
    edges = document["residuals"]["edges"]
    assert document["residuals"]["counts"] == np.histogram(residuals, edges)[0].tolist()
    assert 256 <= len(edges) - 1 <= 1024
    grid = document["grid"]
    expected = np.histogram2d(predictions, residuals, (grid["prediction_edges"], grid["residual_edges"]))[0]
    np.testing.assert_array_equal(grid["counts"], expected)
    assert len(grid["counts"]) <= 32


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_a_histogram_depends_on_its_values_alone(
    values: list[float], cuts: list[int], order: "np.random.Generator"
) -> None:
    """Any order, any parts merged in any way: the same bins and counts; no value is lost."""
    whole = DoublingHistogram(16, 1)
    whole.update(np.array(values)[:, None], np.ones(len(values)))
    shuffled = list(values)
    order.shuffle(shuffled)  # type: ignore[arg-type]
    merged = DoublingHistogram(16, 1)
    for part in np.split(np.array(shuffled), sorted(min(cut, len(values)) for cut in cuts)):
        other = DoublingHistogram(16, 1)
        other.update(part[:, None], np.ones(len(part)))
        merged.merge(other)
    assert merged.bins() == whole.bins()
    [edges], counts = whole.bins()
    assert sum(counts) == len(values)
    assert edges[0] <= min(values) <= max(values) < edges[-1]


def test_extreme_values_are_counted() -> None:
    """The largest and the smallest floats there are, and all zeros, need no special care of the caller."""
    for column in ([0.0, 0.0], [5e-324, -5e-324], [-3.4e38, 3.4e38], [1e300, -1e300], [7.25] * 3):
        counted = plots.RegressionPlots()
        counted.update(np.array(column), np.array(column[::-1]))
        document = counted.to_document()
        assert sum(document["residuals"]["counts"]) == len(column)
        json.dumps(document, allow_nan=False)


def test_no_rows_give_a_document_without_curves() -> None:
    """Nothing is divided by nothing."""
    for kind in ("binary", "regression"):
        document = _counted(np.zeros(0, np.float32), np.zeros(0, np.float32), kind).to_document()
        assert document["rows"] == 0
        json.dumps(document, allow_nan=False)


def test_parts_of_two_models_merge_by_name() -> None:
    """What Beam combines: one mapping a file; merging leaves the parts as they were."""
    labels, predictions = _binary_rows(1_000)
    parts = [
        {"candidate": _counted(labels[half], predictions[half], "binary")} for half in (slice(0, 400), slice(400, None))
    ]
    merged = plots.merge_plots(parts)["candidate"].to_document()
    assert merged["confusion"] == _counted(labels, predictions, "binary").to_document()["confusion"]
    assert parts[0]["candidate"].to_document()["rows"] == 400
