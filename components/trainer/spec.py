"""What one training is: the ``train`` and ``model`` blocks, and the JSON document that every worker reads.

How a worker process is run (the contract between the supervisor's side and ``worker.py``):

- One process a worker, with its own folder as the working directory and the command of ``worker_command``. The
  document is at ``RunFiles.spec_path``, written whole before the first process starts. ``TF_CONFIG`` is in the
  process's environment: ``{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": i}}`` with
  ``options.workers`` addresses, also for one worker; if that is a range, one of ``options.sizes``. Worker 0 is the
  chief. Under ``parameter_server`` the cluster is ``{"chief": [one address], "worker": [...], "ps": [...]}``,
  processes are numbered in that order, and those after the chief only serve it: they beat without a step, are never
  done, and are ended when the chief is.
- The worker's standard input is a pipe that the supervisor holds open and never writes to; with ``--stop-at-eof`` the
  worker exits with 3 when it is closed, so none outlives its supervisor.
- Its standard output carries heartbeats and events, see ``heartbeat.py``; everything else, and standard error, is log.
  ``failed`` is the last event of a worker that could say why; a killed one says nothing.
- Exit codes: 0 after ``done``; 1 failed; 2 the user's configuration or code refuses to build (do not restart);
  3 the supervisor is gone.
- SIGTERM ends a worker at once once it is training (within TensorFlow's constructor only SIGKILL does).
- Only the chief writes ``RunFiles.training_path``, ``export_dir`` and ``tensorboard_dir``; each appears whole or not at
  all, except TensorBoard's events. ``checkpoint_dir`` belongs to the workers; a group started again resumes by itself.
- A group whose checkpoint is already at ``options.steps`` only evaluates and exports.
"""

import dataclasses
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from lockstep.components import documents
from lockstep.components.class_labels import ClassOptions, LabelKind, check_classes
from lockstep.components.trainer.decoder_options import DecoderOptions
from lockstep.components.trainer.early_stopping import METRICS, EarlyStopping
from lockstep.components.trainer.schedule_options import ScheduleOptions
from lockstep.components.trainer.worker_range import WorkerRange

DEFAULT_STEPS = 1000
MAX_VIRTUAL_SHARDS = 24
SYNCHRONOUS = ("one_device", "mirrored", "multi_worker_mirrored")
"""The strategies whose devices make each step together."""
BATCH_AXIS = "batch"
"""The axis of ``TrainOptions.mesh`` along which each group of devices trains on its part of the batch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The ``train`` block.

    Args:
      strategy: ``multi_worker_mirrored``: synchronous data parallelism over ``workers`` processes. ``mirrored``: the
        same over the devices of one process. ``one_device``: one process and device, no collectives. The last two need
        ``workers: 1``. ``parameter_server``: asynchronous; a coordinator deals steps to ``workers`` processes, and each
        makes its step alone, with variables that lie on ``parameter_servers``. ``dtensor``: one process, one model
        whose variables are split over the devices of ``mesh`` as ``layout`` says.
      workers: Processes that train, 1 or more. Or ``{min: 1, max: 4}``, for ``multi_worker_mirrored`` and not beside
        ``run_fn``: the training begins with the most, and goes on with fewer when a worker cannot be had again, because
        it cannot be started, or dies or is never heard before its first step, two attempts in a row. Sizes in between
        that do not divide the virtual shards are left out. The batch and the records of each step stay the same.
      devices_per_worker: Devices that each process drives, 1 or more: GPUs where the machine has any, else logical
        CPUs. Every device is a replica of the model and gets an equal part of each batch.
      parameter_servers: Processes that hold the variables, 1 or more; for ``strategy: parameter_server`` alone, where
        None is 1.
      mesh: For ``strategy: dtensor`` alone: the devices as a grid, axis -> how many along it, for example
        ``{batch: 2, model: 2}`` for four. Along ``batch``, if there is such an axis, each batch is split.
      layout: Pattern of variables' paths, as ``hidden_*/kernel`` -> for each dimension the axis of ``mesh`` over which
        it is split, or null. What no pattern fits is whole on each device.
      steps: Optimizer steps of the whole training, 1 or more. None is 1000, or what ``epochs`` makes.
      epochs: How often the training reads all records, 1 or more, instead of ``steps``; not beside ``run_fn``.
      batch_size: Records a step, over all workers and their devices; under ``parameter_server`` of the one worker that
        makes the step.
      accumulate: Equal parts that each device trains its records of a step in, one after another: 1 or more. Their
        gradients are added up and applied once, so a batch needs the memory of a part of it; ``batch_size`` stays the
        records of a whole step. Not for ``parameter_server`` and ``dtensor``.
      precision: What the layers compute in: ``float32``, or half of it with weights in float32. ``mixed_float16``
        scales the loss so that small gradients do not vanish, and leaves out a step whose gradients overflow. What is
        served is float32. Not for ``parameter_server`` and ``dtensor``.
      class_weights: How much a record of a label weighs in the loss, above 0; 1 where not given. For a binary label
        ``0`` and ``1``, for a multiclass one the classes -> weight. As with Keras, each record's loss is
        multiplied by it, and a step's loss is the sum over its whole batch divided by the number of records. Metrics
        and validation do not know of it.
      weight_column: How much each record counts: a column of finite numbers of 0 or more, with a value in every row. A
        raw column beside ``features``; beside ``preprocessing`` an output of that function. In the loss as Keras'
        ``sample_weight`` (multiplied with ``class_weights``), in validation and evaluation too. The model is not given
        it, and what is served does not need it. Not beside ``run_fn``.
      clip_norm: Longest that all gradients of a step may be as one vector, summed over all devices: a longer one is
        shortened, its direction kept. Above 0; None sets no bound. Not for ``dtensor``.
      clip_value: Largest number that a gradient of a step may have, either side of 0, likewise; not beside
        ``clip_norm``.
      optimizer: Used unless the model comes compiled; its own optimizer is used then.
      learning_rate: Of that optimizer, above 0.
      schedule: How the learning rate changes from step to step; ``parameter_server``, which counts steps roughly until
        the next checkpoint, has a constant one only.
      steps_per_call: Steps that run inside one call of the compiled function, 1 or more; heartbeats, the check for NaN
        and progress come once a call.
      checkpoint_every: Steps between two checkpoints, 1 or more; there is always one after the last step.
      validate_every: Steps between two validations on the evaluation split, 1 or more; there is always one after the
        last step. All workers share its records. None validates never. Not beside ``run_fn``.
      early_stopping: Ends the training before its last step when validations become no better; None never does.
      max_restarts: How often the group may be started again after failures within ``restart_window_s``, and after how
        many in a row between which no checkpoint was written, 0 or more.
      restart_window_s: Seconds after which a restart counts no more, so that a fault a day never ends a long training.
      restart_delay_s: Seconds before the second restart in a row between which no checkpoint was written, doubled
        before each further one; the first comes at once. 0 never waits.
      max_restart_delay_s: Longest such wait, in seconds, 0 or more.
      standby: Whether processes that have loaded TensorFlow are kept ready after half a minute of training, one for
        each worker, so that a restart comes seconds sooner. Each takes some 350 MB; where memory is scarce there are
        none.
      start_timeout_s: Seconds from the start of a worker to its first step.
      heartbeat_timeout_s: Seconds without a heartbeat after which a training worker counts as stuck and the group is
        started again.
      attempt_timeout_s: Seconds that one attempt may take in all, from the start of its workers; one that is longer
        fails, and counts as a restart. For a ``run_fn`` that can hang with a busy processor. None sets no limit.
      num_virtual_shards: Parts into which the records are dealt whatever the number of workers, so that N workers see
        what one sees; a multiple of ``workers`` times ``devices_per_worker``. None takes the divisor of ``batch_size``,
        up to 24, that most numbers of workers divide: 24 for 240, 16 for 256.
      shuffle_buffer: Records within which each virtual shard is shuffled, rounded up to whole steps; 0 keeps the order
        of the files. Fewer where the records of all shards' buffers would take more than 128 MiB.
      cache: What keeps parsed records for later epochs, in each worker its own: ``memory``; ``disk``, in the step's
        work folder, until the training has succeeded; ``none``, which reads the files again in each epoch. ``auto``
        is ``memory`` up to 512 MiB a worker, else ``none``.
      augment: ``module:function`` that changes training records at random, after the cache, never in evaluation nor in
        the served model: takes the columns of a batch (name -> tensor [batch, ...], label included) and seeds, int32
        [batch, 2], for TensorFlow's ``stateless_*`` functions, and returns columns of the same names, types and shapes.
        Or a class, as ``lockstep.transforms.augmentation:ImageAugmentation``, beside ``augment_parameters``.
        A record's seed follows from ``seed``, the epoch and the record: the same with any number of workers and after
        a restart. A record must be changed by its own seed alone, not by its place in the batch.
      augment_parameters: What the class in ``augment`` is made with; none calls the function itself.
      trace_steps: First and last step, counted from 1, of which the chief writes a profile beside its TensorBoard
        events, for TensorBoard's profile plugin; a few are enough. None writes none; nor does a training that goes on
        from a checkpoint after the first of them.
      base_port: First of ``workers`` TCP ports on this machine; None takes free ones.
      seed: Of weights, dropout, shuffling and ``augment``; 0 or more.
    """

    strategy: Literal["one_device", "mirrored", "multi_worker_mirrored", "parameter_server", "dtensor"] = (
        "multi_worker_mirrored"
    )
    workers: int | WorkerRange = 2
    devices_per_worker: int = 1
    parameter_servers: int | None = None
    mesh: Mapping[str, int] = dataclasses.field(default_factory=dict)
    layout: Mapping[str, tuple[str | None, ...]] = dataclasses.field(default_factory=dict)
    steps: int | None = None
    epochs: int | None = None
    batch_size: int = 240
    accumulate: int = 1
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    class_weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    weight_column: str | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    schedule: ScheduleOptions = ScheduleOptions()
    steps_per_call: int = 10
    checkpoint_every: int = 200
    validate_every: int | None = None
    early_stopping: EarlyStopping | None = None
    max_restarts: int = 3
    restart_window_s: float = 3600.0
    restart_delay_s: float = 1.0
    max_restart_delay_s: float = 60.0
    standby: bool = True
    start_timeout_s: float = 120.0
    heartbeat_timeout_s: float = 60.0
    attempt_timeout_s: float | None = None
    num_virtual_shards: int | None = None
    shuffle_buffer: int = 10_000
    cache: Literal["auto", "memory", "disk", "none"] = "auto"
    augment: str | None = None
    augment_parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    trace_steps: tuple[int, ...] | None = None
    base_port: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is None and self.epochs is None:
            object.__setattr__(self, "steps", DEFAULT_STEPS)
        if isinstance(self.workers, WorkerRange):
            self._check_range(self.workers)
            return
        counts = ("workers", "devices_per_worker", "steps", "epochs", "batch_size", "accumulate", "steps_per_call")
        for name in (*counts, "checkpoint_every", "validate_every", "num_virtual_shards"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "give 1 or more")
        both = self.steps is not None and self.epochs is not None
        _require(not both, "epochs", self.epochs, "steps is given too; keep one of the two")
        for name in ("max_restarts", "shuffle_buffer", "seed"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "give 0 or more")
        for name in ("restart_delay_s", "max_restart_delay_s"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value >= 0, name, value, "give 0 or more")
        for name in ("learning_rate", "start_timeout_s", "heartbeat_timeout_s", "restart_window_s"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value > 0, name, value, "give a number above 0")
        for name in ("attempt_timeout_s", "clip_norm", "clip_value"):
            value = getattr(self, name)
            is_allowed = value is None or (math.isfinite(value) and value > 0)
            _require(is_allowed, name, value, "give a number above 0")
        _require(self.seed < 2**31, "seed", self.seed, "give less than 2147483648")
        trace = self.trace_steps
        is_allowed = trace is None or (len(trace) == 2 and 1 <= trace[0] <= trace[1] <= (self.steps or trace[1]))
        remedy = "give first and last step, as [100, 110], none above the steps of the training"
        _require(is_allowed, "trace_steps", trace, remedy)
        is_allowed = self.augment is None or self.augment.count(":") == 1
        _require(is_allowed, "augment", self.augment, "spell it module:function")
        is_allowed = self.augment is not None or not self.augment_parameters
        remedy = "there is no augment to make with them; give that, or leave them out"
        _require(is_allowed, "augment_parameters", dict(self.augment_parameters), remedy)
        self._check_schedule()
        for value, weight in self.class_weights.items():
            is_allowed = math.isfinite(weight) and weight > 0
            _require(is_allowed, f"class_weights.{value}", weight, "give a number above 0")
        _require(self.weight_column != "", "weight_column", self.weight_column, "name a column, or leave it out")
        self._check_validation()
        self._check_parts()

    @property
    def num_steps(self) -> int:
        """Steps of the whole training; known only once the records are, where ``epochs`` is given."""
        if self.steps is None:
            raise RuntimeError("epochs were not turned into steps")
        return self.steps

    def to_trace(self, step: int) -> tuple[int, ...]:
        """Returns how many steps are left to each end of ``trace_steps`` that is still to come."""
        first, last = self.trace_steps or (1, 0)
        return tuple(end - step for end in (first - 1, last) if end > step)

    @property
    def virtual_shards(self) -> int:
        """Number of virtual shards, whatever the number of workers."""
        return self.num_virtual_shards or _most_divisible(self.batch_size)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of workers that a group may have, in ascending order."""
        if isinstance(self.workers, int):
            return (self.workers,)
        return tuple(size for size in range(self.workers.min, self.workers.max + 1) if self._allows(size))

    @property
    def most_workers(self) -> int:
        """Workers of the largest group: what the training begins with."""
        return self.workers if isinstance(self.workers, int) else self.workers.max

    def with_workers(self, count: int) -> "TrainOptions":
        """Returns the options of a group of that many workers.

        Raises:
          ValueError: The other options do not allow that many.
        """
        return dataclasses.replace(self, workers=count)

    @property
    def processes(self) -> "dict[Literal['chief', 'worker', 'ps'], int]":
        """Processes of the group by role, in order: the first process of the first role is the chief."""
        if self.strategy == "parameter_server":
            return {"chief": 1, "worker": self.most_workers, "ps": self.parameter_servers or 1}
        return {"worker": self.most_workers}

    @property
    def num_devices(self) -> int:
        """Devices that each process drives."""
        return math.prod(self.mesh.values()) if self.mesh else self.devices_per_worker

    @property
    def table_parts(self) -> int:
        """Parts that a large embedding is made of, see ``ModelInputs.table_parts``."""
        return self.parameter_servers or 1

    def _allows(self, size: int) -> bool:
        try:
            self.with_workers(size)
        except ValueError:
            return False
        return True

    def _check_range(self, workers: WorkerRange) -> None:
        remedy = f"strategy {self.strategy} has a number of its own; give a number, or strategy: multi_worker_mirrored"
        is_allowed = self.strategy == "multi_worker_mirrored"
        _require(is_allowed, "workers", {"min": workers.min, "max": workers.max}, remedy)
        for size in (workers.max, workers.min):
            self.with_workers(size)

    def _check_parts(self) -> None:
        if self.strategy in ("one_device", "mirrored", "dtensor"):
            remedy = (
                f"strategy {self.strategy} runs in one process; give workers: 1, or strategy: multi_worker_mirrored"
            )
            _require(self.most_workers == 1, "workers", self.workers, remedy)
        if self.strategy in ("one_device", "parameter_server", "dtensor"):
            remedy = f"strategy {self.strategy} drives one a process; give devices_per_worker: 1, or strategy: mirrored"
            if self.strategy == "dtensor":
                remedy = "mesh says how many there are; leave it out"
            _require(self.devices_per_worker == 1, "devices_per_worker", self.devices_per_worker, remedy)
        if self.parameter_servers is not None:
            _require(self.parameter_servers >= 1, "parameter_servers", self.parameter_servers, "give 1 or more")
            remedy = f"strategy {self.strategy} has none; leave it out, or give strategy: parameter_server"
            _require(self.strategy == "parameter_server", "parameter_servers", self.parameter_servers, remedy)
        self._check_mesh()
        self._check_gradients()
        shards = self.virtual_shards
        _require(
            self.batch_size % shards == 0,
            "batch_size",
            self.batch_size,
            f"each of {shards} virtual shards gives its share of a batch; give a multiple of num_virtual_shards, "
            f"for example {max(1, round(self.batch_size / shards)) * shards}, or leave num_virtual_shards out",
        )
        # Under parameter_server every step is made by one worker, with a whole batch.
        if self.strategy != "parameter_server" and shards % (self.most_workers * self.devices_per_worker):
            raise ValueError(self._indivisible(shards))
        if self.base_port is not None:
            highest = 65536 - sum(self.processes.values())
            _require(
                1024 <= self.base_port <= highest, "base_port", self.base_port, f"give a port from 1024 to {highest}"
            )

    def _check_validation(self) -> None:
        if self.early_stopping is None:
            return
        every = self.validate_every
        _require(
            every is not None, "early_stopping", self.early_stopping.monitor, "it needs validate_every; give steps"
        )
        if every is not None and self.steps is not None:
            remedy = f"early_stopping needs a validation before the last of {self.steps} steps; give fewer"
            _require(every < self.steps, "validate_every", every, remedy)

    def _check_schedule(self) -> None:
        schedule = self.schedule
        remedy = f"strategy {self.strategy} has a constant learning rate; leave it out"
        is_allowed = schedule.is_constant or self.strategy != "parameter_server"
        _require(is_allowed, "schedule.kind", schedule.kind, remedy)
        if schedule.warmup_steps and self.steps is not None:
            remedy = f"the training has {self.steps} steps in all; give fewer"
            _require(schedule.warmup_steps < self.steps, "schedule.warmup_steps", schedule.warmup_steps, remedy)

    def _check_gradients(self) -> None:
        for name in ("clip_norm", "clip_value"):
            is_allowed = getattr(self, name) is None or self.strategy != "dtensor"
            _require(is_allowed, name, getattr(self, name), "strategy dtensor cannot; leave it out")
        remedy = f"strategy {self.strategy} cannot; leave it out"
        is_allowed = self.precision == "float32" or self.strategy in SYNCHRONOUS
        _require(is_allowed, "precision", self.precision, remedy)
        both = self.clip_norm is not None and self.clip_value is not None
        _require(not both, "clip_value", self.clip_value, "clip_norm is given too; keep one of the two")
        if self.accumulate == 1:
            return
        remedy = f"strategy {self.strategy} cannot; leave it out"
        _require(self.strategy in SYNCHRONOUS, "accumulate", self.accumulate, remedy)
        replicas = self.most_workers * self.devices_per_worker
        if self.batch_size % replicas == 0:  # else that is told
            rows = self.batch_size // replicas
            remedy = f"each device has {rows} records of a step; give a divisor of that"
            _require(rows % self.accumulate == 0, "accumulate", self.accumulate, remedy)

    def _check_mesh(self) -> None:
        if self.strategy != "dtensor":
            for name in ("mesh", "layout"):
                remedy = f"strategy {self.strategy} has none; leave it out, or give strategy: dtensor"
                _require(not getattr(self, name), name, getattr(self, name), remedy)
            return
        _require(bool(self.mesh), "mesh", self.mesh, "give an axis or two, as {batch: 2, model: 2}")
        for axis, size in self.mesh.items():
            _require(size >= 1, f"mesh.{axis}", size, "give 1 or more")
        parts = self.mesh.get(BATCH_AXIS, 1)
        _require(self.batch_size % parts == 0, "batch_size", self.batch_size, f"give a multiple of mesh.batch: {parts}")
        allowed = [axis for axis in self.mesh if axis != BATCH_AXIS]
        for pattern, axes in self.layout.items():
            given = [axis for axis in axes if axis is not None]
            is_allowed = set(given) <= set(allowed) and len(given) == len(set(given))
            choice = f"null or one of {', '.join(allowed)}, each once at most" if allowed else "null"
            _require(is_allowed, f"layout.{pattern}", list(axes), f"give for each dimension {choice}")

    def _indivisible(self, shards: int) -> str:
        replicas, batch = self.most_workers * self.devices_per_worker, self.batch_size
        what, number = f"workers: {self.workers}", "number of workers"
        if self.devices_per_worker > 1:
            what, number = f"{what} with devices_per_worker: {self.devices_per_worker}", "product of the two"
        remedy = f"give a {number} that divides {shards}"
        if self.num_virtual_shards is None and replicas <= MAX_VIRTUAL_SHARDS:
            sizes = range(batch, batch + MAX_VIRTUAL_SHARDS * replicas + 1)
            remedy += f", or batch_size: {next(size for size in sizes if _most_divisible(size) % replicas == 0)}"
        return f"{what} is not allowed with batch_size: {batch}, which is dealt in {shards} equal parts; {remedy}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The ``model`` block.

    Args:
      build: A built-in (``mlp``, ``linear``, ``conv``, ``factorization_machine``), or ``module:function`` that returns
        a ``keras.Model``.
      parameters: Handed to it as they are; beside ``run_fn`` they are that function's ``custom_config``.
    """

    build: str = "mlp"
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(bool(self.build), "build", self.build, "give a built-in's name or module:function")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFn:
    """A function for TFX's stock Trainer, which a worker calls instead of the loop of ``training.py``.

    Args:
      function: ``module:function``; takes TFX's ``FnArgs``.
      payload_format: Name of the examples' ``example_gen_pb2.PayloadFormat``.
      schema_path: File of the raw schema; None where the pipeline gives none.
      eval_model_dir: The chief's ``FnArgs.eval_model_dir``.
      model_run_dir: Every worker's ``FnArgs.model_run_dir``; survives a failed step, as ``checkpoint_dir`` does.
    """

    function: str
    payload_format: str
    schema_path: str | None
    eval_model_dir: str
    model_run_dir: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """Everything that a worker needs, as one JSON document.

    Args:
      options: The ``train`` block.
      model: The ``model`` block.
      label: Name of the label, both the raw column and the transformed feature.
      label_kind: What it is, and so which loss and metrics.
      classes: For a multiclass label.
      train_files: Local paths of gzip TFRecords of transformed tf.Examples; at least one.
      eval_files: The same for the evaluation split; may be empty, then nothing is evaluated.
      transform_graph_dir: Transform's ``transform_graph`` artifact.
      run_dir: Folder of this run's own files, see ``RunFiles``; exists.
      checkpoint_dir: Where checkpoints survive a failed step; created by the chief.
      export_dir: Where the SavedModel appears, whole (``.../Format-Serving``); must not exist.
      tensorboard_dir: Where the chief writes TensorBoard events.
      import_paths: Folders appended to ``sys.path`` for the user's modules.
      run_fn: Trains and exports instead of the loop; ``model.parameters`` are its ``custom_config`` then.
      decoder: Decodes features of each batch; None where none is encoded.
    """

    options: TrainOptions
    model: ModelOptions
    label: str
    label_kind: LabelKind
    train_files: tuple[str, ...]
    eval_files: tuple[str, ...]
    transform_graph_dir: str
    run_dir: str
    checkpoint_dir: str
    export_dir: str
    tensorboard_dir: str
    import_paths: tuple[str, ...] = ()
    run_fn: RunFn | None = None
    classes: ClassOptions | None = None
    decoder: DecoderOptions | None = None

    @property
    def cache_dir(self) -> Path:
        """Where ``options.cache: disk`` keeps parsed records; lives as long as ``checkpoint_dir``."""
        return Path(f"{self.checkpoint_dir}-cache")

    def __post_init__(self) -> None:
        _require(bool(self.label), "label", self.label, "give the label's column")
        check_classes(self.label_kind, self.classes)
        check_weight_column(self.options, self.label, self.run_fn is not None)
        check_validation(self.options, self.label_kind, self.run_fn is not None)
        has_records = bool(self.eval_files) or self.options.validate_every is None
        _require(
            has_records, "validate_every", self.options.validate_every, "there is no evaluation split; leave it out"
        )
        check_class_weights(self.options, self.label_kind)
        _require(bool(self.train_files), "train_files", self.train_files, "give at least one file of training records")

    def to_json(self) -> str:
        """Returns the document, with sorted keys: equal specifications give equal text."""
        return documents.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "TrainSpec":
        """Reads what ``to_json`` wrote.

        Raises:
          ValueError: Not JSON, a key is unknown or absent, or a value has the wrong type or is not allowed.
        """
        return documents.from_json(cls, text, "spec")


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """Names of the files that supervisor and workers share under ``run_dir``."""

    run_dir: Path

    @property
    def spec_path(self) -> Path:
        """The ``TrainSpec`` as JSON."""
        return self.run_dir / "spec.json"

    @property
    def training_path(self) -> Path:
        """What the chief reports at the end, as JSON; for its keys see ``training.TrainingReport``."""
        return self.run_dir / "training.json"

    def worker_dir(self, worker: int) -> Path:
        """Working directory of worker ``worker`` (0 is the chief)."""
        return self.run_dir / f"worker-{worker}"


def check_class_weights(options: TrainOptions, label_kind: str) -> None:
    """Refuses weights of classes where the label has none.

    Raises:
      ValueError: It is a regression's, or of boxes, of which a record has several; or it is binary, and a weight is for
        another value than 0 and 1.
    """
    for value, weight in options.class_weights.items() if label_kind == "binary" else ():
        _require(value in ("0", "1"), f"class_weights.{value}", weight, "give a weight for 0, for 1, or both")
    is_allowed = not options.class_weights or label_kind not in ("regression", "boxes")
    remedy = f"the label's kind is {label_kind}; leave it out"
    _require(is_allowed, "class_weights", dict(options.class_weights), remedy)


def check_weight_column(options: TrainOptions, label: str, has_run_fn: bool) -> None:
    """Refuses weights of records where they cannot be used.

    Raises:
      ValueError: They are the label, or a ``run_fn`` trains, which reads the records itself.
    """
    column = options.weight_column
    _require(
        column is None or not has_run_fn, "weight_column", column, "a run_fn weighs its records itself; leave it out"
    )
    _require(column is None or column != label, "weight_column", column, "it is the label; give another column")


def check_validation(options: TrainOptions, label_kind: str, has_run_fn: bool) -> None:
    """Refuses validations that cannot be.

    Raises:
      ValueError: A ``run_fn`` trains, which validates by itself; or what is monitored does not suit the label.
    """
    every, stopping = options.validate_every, options.early_stopping
    _require(every is None or not has_run_fn, "validate_every", every, "a run_fn validates by itself; leave it out")
    if stopping is not None:
        allowed = METRICS[label_kind]
        remedy = f"the label's kind is {label_kind}; give one of {', '.join(allowed)}"
        _require(stopping.monitor in allowed, "early_stopping.monitor", stopping.monitor, remedy)


def worker_command(*, spec_path: Path, attempt: int, python: str = sys.executable) -> tuple[str, ...]:
    """Returns the command of one worker process; the same for every worker of the group.

    Args:
      spec_path: Absolute path of the ``TrainSpec``.
      attempt: 1 for the first start of the group, one more for every restart.
      python: The interpreter.
    """
    # Not `-m`: that puts the working directory first on the import path, where any file could shadow a package.
    program = (
        "import sys; sys.path[:] = [folder for folder in sys.path if folder]; "
        "from lockstep.components.trainer.worker import main; sys.exit(main(sys.argv[1:]))"
    )
    return (python, "-c", program, str(spec_path), "--attempt", str(attempt), "--stop-at-eof")


def _most_divisible(batch_size: int) -> int:
    """Returns the divisor up to ``MAX_VIRTUAL_SHARDS`` that has most divisors itself, the largest of several."""
    divisors = [n for n in range(1, MAX_VIRTUAL_SHARDS + 1) if batch_size % n == 0]
    return max(divisors, key=lambda n: (sum(n % m == 0 for m in range(1, n + 1)), n))


def _require(condition: bool, name: str, value: object, remedy: str) -> None:
    if not condition:
        value = list(value) if isinstance(value, tuple) else value  # as it is written in YAML
        raise ValueError(f"{name}: {value!r} is not allowed; {remedy}")
