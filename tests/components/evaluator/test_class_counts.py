"""Metrics of several classes, counted in batches and parts: against scikit-learn's over all rows at once."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from sklearn import metrics

from lockstep.components.evaluator.class_counts import MAX_CONFUSION, ClassCounts

Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]


def made_rows(num_rows: int, num_classes: int, *, without: int = -1) -> Rows:
    """Labels, probabilities that lean towards them, and weights; one class occurs in neither."""
    rng = np.random.default_rng(3)
    classes = np.array([index for index in range(num_classes) if index != without])
    labels = rng.choice(classes, num_rows)
    logits = rng.normal(0, 1.5, (num_rows, num_classes))
    logits[np.arange(num_rows), labels] += 1.5
    if without >= 0:
        logits[:, without] -= 50
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weights = rng.choice([0.5, 1.0, 3.0], num_rows)
    return labels.astype(np.float32), probabilities.astype(np.float32), weights.astype(np.float32)


def in_sum_one(probabilities: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Probabilities as scikit-learn asks for them: float32 misses the sum of 1 in its seventh digit."""
    return probabilities.astype(float) / probabilities.sum(axis=1, keepdims=True, dtype=float)


def counted(rows: Rows, num_classes: int, *, weighted: bool = True, parts: int = 1) -> ClassCounts:
    """Counts in batches, in several parts that are merged."""
    merged = ClassCounts(num_classes)
    for part in range(parts):
        one = ClassCounts(num_classes)
        labels, probabilities, weights = (column[part::parts] for column in rows)
        for start in range(0, len(labels), 97):
            batch = slice(start, start + 97)
            one.update(labels[batch], probabilities[batch], weights[batch] if weighted else None)
        merged.merge(one)
    return merged


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("num_classes", "without"), [(3, -1), (7, 2)])
def test_metrics_are_scikit_learns(num_classes: int, without: int, weighted: bool) -> None:
    """Also where a class occurs among neither labels nor predictions, and where rows have weights."""
    rows = made_rows(1000, num_classes, without=without)
    labels, probabilities, weights = rows
    predicted, classes = probabilities.argmax(axis=1), list(range(num_classes))
    of = {"sample_weight": weights if weighted else None}
    found = counted(rows, num_classes, weighted=weighted).values()
    expected = {
        "accuracy": metrics.accuracy_score(labels, predicted, **of),
        "balanced_accuracy": metrics.balanced_accuracy_score(labels, predicted, **of),
        "categorical_crossentropy": metrics.log_loss(labels, in_sum_one(probabilities), labels=classes, **of),
        "macro_precision": metrics.precision_score(labels, predicted, average="macro", zero_division=0, **of),
        "macro_recall": metrics.recall_score(labels, predicted, average="macro", zero_division=0, **of),
        "macro_f1": metrics.f1_score(labels, predicted, average="macro", zero_division=0, **of),
        "weighted_f1": metrics.f1_score(labels, predicted, average="weighted", zero_division=0, **of),
        "top_3_accuracy": metrics.top_k_accuracy_score(labels, probabilities, k=3, labels=classes, **of)
        if num_classes > 3
        else 1.0,
        "example_count": weights.sum() if weighted else 1000,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    document = counted(rows, num_classes, weighted=weighted).to_document([f"c{i}" for i in classes])
    matrix = metrics.confusion_matrix(labels, predicted, labels=classes, **of)
    np.testing.assert_allclose(document["matrix"]["counts"], matrix)
    by_class = metrics.precision_recall_fscore_support(labels, predicted, labels=classes, zero_division=0, **of)
    for column, name in zip(by_class, ("precision", "recall", "f1", "count"), strict=True):
        np.testing.assert_allclose([item[name] for item in document["by_class"]], column, rtol=1e-6)


def test_parts_add_up_to_the_whole() -> None:
    """However the rows were dealt."""
    rows = made_rows(500, 5)
    assert counted(rows, 5, parts=4).values() == pytest.approx(counted(rows, 5).values(), rel=1e-12)


def test_a_class_that_training_has_not_is_left_out_and_counted() -> None:
    """Its index is -1, or too large; the metrics are those of the other rows."""
    labels, probabilities, weights = made_rows(100, 4)
    labels[:3], labels[3] = -1, 4
    found = counted((labels, probabilities, weights), 4)
    rest = counted((labels[4:], probabilities[4:], weights[4:]), 4)
    assert found.values() == pytest.approx({**rest.values(), "unseen_count": 4.0}, rel=1e-12)
    assert (found.num_rows, found.num_unseen) == (96, 4)


def test_an_answer_that_is_not_finite_is_wrong_and_leaves_no_cross_entropy() -> None:
    """No gate passes a value that is no number; the row stands in no column of the matrix."""
    labels, probabilities, weights = made_rows(100, 3)
    probabilities[0] = math.nan
    found = counted((labels, probabilities, weights), 3, weighted=False)
    right = (probabilities[1:].argmax(axis=1) == labels[1:]).sum()
    assert found.values()["accuracy"] == right / 100
    assert math.isnan(found.values()["categorical_crossentropy"])
    document = found.to_document("abc")
    assert (document["rows"], document["broken"], np.sum(document["matrix"]["counts"])) == (100, 1, 99)


def test_a_matrix_of_many_classes_joins_the_rarest() -> None:
    """Those that training had less often than the first; the memory does not grow with the classes' square."""
    num_classes = MAX_CONFUSION + 10
    labels, probabilities, _ = rows = made_rows(2000, num_classes)
    matrix = counted(rows, num_classes, weighted=False).to_document(list(map(str, range(num_classes))))["matrix"]
    assert matrix["classes"][-2:] == [str(MAX_CONFUSION - 1), None]
    joined = np.minimum([labels, probabilities.argmax(axis=1)], MAX_CONFUSION)
    np.testing.assert_array_equal(matrix["counts"], metrics.confusion_matrix(*joined))


def test_without_rows_there_is_no_value() -> None:
    """NaN, which no threshold passes."""
    values = ClassCounts(3).values()
    assert all(math.isnan(values[name]) for name in ("accuracy", "macro_f1", "categorical_crossentropy"))
