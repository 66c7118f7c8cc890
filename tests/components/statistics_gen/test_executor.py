"""StatisticsGen beside TFX's on the same artifacts."""

import importlib.resources
import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx.components.statistics_gen import executor as stock
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils, standard_artifacts
from tfx_bsl.public.proto import slicing_spec_pb2

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_gen.rows import Value, write_examples
from lockstep.components.record_manifest import MANIFEST_NAME, Manifest
from lockstep.components.statistics_gen.executor import Executor

BEAM_ARGUMENTS = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner", "--sdk_container_image=unused"]
_NUM_TRIPS = 2000
_STATISTICS = "FeatureStats.pb"


def _artifact(kind: type, folder: Path) -> Any:
    artifact = kind()
    artifact.uri = str(folder)
    return artifact


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Taxi trips in three splits, as ExampleGen gives them; a column has values in a few rows alone."""
    folder = tmp_path_factory.mktemp("trips")
    data = importlib.resources.files("tfx").joinpath("examples/chicago_taxi_pipeline/data/simple/data.csv")
    lines = data.read_text().splitlines()[: _NUM_TRIPS + 1]
    rare = ["note", *("a few" if number < 3 else "" for number in range(_NUM_TRIPS))]
    (folder / "trips.csv").write_text("\n".join(f"{line},{note}" for line, note in zip(lines, rare, strict=True)))
    splits = {"train": 4, "eval": 2, "test": 1}
    options = DataOptions(path="trips.csv", splits=splits, num_shards=2)
    ingest([str(folder / "trips.csv")], options, folder / "examples", Requirements())
    examples = _artifact(standard_artifacts.Examples, folder / "examples")
    examples.split_names = artifact_utils.encode_split_names(list(splits))
    examples.span = 7
    return examples


def _run(
    executor: type, examples: Any, folder: Path, schema: schema_pb2.Schema | None = None, **properties: object
) -> tuple[Any, dict[str, list[statistics_pb2.DatasetFeatureStatistics]]]:
    """Returns the artifact, and split -> its datasets."""
    output = _artifact(standard_artifacts.ExampleStatistics, folder / executor.__module__)
    inputs = {"examples": [examples]}
    if schema is not None:
        (folder / "schema").mkdir(exist_ok=True)
        tfdv.write_schema_text(schema, str(folder / "schema" / "schema.pbtxt"))
        inputs["schema"] = [_artifact(standard_artifacts.Schema, folder / "schema")]
    context = base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=BEAM_ARGUMENTS, tmp_dir=str(folder / "tmp"), unique_id="1"
    )
    executor(context).Do(inputs, {"statistics": [output]}, {"exclude_splits": "[]", **properties})
    found = {}
    for split in artifact_utils.decode_split_names(output.split_names):
        content = Path(output.uri, f"Split-{split}", _STATISTICS).read_bytes()
        found[split] = list(statistics_pb2.DatasetFeatureStatisticsList.FromString(content).datasets)
    return output, found


def _comparable(datasets: list[statistics_pb2.DatasetFeatureStatistics]) -> dict[str, tuple[int, dict[str, str]]]:
    """Returns slice -> examples, and feature -> what is the same whatever the batches are.

    Quantiles are sketches of batches; sums of floats depend on the order in which batches are added.
    """
    return {
        dataset.name: (
            dataset.num_examples,
            {feature.path.step[0]: _rounded(feature) for feature in dataset.features},
        )
        for dataset in datasets
    }


def _rounded(feature: statistics_pb2.FeatureNameStatistics) -> str:
    for kind in (feature.num_stats, feature.string_stats, feature.bytes_stats):
        kind.common_stats.ClearField("num_values_histogram")
        kind.common_stats.weighted_common_stats.num_missing = round(
            kind.common_stats.weighted_common_stats.num_missing, 2
        )
    numbers = feature.num_stats
    for histogram in numbers.histograms:  # the ends are the extremes
        assert histogram.buckets[-1].high_value == pytest.approx(numbers.max)
    numbers.ClearField("histograms")
    numbers.ClearField("median")
    numbers.ClearField("weighted_numeric_stats")
    numbers.mean, numbers.std_dev = (float(f"{value:.6g}") for value in (numbers.mean, numbers.std_dev))
    return str(feature)


def _same(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> None:
    artifacts, found = zip(ours, theirs, strict=True)
    assert found[0].keys() == found[1].keys()
    for split in found[0]:
        assert _comparable(found[0][split]) == _comparable(found[1][split]), split
    assert artifacts[0].span == artifacts[1].span
    properties = [dict(artifact.mlmd_artifact.custom_properties) for artifact in artifacts]
    assert properties[0].keys() == properties[1].keys()
    assert properties[0]["sample_rate_by_split"] == properties[1]["sample_rate_by_split"]


@pytest.mark.slow
def test_statistics_are_those_of_tfx(trips: Any, tmp_path: Path) -> None:
    """Of every split that is not left out, and of a feature that few batches have."""
    ours, theirs = (
        _run(each, trips, tmp_path, exclude_splits=json.dumps(["eval"])) for each in (Executor, stock.Executor)
    )
    assert sorted(ours[1]) == ["test", "train"]
    assert {"note", "payment_type", "fare"} <= {feature.path.step[0] for feature in ours[1]["train"][0].features}
    _same(ours, theirs)


@pytest.fixture(scope="module")
def schema(trips: Any, tmp_path_factory: pytest.TempPathFactory) -> schema_pb2.Schema:
    """What TensorFlow Data Validation infers of a split."""
    _, found = _run(Executor, trips, tmp_path_factory.mktemp("schema"), exclude_splits=json.dumps(["train", "eval"]))
    return tfdv.infer_schema(statistics_pb2.DatasetFeatureStatisticsList(datasets=found["test"]))


@pytest.mark.slow
def test_statistics_with_options_are_those_of_tfx(trips: Any, schema: schema_pb2.Schema, tmp_path: Path) -> None:
    """A schema, weights, a label, and slices, each with a dataset of its own."""
    slices = slicing_spec_pb2.SlicingConfig(slicing_specs=[{"feature_keys": ["payment_type"]}])
    options = tfdv.StatsOptions(
        weight_feature="trip_start_month", label_feature="payment_type", num_top_values=3, slicing_config=slices
    )
    properties = {"stats_options_json": options.to_json(), "exclude_splits": json.dumps(["train", "eval"])}
    # TFDV tells no lift of a label where a batch lacks a feature of the schema; TFX's first batch is a row.
    always = schema_pb2.Schema(feature=[feature for feature in schema.feature if feature.presence.min_fraction == 1])
    ours, theirs = (_run(each, trips, tmp_path, always, **properties) for each in (Executor, stock.Executor))
    assert {"All Examples", "payment_type_Cash"} <= {dataset.name for dataset in ours[1]["test"]}
    _same(ours, theirs)


@pytest.mark.slow
def test_only_the_features_of_the_schema_are_read_where_asked(
    trips: Any, schema: schema_pb2.Schema, tmp_path: Path
) -> None:
    """TFX's ``experimental_filter_read_paths``; a feature that is nowhere has statistics then."""
    few = schema_pb2.Schema(feature=[feature for feature in schema.feature if feature.name in ("fare", "company")])
    few.feature.add(name="nowhere", type=schema_pb2.INT)
    options = tfdv.StatsOptions(experimental_filter_read_paths=True)
    properties = {"stats_options_json": options.to_json(), "exclude_splits": json.dumps(["train", "eval"])}
    ours, theirs = (_run(each, trips, tmp_path, few, **properties) for each in (Executor, stock.Executor))
    assert {feature.path.step[0] for feature in ours[1]["test"][0].features} == {"fare", "company", "nowhere"}
    _same(ours, theirs)


def test_a_sample_is_one_of_small_batches(trips: Any, tmp_path: Path) -> None:
    """TensorFlow Data Validation takes or leaves whole batches, and all trips would be one."""
    artifact, found = _run(
        Executor, trips, tmp_path, sample_rate_by_split=json.dumps({"test": 1e-9}), exclude_splits='["train"]'
    )
    assert {split: datasets[0].num_examples for split, datasets in found.items()} == {
        "eval": Manifest.load(trips.uri).rows["eval"],
        "test": 0,
    }
    assert "1e-09" in artifact.get_custom_property("sample_rate_by_split")


def test_examples_without_a_manifest_and_empty_splits_are_those_of_tfx(tmp_path: Path) -> None:
    """Another component's, whose features nobody knows before they are read: with no value, without a type, absent."""
    rows: dict[str, list[dict[str, Value]]] = {
        "train": [{"x": 1, "words": ["a", "b"]}, {"x": None, "empty": []}, {"y": 0.5}, {}],
        "eval": [],
    }
    write_examples(rows, tmp_path / "examples")
    (tmp_path / "examples" / MANIFEST_NAME).unlink()
    examples = _artifact(standard_artifacts.Examples, tmp_path / "examples")
    examples.split_names = artifact_utils.encode_split_names(list(rows))
    ours, theirs = (_run(each, examples, tmp_path) for each in (Executor, stock.Executor))
    assert ours[1]["train"][0].num_examples == 4
    assert ours[1]["eval"] == theirs[1]["eval"]
    _same(ours, theirs)


def test_a_file_that_was_cut_fails_with_its_name(tmp_path: Path) -> None:
    """TFX counts the rows that are left."""
    write_examples({"train": [{"x": number} for number in range(1000)]}, tmp_path / "examples")
    (path,) = (tmp_path / "examples" / "Split-train").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    examples = _artifact(standard_artifacts.Examples, tmp_path / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train"])
    with pytest.raises(DataError, match=rf"^\S*{path.name}: not a whole gzip TFRecord"):
        _run(Executor, examples, tmp_path)


def test_what_cannot_be_done_is_refused(trips: Any, tmp_path: Path) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match=r"exclude_splits: .* leaves none"):
        _run(Executor, trips, tmp_path, exclude_splits=json.dumps(["train", "eval", "test"]))
    with pytest.raises(ValueError, match="no split 'tset' among"):
        _run(Executor, trips, tmp_path, sample_rate_by_split=json.dumps({"tset": 0.5}))
    with pytest.raises(ConfigurationError, match="sharded_stats_output"):
        _run(Executor, trips, tmp_path, sharded_stats_output=1)
