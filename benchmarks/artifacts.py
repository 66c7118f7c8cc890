"""Reads what a run produced from its artifacts, in the same way for both pipelines.

In a process of its own (``python -m benchmarks.artifacts ROOT`` prints the outcome as JSON), since TFMA takes seconds
to import and fills the console.
"""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.outcome import Outcome


def read_outcome(root: Path) -> Outcome:
    """Reads the artifacts of the only run under a root.

    Raises:
      RuntimeError: A step left nothing; the message holds what the reading process said.
    """
    command = [sys.executable, "-m", "benchmarks.artifacts", str(root)]
    folder = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{root}: its artifacts cannot be read:\n{done.stderr[-2000:]}")
    return Outcome(**json.loads(done.stdout))


def _read(root: Path) -> Outcome:
    import tensorflow_model_analysis as tfma
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

    artifacts = root / "artifacts"
    rows: dict[str, int] = {}
    columns: set[str] = set()
    for path in artifacts.glob("StatisticsGen/statistics/*/Split-*/FeatureStats.pb"):
        [dataset] = statistics_pb2.DatasetFeatureStatisticsList.FromString(path.read_bytes()).datasets
        rows[path.parent.name.removeprefix("Split-")] = dataset.num_examples
        for feature in dataset.features:
            kind = getattr(feature, feature.WhichOneof("stats"))
            if kind.common_stats.num_non_missing and kind.common_stats.tot_num_values:
                columns.add(feature.path.step[0])
    schema_path = _only(artifacts, "Transform/transform_graph/*/transformed_metadata/schema.pbtxt")
    schema = text_format.Parse(schema_path.read_text(encoding="utf-8"), schema_pb2.Schema())
    metrics = tfma.load_eval_result(str(_only(artifacts, "Evaluator/evaluation/*"))).get_metrics_for_all_slices()
    return Outcome(
        rows=rows,
        columns=sorted(columns),
        features={feature.name: schema_pb2.FeatureType.Name(feature.type) for feature in schema.feature},
        steps=json.loads(_only(artifacts, "*/model_run/*/summary.json").read_text(encoding="utf-8"))["steps"],
        metrics={name: value["doubleValue"] for name, value in metrics[()].items()},
        num_slices=len(metrics),
        blessed=_only(artifacts, "Evaluator/blessing/*/*").name == "BLESSED",
        pushed=any((root / "pushed").glob("*/saved_model.pb")),
    )


def _only(folder: Path, pattern: str) -> Path:
    paths = list(folder.glob(pattern))
    if len(paths) != 1:
        raise FileNotFoundError(f"{folder}: {len(paths)} files {pattern}, one was expected")
    return paths[0]


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(_read(Path(sys.argv[1])))))
