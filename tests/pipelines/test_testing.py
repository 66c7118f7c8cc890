"""The harness that users test their components with: real components, in a second or two each."""

import pathlib

import pytest
from tfx.components.example_validator.component import ExampleValidator
from tfx.components.schema_gen.component import SchemaGen
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.transform.component import Transform
from tfx.types import standard_artifacts

from lockstep.components.errors import DataError
from lockstep.components.example_gen.component import ExampleGen
from lockstep.components.example_gen.options import DataOptions
from lockstep.pipelines.testing import ComponentHarness

ROWS = {"train": [{"x": 1.0, "s": "a"}, {"x": None, "s": "b"}, {"x": 4.0, "s": "a"}], "eval": [{"x": 3.0, "s": "c"}]}


@pytest.fixture
def harness(tmp_path: pathlib.Path) -> ComponentHarness:
    """A harness in a folder of its own."""
    return ComponentHarness(tmp_path)


def test_a_tfx_component_runs_on_rows(harness: ComponentHarness) -> None:
    """Rows in, statistics out; a missing value is missing."""
    outputs = harness.run(StatisticsGen(examples=harness.examples(ROWS)))
    statistics = outputs["statistics"].read()
    assert {split: s.num_examples for split, s in statistics.items()} == {"train": 3, "eval": 1}
    by_name = {feature.path.step[0]: feature for feature in statistics["train"].features}
    assert by_name["x"].num_stats.common_stats.num_missing == 1
    assert by_name["x"].num_stats.mean == 2.5


def test_a_component_of_lockstep_runs_on_files(harness: ComponentHarness, tmp_path: pathlib.Path) -> None:
    """Files in, rows out, value for value."""
    (tmp_path / "rows.csv").write_text("id,name\n" + "".join(f"{i},n{i}\n" for i in range(40)))
    outputs = harness.run(ExampleGen(DataOptions(path=str(tmp_path / "rows.csv"))))
    examples = outputs["examples"].read()
    assert set(examples) == {"train", "eval"}
    rows = [row for split in examples.values() for row in split]
    assert sorted((row["id"], row["name"]) for row in rows) == sorted(([i], [f"n{i}".encode()]) for i in range(40))


def test_a_slice_of_a_pipeline_runs_in_the_order_of_its_inputs(harness: ComponentHarness) -> None:
    """Components given in any order run after what they depend on; anomalies are told by feature."""
    rows = ROWS | {"eval": [{"x": 3.0, "s": 7}]}
    statistics = StatisticsGen(examples=harness.examples(rows))
    schema = SchemaGen(statistics=statistics.outputs["statistics"], exclude_splits=["eval"])
    validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"])
    outputs = harness.run(validator, schema, statistics)
    assert {feature.name for feature in outputs["SchemaGen.schema"].read().feature} == {"x", "s"}
    assert outputs["anomalies"].read()["train"] == {}
    assert set(outputs["anomalies"].read()["eval"]) == {"s"}


def test_any_artifact_can_be_an_input(harness: ComponentHarness) -> None:
    """A schema written by hand finds what the rows lack."""
    schema = harness.artifact(
        standard_artifacts.Schema,
        {"schema.pbtxt": 'feature { name: "y" type: INT presence { min_fraction: 1.0 min_count: 1 } }'},
    )
    statistics = StatisticsGen(examples=harness.examples(ROWS))
    validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=schema)
    anomalies = harness.run(statistics, validator)["anomalies"].read()
    assert "y" in anomalies["train"]


@pytest.mark.slow
def test_a_preprocessing_function_is_seen_row_by_row(harness: ComponentHarness) -> None:
    """The slice from raw rows to transformed rows, as the documentation shows it."""
    examples = harness.examples({"train": [{"fare": 1.0}, {"fare": 3.0}], "eval": [{"fare": 2.0}]})
    statistics = StatisticsGen(examples=examples)
    schema = SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=False)
    transform = Transform(
        examples=examples,
        schema=schema.outputs["schema"],
        preprocessing_fn=f"{__name__}.scale_fares",
        disable_statistics=True,
    )
    outputs = harness.run(statistics, schema, transform)
    assert outputs["transformed_examples"].read()["eval"] == [{"fare": [0.0]}]


def scale_fares(inputs):  # type: ignore[no-untyped-def]
    """A user's preprocessing function."""
    import tensorflow as tf
    import tensorflow_transform as tft

    fare = tf.reshape(tf.sparse.to_dense(inputs["fare"]), [-1, 1])
    return {"fare": tft.scale_to_z_score(fare)}


def test_an_executors_error_reaches_the_test_as_it_was_raised(
    harness: ComponentHarness, tmp_path: pathlib.Path
) -> None:
    """No wrapping: the test can expect the exception's own class and text."""
    (tmp_path / "rows.csv").write_text("id,name\n")
    with pytest.raises(DataError, match="no rows"):
        harness.run(ExampleGen(DataOptions(path=str(tmp_path / "rows.csv"))))


def test_an_unknown_output_names_those_there_are(harness: ComponentHarness) -> None:
    """A typing error in a key is told with the keys."""
    outputs = harness.run(StatisticsGen(examples=harness.examples(ROWS)))
    with pytest.raises(KeyError, match=r"StatisticsGen\.statistics"):
        outputs["statistic"]
