"""A user's project in a folder of its own, and the command line as a user calls it."""

import csv
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

_PIPELINE = """
name: hills
data: {path: data/hills.csv}
label: {column: steep}
features:
  height: {kind: numeric}
  width: {kind: numeric}
  region: {kind: vocabulary}
model:
  build: my_hills.model:build_model
  parameters: {width: 8}
train: {workers: 1, strategy: one_device, steps: 60, batch_size: 32, checkpoint_every: 30, learning_rate: 0.02}
evaluate:
  metrics: [auc, accuracy]
  thresholds: {auc: {min: 0.8}}
  slices: [region]
"""
_MODEL = """
import keras

from my_hills.layers import ACTIVATION


def build_model(inputs):
    tensors = {name: keras.Input(shape=f.shape, name=name, dtype=f.dtype) for name, f in inputs.features.items()}
    merged = keras.layers.Concatenate()([keras.ops.cast(t, "float32") for t in tensors.values()])
    hidden = keras.layers.Dense(inputs.parameters["width"], activation=ACTIVATION)(merged)
    return keras.Model(tensors, keras.layers.Dense(1, activation="sigmoid")(hidden))
"""


@dataclasses.dataclass(frozen=True)
class Project:
    """A user's folder with data, a pipeline and a model, and the root of its runs."""

    folder: pathlib.Path

    @property
    def root(self) -> pathlib.Path:
        """Where its runs are kept."""
        return self.folder / "runs"

    def lockstep(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Calls the command line in the project's folder and waits for it."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=os.environ | environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """Returns the command line of a call."""
        return [
            sys.executable,
            "-c",
            "import sys; from lockstep.pipelines.cli import main; sys.exit(main())",
            *arguments,
        ]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the project's pipeline."""
        return self.lockstep("run", "hills.yaml", "--root", str(self.root), *arguments)

    def states(self) -> dict[str, str]:
        """Returns step -> final state of the newest run."""
        newest = max((self.root / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        events = [json.loads(line) for line in (newest / "events.jsonl").read_text().splitlines()]
        return {event["step"]: event["state"] for event in events if event["type"] == "StepChanged"}

    def versions(self) -> list[str]:
        """Returns the names of what is in the push folder."""
        pushed = self.root / "pushed"
        return sorted(path.name for path in pushed.iterdir() if path.name.isdecimal()) if pushed.exists() else []


def make_project(folder: pathlib.Path, rows: int = 600) -> Project:
    """Writes a project: a small CSV with missing cells, and a model in a package of two modules."""
    (folder / "data").mkdir(parents=True)
    generator = random.Random(7)
    with (folder / "data" / "hills.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["height", "width", "region", "steep"])
        for _ in range(rows):
            height, width = generator.uniform(1, 100), generator.uniform(1, 100)
            cells = [f"{height:.3f}", f"{width:.3f}", generator.choice(["north", "south", ""]), int(height > width)]
            writer.writerow(cells if generator.random() > 0.05 else ["", *cells[1:]])
    (folder / "hills.yaml").write_text(_PIPELINE)
    (folder / "my_hills").mkdir()
    (folder / "my_hills" / "__init__.py").write_text("")
    (folder / "my_hills" / "layers.py").write_text('ACTIVATION = "relu"\n')
    (folder / "my_hills" / "model.py").write_text(_MODEL)
    # Folders named like Lockstep's own must not stand in for them, in no process of the run.
    for name in ("components", "pipelines", "transforms", "tests"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('the user\\'s own package was imported')\n")
    return Project(folder)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One project for a module of tests that build on each other's runs."""
    return make_project(tmp_path_factory.mktemp("project"))
