"""``python -m benchmarks.strategies``: the training strategies side by side on the taxi data, in one run."""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import machine
from benchmarks.training import prepared
from lockstep.components.trainer.executor import train
from lockstep.components.trainer.spec import ModelOptions, TrainSpec

_SMALL: Mapping[str, Any] = {}
_LARGE: Mapping[str, Any] = {"hidden": (2200, 2200)}  # 5 million weights
_MESH = {"batch": 1, "model": 2}
_LAYOUT = {"hidden_1/kernel": (None, "model"), "hidden_1/bias": ("model",), "hidden_2/kernel": ("model", None)}

STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "one_device": {"strategy": "one_device", "workers": 1},
    "mirrored, 2 devices": {"strategy": "mirrored", "workers": 1, "devices_per_worker": 2},
    "multi_worker_mirrored, 2 workers": {"strategy": "multi_worker_mirrored", "workers": 2},
    "parameter_server, 2 workers, 1 ps": {"strategy": "parameter_server", "workers": 2, "parameter_servers": 1},
    "dtensor, model over 2 devices": {"strategy": "dtensor", "workers": 1, "mesh": _MESH, "layout": _LAYOUT},
}


def main(arguments: Sequence[str]) -> int:
    """Measures each strategy with a small and a large model, and prints a line for each; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strategies", description=__doc__)
    parser.add_argument("--rows", type=int, default=15_000, help="of taxi data (default: 15000)")
    parser.add_argument("--steps", type=int, default=1000, help="of the small model; the large one makes a tenth")
    parser.add_argument("--model", choices=("small", "large"), help="one of the two alone (default: both)")
    parser.add_argument("--dir", type=Path, default=Path(".cache/bench"), help="for data and results")
    options = parser.parse_args(arguments)
    print(machine(), flush=True)
    folder = options.dir.absolute()
    spec = prepared(folder, options.rows)
    figures = {}
    models = {"small": (_SMALL, options.steps, 10), "large": (_LARGE, options.steps // 10, 1)}
    for model in [options.model] if options.model else models:
        parameters, steps, steps_per_call = models[model]
        for name, values in STRATEGIES.items():
            figures[f"{model}: {name}"] = measured(
                spec, {**values, "steps_per_call": steps_per_call}, parameters, steps
            )
            print(line(f"{model}: {name}", figures[f"{model}: {name}"], figures[f"{model}: one_device"]), flush=True)
    path = folder / "results" / f"{time.strftime('%Y%m%dT%H%M%S')}-strategies.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=2) + "\n", encoding="utf-8")
    return 0


def measured(spec: TrainSpec, values: Mapping[str, Any], parameters: Mapping[str, Any], steps: int) -> dict[str, float]:
    """Trains once; returns ``start_s``, to the first step of all, and ``steps_per_s`` from there on.

    Args:
      spec: On which data.
      values: Options that make the strategy, and ``steps_per_call``.
      parameters: Of the built-in ``mlp``.
      steps: To make.
    """
    changes = {"batch_size": 480, "num_virtual_shards": None, "steps": steps, "checkpoint_every": steps, **values}
    with tempfile.TemporaryDirectory(prefix="lockstep-strategies-") as name:
        folder = Path(name)
        changed = dataclasses.replace(
            spec,
            options=dataclasses.replace(spec.options, **changes),
            model=ModelOptions(parameters=parameters),
            run_dir=name,
            checkpoint_dir=str(folder / "checkpoints"),
            export_dir=str(folder / "model" / "Format-Serving"),
            tensorboard_dir=str(folder / "events"),
        )
        outcome = train(changed)
        report = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    start_s = outcome.attempts[0].training_s or 0.0
    return {"start_s": start_s, "steps_per_s": (report["examples_per_s"] or 0.0) / 480}


def line(name: str, figures: Mapping[str, float], base: Mapping[str, float]) -> str:
    """Returns one line of the table; the ratio is of steps a second to ``one_device``'s."""
    ratio = figures["steps_per_s"] / base["steps_per_s"]
    return f"{name:<44}{figures['start_s']:7.1f} s{figures['steps_per_s']:10.1f} steps/s{ratio:8.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
