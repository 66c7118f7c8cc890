"""Runs a pipeline's steps one after the other in this process, over TFX's IR and TFX's own node launcher.

Differs from TFX's LocalDagRunner in that the caller hears of every step as it begins and ends, that a step's cache key
holds a fingerprint of the code it depends on, and that a step which TFX quietly does not run is an error.
"""

import dataclasses
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import launcher, runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import artifact, artifact_utils

from lockstep.components.errors import StepFailed
from lockstep.pipelines.run import check_steps

FINGERPRINT_PARAMETER = "code_fingerprint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepStarted:
    """A step is about to run, or to be found in the cache."""

    step: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepFinished:
    """A step has outputs.

    Args:
      cached: The outputs are those of an earlier execution.
      execution_id: Of the metadata.
      inputs: Input key -> artifacts, as the metadata hold them.
      outputs: Output key -> artifacts.
      seconds: Wall time of driver, executor and publisher.
    """

    step: str
    cached: bool
    execution_id: int
    inputs: Mapping[str, list[artifact.Artifact]]
    outputs: Mapping[str, list[artifact.Artifact]]
    seconds: float


def compile_pipeline(pipeline: tfx_pipeline.Pipeline) -> pipeline_pb2.Pipeline:
    """Returns the pipeline's IR with a run id of its own: time, then eight random hexadecimal digits."""
    ir = compiler.Compiler().compile(pipeline)
    run_id = f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}"
    runtime_parameter_utils.substitute_runtime_parameter(ir, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id})
    return ir


def run_steps(
    ir: pipeline_pb2.Pipeline,
    connection: metadata.Metadata,
    *,
    fingerprint: Callable[[str], str] | None = None,
    force: Collection[str] = (),
) -> Iterator[StepStarted | StepFinished]:
    """Runs every node of an IR in order; leaving the iterator early leaves the rest unrun.

    Args:
      ir: From ``compile_pipeline``.
      connection: Where executions and artifacts are recorded.
      fingerprint: Given a node id, says what its result depends on besides inputs and parameters; part of its cache
        key. Asked before the step and, unless it was cached, after it.
      force: Nodes that run although the cache has their outputs; what depends on their new outputs then runs, too.

    Raises:
      ConfigurationError: ``force`` names no node.
      StepFailed: TFX recorded a failure without raising one, for example an input that is not there; or what the
        step depends on changed while it ran: its outputs are then never used again.
      Exception: whatever a step's executor raised; the execution is recorded as failed before.
    """
    nodes = [node.pipeline_node.node_info.id for node in ir.nodes]
    check_steps(force, nodes)
    deployment = runner_utils.extract_local_deployment_config(ir)
    for node in ir.nodes:
        pipeline_node = node.pipeline_node
        step = pipeline_node.node_info.id
        if step in force:
            pipeline_node.execution_options.caching_options.enable_cache = False
        before = fingerprint(step) if fingerprint else ""
        if fingerprint:
            pipeline_node.parameters.parameters[FINGERPRINT_PARAMETER].field_value.string_value = before
        yield StepStarted(step=step)
        begin = time.monotonic()
        info = launcher.Launcher(
            pipeline_node=pipeline_node,
            mlmd_connection=connection,
            pipeline_info=ir.pipeline_info,
            pipeline_runtime_spec=ir.runtime_spec,
            executor_spec=runner_utils.extract_executor_spec(deployment, step),
            custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, step),
        ).launch()
        with connection as handle:
            execution = _execution(handle, info.execution_id if info else None, step)
            inputs, outputs = (
                _artifacts(handle, execution.id, event)
                for event in (metadata_store_pb2.Event.INPUT, metadata_store_pb2.Event.OUTPUT)
            )
            cached = execution.last_known_state == metadata_store_pb2.Execution.CACHED
            if fingerprint and not cached and fingerprint(step) != before:
                _discard(handle, outputs)
                raise StepFailed(f"{step}: the code that it runs was edited while it ran; run again")
        yield StepFinished(
            step=step,
            cached=cached,
            execution_id=execution.id,
            inputs=inputs,
            outputs=outputs,
            seconds=time.monotonic() - begin,
        )


def _execution(handle: metadata.Metadata, execution_id: int | None, step: str) -> metadata_store_pb2.Execution:
    if execution_id is None:
        raise StepFailed(f"{step}: not run, since an input that it needs is not there")
    [execution] = handle.store.get_executions_by_id([execution_id])
    good = (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED)
    if execution.last_known_state not in good:
        state = metadata_store_pb2.Execution.State.Name(execution.last_known_state)
        message = execution.custom_properties["__execution_result__"].string_value
        raise StepFailed(f"{step}: ended in state {state}{': ' + message if message else ''}")
    return execution


def _discard(handle: metadata.Metadata, outputs: Mapping[str, list[artifact.Artifact]]) -> None:
    """Keeps outputs out of TFX's cache, which takes only live artifacts."""
    records = [output.mlmd_artifact for artifacts in outputs.values() for output in artifacts]
    for record in records:
        record.state = metadata_store_pb2.Artifact.MARKED_FOR_DELETION
    handle.store.put_artifacts(records)


def _artifacts(
    handle: metadata.Metadata, execution_id: int, event_type: "metadata_store_pb2.Event.Type"
) -> dict[str, list[artifact.Artifact]]:
    events = [event for event in handle.store.get_events_by_execution_ids([execution_id]) if event.type == event_type]
    records = {a.id: a for a in handle.store.get_artifacts_by_id([event.artifact_id for event in events])}
    found: dict[str, list[artifact.Artifact]] = {}
    for event in sorted(events, key=lambda event: event.path.steps[1].index):
        record = records[event.artifact_id]
        [artifact_type] = handle.store.get_artifact_types_by_id([record.type_id])
        key = event.path.steps[0].key
        found.setdefault(key, []).append(artifact_utils.deserialize_artifact(artifact_type, record))
    return found
