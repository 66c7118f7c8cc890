"""What a run that was killed left in ML Metadata: executions that nobody works on."""

from google.protobuf import json_format
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.proto.orchestration import execution_result_pb2

_RESULT_PROPERTY = "__execution_result__"  # where TFX keeps, and `local.run_steps` reads, why an execution failed
_CANCELLED = 1  # google.rpc.Code
_MESSAGE = "the run was killed before the step ended"
_UNDER_WAY = (metadata_store_pb2.Execution.NEW, metadata_store_pb2.Execution.RUNNING)


def fail_leftovers(connection: metadata.Metadata, pipeline: str) -> tuple[int, ...]:
    """Marks the executions of a pipeline's dead runs as failed; those of other pipelines in the same store stay.

    The caller must hold what keeps every other run of the pipeline from this store: whatever is under way there then
    belongs to a run that is gone. Calling it again changes nothing.

    Args:
      connection: To the store.
      pipeline: The pipeline's name.

    Returns:
      The executions that were marked.
    """
    with connection as handle:
        context = handle.store.get_context_by_type_and_name(constants.PIPELINE_CONTEXT_TYPE_NAME, pipeline)
        if context is None:
            return ()
        left = [
            execution
            for execution in handle.store.get_executions_by_context(context.id)
            if execution.last_known_state in _UNDER_WAY
        ]
        result = execution_result_pb2.ExecutionResult(code=_CANCELLED, result_message=_MESSAGE)
        for execution in left:
            execution.last_known_state = metadata_store_pb2.Execution.FAILED
            execution.custom_properties[_RESULT_PROPERTY].string_value = json_format.MessageToJson(result)
        if left:
            handle.store.put_executions(left)
        return tuple(execution.id for execution in left)
