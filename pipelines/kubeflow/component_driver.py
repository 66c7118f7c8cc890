"""What a driver task does: asks a component's driver what its result depends on besides its inputs.

The answer is the output parameter ``driver_output`` of the driver's task and an input parameter of the component's, and
so part of Kubeflow Pipelines' cache key.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.dsl.components.base import base_driver
from tfx.orchestration import data_types as old_data_types
from tfx.orchestration import metadata
from tfx.orchestration.portable import base_driver as ir_base_driver
from tfx.orchestration.portable import data_types
from tfx.types import standard_artifacts, standard_component_specs
from tfx.utils import import_utils

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.artifact_metadata import TYPES_KEY, apply_metadata, metadata_of

__all__ = ["DRIVER_OUTPUT", "apply_driver_output", "run_driver"]

DRIVER_OUTPUT = "driver_output"
"""Name of the parameter."""

Artifacts = Mapping[str, list[types.Artifact]]


def run_driver(class_path: str, inputs: Artifacts, exec_properties: Mapping[str, Any]) -> str:
    """Runs a driver against an empty store of metadata, in memory.

    Args:
      class_path: Of a driver of TFX's or the user's.
      inputs: Artifacts that it may read, at local paths.
      exec_properties: The component's.

    Returns:
      ``driver_output``: JSON with sorted keys, equal where the driver says the same: the execution properties that it
      changed or added, and the properties of the outputs that it names.

    Raises:
      ConfigurationError: The class is not a driver.
    """
    try:
        driver_class = import_utils.import_class_by_path(class_path)
    except (ImportError, AttributeError) as e:
        raise ConfigurationError(f"driver {class_path}: {e}; the image lacks it") from e
    connection = metadata_store_pb2.ConnectionConfig()
    connection.fake_database.SetInParent()
    outputs = _outputs(driver_class)
    given = copy.deepcopy(dict(exec_properties))  # TFX's drivers change the one that they get
    with metadata.Metadata(connection) as handle:
        if issubclass(driver_class, ir_base_driver.BaseDriver):
            result = driver_class(handle).run(
                data_types.ExecutionInfo(
                    input_dict=dict(inputs), output_dict=outputs, exec_properties=given, pipeline_run_id=""
                )
            )
            changed = {name: _plain(value) for name, value in result.exec_properties.items()}
            for key, records in result.output_artifacts.items():
                for artifact, record in zip(outputs.get(key, []), records.artifacts, strict=False):
                    artifact.set_mlmd_artifact(record)
        elif issubclass(driver_class, base_driver.BaseDriver):
            info = old_data_types.PipelineInfo("", "")
            changed = driver_class(handle).resolve_exec_properties(
                given, info, old_data_types.ComponentInfo("", "", info)
            )
        else:
            raise ConfigurationError(f"driver {class_path} is not a driver of a component")
    document = {
        "exec_properties": {
            name: value for name, value in changed.items() if value is not None and exec_properties.get(name) != value
        },
        "artifacts": {key: [_described(artifact) for artifact in artifacts] for key, artifacts in outputs.items()},
    }
    return json.dumps(document, sort_keys=True, allow_nan=False)


def apply_driver_output(text: str, outputs: Artifacts, exec_properties: dict[str, Any]) -> None:
    """Does to a component's execution what its driver said in ``run_driver``."""
    document = json.loads(text)
    exec_properties.update(document["exec_properties"])
    for key, described in document["artifacts"].items():
        for artifact, properties in zip(outputs.get(key, []), described, strict=False):
            apply_metadata(artifact, properties)


def _outputs(driver_class: type) -> dict[str, list[types.Artifact]]:
    """Returns the outputs that a driver describes: of TFX's, only ExampleGen's do."""
    from tfx.components.example_gen import driver as example_gen_driver  # brings every component of TFX's, in a second

    if issubclass(driver_class, example_gen_driver.Driver):
        return {standard_component_specs.EXAMPLES_KEY: [standard_artifacts.Examples()]}
    return {}


def _described(artifact: types.Artifact) -> dict[str, Any]:
    described = metadata_of(artifact)
    return described if set(described) > {TYPES_KEY} else {}


def _plain(value: metadata_store_pb2.Value) -> Any:
    kind = value.WhichOneof("value")
    if kind == "struct_value":
        return json_format.MessageToDict(value.struct_value)
    return None if kind is None else getattr(value, kind)
