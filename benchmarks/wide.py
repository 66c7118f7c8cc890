"""``python -m benchmarks.wide``: Transform and StatisticsGen over 500 columns, one of them with a million tokens.

To hold a run to 3 GB, start it in a control group of that size.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.beam_step_child import STEPS
from benchmarks.beam_steps import run_child, write_schema

_GROUP_ROWS = 5000
_NUM_CATEGORIES = 50


def main(arguments: Sequence[str]) -> int:
    """Prints what each step took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wide", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="distinct ones, a multiple of the rows")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--side", default="lockstep")
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="for data and results")
    options = parser.parse_args(arguments)
    folder = options.dir.absolute() / f"wide-{options.rows}-{options.columns}-{options.tokens}"
    if not folder.exists():
        _write_inputs(folder, options.rows, options.columns, options.tokens)
    for step in options.steps:
        run = run_child(options.side, step, folder, str(folder / "pipeline.yaml"))
        print(
            f"  {step}, {options.rows:,} rows, {options.columns} columns, {options.tokens:,} tokens, {options.side}:"
            f" {run.seconds:.1f} s, {run.processor_s:.1f} processor s, {run.peak_mb:,} MB",
            flush=True,
        )
    return 0


def _write_inputs(folder: Path, num_rows: int, num_columns: int, num_tokens: int) -> None:
    """Writes examples, a schema and a pipeline: half of the columns numbers, half words, and one lists of tokens."""
    from lockstep.components.example_gen.ingest import ingest
    from lockstep.components.example_gen.options import DataOptions, Requirements

    making = folder.with_name(f".making-{folder.name}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    numbers = [f"n{column:03d}" for column in range((num_columns - 1) // 2)]
    words = [f"w{column:03d}" for column in range(num_columns - 1 - len(numbers))]
    _write_parquet(making / "rows.parquet", numbers, words, num_rows, num_tokens // num_rows)
    splits = {"train": 9, "eval": 1}
    data = DataOptions(path=str(making / "rows.parquet"), splits=splits)
    manifest = ingest([data.path], data, making / "examples", Requirements(), lambda: None)
    write_schema(manifest.types, making)
    features = {
        **{name: {"kind": "numeric"} for name in numbers[1:]},
        **{name: {"kind": "vocabulary"} for name in words},
        "tokens": {"kind": "list", "max_values": num_tokens // num_rows},
    }
    config = {
        "name": "wide",
        "data": {"path": str(folder / "rows.parquet"), "splits": splits},
        "label": {"column": numbers[0], "kind": "regression"},
        "features": features,
        "model": {"build": "mlp"},
        "evaluate": {"ungated": True},
    }
    (making / "pipeline.yaml").write_text(json.dumps(config, indent=1))  # which YAML is
    making.rename(folder)


def _write_parquet(
    path: Path, numbers: Sequence[str], words: Sequence[str], num_rows: int, tokens_per_row: int
) -> None:
    random = np.random.default_rng(1)
    dictionary = np.array([f"word {number}" for number in range(_NUM_CATEGORIES)])
    schema = pa.schema(
        [
            *((name, pa.float32()) for name in numbers),
            *((name, pa.string()) for name in words),
            ("tokens", pa.list_(pa.string())),
        ]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, num_rows, _GROUP_ROWS):
            rows = min(_GROUP_ROWS, num_rows - first)
            tokens = [f"token {number}" for number in range(first * tokens_per_row, (first + rows) * tokens_per_row)]
            borders = np.arange(0, len(tokens) + 1, tokens_per_row)
            columns = [
                *(pa.array(random.normal(size=rows).astype(np.float32)) for _ in numbers),
                *(pa.array(dictionary[random.integers(_NUM_CATEGORIES, size=rows)]) for _ in words),
                pa.ListArray.from_arrays(borders, pa.array(tokens)),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
