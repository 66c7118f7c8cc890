"""``lockstep tune-batch``: what it needs, and what it says."""

import pathlib
import subprocess
import sys

import pytest

from lockstep.pipelines import batch_tuning
from lockstep.pipelines.config import load_config
from lockstep.pipelines.run_files import RootFiles
from tests.pipelines.conftest import Project


def tune(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Calls the command line and waits for it."""
    program = "import sys; from lockstep.pipelines.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "tune-batch", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_what_cannot_be_tuned_is_told(tmp_path: pathlib.Path) -> None:
    """A pipeline that was never run, one that trains by a function of its own, no time at all."""
    never = tune("taxi", "--root", str(tmp_path))
    assert never.returncode == 2
    assert "run the pipeline first (lockstep run)" in never.stderr
    own = tune("taxi", "--root", str(tmp_path), "--set", "run_fn=tfx.examples:run_fn")
    assert own.returncode == 2
    assert "run_fn: chooses its batches itself" in own.stderr
    assert tune("taxi", "--minutes", "0").returncode == 2
    assert not list(tmp_path.iterdir())


def test_validations_are_left_out(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pipeline that has them: no record of the evaluation split is read."""
    (tmp_path / "examples" / "Split-train").mkdir(parents=True)
    (tmp_path / "examples" / "Split-train" / "a.gz").touch()
    monkeypatch.setattr(batch_tuning, "_transformed", lambda root: (tmp_path / "graph", tmp_path / "examples"))
    overrides = ["train.validate_every=100", "train.early_stopping={patience: 2}"]
    source, root = load_config("taxi", overrides=overrides, root=tmp_path / "root")
    spec = batch_tuning.training_spec(source.config, RootFiles(root), None)
    assert (spec.options.validate_every, spec.options.early_stopping) == (None, None)
    assert spec.options.batch_size == source.config.train.batch_size


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pipeline_that_was_run_is_tuned(project: Project) -> None:
    """A table with the configured size, and the key to set; no new run, and nothing left."""
    assert project.run().returncode == 0
    before = sorted(path for path in project.root.rglob("*") if "metadata" not in path.name)
    tuned = project.lockstep("tune-batch", "hills.yaml", "--root", str(project.root), "--minutes", "0.5")
    assert tuned.returncode == 0, tuned.stderr
    assert "as configured" in tuned.stdout
    assert "train.batch_size: " in tuned.stdout
    assert "Traceback" not in tuned.stderr
    assert sorted(path for path in project.root.rglob("*") if "metadata" not in path.name) == before
