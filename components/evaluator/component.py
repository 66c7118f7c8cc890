"""The Evaluator as a step of a TFX pipeline."""

from typing import ClassVar

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from lockstep.components.evaluator.driver import Driver
from lockstep.components.evaluator.executor import Executor


class EvaluatorSpec(types.ComponentSpec):
    """Channels and properties of ``Evaluator``."""

    PARAMETERS: ClassVar = {"spec": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS: ClassVar = {
        "evaluation": component_spec.ChannelParameter(type=standard_artifacts.ModelEvaluation),
        "blessing": component_spec.ChannelParameter(type=standard_artifacts.ModelBlessing),
    }


class Evaluator(base_beam_component.BaseBeamComponent):
    """Measures a model on a split of raw examples and blesses it if it reaches the thresholds.

    Its outputs are ``evaluation``, TFMA's results with ``verdict.json``, and ``blessing``, as the stock Evaluator's.

    Args:
      examples: Raw examples with the split to evaluate.
      model: The candidate; its SavedModel has the signatures ``serving_default`` and ``transform_features``.
      schema: The schema of the raw examples; the types of sliced columns come from it.
      spec: An ``EvaluateSpec`` as JSON.
    """

    SPEC_CLASS = EvaluatorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self, examples: types.BaseChannel, model: types.BaseChannel, schema: types.BaseChannel, spec: str
    ) -> None:
        super().__init__(
            EvaluatorSpec(
                examples=examples,
                model=model,
                schema=schema,
                spec=spec,
                evaluation=types.Channel(type=standard_artifacts.ModelEvaluation),
                blessing=types.Channel(type=standard_artifacts.ModelBlessing),
            )
        )
