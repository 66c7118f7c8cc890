"""The process of one run of ``benchmarks.beam_steps``: one executor, of TFX or of ours, on given artifacts."""

import dataclasses
import json
import logging
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

SIDES = ("stock", "lockstep")
STEPS = ("transform", "statistics")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What a run took: seconds, processor seconds of the process, and the most memory it held."""

    seconds: float
    processor_s: float
    peak_mb: int


def main(side: str, step: str, folder: Path, config: str) -> int:
    """Runs a step and prints a ``Run`` as JSON."""
    logging.disable(logging.WARNING)
    output = folder / f"{step}-{side}"
    shutil.rmtree(output, ignore_errors=True)
    prepare = {"transform": _transform, "statistics": _statistics}[step]
    executor, *arguments = prepare(side, folder, output, config)
    begin, processor = time.perf_counter(), time.process_time()
    executor.Do(*arguments)
    run = Run(
        seconds=time.perf_counter() - begin,
        processor_s=time.process_time() - processor,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    )
    print(json.dumps(dataclasses.asdict(run)))
    return 0


def _artifact(kind: type, path: Path) -> Any:
    made = kind()
    made.uri = str(path)
    return made


def _examples(folder: Path) -> Any:
    from tfx.types import artifact_utils, standard_artifacts

    from lockstep.components.record_manifest import Manifest

    examples = _artifact(standard_artifacts.Examples, folder / "examples")
    examples.split_names = artifact_utils.encode_split_names(list(Manifest.load(examples.uri).shards))
    return examples


def _context(output: Path, config: Any) -> Any:
    from tfx.dsl.components.base import base_beam_executor

    from lockstep.pipelines.beam_engines import beam_arguments

    return base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=beam_arguments(config.beam), tmp_dir=str(output / "tmp"), unique_id="1"
    )


def _transform(side: str, folder: Path, output: Path, name: str) -> tuple[Any, ...]:
    """Transforms, as the pipeline of a configuration does."""
    from tfx.components.transform import executor as stock
    from tfx.types import standard_artifacts
    from tfx.utils import json_utils

    from lockstep.components.transform.executor import Executor
    from lockstep.components.transform.options import TransformOptions
    from lockstep.pipelines.config import load_config
    from lockstep.transforms.features import to_config

    config = load_config(name)[0].config
    return (
        {"stock": stock.Executor, "lockstep": Executor}[side](_context(output, config)),
        {"examples": [_examples(folder)], "schema": [_artifact(standard_artifacts.Schema, folder / "schema")]},
        {
            "transform_graph": [_artifact(standard_artifacts.TransformGraph, output / "graph")],
            "transformed_examples": [_artifact(standard_artifacts.Examples, output / "examples")],
        },
        {
            "preprocessing_fn": "lockstep.transforms.preprocessing.preprocessing_fn",
            "custom_config": json_utils.dumps(to_config(config.features, config.label)),
            "disable_statistics": 1,
            "spec": TransformOptions().to_json(),
        },
    )


def _statistics(side: str, folder: Path, output: Path, name: str) -> tuple[Any, ...]:
    from tfx.components.statistics_gen import executor as stock
    from tfx.types import standard_artifacts

    from lockstep.components.statistics_gen.executor import Executor
    from lockstep.pipelines.config import load_config

    context = _context(output, load_config(name)[0].config)
    return (
        {"stock": stock.Executor, "lockstep": Executor}[side](context),
        {"examples": [_examples(folder)]},
        {"statistics": [_artifact(standard_artifacts.ExampleStatistics, output / "statistics")]},
        {"exclude_splits": "[]"},
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
