"""``python -m benchmarks.transform``: TFX's Transform and ours on the same examples, in turns in one process.

Seconds, and processor seconds of the process, which other work on the machine disturbs less.
"""

import argparse
import dataclasses
import logging
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.data_set import taxi_csv

_SCHEMA = "schema.pbtxt"


def main(arguments: Sequence[str]) -> int:
    """Prints each run, and the ratios of the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transform", description=__doc__)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="for data and results")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    folder = options.dir.absolute() / "transform"
    shutil.rmtree(folder, ignore_errors=True)
    data = taxi_csv(options.dir.absolute() / "data", options.rows)
    _write_inputs(data, folder)
    seconds: dict[str, list[tuple[float, float]]] = {"stock": [], "lockstep": []}
    for repetition in range(options.repeat):
        for side in ("stock", "lockstep") if repetition % 2 == 0 else ("lockstep", "stock"):
            seconds[side].append(_run(side, folder))
            wall, processor = seconds[side][-1]
            print(f"  {options.rows:,} rows, {side:<8} {wall:6.1f} s, {processor:6.1f} processor s", flush=True)
    for place, name in enumerate(("seconds", "processor seconds")):
        stock, ours = (statistics.median(each[place] for each in seconds[side]) for side in ("stock", "lockstep"))
        print(f"{name}: {stock:.1f} / {ours:.1f} = {stock / ours:.2f}")
    return 0


def _write_inputs(data: Path, folder: Path) -> None:
    """Writes examples, and a schema of all their columns as SchemaGen infers it: no shapes."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from lockstep.components.example_gen.ingest import ingest
    from lockstep.components.example_gen.options import STORED, DataOptions, Requirements

    manifest = ingest([str(data)], DataOptions(path=str(data)), folder / "examples", Requirements(), lambda: None)
    stored = {"int": schema_pb2.INT, "float": schema_pb2.FLOAT, "string": schema_pb2.BYTES}
    types: dict[str, int] = {kind: stored[name] for kind, name in STORED.items()}
    schema = schema_pb2.Schema(
        feature=[schema_pb2.Feature(name=name, type=types[kind]) for name, kind in manifest.types.items()]
    )
    (folder / "schema").mkdir()
    (folder / "schema" / _SCHEMA).write_text(text_format.MessageToString(schema))


def _run(side: str, folder: Path) -> tuple[float, float]:
    """Transforms once, as the taxi example's pipeline does."""
    from tfx.components.transform import executor as stock
    from tfx.dsl.components.base import base_beam_executor
    from tfx.types import artifact_utils, standard_artifacts
    from tfx.utils import json_utils

    from lockstep.components.transform.executor import Executor
    from lockstep.components.transform.options import TransformOptions
    from lockstep.pipelines.beam_engines import beam_arguments
    from lockstep.pipelines.config import load_config

    config = load_config("taxi")[0].config
    output = folder / side
    shutil.rmtree(output, ignore_errors=True)

    def artifact(kind: type, path: Path) -> Any:
        made = kind()
        made.uri = str(path)
        return made

    examples = artifact(standard_artifacts.Examples, folder / "examples")
    examples.split_names = artifact_utils.encode_split_names(list(config.data.splits))
    parameters = {
        "features": {column: dataclasses.asdict(feature) for column, feature in config.features.items()},
        "label": dataclasses.asdict(config.label),
    }
    context = base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=beam_arguments(config.beam), tmp_dir=str(output / "tmp"), unique_id="1"
    )
    executor = {"stock": stock.Executor, "lockstep": Executor}[side](context)
    wall, processor = time.perf_counter(), time.process_time()
    executor.Do(
        {"examples": [examples], "schema": [artifact(standard_artifacts.Schema, folder / "schema")]},
        {
            "transform_graph": [artifact(standard_artifacts.TransformGraph, output / "graph")],
            "transformed_examples": [artifact(standard_artifacts.Examples, output / "examples")],
        },
        {
            "preprocessing_fn": "lockstep.transforms.preprocessing.preprocessing_fn",
            "custom_config": json_utils.dumps(parameters),
            "disable_statistics": 1,
            "spec": TransformOptions().to_json(),
        },
    )
    return time.perf_counter() - wall, time.process_time() - processor


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
