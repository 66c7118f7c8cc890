"""Keys of trainings, and the folder that belongs to one run at a time."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.trainer.spec import ModelOptions, TrainOptions
from lockstep.components.trainer.step import TrainStep
from lockstep.components.trainer.work_folder import WorkFolder, training_key
from lockstep.components.trainer.worker_range import WorkerRange

STEP = TrainStep(
    options=TrainOptions(), model=ModelOptions(parameters={"units": 8}), label="y", label_kind="binary", work_dir="/w"
)
INPUTS = {"examples": ["/a/1 fingerprint"], "transform_graph": ["/b/1 "]}


def with_options(**options: Any) -> TrainStep:
    """The step with other options."""
    return dataclasses.replace(STEP, options=dataclasses.replace(STEP.options, **options))


@pytest.mark.parametrize(
    "other",
    [
        training_key(with_options(steps=2000), INPUTS, "c"),
        training_key(dataclasses.replace(STEP, model=ModelOptions(parameters={"units": 9})), INPUTS, "c"),
        training_key(STEP, {**INPUTS, "examples": ["/a/2 fingerprint"]}, "c"),
        training_key(STEP, INPUTS, "d"),
    ],
)
def test_another_model_has_another_key(other: str) -> None:
    """A change of steps, model, data or code must never go on from the old checkpoint."""
    assert other != training_key(STEP, INPUTS, "c")


def test_how_it_is_watched_does_not_change_the_key() -> None:
    """After "heartbeat_timeout_s is over" one raises it, and training goes on from its checkpoint."""
    watched = with_options(
        heartbeat_timeout_s=300.0,
        start_timeout_s=300.0,
        max_restarts=9,
        restart_window_s=60.0,
        restart_delay_s=0.0,
        max_restart_delay_s=5.0,
        base_port=5000,
    )
    moved = dataclasses.replace(watched, work_dir="/elsewhere")
    assert training_key(moved, INPUTS, "c") == training_key(STEP, INPUTS, "c")


@pytest.mark.parametrize(("run_fn", "same"), [(None, True), ("module:run", False)])
def test_another_number_of_workers_goes_on(run_fn: str | None, same: bool) -> None:
    """Records and steps do not depend on it; what a ``run_fn`` keeps may."""
    steps = [
        dataclasses.replace(with_options(workers=workers, num_virtual_shards=8), run_fn=run_fn) for workers in (1, 4)
    ]
    assert (training_key(steps[0], INPUTS, "c") == training_key(steps[1], INPUTS, "c")) is same


def test_a_range_of_workers_is_refused_beside_a_function_of_its_own() -> None:
    """Lockstep does not deal the records there."""
    with pytest.raises(ValueError, match="workers: a range is not allowed beside run_fn"):
        dataclasses.replace(with_options(workers=WorkerRange(min=1, max=2)), run_fn="module:run")


def test_a_step_reads_back_what_it_wrote() -> None:
    """The JSON form holds everything."""
    for workers in (2, WorkerRange(min=1, max=3)):
        options = with_options(base_port=5000, workers=workers)
        step = dataclasses.replace(options, import_paths=("/p",), eval_split=None)
        assert TrainStep.from_json(step.to_json()) == step


def test_the_folder_goes_after_success(tmp_path: Path) -> None:
    """Checkpoints, logs and the lock are removed when the body ends well."""
    folder = WorkFolder(tmp_path / "new", "key")
    with folder.held():
        folder.checkpoint_dir.mkdir()
    assert list((tmp_path / "new").iterdir()) == []


def train_and_die(folder: WorkFolder) -> None:
    """A run that fails after it left a checkpoint and a log."""
    with folder.held():
        folder.checkpoint_dir.mkdir()
        (folder.run_dir / "worker-0.attempt-1.log").touch()
        raise RuntimeError("died")


def test_checkpoints_stay_after_a_failure_and_logs_until_the_next_run(tmp_path: Path) -> None:
    """A body that raises leaves both; the next run finds the checkpoints, and no old log."""
    folder = WorkFolder(tmp_path, "key")
    with pytest.raises(RuntimeError, match="died"):
        train_and_die(folder)
    assert [path.name for path in folder.run_dir.iterdir()] == ["worker-0.attempt-1.log"]
    with folder.held():
        assert folder.checkpoint_dir.is_dir()
        assert list(folder.run_dir.iterdir()) == []


def test_another_run_is_kept_out(tmp_path: Path) -> None:
    """While another process holds the folder, a run is refused and told which; afterwards it is not."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom lockstep.components.trainer.work_folder import WorkFolder\n"
        "with WorkFolder(Path(sys.argv[1]), 'key').held():\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(StepFailed, match=rf"another run \(process {other.pid}\) trains the same model"),
            WorkFolder(tmp_path, "key").held(),
        ):
            pass
        with WorkFolder(tmp_path, "another").held():
            pass
        other.communicate()
    with WorkFolder(tmp_path, "key").held():
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A work_dir below a file is the user's to mend."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigurationError, match=r"work_dir: .*; give a folder"),
        WorkFolder(tmp_path / "file", "k").held(),
    ):
        pass
