"""Times, crosses, texts and lists, from raw JSON lines to a served model."""

import csv
import json
import pathlib
import random

import pytest

from lockstep.pipelines.yaml_reader import parse_yaml
from tests.pipelines.conftest import Project

_PIPELINE = """
name: reviews
data: {path: reviews.jsonl, types: {written: timestamp}}
label: {column: useful}
features:
  written: {kind: timestamp, parts: [weekday, hour], since: 2020-01-01}
  night_in: {kind: cross, columns: [written_hour, city], num_buckets: 100}
  text: {kind: text, max_tokens: 8, top_k: 50, num_oov: 2}
  title: {kind: text, output: tf_idf, top_k: 20, ngrams: [1, 2], missing: zero}
  tags: {kind: list, max_values: 3}
  city: {kind: auto}
  topics: {kind: list, output: multi_hot, weights: shares, num_buckets: 16}
preprocessing: review_features:add
model: {build: mlp, parameters: {hidden: [16]}}
train: {workers: 1, strategy: one_device, steps: 80, batch_size: 64, learning_rate: 0.02}
evaluate: {metrics: [auc], thresholds: {auc: {min: 0.8}}}
"""


_FUNCTION = """
import tensorflow as tf


def add(inputs, features):
    return {"length": tf.math.log1p(features["text_count"]), "title": None}
"""


def _review(generator: random.Random) -> dict[str, object]:
    """Useful where it is well spoken of in the text, and tagged."""
    topics = generator.sample(["price", "staff", "food"], generator.randint(0, 3))
    words = generator.choices(["good", "bad", "fine", "Poor!", "and", "then"], k=generator.randint(0, 9))
    tags = generator.sample(["long", "short", "angry"], generator.randint(0, 3))
    score = sum({"good": 1, "fine": 1, "bad": -1, "Poor!": -1}.get(word, 0) for word in words) + 2 * ("long" in tags)
    row: dict[str, object] = {
        "written": f"20{generator.randint(10, 29)}-11-07T{generator.randint(0, 23):02}:15:00",
        "city": generator.choice(["Oslo", "Rome"]),
        "text": " ".join(words),
        "title": generator.choice(["My visit", "a visit", "visit!"]),
        "tags": tags,
        "topics": topics,
        "shares": [round(generator.random(), 2) for _ in topics],
        "useful": int(score > 0),
    }
    return {
        name: value for name, value in row.items() if name == "useful" or generator.random() > 0.05 or name in _PAIR
    }


_PAIR = ("topics", "shares")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_kind_reaches_the_served_model(tmp_path: pathlib.Path) -> None:
    """One run learns from all of them, and the model answers rows that lack any column."""
    generator = random.Random(3)
    rows = [_review(generator) for _ in range(800)]
    (tmp_path / "reviews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reviews.yaml").write_text(_PIPELINE)
    (tmp_path / "review_features.py").write_text(_FUNCTION.replace("log1p", "log2"))
    project = Project(tmp_path)
    failed = project.lockstep("run", "reviews.yaml", "--root", "runs")
    assert failed.returncode == 2, failed.stdout + failed.stderr
    assert "Transform: preprocessing: review_features:add fails with AttributeError: " in failed.stderr
    (tmp_path / "review_features.py").write_text(_FUNCTION)
    done = project.lockstep("run", "reviews.yaml", "--root", "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    (picked,) = (tmp_path / "runs").rglob("features.yaml")
    assert f"; picked city: vocabulary ({picked})" in done.stdout
    features = parse_yaml(picked.read_text())["features"]
    assert features == parse_yaml(_PIPELINE)["features"] | {"city": {"kind": "vocabulary"}}

    asked = [
        {"text": "good good", "tags": ["long"]},
        {"text": "BAD, poor bad"},
        {"city": "Oslo"},
        {"title": "new words"},
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    found = project.lockstep("predict", "runs/pushed", "--data", "asked.jsonl", "--format", "json")
    assert found.returncode == 0, found.stderr
    good, bad, *others = [float(row["prediction"]) for row in csv.DictReader(found.stdout.splitlines())]
    assert good > 0.5 > bad
    assert all(0 < other < 1 for other in others)
