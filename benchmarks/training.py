"""``python -m benchmarks.training``: the trainer's figures, each beside what it is compared with, in one run."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.__main__ import machine
from benchmarks.data_set import taxi_csv
from benchmarks.training_watch import checkpoint_s, rates, recovery_s
from lockstep.components.trainer.spec import ModelOptions, TrainSpec
from lockstep.pipelines.batch_tuning import training_spec
from lockstep.pipelines.config import load_config
from lockstep.pipelines.run_files import RootFiles

_REPOSITORY = Path(__file__).resolve().parent.parent
_LARGE = {"hidden": [2200, 2200]}
_CHECKPOINT_S = 30.0

# Name -> examples a second and a second of processor time; or seconds, the same twice.
Figures = dict[str, tuple[float, float]]


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints a line a figure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--rows", type=int, default=150_000, help="of taxi data (default: 150000)")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each figure, of which the best counts")
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="for data and results")
    options = parser.parse_args(arguments)
    print(machine(), flush=True)
    folder = options.dir.absolute()
    spec = prepared(folder, options.rows)
    figures = measure_all(spec, folder, repeat=options.repeat)
    print("\n" + report(figures) + "\n")
    path = folder / "results" / f"{time.strftime('%Y%m%dT%H%M%S')}-training.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=2) + "\n", encoding="utf-8")
    print(f"  results in {path}")
    return 0


def measure_all(spec: TrainSpec, folder: Path, *, repeat: int) -> Figures:
    """Returns name -> figure, best of the repetitions; what is compared is measured in turns."""
    small = dataclasses.replace(spec, options=dataclasses.replace(spec.options, workers=1))
    large = dataclasses.replace(spec, model=ModelOptions(parameters=_LARGE))
    ours: dict[str, Callable[[], tuple[float, float]]] = {
        "lockstep-1": lambda: rates(_with(small, steps_per_call=1)),
        "lockstep-10": lambda: rates(_with(small, steps_per_call=10)),
        "small, 1 worker": lambda: rates(_with(spec, workers=1, batch_size=480)),
        "small, 2 workers": lambda: rates(_with(spec, workers=2, batch_size=480)),
        "large, 1 worker": lambda: rates(_with(large, workers=1, batch_size=480, steps_per_call=1)),
        "large, 2 workers": lambda: rates(_with(large, workers=2, batch_size=480, steps_per_call=1)),
    }
    spec_path = folder / "training-spec.json"
    spec_path.write_text(small.to_json(), encoding="utf-8")
    best: Figures = {}
    for _ in range(repeat):
        for kind in ("input", "fit-1", "lockstep-1", "fit-10", "lockstep-10", *list(ours)[2:]):
            found = {kind: ours[kind]()} if kind in ours else _child(kind, spec_path)
            for name, (rate, processor_rate) in found.items():
                load = os.getloadavg()[0]
                print(f"  {name}: {rate:,.0f} a second, {processor_rate:,.0f} a processor second (load {load:.1f})")
                sys.stdout.flush()
                before = best.get(name, (0.0, 0.0))
                best[name] = (max(before[0], rate), max(before[1], processor_rate))
    seconds: dict[str, Callable[[], float]] = {
        "recovery": lambda: recovery_s(_with(spec, workers=2), standby=False),
        "recovery, standby": lambda: recovery_s(_with(spec, workers=2), standby=True),
        "checkpoint, small": lambda: checkpoint_s(small, every=2000),
        "checkpoint, large": lambda: checkpoint_s(_with(large, workers=1, batch_size=480), every=20),
    }
    for name, measure in seconds.items():
        best[name] = (min(measure() for _ in range(repeat)),) * 2
        print(f"  {name}: {best[name][0]:.3f} s (load {os.getloadavg()[0]:.1f})", flush=True)
    return best


def report(figures: Figures) -> str:
    """Returns the table."""

    def rate(name: str, key: str, *others: tuple[str, str]) -> str:
        cells = []
        for place in (0, 1):
            value = figures[key][place]
            compared = ", ".join(f"{value / figures[other][place]:.2f}x {label}" for label, other in others)
            cells.append(f"{value:>12,.0f}  {compared:<26}")
        return f"{name:<46}{''.join(cells)}".rstrip()

    def checkpoint(what: str, key: str) -> str:
        value = figures[key][0]
        share = f"{value / _CHECKPOINT_S:.2%} of the time if every {_CHECKPOINT_S:.0f} s"
        return f"{f'  a checkpoint, {what}':<46}{value:>12.3f}  {share}"

    def heading(text: str) -> str:
        return f"{text:<46}{'examples/s':>12}{'':<28}{'a processor second':>18}"

    return "\n".join(
        [
            heading("input, one process"),
            rate("  parse each record, then batch (the recipe)", "recipe"),
            rate("  Lockstep, records in memory", "memory", ("the recipe", "recipe")),
            rate("  Lockstep, records on the disk", "disk", ("the recipe", "recipe")),
            rate("  Lockstep, from files", "files", ("the recipe", "recipe")),
            heading("one worker, the taxi model, batch 240"),
            rate("  Keras fit, 1 step a call (its default)", "fit-1"),
            rate("  Keras fit, 10 steps a call", "fit-10", ("fit-1", "fit-1")),
            rate("  Lockstep, 1 step a call", "lockstep-1", ("fit-1", "fit-1")),
            rate("  Lockstep, 10 steps a call", "lockstep-10", ("fit-1", "fit-1"), ("fit-10", "fit-10")),
            heading("workers, batch 480"),
            rate("  the taxi model, 1 worker", "small, 1 worker"),
            rate("  the taxi model, 2 workers", "small, 2 workers", ("1 worker", "small, 1 worker")),
            rate("  5 million parameters, 1 worker", "large, 1 worker"),
            rate("  5 million parameters, 2 workers", "large, 2 workers", ("1 worker", "large, 1 worker")),
            f"{'faults':<46}{'seconds':>12}",
            f"{'  from a kill -9 to the next step, 2 workers':<46}{figures['recovery'][0]:>12.1f}",
            f"{'  ... with processes kept ready (train.standby)':<46}{figures['recovery, standby'][0]:>12.1f}",
            checkpoint("the taxi model", "checkpoint, small"),
            checkpoint("5 million parameters", "checkpoint, large"),
        ]
    )


def prepared(folder: Path, num_rows: int) -> TrainSpec:
    """Returns the taxi training on so many rows; what it reads is made by a run of the pipeline, once a version."""
    data = taxi_csv(folder / "data", num_rows)
    root = folder / f"training-{num_rows}"
    overrides = [f"data.path={data}", "train.steps=20", "evaluate={ungated: true}"]
    program = "import sys; from lockstep.pipelines.cli import main; sys.exit(main())"
    settings = [part for override in overrides for part in ("--set", override)]
    command = [sys.executable, "-c", program, "run", "taxi", "--root", str(root), *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the pipeline that makes the data failed:\n{done.stderr[-2000:]}")
    source, _ = load_config("taxi", overrides=overrides, root=root)
    return training_spec(source.config, RootFiles(root), None)


def _with(spec: TrainSpec, **changes: int) -> TrainSpec:
    return dataclasses.replace(spec, options=dataclasses.replace(spec.options, **changes))  # type: ignore[arg-type]


def _child(kind: str, spec_path: Path) -> Figures:
    command = [sys.executable, "-m", "benchmarks.training_child", kind, str(spec_path)]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return {name: (rate, processor_rate) for name, (rate, processor_rate) in figures.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
