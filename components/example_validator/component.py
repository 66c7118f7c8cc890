"""The component ExampleValidator: TFX's, as the gate on data."""

from typing import ClassVar

from tfx import types
from tfx.components.example_validator import component
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from lockstep.components.example_validator.executor import Executor
from lockstep.components.example_validator.options import ValidateOptions


class ExampleValidatorSpec(types.ComponentSpec):
    """Channels and properties of ``ExampleValidator``."""

    PARAMETERS: ClassVar = {"spec": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples, optional=True),
        "statistics": component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS: ClassVar = {"anomalies": component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies)}


class ExampleValidator(component.ExampleValidator):
    """Compares the statistics of all splits with the schema, as TFX's does, and fails where they do not agree.

    ``anomalies`` is as TFX's.

    Args:
      statistics: Of the raw examples.
      schema: A channel of one Schema.
      options: The ``validate`` block, resolved; None is that of an inferred schema.
      examples: The raw examples with their origins (``data.keep_origin``), where rows shall be named that show an
        anomaly. On Kubeflow the step then fetches all of them.
    """

    SPEC_CLASS = ExampleValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        options: ValidateOptions | None = None,
        examples: types.BaseChannel | None = None,
    ) -> None:
        base_component.BaseComponent.__init__(
            self,
            ExampleValidatorSpec(
                examples=examples,
                statistics=statistics,
                schema=schema,
                spec=(options or ValidateOptions()).resolved(is_reviewed=False).to_json(),
                anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
            ),
        )
