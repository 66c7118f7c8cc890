"""``python -m benchmarks.beam_steps``: TFX's Transform and StatisticsGen beside ours, on the same examples, in turns.

Each run is a process of its own; its seconds are those of the executor, its memory that of the process.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.beam_step_child import SIDES, STEPS, Run
from benchmarks.data_set import taxi_csv

_SCHEMA = "schema.pbtxt"


def main(arguments: Sequence[str]) -> int:
    """Prints each run, and the ratios of the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beam_steps", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[150_000])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="for data and results")
    options = parser.parse_args(arguments)
    for num_rows in options.rows:
        folder = options.dir.absolute() / f"beam-steps-{num_rows}"
        if not folder.exists():
            _write_inputs(taxi_csv(options.dir.absolute() / "data", num_rows), folder)
        for step in options.steps:
            _compare(step, num_rows, options.repeat, folder)
    return 0


def run_child(side: str, step: str, folder: Path, config: str = "taxi") -> Run:
    """Runs a step once, in a process of its own.

    Args:
      side: One of ``SIDES``.
      step: One of ``STEPS``.
      folder: Of ``write_inputs``; the output goes below it, and replaces an earlier one.
      config: The pipeline's YAML file, or the name of an example.
    """
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.beam_step_child", side, step, str(folder), config]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def _compare(step: str, num_rows: int, repeat: int, folder: Path) -> None:
    runs: dict[str, list[Run]] = {side: [] for side in SIDES}
    for repetition in range(repeat):
        for side in SIDES if repetition % 2 == 0 else reversed(SIDES):
            run = run_child(side, step, folder)
            runs[side].append(run)
            print(
                f"  {step}, {num_rows:>9,} rows, {side:<8} {run.seconds:6.1f} s, {run.processor_s:6.1f} processor s,"
                f" {run.peak_mb:5,} MB, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    for name in ("seconds", "processor_s", "peak_mb"):
        stock, ours = (statistics.median(getattr(run, name) for run in runs[side]) for side in SIDES)
        print(f"{step}, {num_rows:,} rows, {name}: {stock:,.1f} / {ours:,.1f} = {stock / ours:.2f}", flush=True)


def _write_inputs(data: Path, folder: Path) -> None:
    from lockstep.components.example_gen.ingest import ingest
    from lockstep.components.example_gen.options import DataOptions, Requirements

    making = folder.with_name(f".making-{folder.name}")
    shutil.rmtree(making, ignore_errors=True)
    manifest = ingest([str(data)], DataOptions(path=str(data)), making / "examples", Requirements(), lambda: None)
    write_schema(manifest.types, making)
    making.rename(folder)


def write_schema(types: Mapping[str, str], folder: Path) -> None:
    """Writes a schema of columns as SchemaGen infers it: no shapes."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from lockstep.components.example_gen.options import STORED

    stored = {"int": schema_pb2.INT, "float": schema_pb2.FLOAT, "string": schema_pb2.BYTES}
    kinds: dict[str, int] = {kind: stored[name] for kind, name in STORED.items()}
    features = [schema_pb2.Feature(name=name, type=kinds[kind]) for name, kind in types.items()]
    (folder / "schema").mkdir()
    (folder / "schema" / _SCHEMA).write_text(text_format.MessageToString(schema_pb2.Schema(feature=features)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
