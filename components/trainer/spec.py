"""What one training is: the ``train`` and ``model`` blocks, and the JSON document that every worker reads."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The ``train`` block."""

    strategy: Literal["one_device", "multi_worker_mirrored"] = "multi_worker_mirrored"
    workers: int = 2
    steps: int = 1000
    batch_size: int = 256
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    steps_per_call: int = 10
    checkpoint_every: int = 200
    max_restarts: int = 3
    start_timeout_s: float = 120.0
    heartbeat_timeout_s: float = 60.0
    num_virtual_shards: int = 8
    shuffle_buffer: int = 10_000
    base_port: int | None = None
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The ``model`` block: ``build`` is a built-in's name or ``module:function``; ``parameters`` go to it."""

    build: str = "mlp"
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """Everything that a worker needs, as one JSON document."""

    options: TrainOptions
    model: ModelOptions
    label: str
    label_kind: Literal["binary", "regression"]
    train_files: tuple[str, ...]
    eval_files: tuple[str, ...]
    transform_graph_dir: str
    run_dir: str
    checkpoint_dir: str
    export_dir: str
    tensorboard_dir: str
    import_paths: tuple[str, ...] = ()
