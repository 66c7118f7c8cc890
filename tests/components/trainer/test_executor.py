"""The trainer's step from artifacts to artifacts, with real workers that are killed on the way."""

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx import types
from tfx.types import artifact_utils, standard_artifacts

from lockstep.components.errors import ConfigurationError, DataError, StepFailed
from lockstep.components.trainer.component import DistributedTrainer
from lockstep.components.trainer.executor import Executor, check_servable
from lockstep.components.trainer.spec import ModelOptions, TrainOptions
from lockstep.components.trainer.step import TrainStep
from tests.components.trainer.conftest import TrainingData

STEPS = 1200
OPTIONS: dict[str, Any] = {
    "workers": 2,
    "steps": STEPS,
    "batch_size": 64,
    "num_virtual_shards": 8,
    "checkpoint_every": 100,
    "steps_per_call": 5,
}


@dataclasses.dataclass
class Step:
    """One execution of the trainer, as TFX would set it up."""

    folder: Path
    examples: Any
    transform_graph: Any
    spec: TrainStep
    model: Any = None
    model_run: Any = None

    def run(self, **exec_properties: Any) -> dict[str, Any]:
        """Executes into fresh outputs and returns the summary."""
        self.model, self.model_run = standard_artifacts.Model(), standard_artifacts.ModelRun()
        for name, artifact in (("model", self.model), ("model_run", self.model_run)):
            artifact.uri = str(self.folder / name)
            shutil.rmtree(artifact.uri, ignore_errors=True)
            Path(artifact.uri).mkdir()
        Executor().Do(
            {"examples": [self.examples], "transform_graph": [self.transform_graph]},
            {"model": [self.model], "model_run": [self.model_run]},
            {"spec": self.spec.to_json(), **exec_properties},
        )
        return dict(json.loads((self.folder / "model_run" / "summary.json").read_text()))

    @property
    def work_dir(self) -> Path:
        """Where checkpoints are."""
        return Path(self.spec.work_dir)

    def with_options(self, **options: Any) -> "Step":
        """The same step with other options of the training."""
        changed = dataclasses.replace(self.spec.options, **options)
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, options=changed))


@pytest.fixture
def step(training_data: TrainingData, tmp_path: Path) -> Step:
    """A training of two workers, some seconds long."""
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    for split, files in (("train", training_data.train_files), ("eval", training_data.eval_files)):
        (tmp_path / "examples" / f"Split-{split}").mkdir(parents=True)
        for file in files:
            os.link(file, tmp_path / "examples" / f"Split-{split}" / Path(file).name)
    transform_graph = standard_artifacts.TransformGraph()
    transform_graph.uri = training_data.transform_graph_dir
    spec = TrainStep(
        options=TrainOptions(**OPTIONS),
        model=ModelOptions(build="sample_models:small_model", parameters={"dropout": 0.2}),
        label="tips",
        label_kind="binary",
        work_dir=str(tmp_path / "work"),
        import_paths=(str(Path(__file__).parent),),
    )
    return Step(tmp_path, examples, transform_graph, spec)


class Progress(logging.Handler):
    """Keeps what a person would see."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Takes one message."""
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def after_second_checkpoint(work_dir: Path, action: Callable[[], None]) -> Iterator[Progress]:
    """Does something in the middle of the training inside; its progress is kept."""
    progress, logger, over = Progress(), logging.getLogger("lockstep.progress"), threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            if len(list(work_dir.glob("*/checkpoints/step-*"))) >= 2:
                action()
                return

    level, thread = logger.level, threading.Thread(target=watch)
    logger.addHandler(progress)
    logger.setLevel(logging.INFO)
    thread.start()
    try:
        yield progress
    finally:
        over.set()
        thread.join()
        logger.removeHandler(progress)
        logger.setLevel(level)


def workers_of(work_dir: Path) -> dict[str, int]:
    """The processes that work under a folder: name of the worker's own folder -> process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            cwd = path.readlink()
            if work_dir in cwd.parents:
                found[cwd.name] = int(path.parent.name)
    return found


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, str]:
    """Digest of the weights of the run that nobody disturbed; set by the first test that needs it."""
    return {}


def undisturbed_digest(step: Step, undisturbed: dict[str, str]) -> str:
    """Trains without disturbance, once for all tests."""
    if "digest" not in undisturbed:
        undisturbed["digest"] = step.run()["weights_digest"]
    return undisturbed["digest"]


@pytest.mark.slow
def test_a_training_leaves_a_model_and_tells_how_it_went(step: Step, undisturbed: dict[str, str]) -> None:
    """Model, summary, logs and TensorBoard events are in the outputs, and nothing stays in the work folder."""
    summary = step.run(code_fingerprint="abc")
    undisturbed["digest"] = summary["weights_digest"]
    serving_dir = Path(step.model.uri) / "Format-Serving"
    check_servable(serving_dir)
    predictions = tf.saved_model.load(str(serving_dir)).signatures["serving_default"](examples=tf.constant([b""]))
    assert predictions["predictions"].shape == (1, 1)
    assert (summary["steps"], summary["restarts"], summary["options"]["workers"]) == (STEPS, 0, 2)
    assert summary["evaluation"]["auc"] > 0.6
    epochs, rest = divmod(STEPS, summary["steps_per_epoch"])
    assert sum(summary["records_per_worker"]) == epochs * summary["records_per_epoch"] + rest * 64
    assert 0 < summary["loss"] < 0.69
    assert summary["examples_per_s"] > 0
    assert summary["versions"]["tensorflow"] == tf.__version__
    assert len(summary["weights_digest"]) == 64
    run_dir = Path(step.model_run.uri)
    logs = [f"worker-{index}.attempt-1.log" for index in (0, 1)]
    assert sorted(path.name for path in (run_dir / "logs").iterdir()) == logs
    assert list((run_dir / "tensorboard").glob("events.*"))
    assert step.model.get_int_custom_property("steps") == STEPS
    assert step.model.get_float_custom_property("loss") == pytest.approx(summary["loss"])
    assert list(step.work_dir.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("worker", [0, 1])
def test_a_killed_worker_costs_a_restart_and_changes_no_weight(
    step: Step, undisturbed: dict[str, str], worker: int
) -> None:
    """``kill -9`` of the chief or the other one: one restart, and the weights of a run that nobody disturbed."""
    expected = undisturbed_digest(step, undisturbed)

    def kill() -> None:
        os.kill(workers_of(step.work_dir)[f"worker-{worker}"], signal.SIGKILL)

    with after_second_checkpoint(step.work_dir, kill) as progress:
        summary = step.run()
    assert summary["restarts"] == 1
    assert summary["weights_digest"] == expected
    first, second = summary["attempts"]
    assert (first["worker"], first["signal_name"]) == (worker, "SIGKILL")
    assert second["resumed_step"] in range(200, STEPS, 100)
    assert progress.messages[-1].endswith(", 1 restart")
    assert (Path(step.model_run.uri) / "logs" / f"worker-{worker}.attempt-2.log").exists()


@pytest.mark.slow
def test_an_interrupted_step_fails_and_the_next_one_goes_on(step: Step, undisturbed: dict[str, str]) -> None:
    """SIGTERM makes the step fail, leaves no worker, and the same step later starts at the last checkpoint: the one
    before, if the disk lost half of the last one meanwhile. The weights are those of a run that nobody disturbed.
    """
    expected = undisturbed_digest(step, undisturbed)
    with (
        after_second_checkpoint(step.work_dir, lambda: os.kill(os.getpid(), signal.SIGTERM)),
        pytest.raises(StepFailed, match=r"interrupted by SIGTERM.*goes on from the last complete checkpoint"),
    ):
        step.run()
    assert workers_of(step.work_dir) == {}
    before, last = sorted(step.work_dir.glob("*/checkpoints/step-*"))[-2:]
    data = last / "checkpoint.data-00000-of-00001"
    os.truncate(data, data.stat().st_size // 2)
    summary = step.with_options(heartbeat_timeout_s=61.0).run()
    assert summary["attempts"][0]["resumed_step"] == int(before.name.removeprefix("step-"))
    assert summary["weights_digest"] == expected
    assert list(step.work_dir.iterdir()) == []


NAME_ERROR = "return kears.Model()"
EXIT = "import sys; sys.exit('no data')"
WIDE = "import keras; x = keras.Input((1,), name='fare'); return keras.Model({'fare': x}, keras.layers.Dense(2)(x))"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (NAME_ERROR, r"broken_model:build' failed at .*/broken_model\.py:2: NameError: name 'kears' is not defined"),
        (EXIT, r"broken_model:build' failed at .*/broken_model\.py:2: SystemExit: no data"),
        (WIDE, r"broken_model:build' gives float32 \[batch, 2\]; it must give one float"),
    ],
)
def test_an_error_in_the_users_model_is_told_once(step: Step, body: str, message: str) -> None:
    """The user's own error, with its place, is the message, on one line before the log; there is no second attempt."""
    (step.folder / "broken_model.py").write_text(f"def build(inputs):\n    {body}\n")
    spec = dataclasses.replace(
        step.spec, model=ModelOptions(build="broken_model:build"), import_paths=(str(step.folder),)
    )
    with pytest.raises(ConfigurationError, match=message) as caught:
        dataclasses.replace(step, spec=spec).run()
    _, where = str(caught.value).splitlines()
    assert where.startswith("The worker's log: ")
    logs = {path.name for path in step.work_dir.rglob("*.log")}
    assert logs == {"worker-0.attempt-1.log", "worker-1.attempt-1.log"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_told_at_once(step: Step, small_disk: Path) -> None:
    """The disk of checkpoints and logs runs full: the step says so, although the workers cannot even log it."""
    spec = dataclasses.replace(step.spec, work_dir=str(small_disk / "work"))

    def fill() -> None:
        with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass

    with (
        after_second_checkpoint(small_disk / "work", fill) as progress,
        pytest.raises(StepFailed, match="the disk is full: "),
    ):
        dataclasses.replace(step, spec=spec).run()
    assert not any("restart" in message for message in progress.messages)
    assert workers_of(small_disk) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_split": "trian"}, "train_split: the examples have no split 'trian', only train, eval"),
        ({"eval_split": "test"}, "eval_split: the examples have no split 'test', only train, eval"),
    ],
)
def test_a_split_that_is_not_there_is_told(step: Step, changes: dict[str, Any], message: str) -> None:
    """The message has the key, the split asked for, and the ones there are; no worker is started."""
    with pytest.raises(DataError, match=message):
        dataclasses.replace(step, spec=dataclasses.replace(step.spec, **changes)).run()
    assert not list(step.work_dir.rglob("*.log"))


def test_a_split_without_files_is_told(step: Step) -> None:
    """A split that exists but is empty cannot be trained on."""
    split_dir = Path(step.examples.uri) / "Split-train"
    for path in split_dir.iterdir():
        path.unlink()
    with pytest.raises(DataError, match=f"train_split: split 'train' of the examples has no file in {split_dir}"):
        step.run()


def test_a_port_in_use_is_told(step: Step) -> None:
    """The step fails at once on a ``base_port`` that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StepFailed, match=f"base_port: {port} cannot be used"):
            step.with_options(base_port=port).run()


def test_a_model_without_signatures_is_no_model(tmp_path: Path) -> None:
    """A SavedModel that lacks the contract's signatures, or is none, fails the step."""
    with pytest.raises(StepFailed, match=r"no model that can be served: .*saved_model\.pb"):
        check_servable(tmp_path)
    tf.saved_model.save(tf.Module(), str(tmp_path))
    with pytest.raises(StepFailed, match="lacks signature serving_default, transform_features"):
        check_servable(tmp_path)
    whole = (tmp_path / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StepFailed, match="no model that can be served"):
        check_servable(tmp_path)


def test_the_component_refuses_a_wrong_specification(step: Step) -> None:
    """A specification that is none is told where the pipeline is written."""
    channels = [types.Channel(type=kind) for kind in (standard_artifacts.Examples, standard_artifacts.TransformGraph)]
    component = DistributedTrainer(*channels, spec=step.spec.to_json())
    assert component.outputs["model"].type is standard_artifacts.Model
    assert component.outputs["model_run"].type is standard_artifacts.ModelRun
    wrong = json.dumps({**json.loads(step.spec.to_json()), "work_dri": "x"})
    with pytest.raises(ValueError, match="unknown key 'work_dri'; did you mean 'work_dir'"):
        DistributedTrainer(*channels, spec=wrong)
