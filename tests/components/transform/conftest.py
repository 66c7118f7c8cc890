"""Runs TFX's executor and ours on the same artifacts."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import tensorflow as tf
from tfx.components.transform import executor as stock
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils, standard_artifacts

from lockstep.components.example_gen.rows import Value, write_examples
from lockstep.components.transform.executor import Executor
from lockstep.components.transform.options import TransformOptions
from tests.components.transform import preprocessing

BEAM_ARGUMENTS = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner", "--sdk_container_image=unused"]
STATISTICS = {
    "pre_transform_schema": standard_artifacts.Schema,
    "pre_transform_stats": standard_artifacts.ExampleStatistics,
    "post_transform_schema": standard_artifacts.Schema,
    "post_transform_stats": standard_artifacts.ExampleStatistics,
    "post_transform_anomalies": standard_artifacts.ExampleAnomalies,
}


def rows(num_rows: int, first: int = 0) -> list[dict[str, Value]]:
    """Rows with every kind of missing value."""
    made: list[dict[str, Value]] = []
    for i in range(first, first + num_rows):
        row: dict[str, Value] = {"count": i, "word": f"word {i % 7}"}
        if i % 4:
            row["words"] = [f"w{j}" for j in range(i % 4)]
        if i % 5:
            row["number"] = i / 4
        made.append(row)
    return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformed:
    """What a run left behind."""

    folder: Path
    artifacts: Mapping[str, Sequence[Any]]
    counters: Mapping[str, int]

    def records(self, split: str, artifact: int = 0) -> "Counter[bytes]":
        """The records of a split, without their order."""
        return Counter(
            tf.train.Example.FromString(record).SerializeToString(deterministic=True)
            for record in self.in_order(split, artifact)
        )

    def in_order(self, split: str, artifact: int = 0) -> list[bytes]:
        """The records of a split, file after file."""
        folder = Path(self.artifacts["transformed_examples"][artifact].uri) / f"Split-{split}"
        files = sorted(str(path) for path in folder.iterdir())
        return list(tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator())


class Case:
    """Raw examples, and the ways to transform them, below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "schema").mkdir(parents=True)
        (root / "schema" / "schema.pbtxt").write_text(preprocessing.SCHEMA)
        self.examples: list[standard_artifacts.Examples] = []
        self._runs = 0

    def add(self, rows_by_split: Mapping[str, Sequence[Mapping[str, Value]]], num_shards: int = 2) -> Path:
        """Adds an artifact of raw examples; returns its folder."""
        folder = self.root / f"examples-{len(self.examples)}"
        write_examples(rows_by_split, folder, num_shards)
        artifact = _artifact(standard_artifacts.Examples, folder)
        artifact.split_names = artifact_utils.encode_split_names(list(rows_by_split))
        self.examples.append(artifact)
        return folder

    def run(
        self,
        executor: type = Executor,
        *,
        function: str = "dense_and_sparse",
        num_shards: int = 3,
        with_statistics: bool = False,
        cache: str | None = None,
        with_examples: bool = True,
        **properties: object,
    ) -> Transformed:
        """Transforms; ``cache`` is the URI of an earlier run's."""
        self._runs += 1
        folder = self.root / f"run-{self._runs}"
        outputs: dict[str, list[Any]] = {
            "transform_graph": [_artifact(standard_artifacts.TransformGraph, folder / "graph")],
            "updated_analyzer_cache": [_artifact(standard_artifacts.TransformCache, folder / "cache")],
        }
        if with_examples:
            outputs["transformed_examples"] = [_artifact(standard_artifacts.Examples, folder / "examples")]
        if with_statistics:
            outputs |= {key: [_artifact(kind, folder / key)] for key, kind in STATISTICS.items()}
        inputs: dict[str, list[Any]] = {
            "examples": list(self.examples),
            "schema": [_artifact(standard_artifacts.Schema, self.root / "schema")],
        }
        if cache is not None:
            inputs["analyzer_cache"] = [_artifact(standard_artifacts.TransformCache, Path(cache))]
        pipelines: list[beam.Pipeline] = []

        def make_pipeline() -> beam.Pipeline:
            pipelines.append(beam.Pipeline(argv=BEAM_ARGUMENTS))
            return pipelines[-1]

        context = base_beam_executor.BaseBeamExecutor.Context(
            beam_pipeline_args=BEAM_ARGUMENTS,
            make_beam_pipeline_fn=make_pipeline,
            tmp_dir=str(folder / "tmp"),
            unique_id="1",
        )
        executor(context).Do(
            inputs,
            outputs,
            {
                "preprocessing_fn": f"{preprocessing.__name__}.{function}",
                "custom_config": json.dumps({"missing": -1.0}),
                "disable_statistics": int(not with_statistics),
                "spec": TransformOptions(num_shards=num_shards).to_json(),
                **properties,
            },
        )
        return Transformed(folder=folder, artifacts=outputs, counters=_counters(pipelines))


def _counters(pipelines: Sequence[beam.Pipeline]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for pipeline in pipelines:
        for counter in pipeline.result.metrics().query()["counters"]:
            found[counter.key.metric.name] += counter.result
    return dict(found)


def _artifact(cls: type, folder: Path) -> Any:
    artifact = cls()
    artifact.uri = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return artifact


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Raw examples to be."""
    return Case(tmp_path)


STOCK = stock.Executor
