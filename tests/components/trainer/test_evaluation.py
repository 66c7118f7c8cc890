"""Metrics of the trained model."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.evaluation import Evaluation, evaluate
from lockstep.components.trainer.loop import per_example_loss
from lockstep.components.trainer.records import Records
from tests.components.trainer.conftest import example, write_split

SPEC = {name: tf.io.FixedLenFeature([], tf.float32) for name in ("score", "tips")}


def split(folder: Path, scores: np.ndarray, labels: np.ndarray) -> Records:
    """Records that carry what the model shall predict."""
    rows = [{"score": float(score), "tips": float(label)} for score, label in zip(scores, labels, strict=True)]
    return Records(write_split(folder, [example(row) for row in rows], 2), SPEC, "tips")


def identity() -> keras.Model:
    """Predicts its only feature."""
    score = keras.Input((1,), name="score")
    return keras.Model({"score": score}, keras.layers.Identity()(score))


def test_a_classifier_is_measured(tmp_path: Path) -> None:
    """AUC, accuracy and loss are those of the definition, over batches of any size."""
    random = np.random.default_rng(0)
    labels = (random.random(1500) < 0.3).astype(np.float32)
    scores = np.clip(random.normal(0.4 + 0.2 * labels, 0.2), 0.01, 0.99).astype(np.float32)
    beats: list[int] = []
    model = identity()
    metrics = evaluate(
        model,
        split(tmp_path / "eval", scores, labels),
        per_example_loss(model, "binary"),
        "binary",
        on_batch=lambda: beats.append(1),
    )
    positive, negative = scores[labels == 1], scores[labels == 0]
    wins = (positive[:, None] > negative).mean() + 0.5 * (positive[:, None] == negative).mean()
    assert metrics["auc"] == pytest.approx(wins, abs=1e-3)
    assert metrics["accuracy"] == pytest.approx(((scores > 0.5) == labels).mean(), abs=1e-6)
    log_loss = -np.log(np.where(labels == 1, scores, 1 - scores)).mean()
    assert metrics["loss"] == pytest.approx(log_loss, abs=1e-5)
    assert metrics["examples"] == 1500
    assert len(beats) == 2


@pytest.mark.parametrize("score", [-0.25, 1.5])
def test_a_classifier_that_gives_no_probability_is_refused(tmp_path: Path, score: float) -> None:
    """One record is enough, in whatever batch it lies."""
    scores = np.full(1500, 0.5)
    scores[1200] = score
    model = identity()
    records = split(tmp_path / "eval", scores, np.zeros(1500))
    with pytest.raises(ConfigurationError, match=f"trained model gives {score}; a binary label needs a probability"):
        evaluate(model, records, per_example_loss(model, "binary"), "binary", on_batch=lambda: None)


def test_a_regression_is_measured(tmp_path: Path) -> None:
    """Mean squared and mean absolute error."""
    scores, labels = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 4.0])
    model = identity()
    records = split(tmp_path / "eval", scores, labels)
    metrics = evaluate(model, records, per_example_loss(model, "regression"), "regression", on_batch=lambda: None)
    assert metrics == pytest.approx({"loss": 5 / 3, "mse": 5 / 3, "mae": 1.0, "examples": 3})


def test_an_empty_split_has_no_metrics(tmp_path: Path) -> None:
    """There is nothing to say, and nothing fails."""
    model = identity()
    records = split(tmp_path / "eval", np.array([]), np.array([]))
    assert evaluate(model, records, per_example_loss(model, "binary"), "binary", on_batch=lambda: None) == {}


def test_weights_of_records_are_those_of_keras(tmp_path: Path) -> None:
    """The loss as Keras' ``evaluate`` with ``sample_weight``, the metrics as its weighted ones; in parts as in one."""
    random = np.random.default_rng(1)
    labels = (random.random(1100) < 0.3).astype(np.float32)
    scores = np.clip(random.normal(0.4 + 0.2 * labels, 0.2), 0.01, 0.99).astype(np.float32)
    weights = random.choice([0.0, 1.0, 2.5], 1100).astype(np.float32)
    rows = [
        {"score": float(s), "tips": float(y), "weight": float(w)}
        for s, y, w in zip(scores, labels, weights, strict=True)
    ]
    spec = {**SPEC, "weight": tf.io.FixedLenFeature([], tf.float32)}
    files = write_split(tmp_path / "eval", [example(row) for row in rows], 2)
    records = Records(files, spec, "tips", "weight")
    model = identity()
    per_example = per_example_loss(model, "binary")
    got = evaluate(model, records, per_example, "binary", on_batch=lambda: None)
    model.compile(loss="binary_crossentropy", weighted_metrics=["accuracy", keras.metrics.AUC(2000, name="auc")])
    arguments = {"sample_weight": weights, "batch_size": 1100, "verbose": 0, "return_dict": True}
    expected = model.evaluate({"score": scores[:, None]}, labels[:, None], **arguments)
    assert got == pytest.approx(
        {**{name: float(expected[name]) for name in ("loss", "accuracy", "auc")}, "examples": 1100}, abs=1e-5
    )

    parts = [Evaluation(model, records, per_example, "binary", part=i, num_parts=3) for i in range(3)]
    sums = [part.sums(on_batch=lambda: None) for part in parts]
    assert [int(one[0]) for one in sums] == [367, 367, 366]
    assert parts[0].values(np.sum(sums, axis=0)) == pytest.approx(got, abs=1e-6)


def test_a_part_may_be_empty(tmp_path: Path) -> None:
    """There are fewer records than parts: one has none, and its sums still add up."""
    model = identity()
    records = split(tmp_path / "eval", np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    per_example = per_example_loss(model, "regression")
    parts = [Evaluation(model, records, per_example, "regression", part=i, num_parts=3) for i in range(3)]
    sums = [part.sums(on_batch=lambda: None) for part in parts]
    assert parts[2].values(np.sum(sums, axis=0)) == pytest.approx({"loss": 2.0, "mse": 2.0, "mae": 1.0, "examples": 2})
    assert parts[2].values(sums[2]) == {}
