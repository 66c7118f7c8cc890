"""``lockstep tune-batch``: which batch size a pipeline's training should have on this machine."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Sequence

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx.types import standard_artifacts

from lockstep.components.errors import ConfigurationError
from lockstep.components.record_manifest import recorded_counts
from lockstep.components.tfrecord_files import count_records
from lockstep.components.trainer import batch_tuning
from lockstep.components.trainer.batch_tuning import Trial
from lockstep.components.trainer.spec import TrainSpec
from lockstep.pipelines.config import ConfigSource, PipelineConfig
from lockstep.pipelines.run_files import RootFiles

_TRIAL_S = 120.0  # for one size, its start included


def tune_batch(
    source: ConfigSource, root: pathlib.Path, *, limit_s: float, show: Callable[[str], None]
) -> batch_tuning.Trial | None:
    """Tries batch sizes on the data that the last run transformed; shows a line a trial, the table and what to set.

    Blocks for ``limit_s`` at most, or for the one trial that takes longer than those before it.

    Args:
      source: The pipeline.
      root: Where its runs are kept.
      limit_s: Seconds after which no further size is tried.
      show: Takes the lines.

    Returns:
      What is recommended; None if no size can be used.

    Raises:
      ConfigurationError: The pipeline was never run up to Transform, or trains by a function of its own.
      StepFailed: Training fails, whatever the size.
    """
    config = source.config
    if config.run_fn is not None:
        raise ConfigurationError("run_fn: chooses its batches itself; tune-batch is for a model of model.build")
    spec = training_spec(config, RootFiles(root), source.folder)
    counts = recorded_counts(spec.train_files) or [count_records(path) for path in spec.train_files]
    num_records = sum(counts)
    end_s = time.monotonic() + limit_s
    options = config.train
    workers = options.most_workers
    processes = f"{workers} worker{'s' if workers > 1 else ''}"
    show(
        f"{config.name}: {processes}, {num_records:,} training records,"
        f" {batch_tuning.free_bytes() / 2**30:.1f} GB of memory to use; up to {limit_s / 60:.3g} minutes"
    )

    longest_s = 0.0

    def measure(size: int) -> Trial:
        nonlocal longest_s
        begin_s = time.monotonic()
        trial = batch_tuning.try_batch(spec, size, budget_bytes=batch_tuning.free_bytes(), timeout_s=_TRIAL_S)
        longest_s = max(longest_s, time.monotonic() - begin_s)
        show(f"  batch_size {size}: {trial.problem or f'{trial.examples_per_s:,.0f} examples/s'}")
        return trial

    def is_time_left() -> bool:
        return end_s - time.monotonic() > longest_s

    trials = batch_tuning.search(
        measure,
        configured=options.batch_size,
        unit=options.virtual_shards,
        limit=num_records,
        is_time_left=is_time_left,
    )
    best = batch_tuning.quickest(trials)
    show("")
    for line in _table(trials, options.batch_size, best):
        show(line)
    show("")
    show(_advice(trials, best, options.batch_size, is_over=not is_time_left()))
    return best


def _table(trials: Sequence[Trial], configured: int, best: Trial | None) -> list[str]:
    usable = [trial for trial in trials if not trial.problem]
    lines = [f"{'batch_size':>10}  {'examples/s':>10}  {'steps/s':>8}  {'memory':>9}"]
    for trial in trials:
        notes = ["as configured"] * (trial.batch_size == configured) + ["quickest"] * (trial is best)
        notes += ["largest"] * (bool(usable) and trial is usable[-1])
        if trial.examples_per_s is None or trial.problem:
            lines.append(f"{trial.batch_size:>10,}  {trial.problem}")
            continue
        lines.append(
            f"{trial.batch_size:>10,}  {trial.examples_per_s:>10,.0f}  {trial.examples_per_s / trial.batch_size:>8,.1f}"
            f"  {trial.peak_bytes / 2**20:>6,.0f} MB  {', '.join(notes)}".rstrip()
        )
    return lines


def _advice(trials: Sequence[Trial], best: Trial | None, configured: int, *, is_over: bool) -> str:
    if best is None:
        return "no size can be used on this machine; make the model smaller"
    largest = max(trial.batch_size for trial in trials if not trial.problem)
    too_large = [trial for trial in trials if trial.problem and trial.batch_size > largest]
    if too_large:
        why = f"{too_large[0].batch_size}: {too_large[0].problem}"
    else:
        why = "the time was over" if is_over else "an epoch has no more records"
    lines = [f"largest: {largest} ({why})"]
    if best.batch_size == configured:
        lines.append(f"train.batch_size: {configured} is the quickest already, or within a few per cent of it")
    else:
        now = next(trial for trial in trials if trial.batch_size == configured)
        gain = ""
        if best.examples_per_s and now.examples_per_s and not now.problem:
            gain = f", {best.examples_per_s / now.examples_per_s:.1f} times"
        lines.append(f"quickest{gain}; to take it: train.batch_size: {best.batch_size}")
        lines.append("A larger batch makes fewer steps of an epoch: look at the loss, and at train.learning_rate, too.")
    return "\n".join(lines)


def training_spec(config: PipelineConfig, root: RootFiles, folder: pathlib.Path | None) -> TrainSpec:
    """Returns the training of a pipeline on the newest transformed data under its root, without folders to write to.

    Raises:
      ConfigurationError: There are no transformed data.
    """
    graph_dir, examples_dir = _transformed(root)
    files = tuple(str(path) for path in sorted((examples_dir / "Split-train").glob("*.gz")))
    if not files:
        raise _not_run(root)
    return TrainSpec(
        # No record of the evaluation split is read.
        options=dataclasses.replace(config.train, validate_every=None, early_stopping=None),
        model=config.model,
        label=config.label.output,
        label_kind=config.label_kind,
        classes=config.class_options,
        train_files=files,
        eval_files=(),
        transform_graph_dir=str(graph_dir),
        run_dir="",
        checkpoint_dir="",
        export_dir="",
        tensorboard_dir="",
        import_paths=(str(folder),) if folder else (),
    )


def _transformed(root: RootFiles) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the folders of the newest transform graph, and of the examples that came with it."""
    if not root.metadata_path.is_file():
        raise _not_run(root)
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(root.metadata_path)
    config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READONLY
    store = metadata_store.MetadataStore(config)
    graphs = store.get_artifacts_by_type(standard_artifacts.TransformGraph.TYPE_NAME)
    live = [graph for graph in graphs if graph.state == metadata_store_pb2.Artifact.LIVE]
    for graph in sorted(live, key=lambda graph: graph.id, reverse=True):
        made = [e for e in store.get_events_by_artifact_ids([graph.id]) if e.type == metadata_store_pb2.Event.OUTPUT]
        for event in store.get_events_by_execution_ids([event.execution_id for event in made]):
            if event.type == metadata_store_pb2.Event.OUTPUT and event.path.steps[0].key == "transformed_examples":
                [examples] = store.get_artifacts_by_id([event.artifact_id])
                return pathlib.Path(graph.uri), pathlib.Path(examples.uri)
    raise _not_run(root)


def _not_run(root: RootFiles) -> ConfigurationError:
    return ConfigurationError(
        f"{root.root}: no transformed examples there; run the pipeline first (lockstep run), with the same --root"
    )
