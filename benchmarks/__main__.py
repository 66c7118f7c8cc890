"""``python -m benchmarks``: the taxi pipeline of stock TFX components and Lockstep's, in turns, and a table a size."""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.artifacts import read_outcome
from benchmarks.data_set import taxi_csv
from benchmarks.measurement import Measurement, RunFailedError, Side, measure
from benchmarks.outcome import Outcome, differences
from benchmarks.table import table

_SIZES = (15_000, 150_000)
_SMALL = 150_000  # rows up to which two repetitions are the default


def main(arguments: Sequence[str]) -> int:
    """Measures all sizes; returns the exit code: 1 where a run failed or the two did not do the same work."""
    options = _parser().parse_args(arguments)
    print(machine(), flush=True)
    overrides = [] if options.workers is None else [f"train.workers={options.workers}"]
    try:
        for position, num_rows in enumerate(options.rows):
            repeat = options.repeat or (2 if num_rows <= _SMALL else 1)
            measurements = _measure_size(num_rows, repeat, options.dir.absolute(), overrides, first=position % 2)
            print("\n" + table(num_rows, measurements["stock"], measurements["lockstep"]) + "\n", flush=True)
    except RunFailedError as e:
        print(f"bench: {e}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=_count, nargs="+", default=_SIZES, help="sizes (default: 15000 150000)")
    parser.add_argument("--repeat", type=_count, help="runs of each (default: 2 up to 150000 rows, 1 above)")
    parser.add_argument(
        "--workers", type=_count, help="processes in which Lockstep trains (default: as taxi.yaml says)"
    )
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="for data, results and failed runs")
    return parser


def _count(text: str) -> int:
    number = int(text.replace(",", "").replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; give 1 or more")
    return number


def _measure_size(
    num_rows: int, repeat: int, folder: Path, overrides: Sequence[str], *, first: int
) -> dict[Side, list[Measurement]]:
    """Runs both pipelines in turns on one size, checks each pair, and writes the results as JSON."""
    data = taxi_csv(folder / "data", num_rows)
    measurements: dict[Side, list[Measurement]] = {"stock": [], "lockstep": []}
    outcomes: list[dict[Side, Outcome]] = []
    sides: tuple[Side, Side] = ("stock", "lockstep")
    for repetition in range(repeat):
        pair: dict[Side, Outcome] = {}
        roots: list[Path] = []  # those of a pair that cannot be compared stay, to look into
        for side in sides if (first + repetition) % 2 == 0 else reversed(sides):
            root = folder / "runs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{side}-{num_rows}"
            measured = measure(side, data=data, root=root, overrides=overrides)
            measurements[side].append(measured)
            pair[side] = read_outcome(root)
            roots.append(root)
            print(_progress(num_rows, repetition, measured, pair[side]), flush=True)
        found = differences(pair["stock"], pair["lockstep"])
        if found:
            reasons = "".join(f"\n  {reason}" for reason in found)
            folders = ", ".join(map(str, roots))
            raise RunFailedError(f"the two did not do the same work, so there is no comparison ({folders}):{reasons}")
        for root in roots:
            shutil.rmtree(root)
        outcomes.append(pair)
    _write_results(folder / "results", num_rows, measurements, outcomes)
    return measurements


def _progress(num_rows: int, repetition: int, measured: Measurement, outcome: Outcome) -> str:
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in outcome.metrics.items())
    return (
        f"  {num_rows:,} rows, run {repetition + 1}, {measured.side:<8} {measured.total_s:7.1f} s"
        f"  (load before {measured.load:.1f}; {metrics}, {'blessed' if outcome.blessed else 'not blessed'})"
    )


def _write_results(
    folder: Path,
    num_rows: int,
    measurements: dict[Side, list[Measurement]],
    outcomes: Sequence[dict[Side, Outcome]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": machine(),
        "rows": num_rows,
        "measurements": {side: [dataclasses.asdict(m) for m in each] for side, each in measurements.items()},
        "outcomes": [{side: dataclasses.asdict(outcome) for side, outcome in pair.items()} for pair in outcomes],
    }
    path = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{num_rows}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"  results in {path}", flush=True)


def machine() -> str:
    """Returns time, cores, load and versions, in one line."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tfx", "tensorflow", "apache-beam"))
    python = ".".join(map(str, sys.version_info[:3]))
    cores = len(os.sched_getaffinity(0))
    return (
        f"{time.strftime('%Y-%m-%d %H:%M')}, {cores} cores, load {os.getloadavg()[0]:.1f}; {versions}, Python {python}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
