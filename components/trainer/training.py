"""One worker's training from specification to exported model: puts strategy, data, model and loop together."""

import dataclasses
import json
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import keras
import tensorflow as tf
from tensorflow_transform.output_wrapper import TFTransformOutput

from lockstep.components.durable_files import sync
from lockstep.components.errors import ConfigurationError, UserError
from lockstep.components.trainer import classes, example_weights, loop, models, strategies
from lockstep.components.trainer.checkpoint import Checkpoints
from lockstep.components.trainer.decoding import load_decoder
from lockstep.components.trainer.devices import limit_threads
from lockstep.components.trainer.evaluation import Evaluation, evaluate
from lockstep.components.trainer.event_log import EventLog
from lockstep.components.trainer.export import export, serving_columns
from lockstep.components.trainer.heartbeat import Reporter, one_line
from lockstep.components.trainer.learning_rate import learning_rate_of
from lockstep.components.trainer.outputs import check_output
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import SYNCHRONOUS, RunFiles, TrainSpec
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.usage import GroupMeter, peak_memory_mb, read_mb
from lockstep.components.trainer.validation import Validator


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """What the chief leaves in ``RunFiles.training_path``, as JSON with these keys.

    Args:
      steps: Global steps done.
      loss: Mean training loss of the last call; None if this attempt only exported.
      evaluation: Metric -> value on the evaluation split, as of ``evaluation.evaluate``; empty without records.
      examples_per_s: Records that all workers read a second in the loop, tracing and checkpoints left out; None if
        unknown.
      records_per_epoch: Records in the training split.
      steps_per_epoch: Global steps in which all of them are read.
      attempt: The attempt that finished.
      resumed_from: Step of the checkpoint that it went on from, 0 for none.
      seconds: Of this attempt's ``start`` (to the first step), ``train``, ``evaluate`` and ``export``.
      versions: Of TensorFlow and Keras.
      validation: ``early_stopping.Course`` as a document; None without ``validate_every``.
    """

    steps: int
    loss: float | None
    evaluation: dict[str, float]
    examples_per_s: float | None
    records_per_epoch: int
    steps_per_epoch: int
    attempt: int
    resumed_from: int
    seconds: dict[str, float]
    versions: dict[str, str]
    validation: dict[str, Any] | None


class Training:
    """Joins the group and builds everything; blocks until all workers are there.

    Args:
      spec: What is trained.
      task: This worker's place.
      reporter: Hears events.
      attempt: 1 for the first start of the group.

    Raises:
      UserError: The configuration, the data or the model's code cannot be used.
      tf.errors.OpError: The group did not come together.
    """

    def __init__(self, spec: TrainSpec, task: Task, reporter: Reporter, *, attempt: int) -> None:
        started_s = time.monotonic()
        self._spec, self._task, self._reporter, self._attempt = spec, task, reporter, attempt
        limit_threads(task)
        together = spec.options.strategy in SYNCHRONOUS
        self._meter = GroupMeter(
            task.index if together else 0,
            task.num_workers if together else 1,
            has_gpu=bool(tf.config.list_physical_devices("GPU")),
        )
        self._read_mb = read_mb()
        self._engine = strategies.make_engine(spec.options, task, self._meter)
        # All workers start from equal weights whatever their number; the data have seeds of their own.
        keras.utils.set_random_seed(spec.options.seed)
        if spec.options.precision != "float32":  # else what the user's Keras is set to stays
            keras.config.set_dtype_policy(spec.options.precision)
        self._transform_output = TFTransformOutput(spec.transform_graph_dir)
        self._decoder = load_decoder(spec.decoder)
        self._classes = classes.class_names(self._transform_output, spec.label, spec.classes)
        self._data = self._engine.input(self._records(spec.train_files), spec.cache_dir)
        self._try_augmentation()
        self._build()
        self._validator = self._make_validator()
        variables = [*self._engine.variables(), *(self._validator.variables() if self._validator else ())]
        self._checkpoints = Checkpoints(Path(spec.checkpoint_dir), variables, is_chief=task.is_chief)
        self._step = self._first_step = self._checkpoints.restore()
        self._engine.resume(self._first_step)
        self._seconds = {"start": time.monotonic() - started_s}

    def train(self) -> loop.TrainingResult:
        """Trains up to ``options.num_steps``, or to where validations end it; see ``loop.train``."""
        self._reporter.say("training", step=self._first_step)
        events = self._events()
        try:
            result = loop.train(
                self._engine,
                self._data,
                self._checkpoints,
                self._spec.options,
                first_step=self._first_step,
                reporter=self._reporter,
                before_save=self._engine.before_save,
                on_call=events.on_call,
                meter=self._meter,
                on_beat=events.on_beat,
                trace_dir=self._spec.tensorboard_dir if self._task.is_chief else None,
                validator=self._validator,
                on_validation=events.on_validation,
            )
        except tf.errors.OpError as e:
            raise example_weights.as_data_error(e) or classes.as_data_error(e) or e from e
        events.close()
        self._seconds["train"] = result.train_s
        if self._validator is not None:
            self._validator.restore_best()
        self._model = self._engine.trained_model(self._build_model)
        return result

    def usage(self) -> dict[str, float | None]:
        """Returns ``peak_memory_mb`` and ``read_mb`` of this process, for the event ``done``."""
        now_mb = read_mb()
        read = None if now_mb is None or self._read_mb is None else round(now_mb - self._read_mb, 1)
        return {"peak_memory_mb": peak_memory_mb(), "read_mb": read}

    def digest(self) -> str:
        """Returns the digest of the weights, the same on every worker."""
        return loop.digest(self._model)

    def finish(self, result: loop.TrainingResult) -> None:
        """Evaluates, exports and reports; for the chief alone, after the last collective."""
        self._reporter.say("exporting", step=result.step)
        started_s = time.monotonic()
        evaluation = self._evaluate(result.step)
        evaluated_s = time.monotonic()
        spec = self._spec
        export(
            self._model,
            self._transform_output,
            self._serving_columns,
            Path(spec.export_dir),
            label=spec.label,
            label_kind=spec.label_kind,
            weight=spec.options.weight_column,
            classes=self._classes,
            decoder=self._decoder,
        )
        self._seconds |= {"evaluate": evaluated_s - started_s, "export": time.monotonic() - evaluated_s}
        report = TrainingReport(
            steps=result.step,
            loss=result.loss,
            evaluation=evaluation,
            examples_per_s=result.examples_per_s,
            records_per_epoch=sum(self._data.deal.sizes),
            steps_per_epoch=self._data.steps_per_epoch,
            attempt=self._attempt,
            resumed_from=result.first_step,
            seconds=self._seconds,
            versions={"tensorflow": tf.__version__, "keras": keras.__version__},
            validation=None if self._validator is None else self._validator.course.to_document(),
        )
        write_report(report, RunFiles(Path(spec.run_dir)).training_path)

    def _build(self) -> None:
        """Builds model, optimizer and loss within the strategy's scope."""
        spec = self._spec
        with self._engine.scope():
            model = self._build_model()
            weight = spec.options.weight_column
            self._serving_columns = serving_columns(self._transform_output, model, label=spec.label, weight=weight)
            self._loss = loop.per_example_loss(model, spec.label_kind)
            optimizer = loop.optimizer_of(model, spec.options)
            self._learning_rate = learning_rate_of(model, spec.options)
        self._engine.prepare(strategies.Built(model=model, optimizer=optimizer, loss=self._loss, label=spec.label))

    def _make_validator(self) -> Validator | None:
        spec = self._spec
        if spec.options.validate_every is None:
            return None
        part, num_parts = self._engine.part
        evaluation = Evaluation(
            self._engine.validation_model(self._build_model),
            self._records(spec.eval_files),
            self._loss,
            spec.label_kind,
            part=part,
            num_parts=num_parts,
            unseen=self._unseen,
        )
        # A worker that reads many records is not stuck.
        return Validator(spec.options, evaluation, self._engine, on_batch=lambda: self._reporter.beat(step=self._step))

    def _build_model(self) -> keras.Model:
        """Builds and calls the model once: a subclassed one gets its weights by it, a wrong output is told now."""
        spec = self._spec
        columns, weights = self._sample()
        try:
            model = models.build_model(
                spec.model,
                self._transform_output,
                spec.label,
                spec.label_kind,
                table_parts=spec.options.table_parts,
                weight=spec.options.weight_column,
                num_classes=len(self._classes) or None,
                decoder=self._decoder,
            )
            features = loop.model_columns(model, columns, spec.label)
            check_output(model, features, weights, spec.model.build, spec.label_kind, len(self._classes) or None)
        except UserError:
            raise
        except (Exception, SystemExit) as e:  # a function may call sys.exit
            # The function is the user's, or was given the user's parameters: it fails the same way each time.
            place, error = _place(e, spec.import_paths), one_line(f"{type(e).__name__}: {e}")
            raise ConfigurationError(f"model.build: {spec.model.build!r} failed{place}: {error}") from e
        return model

    def _try_augmentation(self) -> None:
        """Tells at the start what would be wrong at the first step, in the user's own words."""
        spec = self._spec
        if spec.options.augment is None:
            return
        try:
            self._data.augmented(*self._sample())
        except UserError:
            raise
        except (Exception, SystemExit) as e:
            place, error = _place(e, spec.import_paths), one_line(f"{type(e).__name__}: {e}")
            raise ConfigurationError(f"train.augment: {spec.options.augment!r} failed{place}: {error}") from e

    def _sample(self) -> Any:
        try:
            return self._data.sample()
        except tf.errors.InvalidArgumentError as e:
            raise example_weights.as_data_error(e) or classes.as_data_error(e) or e from e

    @property
    def _unseen(self) -> Literal["error", "leave_out"]:
        return self._spec.classes.unseen if self._spec.classes else "error"

    def _records(self, files: tuple[str, ...]) -> Records:
        feature_spec = self._transform_output.transformed_feature_spec()
        spec = self._spec
        # A record of boxes is of no one class.
        names = self._classes if spec.label_kind == "multiclass" else ()
        return Records(files, feature_spec, spec.label, spec.options.weight_column, names, decoder=self._decoder)

    def _events(self) -> EventLog:
        return EventLog(self._spec.tensorboard_dir if self._task.is_chief else None, self._learning_rate)

    def _evaluate(self, step: int) -> dict[str, float]:
        if not self._spec.eval_files:
            return {}
        metrics = evaluate(
            self._model,
            self._records(self._spec.eval_files),
            self._loss,
            self._spec.label_kind,
            on_batch=lambda: self._reporter.beat(step=step),
            unseen=self._unseen,
        )
        events = self._events()
        events.write(step, {f"eval/{name}": value for name, value in metrics.items()})
        events.close()
        return metrics


def write_report(report: TrainingReport, path: Path) -> None:
    """Writes the report as JSON; the file appears whole or not at all."""
    temporary_path = path.with_name(f".writing-{path.name}")
    temporary_path.write_text(json.dumps(dataclasses.asdict(report), sort_keys=True, indent=2), encoding="utf-8")
    sync(temporary_path)
    temporary_path.replace(path)


def _place(error: BaseException, import_paths: Sequence[str]) -> str:
    """Returns `` at file:line`` of the user's own code that an error came from; empty where that is not known."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        # A project's folder often holds its virtual environment too: what is installed is not the user's own.
        if any(Path(frame.filename).is_relative_to(folder) for folder in import_paths)
        and "site-packages" not in Path(frame.filename).parts
    ]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
