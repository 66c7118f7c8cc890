"""Which kind is picked for which statistics."""

import re
from typing import Any

import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl

from lockstep.pipelines.yaml_reader import parse_yaml
from lockstep.transforms.auto import resolve
from lockstep.transforms.features import Feature, Label, to_config
from lockstep.transforms.preprocessing import preprocessing_fn

LABEL = Label(column="y", kind="regression")


def _statistics(columns: dict[str, list[Any]]) -> bytes:
    """Returns what TensorFlow Data Validation, which StatisticsGen is made of, says of columns of lists of values."""
    table = pa.RecordBatch.from_arrays([pa.array(values) for values in columns.values()], list(columns))
    made = stats_impl.generate_statistics_in_memory(table, tfdv.StatsOptions())
    return made.SerializeToString()


def _picked(columns: dict[str, list[Any]], **types: str) -> tuple[dict[str, Any], str]:
    config = to_config({name: Feature(kind="auto") for name in columns}, LABEL)
    resolved, text = resolve(config, _statistics(columns), types)
    return resolved["features"], text


def test_a_kind_is_picked_by_what_a_column_holds() -> None:
    """And why is said beside it, in a block that can be pasted into the configuration."""
    rows = 2000
    columns: dict[str, list[Any]] = {
        "fare": [[i / 7] for i in range(rows)],
        "level": [[i % 12] for i in range(rows)],
        "metres": [[i * 3] for i in range(rows)],
        "account": [[2**60 + i] for i in range(rows)],
        "city": [[f"city {i % 40}"] for i in range(rows)],
        "user": [[f"user{i}"] for i in range(rows)],
        "remark": [[f"the {i} th remark"] for i in range(rows)],
        "tags": [["a", "b"][: i % 3] or None for i in range(rows)],
        "when": [[i * 9_999] for i in range(rows)],
        "day": [[i * 86_400] for i in range(rows)],
        "same": [[7]] * rows,
        "same_text": [["x"]] * rows,
    }
    features, text = _picked(columns, when="timestamp", day="date", fare="float")
    expected = {
        "fare": Feature(kind="numeric"),
        "level": Feature(kind="integer", num_values=12),
        "metres": Feature(kind="numeric"),
        "account": Feature(kind="hash", num_buckets=2**17),
        "city": Feature(kind="vocabulary"),
        "user": Feature(kind="hash", num_buckets=2048),
        "remark": Feature(kind="text", max_tokens=128, top_k=10_000, min_frequency=2),
        "tags": Feature(kind="list", max_values=2),
        "when": Feature(kind="timestamp", parts=("hour", "weekday", "month", "year")),
        "day": Feature(kind="timestamp", parts=("weekday", "month", "year")),
    }
    assert features == {name: feature.to_json() for name, feature in expected.items()}
    pasted = parse_yaml(text)["features"]
    assert {name: Feature(**options) for name, options in pasted.items()} == expected
    assert "  level: {kind: integer, num_values: 12}  # whole numbers from 0 to 11\n" in text
    assert "  # same: left out, constant\n" in text
    assert _picked(columns, when="timestamp", day="date", fare="float") == (features, text)


def test_what_is_declared_stays_beside_what_is_picked() -> None:
    """In its place, so that the whole block can be pasted."""
    features = {"a b": Feature(kind="numeric", clip=(0.0, None)), "c": Feature(kind="auto")}
    config, text = resolve(to_config(features, LABEL), _statistics({"a b": [[1.5], [2.5]], "c": [["x"], ["y"]]}), {})
    assert config["features"] == {"a b": features["a b"].to_json(), "c": Feature(kind="vocabulary").to_json()}
    assert config["label"] == to_config(features, LABEL)["label"]
    assert (
        text == "features:\n  a b: {kind: numeric, clip: [0.0, null]}\n  c: {kind: vocabulary}  # 2 different texts\n"
    )


def test_a_constant_that_is_missing_at_times_is_kept() -> None:
    """Whether it is there may tell something."""
    features, _ = _picked({"x": [["yes"], None], "n": [[1.0], None]})
    assert [feature["kind"] for feature in features.values()] == ["vocabulary", "numeric"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [[1.5, 2.5], [1.0]]}, "features.x: the column has several numbers with a decimal point in a row"),
        (
            {"x": [[b"\x89PNG\r\n\x1a\n\xff"], [b"\xff\xd8\xff\xe0"]]},
            "features.x: the column holds bytes that are no text, of which no kind is picked; images have no size",
        ),
        ({"x": [["a"], ["a"]]}, "features: kind auto leaves out every column, of which each has one value only"),
    ],
)
def test_where_there_is_nothing_to_pick_it_is_said(columns: dict[str, list[Any]], message: str) -> None:
    """The message names the key."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        _picked(columns)


def test_a_text_that_is_not_utf_8_does_not_make_its_column_one_of_bytes() -> None:
    """Others are text."""
    features, _ = _picked({"x": [["caf\u00e9".encode("latin-1")], [b"tea"], [b"tea"]]})
    assert features["x"]["kind"] == "vocabulary"


def test_a_column_without_statistics_is_named() -> None:
    """It has no value in training."""
    config = to_config({"z": Feature(kind="auto")}, LABEL)
    with pytest.raises(ValueError, match=r"^features\.z: the column has no value in any row of the training split"):
        resolve(config, _statistics({"x": [["a"]]}), {})


def test_preprocessing_alone_knows_no_statistics() -> None:
    """The message says who resolves it."""
    with pytest.raises(ValueError, match=r"^features\.z: kind auto is not known here; resolve it with"):
        preprocessing_fn({}, to_config({"z": Feature(kind="auto")}, LABEL))
