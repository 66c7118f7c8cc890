"""Asks, before TFX looks into its cache, what the candidate is to be judged against."""

from typing import ClassVar

from tfx.dsl.components.base import base_driver
from tfx.orchestration import metadata
from tfx.orchestration.portable import base_driver as ir_base_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2

from lockstep.components import model_artifacts
from lockstep.components.evaluator.options import EvaluateSpec
from lockstep.components.object_store import open_folder
from lockstep.components.pusher import versions


class Driver(base_driver.BaseDriver, ir_base_driver.BaseDriver):
    """Adds the execution property ``baseline``, which so becomes part of the cache key.

    A new served model makes a new key, so the verdict is never one about a comparison with something else; and a run in
    which nothing changed finds the key of the run that pushed (see ``versions.resolve_baseline``).
    """

    READ_INPUTS: ClassVar = ("model",)  # so that no other input is fetched where the driver is a step of its own

    def __init__(self, metadata_handle: metadata.Metadata) -> None:
        # Two bases: components are checked for the old class, the launcher calls the new one.
        base_driver.BaseDriver.__init__(self, metadata_handle)
        ir_base_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Returns the property to add."""
        spec = EvaluateSpec.from_json(execution_info.exec_properties["spec"])
        baseline = versions.resolve_baseline(
            None if spec.push_dir is None else open_folder(spec.push_dir),
            model_artifacts.saved_model_dir(execution_info.input_dict["model"]),
        )
        output = driver_output_pb2.DriverOutput()
        output.exec_properties["baseline"].string_value = baseline
        return output
