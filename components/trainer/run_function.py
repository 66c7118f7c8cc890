"""A function for TFX's stock Trainer, in every worker of a group: what it is given, and how it shows life.

It has no loop that could tell its steps, so a thread beats for it while the process uses its processor. A worker whose
Python hangs, or that waits for a peer, uses next to none: it falls silent, and when all are silent the supervisor
starts the group again. What hangs with a busy processor ends by ``attempt_timeout_s`` alone.
"""

import json
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.components.durable_files import sync
from lockstep.components.record_manifest import recorded_counts
from lockstep.components.tfrecord_files import count_records
from lockstep.components.trainer.devices import limit_threads
from lockstep.components.trainer.heartbeat import Reporter
from lockstep.components.trainer.spec import RunFiles, RunFn, TrainSpec
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.user_functions import user_function

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import DataAccessor, FnArgs

OWN_KEY = "lockstep"
"""Of ``FnArgs.custom_config``: what Lockstep adds to the user's own parameters."""

_BEAT_S = 1.0
# Share of one core under which a process counts as waiting. TensorFlow's threads of two workers that wait for each
# other used 0.001.
_IDLE_SHARE = 0.01
_TELEMETRY = ["Trainer"]


def run(spec: TrainSpec, task: Task, reporter: Reporter, *, attempt: int) -> None:
    """Calls the function; blocks. The chief leaves a report beside the model.

    Raises:
      ConfigurationError: There is no such function.
      Exception: Whatever the function raises.
    """
    from tensorflow_transform.output_wrapper import TFTransformOutput

    from lockstep.components.trainer.classes import class_names
    from lockstep.components.trainer.export import describe

    assert spec.run_fn is not None
    started_s = time.monotonic()
    limit_threads(task)
    function = user_function("run_fn", spec.run_fn.function)
    vitals = Vitals(reporter)
    arguments = fn_args(spec, spec.run_fn, task, attempt=attempt, report=vitals.report)
    if task.is_chief:  # of an attempt that was killed while it wrote
        for folder in (spec.export_dir, spec.run_fn.eval_model_dir):
            shutil.rmtree(folder, ignore_errors=True)
    reporter.say("training", step=0)
    called_s = time.monotonic()
    with vitals:
        function(arguments)
    if task.is_chief:
        graph = TFTransformOutput(spec.transform_graph_dir)
        classes = class_names(graph, spec.label, spec.classes)
        describe(Path(spec.export_dir), graph, label=spec.label, label_kind=spec.label_kind, classes=classes)
        seconds = {"start": called_s - started_s, "run_fn": time.monotonic() - called_s}
        _write_report(spec, vitals.loss, attempt, seconds)


def fn_args(
    spec: TrainSpec, run_fn: RunFn, task: Task, *, attempt: int, report: Callable[..., None] | None = None
) -> "FnArgs":
    """Returns what the stock Trainer would give, but that only the chief's models are kept.

    ``hyperparameters`` and ``base_model`` are None: there is no Tuner, and no model to start from. ``eval_steps`` read
    the evaluation split once in batches of ``train.batch_size``. ``custom_config`` is the user's, and under `OWN_KEY`:
    ``checkpoint_dir`` (the same folder on every worker; survives a failed step), ``attempt`` (1 for the first),
    ``batch_size``, ``learning_rate``, ``seed``, ``label``, and ``report``, to be called with ``step`` and ``loss``, if
    the function likes to have its progress shown.
    """
    from tfx.components.trainer.fn_args_utils import FnArgs

    options = spec.options
    own_dir = RunFiles(Path(spec.run_dir)).worker_dir(task.index)
    Path(spec.checkpoint_dir).mkdir(parents=True, exist_ok=True)
    Path(run_fn.model_run_dir).mkdir(parents=True, exist_ok=True)
    own = {
        "checkpoint_dir": spec.checkpoint_dir,
        "attempt": attempt,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "seed": options.seed,
        "label": spec.label,
        "report": report,
    }
    return FnArgs(
        train_files=_patterns(spec.train_files),
        eval_files=_patterns(spec.eval_files),
        train_steps=options.num_steps,
        eval_steps=-(-_num_records(spec.eval_files) // options.batch_size) or None,
        schema_path=run_fn.schema_path,
        schema_file=run_fn.schema_path,
        transform_graph_path=spec.transform_graph_dir,
        transform_output=spec.transform_graph_dir,
        data_accessor=_data_accessor(run_fn.payload_format),
        serving_model_dir=spec.export_dir if task.is_chief else str(own_dir / "Format-Serving"),
        eval_model_dir=run_fn.eval_model_dir if task.is_chief else str(own_dir / "Format-TFMA"),
        model_run_dir=run_fn.model_run_dir,
        custom_config={**spec.model.parameters, OWN_KEY: own},
    )


class Vitals:
    """Beats once a second while this process uses its processor, inside the context.

    Args:
      reporter: Hears the heartbeats.
      interval_s: Seconds between two looks.
      clock: Seconds that only grow.
      processor_s: Seconds of processor time of this process, all threads.
    """

    def __init__(
        self,
        reporter: Reporter,
        *,
        interval_s: float = _BEAT_S,
        clock: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._reporter = reporter
        self._interval_s = interval_s
        self._clock = clock
        self._processor_s = processor_s
        self._beat_s, self._used_s = clock(), processor_s()
        self._step = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vitals", daemon=True)
        self.loss: float | None = None

    def __enter__(self) -> "Vitals":
        self._say()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Beats if the processor was used since the last heartbeat."""
        if self._processor_s() - self._used_s > _IDLE_SHARE * (self._clock() - self._beat_s):
            self._say()

    def report(self, step: int, loss: float | None = None) -> None:
        """Tells how far the training is: global steps done, and the loss if it is known."""
        self._step = int(step)
        self.loss = None if loss is None else float(loss)
        self._say()

    def _say(self) -> None:
        self._beat_s, self._used_s = self._clock(), self._processor_s()
        self._reporter.beat(step=self._step, loss=self.loss)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.look()


def _patterns(files: Sequence[str]) -> list[str]:
    """Returns patterns, as the stock Trainer gives them, of files that are whole folders' records."""
    return [f"{folder}/*.gz" for folder in dict.fromkeys(str(Path(file).parent) for file in files)]


def _num_records(files: Sequence[str]) -> int:
    counts = recorded_counts(files)
    return sum(count_records(path) for path in files) if counts is None else sum(counts)


def _data_accessor(payload_format: str) -> "DataAccessor":
    from tfx.components.trainer.fn_args_utils import DataAccessor
    from tfx.components.util import examples_utils, tfxio_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts

    examples = standard_artifacts.Examples()  # TFX asks the artifact for its format alone
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.Value(payload_format))
    return DataAccessor(
        tf_dataset_factory=tfxio_utils.get_tf_dataset_factory_from_artifact([examples], _TELEMETRY),
        record_batch_factory=tfxio_utils.get_record_batch_factory_from_artifact([examples], _TELEMETRY),
        data_view_decode_fn=tfxio_utils.get_data_view_decode_fn_from_artifact([examples], _TELEMETRY),
    )


def _write_report(spec: TrainSpec, loss: float | None, attempt: int, seconds: dict[str, float]) -> None:
    """Writes what ``training.TrainingReport`` holds, as far as it is known; whole or not at all."""
    report: dict[str, Any] = {
        "steps": spec.options.num_steps,
        "loss": loss,
        "evaluation": {},
        "examples_per_s": None,
        "records_per_epoch": _num_records(spec.train_files),
        "steps_per_epoch": None,
        "attempt": attempt,
        "resumed_from": None,
        "seconds": seconds,
    }
    path = RunFiles(Path(spec.run_dir)).training_path
    temporary_path = path.with_name(f".writing-{path.name}")
    temporary_path.write_text(json.dumps(report, sort_keys=True, indent=2), encoding="utf-8")
    sync(temporary_path)
    temporary_path.replace(path)
