"""What the pipeline tells the trainer's step: its one execution property, as JSON."""

import dataclasses
from typing import Any

from lockstep.components import documents
from lockstep.components.class_labels import ClassOptions, LabelKind, check_classes
from lockstep.components.trainer.decoder_options import DecoderOptions
from lockstep.components.trainer.spec import ModelOptions, TrainOptions, check_validation, check_weight_column
from lockstep.components.trainer.worker_range import WorkerRange

__all__ = ["TrainStep"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainStep:
    """The ``spec`` of ``DistributedTrainer``.

    Args:
      options: The ``train`` block.
      model: The ``model`` block.
      label: Name of the label, both the raw column and the transformed feature.
      label_kind: What it is.
      work_dir: Local folder for checkpoints and logs of trainings that are under way or failed; made where missing. It
        must outlive the step's outputs, which TFX deletes when the step fails.
      import_paths: Folders appended to the workers' ``sys.path`` for the user's modules; a relative one is below the
        executor's working folder.
      train_split: Split of the examples to train on.
      eval_split: Split to evaluate on at the end; None evaluates nothing.
      run_fn: ``module:function`` for TFX's stock Trainer, which trains instead of the loop of ``model``.
      classes: For a multiclass label.
      decoder: Decodes features that Transform left encoded, in each batch; None where there are none.
    """

    options: TrainOptions
    model: ModelOptions
    label: str
    label_kind: LabelKind
    work_dir: str
    import_paths: tuple[str, ...] = ()
    train_split: str = "train"
    eval_split: str | None = "eval"
    run_fn: str | None = None
    classes: ClassOptions | None = None
    decoder: DecoderOptions | None = None

    def __post_init__(self) -> None:
        for name in ("label", "work_dir", "train_split"):
            if not getattr(self, name):
                raise ValueError(f"{name}: {getattr(self, name)!r} is not allowed; give a name")
        check_classes(self.label_kind, self.classes)
        check_weight_column(self.options, self.label, self.run_fn is not None)
        check_validation(self.options, self.label_kind, self.run_fn is not None)
        if self.eval_split is None and self.options.validate_every is not None:
            raise ValueError(f"validate_every: {self.options.validate_every} is not allowed without an eval_split")
        if self.run_fn is not None and self.options.epochs is not None:
            raise ValueError(f"epochs: {self.options.epochs} is not allowed beside run_fn; give steps")
        if self.run_fn is not None and self.decoder is not None:
            raise ValueError("decoder: not allowed beside run_fn, which reads its records itself")
        if self.run_fn is not None and isinstance(self.options.workers, WorkerRange):
            raise ValueError(
                "workers: a range is not allowed beside run_fn, which deals its records itself; give a number"
            )

    def to_json(self) -> str:
        """Returns the document, with sorted keys: equal steps give equal text."""
        return documents.to_json(self)

    def at_run_time(self, *, steps: float | None, workers: float | None) -> "TrainStep":
        """Returns the step with the options that a run sets by parameters of its own.

        Args:
          steps: Takes the place of ``options.steps`` and ``epochs``; None leaves them. JSON knows no integers: 300.0 is
            one.
          workers: The same for ``options.workers``.

        Raises:
          ValueError: A number is not whole, or not allowed beside the other options.
        """
        given = {"steps": steps, "workers": workers}
        changes: dict[str, Any] = {name: _whole(name, value) for name, value in given.items() if value is not None}
        if "steps" in changes:
            changes["epochs"] = None
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **changes))

    @classmethod
    def from_json(cls, text: str) -> "TrainStep":
        """Reads what ``to_json`` wrote.

        Raises:
          ValueError: Not JSON, a key is unknown or absent, or a value has the wrong type or is not allowed.
        """
        return documents.from_json(cls, text, "spec")


def _whole(name: str, value: float) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"{name}: {value!r} is not allowed; give a whole number")
    return int(value)
