"""Functions for TFX's stock Trainer, run unchanged: what they are given, faults, and what is kept."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx.types import artifact_utils, standard_artifacts

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.serving import ServingModel, read_contract
from lockstep.components.trainer.executor import Executor
from lockstep.components.trainer.group_watch import GroupWatch
from lockstep.components.trainer.heartbeat import Reporter, WorkerEvent
from lockstep.components.trainer.launchers import WorkerStatus
from lockstep.components.trainer.run_function import Vitals
from lockstep.components.trainer.spec import ModelOptions, TrainOptions
from lockstep.components.trainer.step import TrainStep
from tests.components.trainer.conftest import NUM_EVAL, NUM_TRAIN, TrainingData, example


class FakeProcess:
    """A clock and a processor that the test moves."""

    def __init__(self) -> None:
        self.now_s, self.used_s = 0.0, 0.0
        self.stream = io.StringIO()
        reporter = Reporter(0, self.stream, clock=lambda: self.now_s)
        self.vitals = Vitals(reporter, clock=lambda: self.now_s, processor_s=lambda: self.used_s)

    def passes(self, seconds: float, used_s: float) -> int:
        """Returns how many heartbeats that many seconds bring, with so much processor time used in each."""
        before = self.stream.getvalue().count("heartbeat")
        for _ in range(int(seconds)):
            self.now_s += 1
            self.used_s += used_s
            self.vitals.look()
        return self.stream.getvalue().count("heartbeat") - before


def test_a_process_beats_while_it_works_and_not_while_it_waits() -> None:
    """Half a second of processor time a second is work, a thousandth is waiting, and work that comes back is seen."""
    process = FakeProcess()
    assert process.passes(10, used_s=0.5) >= 9
    assert process.passes(60, used_s=0.001) == 0
    assert process.passes(10, used_s=0.5) >= 9


def test_what_the_function_reports_is_in_the_heartbeats() -> None:
    """The step and the loss go out at once, and stay until the next report."""
    process = FakeProcess()
    process.now_s = 5.0
    process.vitals.report(step=30, loss=0.25)
    process.passes(1, used_s=0.5)
    lines = process.stream.getvalue().splitlines()
    assert [json.loads(line.partition(" ")[2])["step"] for line in lines] == [30, 30]
    assert process.vitals.loss == 0.25


def test_a_worker_may_wait_for_another_that_works() -> None:
    """Only the silence of all that are not done is a hang."""
    watch = GroupWatch(
        names=["worker 0", "worker 1"], now_s=0.0, start_timeout_s=100, heartbeat_timeout_s=10, together=True
    )

    def hears(workers: tuple[int, ...], now_s: float) -> None:
        lines = [WorkerEvent(event="heartbeat", worker=worker, step=0).to_line() for worker in range(2)]
        watch.observe(
            [
                WorkerStatus(
                    worker=w, exit_code=None, new_lines=(lines[w],) if w in workers else (), log_path=Path("log")
                )
                for w in range(2)
            ],
            now_s,
        )

    hears((0, 1), 1.0)
    hears((0,), 50.0)
    assert watch.failure(55.0) is None, "worker 1 waits for worker 0"
    failure = watch.failure(61.0)
    assert failure is not None
    assert failure.cause.startswith("workers 1 and 0 gave no sign of life for heartbeat_timeout_s: 10")


@dataclasses.dataclass
class Step:
    """One execution of the trainer with a function of ``sample_run_fn``."""

    folder: Path
    inputs: dict[str, list[Any]]

    def run(self, function: str, parameters: Any = None, **options: Any) -> dict[str, Any]:
        """Executes into fresh outputs and returns the summary."""
        outputs = {"model": standard_artifacts.Model(), "model_run": standard_artifacts.ModelRun()}
        for name, artifact in outputs.items():
            artifact.uri = str(self.folder / name)
            shutil.rmtree(artifact.uri, ignore_errors=True)
            Path(artifact.uri).mkdir()
        spec = TrainStep(
            options=TrainOptions(**{"workers": 2, "steps": 100, "batch_size": 64, **options}),
            model=ModelOptions(parameters={"learning_rate": 0.05, **(parameters or {})}),
            label="tips",
            label_kind="binary",
            work_dir=str(self.folder / "work"),
            import_paths=(str(Path(__file__).parent),),
            run_fn=function,
        )
        artifacts = {name: [artifact] for name, artifact in outputs.items()}
        Executor().Do(self.inputs, artifacts, {"spec": spec.to_json()})
        return dict(json.loads((self.folder / "model_run" / "summary.json").read_text()))

    def left_by_function(self, name: str) -> dict[str, Any]:
        """What the function wrote into its ``model_run_dir``."""
        return dict(json.loads((self.folder / "model_run" / "run_fn" / name).read_text()))

    @property
    def checkpoints(self) -> list[Path]:
        """What the function saved so far."""
        return list(self.folder.glob("work/*/checkpoints/*.index"))


@pytest.fixture
def step(training_data: TrainingData, tmp_path: Path) -> Step:
    """A step over the session's data, with a schema."""
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    for split, files in (("train", training_data.train_files), ("eval", training_data.eval_files)):
        (tmp_path / "examples" / f"Split-{split}").mkdir(parents=True)
        for file in files:
            os.link(file, tmp_path / "examples" / f"Split-{split}" / Path(file).name)
    graph, schema = standard_artifacts.TransformGraph(), standard_artifacts.Schema()
    graph.uri = training_data.transform_graph_dir
    schema.uri = str(tmp_path / "schema")
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "schema.pbtxt").write_text("")
    return Step(tmp_path, {"examples": [examples], "transform_graph": [graph], "schema": [schema]})


@pytest.mark.slow
def test_the_function_is_given_what_the_stock_trainer_gives(step: Step, training_data: TrainingData) -> None:
    """All fields that there is something for; in a group only the chief's model is the step's."""
    summary = step.run("sample_run_fn:write_arguments", {"width": 8}, steps=17)
    given = [step.left_by_function(f"arguments-{worker}.json") for worker in range(2)]
    for worker, arguments in enumerate(given):
        assert arguments["TF_CONFIG"]["task"] == {"type": "worker", "index": worker}
        assert len(arguments["TF_CONFIG"]["cluster"]["worker"]) == 2
        assert arguments["train_files"] == [str(step.folder / "examples" / "Split-train" / "*.gz")]
        assert arguments["eval_rows"] == NUM_EVAL
        assert arguments["train_steps"] == 17
        assert arguments["eval_steps"] == -(-NUM_EVAL // 64)
        assert arguments["schema_path"] == arguments["schema_file"] == str(step.folder / "schema" / "schema.pbtxt")
        assert arguments["transform_graph_path"] == arguments["transform_output"] == training_data.transform_graph_dir
        assert arguments["custom_config"]["width"] == 8
        assert arguments["custom_config"]["lockstep"]["attempt"] == 1
        assert arguments["custom_config"]["lockstep"]["label"] == "tips"
        assert arguments["base_model"] is arguments["hyperparameters"] is arguments["working_dir"] is None
    chief, other = given
    assert chief["serving_model_dir"] == str(step.folder / "model" / "Format-Serving")
    assert chief["eval_model_dir"] == str(step.folder / "model" / "Format-TFMA")
    assert Path(other["serving_model_dir"]).is_relative_to(step.folder / "work")
    assert chief["model_run_dir"] == other["model_run_dir"]
    assert summary["run_fn"] == "sample_run_fn:write_arguments"
    assert summary["records_per_epoch"] == NUM_TRAIN
    assert summary["weights_digest"] is None
    assert not list((step.folder / "work").iterdir()), "what served to resume goes with success"


@contextlib.contextmanager
def killing_a_worker(step: Step, worker: str) -> Iterator[None]:
    """Kills a worker once the function has saved twice."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            if len(step.checkpoints) < 2:
                continue
            for path in Path("/proc").glob("[0-9]*/cwd"):
                with contextlib.suppress(OSError):
                    if path.readlink().name == worker and step.folder in path.readlink().parents:
                        os.kill(int(path.parent.name), signal.SIGKILL)
                        return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_a_group_with_a_killed_worker_goes_on_from_the_functions_checkpoint(
    step: Step, training_data: TrainingData
) -> None:
    """The tutorial's loop over two workers: one is killed, the group restarts, and the model can be served."""
    with killing_a_worker(step, "worker-1"):
        summary = step.run("sample_run_fn:run_fn", steps=1500)
    assert summary["restarts"] == 1
    assert summary["attempts"][0]["signal_name"] == "SIGKILL"
    assert summary["loss"] < 0.69
    assert all(step.left_by_function(f"worker-{worker}.json")["began"] >= 100 for worker in range(2))
    model = ServingModel(step.folder / "model" / "Format-Serving")
    rows = tf.constant([example(row) for row in training_data.eval_rows[:5]])
    assert model.predictions(rows).shape == (5, 1)
    contract = read_contract(step.folder / "model" / "Format-Serving")
    assert contract is not None
    assert contract.raw_features == {"company": "string", "fare": "float", "record_id": "int"}


@pytest.mark.slow
def test_checkpoints_survive_a_step_that_failed(step: Step) -> None:
    """No restart is allowed: the step fails, and the same step goes on from where the function had saved."""
    with killing_a_worker(step, "worker-0"), pytest.raises(StepFailed, match="worker 0 was killed by SIGKILL"):
        step.run("sample_run_fn:run_fn", steps=1500, max_restarts=0)
    summary = step.run("sample_run_fn:run_fn", steps=1500, max_restarts=0)
    assert summary["restarts"] == 0
    assert step.left_by_function("worker-0.json")["began"] >= 100


@pytest.mark.slow
def test_a_worker_that_hangs_in_python_is_seen(step: Step) -> None:
    """It and the peer that waits for it use no processor: the group starts again."""
    summary = step.run("sample_run_fn:hang_once", heartbeat_timeout_s=6.0)
    assert summary["restarts"] == 1
    assert "gave no sign of life" in summary["attempts"][0]["cause"]


@pytest.mark.slow
def test_an_attempt_that_never_ends_is_ended_by_its_deadline(step: Step) -> None:
    """A busy processor looks like work; the deadline does not care."""
    with pytest.raises(StepFailed, match="attempt_timeout_s: 15"):
        step.run("sample_run_fn:spin", workers=1, attempt_timeout_s=15.0, max_restarts=0)


@pytest.mark.slow
def test_what_the_function_does_wrong_is_told(step: Step) -> None:
    """No model, an exception of its own, and a name that is not there."""
    with pytest.raises(StepFailed, match="left no model that can be served"):
        step.run("sample_run_fn:no_model", workers=1)
    with pytest.raises(StepFailed, match="KeyError: 'no such parameter'"):
        step.run("sample_run_fn:fail", workers=1, max_restarts=0)
    with pytest.raises(ConfigurationError, match="has no function 'nothing'"):
        step.run("sample_run_fn:nothing", workers=1)
