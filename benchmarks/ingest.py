"""``python -m benchmarks.ingest``: what turns files into TFRecords of tf.Example, and how quickly, side by side.

Each side runs alone in a process of its own, all in turns. Seconds are those of the work, without imports; memory is
that of the process and all below it. The stock component is measured at fewer rows, and ours at as many beside it.
Small image files stand beside ``cat``, which only reads them, and a tenth of them shows whether memory grows.
"""

import argparse
import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.data_set import image_files, taxi_csv
from benchmarks.process_tree import PeakMemory

_TIMEOUT_S = 3600


@dataclasses.dataclass(frozen=True)
class _Side:
    """One line of the table: its name, what runs, on how many rows, and how their files are made."""

    name: str
    kind: str
    num_rows: int
    make: Callable[[Path, int], Path] = taxi_csv


@dataclasses.dataclass(frozen=True)
class _Run:
    seconds: float
    peak_bytes: int


def main(arguments: Sequence[str]) -> int:
    """Prints each run, and the ratios of the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--stock-rows", type=int, default=150_000, help="of the stock component; 0 leaves it out")
    parser.add_argument("--images", type=int, default=100_000, help="small image files; 0 leaves them out")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="for data and results")
    options = parser.parse_args(arguments)
    folder = options.dir.absolute()
    sides = [
        _Side("bare loop", "bare", options.rows),
        _Side("Lockstep", "lockstep", options.rows),
        _Side("Lockstep, Parquet", "lockstep", options.rows, _parquet),
    ]
    if options.stock_rows:
        sides += [
            _Side("stock", "stock", options.stock_rows),
            _Side("Lockstep, as many", "lockstep", options.stock_rows),
        ]
    if options.images:
        sides += [
            _Side("cat, images", "cat", options.images, image_files),
            _Side("Lockstep, images", "lockstep", options.images, image_files),
            _Side("Lockstep, a tenth", "lockstep", max(1, options.images // 10), image_files),
        ]
    runs: dict[str, list[_Run]] = {side.name: [] for side in sides}
    for repetition in range(options.repeat):
        for side in sides if repetition % 2 == 0 else sides[::-1]:
            run = _run(side, folder)
            runs[side.name].append(run)
            print(_line(side, run), flush=True)
    print(f"medians of {options.repeat}:")
    rates, memory = {}, {}
    for side in sides:
        seconds = statistics.median(run.seconds for run in runs[side.name])
        rates[side.name] = side.num_rows / seconds
        memory[side.name] = max(run.peak_bytes for run in runs[side.name])
        print(_line(side, _Run(seconds, memory[side.name])))
    print(f"Lockstep / bare loop: {rates['Lockstep'] / rates['bare loop']:.2f}")
    print(f"Parquet / CSV: {rates['Lockstep, Parquet'] / rates['Lockstep']:.2f}")
    if options.stock_rows:
        same = rates["Lockstep, as many"] / rates["stock"]
        print(f"Lockstep / stock at {options.stock_rows:,} rows: {same:.1f}")
        more = rates["Lockstep"] / rates["stock"]
        print(f"Lockstep at {options.rows:,} rows / stock at {options.stock_rows:,}: {more:.1f}")
    if options.images:
        print(f"images / cat: {rates['Lockstep, images'] / rates['cat, images']:.2f}")
        print(f"memory at ten times the images: {memory['Lockstep, images'] / memory['Lockstep, a tenth']:.2f} times")
    return 0


def _line(side: _Side, run: _Run) -> str:
    rate = side.num_rows / run.seconds
    return (
        f"  {side.name:<18} {side.num_rows:>10,} rows {run.seconds:8.1f} s {rate:>9,.0f} rows/s "
        f"{run.peak_bytes / 2**20:>7,.0f} MB"
    )


def _run(side: _Side, folder: Path) -> _Run:
    data = side.make(folder / "data", side.num_rows)
    output = folder / "ingest"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.ingest_child", side.kind, str(data), str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        with PeakMemory(child.pid) as memory:
            text, errors = child.communicate(timeout=_TIMEOUT_S)
        if child.returncode:
            raise SystemExit(f"{errors.decode()[-2000:]}\n{' '.join(command)} ended with {child.returncode}")
    outcome = json.loads(text.splitlines()[-1])
    if outcome["rows"] != side.num_rows:
        raise SystemExit(f"{side.name}: {outcome['rows']} records of {side.num_rows} rows")
    return _Run(outcome["seconds"], memory.peak_bytes)


def _parquet(cache_dir: Path, num_rows: int) -> Path:
    """Returns the rows of `taxi_csv` as Parquet, written once, with the types that pyarrow infers."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    path = cache_dir / f"taxi-{num_rows}-parquet" / "data.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pyarrow.csv.read_csv(taxi_csv(cache_dir, num_rows)), path, row_group_size=100_000)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
