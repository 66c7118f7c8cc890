"""Transform as a whole, beside TFX's on the same artifacts."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2
from tfx.components.transform import executor as tfx_executor
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2, transform_pb2
from tfx.utils import proto_utils

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.components.record_manifest import MANIFEST_NAME, Manifest, read_raw_columns, recorded_counts
from lockstep.components.tfrecord_files import count_records
from lockstep.components.transform.processor import Processor
from tests.components.transform.conftest import STOCK, Case, Transformed, rows

pytestmark = pytest.mark.slow


def _same_graph(ours: Transformed, theirs: Transformed) -> None:
    """Same schema and vocabulary, and the same values of a row that neither has seen."""
    graphs = [tft.TFTransformOutput(str(run.folder / "graph")) for run in (ours, theirs)]
    assert graphs[0].transformed_metadata.schema == graphs[1].transformed_metadata.schema
    assert graphs[0].raw_metadata.schema == graphs[1].raw_metadata.schema
    assert graphs[0].vocabulary_by_name("words") == graphs[1].vocabulary_by_name("words")
    example = tf.train.Example()
    example.features.feature["number"].float_list.value.append(3.5)
    example.features.feature["word"].bytes_list.value.append(b"word 3")
    raw = [tf.io.parse_example([example.SerializeToString()], graph.raw_feature_spec()) for graph in graphs]
    made = [graph.transform_features_layer()(values) for graph, values in zip(graphs, raw, strict=True)]
    for name in made[0]:
        dense = [
            tf.sparse.to_dense(values[name]) if isinstance(values[name], tf.SparseTensor) else values[name]
            for values in made
        ]
        assert dense[0].numpy().tolist() == dense[1].numpy().tolist(), name


def _statistics(run: Transformed, key: str) -> statistics_pb2.DatasetFeatureStatisticsList:
    path = Path(run.artifacts[key][0].uri) / "FeatureStats.pb"
    found = statistics_pb2.DatasetFeatureStatisticsList.FromString(path.read_bytes())
    for feature in (feature for dataset in found.datasets for feature in dataset.features):
        # Bytes of an example differ from batch to batch in their order only; quantiles are sketches of the batches.
        for kind in (feature.num_stats, feature.string_stats):
            kind.common_stats.ClearField("num_values_histogram")
        feature.num_stats.ClearField("histograms")
        feature.num_stats.ClearField("median")
    return found


def test_records_graph_and_statistics_are_those_of_tfx(case: Case) -> None:
    """Dense columns, one of two values, a sparse one; statistics before and after, and anomalies."""
    case.add({"train": rows(200), "eval": rows(60, first=200)})
    ours, theirs = case.run(with_statistics=True), case.run(STOCK, with_statistics=True)
    for split, count in {"train": 200, "eval": 60}.items():
        assert sum(ours.records(split).values()) == count
        assert ours.records(split) == theirs.records(split)
    _same_graph(ours, theirs)
    for key in ("pre_transform_stats", "post_transform_stats"):
        mine, their = _statistics(ours, key), _statistics(theirs, key)
        assert len(mine.datasets[0].features) == len(their.datasets[0].features)
        by_name = {feature.path.step[0]: feature for feature in their.datasets[0].features}
        for feature in mine.datasets[0].features:
            assert _rounded(feature) == _rounded(by_name[feature.path.step[0]])
    for key in ("pre_transform_schema", "post_transform_schema"):
        texts = [(Path(run.artifacts[key][0].uri) / "schema.pbtxt").read_text() for run in (ours, theirs)]
        assert texts[0] == texts[1]
    anomalies = [
        anomalies_pb2.Anomalies.FromString(
            (Path(run.artifacts["post_transform_anomalies"][0].uri) / "SchemaDiff.pb").read_bytes()
        )
        for run in (ours, theirs)
    ]
    assert anomalies[0] == anomalies[1]


def _rounded(feature: statistics_pb2.FeatureNameStatistics) -> str:
    """Means are sums over batches, whose order and size differ."""
    feature.num_stats.mean = round(feature.num_stats.mean, 4)
    feature.num_stats.std_dev = round(feature.num_stats.std_dev, 4)
    return str(feature)


def test_ragged_outputs_are_those_of_tfx(case: Case) -> None:
    """Whose borders are features of their own."""
    case.add({"train": rows(20)})
    ours, theirs = case.run(function="ragged"), case.run(STOCK, function="ragged")
    assert sum(ours.records("train").values()) == 20
    assert ours.records("train") == theirs.records("train")


def test_rows_may_be_made_more(case: Case) -> None:
    """The batch is the unit, as for TFX."""
    case.add({"train": rows(20)})
    run = case.run(function="twice")
    assert run.records("train") == case.run(STOCK, function="twice").records("train")
    assert Manifest.load(run.artifacts["transformed_examples"][0].uri).rows == {"train": 40}


def test_shards_are_as_many_as_configured_and_the_same_every_time(case: Case) -> None:
    """The manifest counts what is in them, and their bytes depend on the input alone."""
    raw = case.add({"train": rows(100), "eval": rows(7)}, num_shards=3)
    types = {"count": "timestamp", "word": "string"}
    said = dataclasses.replace(Manifest.load(str(raw)), types=types, time_formats={"count": "unix"})
    (raw / MANIFEST_NAME).write_text(said.to_json())
    first, second = case.run(num_shards=4), case.run(num_shards=4)
    assert read_raw_columns(first.folder / "graph") == said.raw_columns
    root = Path(first.artifacts["transformed_examples"][0].uri)
    manifest = Manifest.load(str(root))
    assert manifest.rows == {"train": 100, "eval": 7}
    assert sorted(path.name for path in root.iterdir()) == ["Split-eval", "Split-train", "manifest.json"]
    for split, shards in manifest.shards.items():
        files = sorted(str(path) for path in (root / f"Split-{split}").iterdir())
        assert files == [str(root / shard.path) for shard in shards]
        assert len(files) == 4
        counts = tuple(count_records(file) for file in files)
        assert recorded_counts(files) == counts
        assert max(counts) - min(counts) <= 2
    other = Path(second.artifacts["transformed_examples"][0].uri)
    for path in root.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (other / path.relative_to(root)).read_bytes()


def test_several_artifacts_become_several_and_a_cache_spares_their_analysis(case: Case) -> None:
    """Spans of a growing data set: the second run analyses the new one alone, with the same result as without."""
    case.add({"train": rows(50)})
    first = case.run()
    case.add({"train": rows(70, first=50)})
    cached = case.run(cache=first.artifacts["updated_analyzer_cache"][0].uri)
    theirs = case.run(STOCK)
    assert len(cached.artifacts["transformed_examples"]) == 2
    for artifact, count in enumerate((50, 70)):
        assert sum(cached.records("train", artifact).values()) == count
        assert cached.records("train", artifact) == theirs.records("train", artifact)
        uri = cached.artifacts["transformed_examples"][artifact].uri
        assert Manifest.load(uri).rows == {"train": count}
    _same_graph(cached, theirs)
    # Rows that went through the graph: of the first span those that are written alone.
    assert first.counters["num_instances"] == 50 + 50
    assert cached.counters["num_instances"] == 70 + (50 + 70)
    assert cached.counters["analysis_input_bytes_from_cache"] == first.counters["analysis_input_bytes"]
    assert cached.counters["analyze_paths_count"] == cached.counters["cached_datasets"] == 2
    # One of each analyser: the vocabulary, and the extremes.
    assert cached.counters["cache_entries_decoded"] == cached.counters["cache_entries_encoded"] == 2
    assert first.counters["cache_entries_encoded"] == 2
    assert "cache_entries_decoded" not in first.counters


def test_splits_config_says_what_is_analysed_and_transformed(case: Case) -> None:
    """Here nothing of the split that is analysed is written."""
    case.add({"train": rows(30), "eval": rows(20), "more": rows(10)})
    config = proto_utils.proto_to_json(transform_pb2.SplitsConfig(analyze=["train", "more"], transform=["eval"]))
    ours = case.run(splits_config=config)
    assert Manifest.load(ours.artifacts["transformed_examples"][0].uri).rows == {"eval": 20}
    assert ours.counters["num_instances"] == 60  # 40 analysed, 20 transformed
    root = Path(ours.artifacts["transformed_examples"][0].uri)
    assert sorted(path.name for path in root.iterdir()) == ["Split-eval", "manifest.json"]
    assert ours.artifacts["transformed_examples"][0].split_names == '["eval"]'


def test_without_examples_only_the_graph_is_written(case: Case) -> None:
    """``materialize=False``."""
    case.add({"train": rows(30)})
    ours = case.run(with_examples=False)
    assert len(tft.TFTransformOutput(str(ours.folder / "graph")).vocabulary_by_name("words")) == 7
    assert not (ours.folder / "examples").exists()


def test_a_damaged_file_fails_with_its_name_and_nothing_is_written(case: Case) -> None:
    """The message alone, out of Beam's traceback."""
    folder = case.add({"train": rows(3000)})
    path = sorted((folder / "Split-train").iterdir())[1]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=rf"^{path}: not a whole gzip TFRecord \(.*\); run the step.*again$"):
        case.run()
    assert list((case.root / "run-1" / "examples").iterdir()) == []


def test_an_empty_split_fails_before_anything_runs(case: Case) -> None:
    """tf.Transform would scale by a mean of nothing."""
    case.add({"train": [], "eval": rows(3)})
    with pytest.raises(DataError, match=r"split 'train' has no records in .*Split-train; give it some"):
        case.run()


def test_other_payloads_are_refused_with_the_channel(case: Case) -> None:
    """TFX's own Transform reads them."""
    case.add({"train": rows(3)})
    examples_utils.set_payload_format(case.examples[0], example_gen_pb2.FORMAT_PROTO)
    with pytest.raises(ConfigurationError, match="examples: payload format FORMAT_PROTO is not allowed"):
        case.run()
    examples_utils.set_payload_format(case.examples[0], example_gen_pb2.FORMAT_TF_EXAMPLE)
    examples_utils.set_file_format(case.examples[0], "FILE_FORMAT_PARQUET")
    with pytest.raises(ConfigurationError, match="examples: file format FILE_FORMAT_PARQUET"):
        case.run()


_FULL_DISK = """
import resource, sys
from pathlib import Path
from lockstep.components.errors import StepFailed
from tests.components.transform.conftest import Case, rows

case = Case(Path(sys.argv[1]))
case.add({"train": [{"count": i, "word": f"{i * 7919 % 10007:x}" * 9} for i in range(40000)]})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    case.run(num_shards=1)
except StepFailed as e:
    print(e)
"""


def test_no_space_fails_the_step_and_leaves_no_examples(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    command = [sys.executable, "-c", _FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "no space left to write the examples" in done.stdout
    assert list((tmp_path / "run-1" / "examples").iterdir()) == []


def test_the_seam_in_tfx_is_as_we_know_it() -> None:
    """A release of TFX that renames one of them would leave ours unused, without a word."""
    for name in ("_CreateTFXIO", "_GetTFXIOPassthroughKeys", "_EncodeAndWrite", "Transform"):
        assert hasattr(tfx_executor.TransformProcessor, name)
    assert set(vars(Processor)) - {"__module__", "__doc__", "__init__"} == {
        "_CreateTFXIO",
        "_GetTFXIOPassthroughKeys",
        "_EncodeAndWrite",
    }
