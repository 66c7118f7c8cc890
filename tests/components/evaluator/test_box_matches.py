"""Metrics of boxes: against another computation, whole and merged, and by hand."""

from typing import Any

import numpy as np
import pytest

from lockstep.components.evaluator.box_matches import BoxMatches, box_ious

THRESHOLDS = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]


def made(seed: int, images: int = 40, classes: int = 3) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """True boxes, and detections that are near them, or of another class, or nowhere; scores tell little."""
    random = np.random.default_rng(seed)
    labels, predictions = np.zeros((images, 4, 5)), np.zeros((images, 10, 6))
    for label, found in zip(labels, predictions, strict=True):
        count = 0
        for number in range(random.integers(0, 5)):
            x, y, w, h = *random.uniform(0, 70, 2), *random.uniform(5, 30, 2)
            label[number] = [x, y, x + w, y + h, random.integers(classes)]
            for _ in range(random.integers(0, 3)):
                box = label[number, :4] + random.normal(0, 2.0, 4)
                kind = label[number, 4] if random.random() < 0.8 else random.integers(classes)
                found[count] = [*box[:2], *np.maximum(box[2:], box[:2] + 1), random.uniform(0.05, 1), kind]
                count += 1
    return labels, predictions


def iou(a: Any, b: Any) -> float:
    """Of two boxes."""
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(w, 0) * max(h, 0)
    return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


def average_precision(labels: Any, predictions: Any, of_class: int, threshold: float) -> float:
    """All detections of a class in the order of their scores, one by one, and the best precision at each recall."""
    truths = {i: [tuple(t[:4]) for t in label if t[:4].any() and t[4] == of_class] for i, label in enumerate(labels)}
    found = sorted(
        (-f[4], i, tuple(f[:4])) for i, row in enumerate(predictions) for f in row if f[4] > 0 and f[5] == of_class
    )
    total, hits, curve = sum(map(len, truths.values())), 0, []
    for number, (_, image, box) in enumerate(found, start=1):
        best = max(truths[image], key=lambda truth: iou(box, truth), default=None)
        if best is not None and iou(box, best) >= threshold:
            truths[image].remove(best)
            hits += 1
        curve.append((hits / total, hits / number))
    return sum(max((p for r, p in curve if r >= recall - 1e-12), default=0) for recall in np.arange(101) / 100) / 101


def test_average_precisions_are_those_of_another_computation() -> None:
    """Over classes and thresholds; the same from halves of the images, merged."""
    labels, predictions = made(0)
    table = [[average_precision(labels, predictions, c, t) for t in THRESHOLDS] for c in range(3)]
    whole = BoxMatches(3)
    whole.update(labels, predictions)
    assert 0.1 < np.mean(table) < 0.9
    assert whole.values()["map"] == pytest.approx(np.mean(table), abs=1e-9)
    assert whole.values()["average_precision_50"] == pytest.approx(np.mean([row[0] for row in table]), abs=1e-9)
    halves = BoxMatches(3)
    for part in (slice(0, 25), slice(25, 40)):
        of_part = BoxMatches(3)
        of_part.update(labels[part], predictions[part])
        halves.merge(of_part)
    assert halves.values() == pytest.approx(whole.values())
    document = whole.to_document(["a", "b", "c"])
    assert [row["average_precision"] for row in document["by_class"]] == pytest.approx(np.mean(table, axis=1))


def test_precision_recall_and_iou_by_hand() -> None:
    """A hit of IoU 0.8, one that is too far away, a second one on the same box, one that is unsure; weights count."""
    labels = np.array([[[0, 0, 10, 10, 0], [20, 20, 30, 30, 1]], [[0, 0, 4, 4, 1], [0, 0, 0, 0, 0]]], float)
    predictions = np.array(
        [
            [[0, 0, 10, 8, 0.9, 0], [0, 0, 10, 7, 0.8, 0], [26, 26, 36, 36, 0.7, 1], [0, 0, 0, 0, 0, 0]],
            [[0, 0, 4, 4, 0.4, 1], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
        ],
        float,
    )
    matches = BoxMatches(2)
    matches.update(labels, predictions, np.array([1.0, 2.0]))
    found = matches.values()
    assert found["precision_50"] == pytest.approx(1 / 3)
    assert found["recall_50"] == pytest.approx(1 / 4)  # of boxes that weigh 1, 1 and 2
    assert found["mean_iou"] == pytest.approx(0.8)
    assert (found["box_count"], found["example_count"]) == (4, 3)


def test_an_image_with_a_class_of_no_training_is_left_out_and_counted() -> None:
    """Nothing at all has no value."""
    matches = BoxMatches(2)
    matches.update(np.array([[[0, 0, 1, 1, -1.0]]]), np.array([[[0, 0, 1, 1, 0.9, 0.0]]]))
    found = matches.values()
    assert found["unseen_count"] == 1
    assert np.isnan(found["map"])
    assert np.isnan(found["mean_iou"])


def test_overlaps_of_boxes() -> None:
    """Half, none, and of boxes without extent."""
    a = np.array([[0, 0, 2, 2], [5, 5, 5, 5]], np.float32)
    np.testing.assert_allclose(box_ious(a, np.array([[0, 0, 2, 1], [5, 5, 5, 5]])), [[0.5, 0], [0, 0]])
