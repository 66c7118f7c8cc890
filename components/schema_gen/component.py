"""The component SchemaGen of a pipeline with a reviewed schema."""

import os
from typing import Any, ClassVar

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.utils import io_utils

SCHEMA_NAME = "schema.pbtxt"


class SchemaGenSpec(types.ComponentSpec):
    """Channels and properties of ``SchemaGen``."""

    PARAMETERS: ClassVar = {"reviewed": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar = {"statistics": component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics)}
    OUTPUTS: ClassVar = {"schema": component_spec.ChannelParameter(type=standard_artifacts.Schema)}


class Executor(base_executor.BaseExecutor):
    """Writes the schema that it is given."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes one file, as TFX's SchemaGen does."""
        del input_dict
        path = os.path.join(artifact_utils.get_single_uri(output_dict["schema"]), SCHEMA_NAME)  # noqa: PTH118 - a URI
        io_utils.write_string_file(path, exec_properties["reviewed"])


class SchemaGen(base_component.BaseComponent):
    """Gives a schema that a person reviewed, where TFX's SchemaGen infers one.

    Its text is a property: so it is in a compiled package, and a change is seen by every cache.

    Args:
      statistics: Nothing is read of them; the step has its usual place in the pipeline.
      reviewed: A Schema of tensorflow-metadata as text.
    """

    SPEC_CLASS = SchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, statistics: types.BaseChannel, reviewed: str) -> None:
        schema = types.Channel(type=standard_artifacts.Schema)
        super().__init__(SchemaGenSpec(statistics=statistics, reviewed=reviewed, schema=schema))
