"""The trainer as a step of a TFX pipeline."""

from typing import ClassVar

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration import data_types
from tfx.types import component_spec, standard_artifacts

from lockstep.components.trainer.executor import Executor
from lockstep.components.trainer.step import TrainStep

__all__ = ["DistributedTrainer", "DistributedTrainerSpec"]


class DistributedTrainerSpec(types.ComponentSpec):
    """Channels and properties of ``DistributedTrainer``."""

    PARAMETERS: ClassVar = {
        "spec": component_spec.ExecutionParameter(type=str),
        "steps": component_spec.ExecutionParameter(type=int, optional=True),
        "workers": component_spec.ExecutionParameter(type=int, optional=True),
    }
    INPUTS: ClassVar = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "transform_graph": component_spec.ChannelParameter(type=standard_artifacts.TransformGraph),
        "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema, optional=True),
    }
    OUTPUTS: ClassVar = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
    }


class DistributedTrainer(base_component.BaseComponent):
    """Trains a Keras 3 model in several processes that restart together from their last checkpoint.

    Its outputs are ``model``, a SavedModel in ``Format-Serving`` as the stock Trainer's, and ``model_run``, with
    ``summary.json``, the workers' logs and TensorBoard's events.

    Args:
      examples: Transformed examples, gzip TFRecords.
      transform_graph: Transform's; it becomes part of the served model.
      schema: Of the raw examples; a training whose schema changed does not go on from the old one's checkpoint.
      spec: A ``TrainStep`` as JSON.
      steps: Takes the place of the specification's where a run sets it; None leaves it.
      workers: The same.

    Raises:
      ValueError: ``spec`` is not one, or a number is not allowed beside its other options.
    """

    SPEC_CLASS = DistributedTrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        schema: types.BaseChannel | None = None,
        *,
        spec: str,
        steps: int | data_types.RuntimeParameter | None = None,
        workers: int | data_types.RuntimeParameter | None = None,
    ) -> None:
        # A wrong one is told where the pipeline is written, not when it has run for an hour.
        TrainStep.from_json(spec).at_run_time(steps=_known(steps), workers=_known(workers))
        super().__init__(
            DistributedTrainerSpec(
                examples=examples,
                transform_graph=transform_graph,
                schema=schema,
                spec=spec,
                **{name: value for name, value in (("steps", steps), ("workers", workers)) if value is not None},
                model=types.Channel(type=standard_artifacts.Model),
                model_run=types.Channel(type=standard_artifacts.ModelRun),
            )
        )


def _known(value: int | data_types.RuntimeParameter | None) -> int | None:
    """Returns the number, if it is known before the run."""
    return value if isinstance(value, int) else None
