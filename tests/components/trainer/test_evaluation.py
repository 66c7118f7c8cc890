"""Metrics of the trained model."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.evaluation import evaluate
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
