"""The process that runs a pipeline's steps: started by ``run.py``, tells it what happens over a pipe."""

import logging
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from lockstep.components import object_store
from lockstep.components.errors import StepFailed
from lockstep.components.loading import collector_off
from lockstep.pipelines import run_events, run_guards
from lockstep.pipelines.beam_engines import job_server, temporary_files_in
from lockstep.pipelines.config import PipelineConfig
from lockstep.pipelines.explanation import explain
from lockstep.pipelines.fingerprint import StepFingerprints
from lockstep.pipelines.run import RunRequest
from lockstep.pipelines.run_files import RootFiles, RunFiles

if TYPE_CHECKING:
    from tfx.orchestration import metadata

_logger = logging.getLogger(__name__)
_GRACE_S = 10.0


def main(arguments: Sequence[str]) -> int:
    """Runs the request in a run's folder.

    Args:
      arguments: The run's folder, and the number of the file descriptor that takes the events.

    Returns:
      The run's exit code, which the last event holds too.
    """
    run = RunFiles(pathlib.Path(arguments[0]))
    events_fd = int(arguments[1])
    os.set_inheritable(events_fd, False)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    object_store.configure(os.environ)
    request = RunRequest.from_json(run.request_path.read_text(encoding="utf-8"))
    with os.fdopen(events_fd, "w", encoding="utf-8") as stream:
        finished = _run(request, _Sender(stream), run)
        stream.write(run_events.to_line(finished))
    return finished.exit_code


class _Sender(logging.Handler):
    """Sends events; as a logging handler, turns a step's progress messages into events of the running step."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(level=logging.INFO)
        self._stream = stream
        self._step = ""
        self._begin = time.monotonic()
        self._send_lock = threading.Lock()

    def begin(self, step: str) -> None:
        """Says that a step runs now."""
        self._step, self._begin = step, time.monotonic()
        self.send(run_events.StepChanged(step=step, state="running"))

    @property
    def running(self) -> tuple[str, float]:
        """The step begun last, and the seconds since."""
        return self._step, time.monotonic() - self._begin

    def send(self, event: run_events.RunEvent) -> None:
        """Sends one event, at once."""
        with self._send_lock:
            self._stream.write(run_events.to_line(event))
            self._stream.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a progress message."""
        step, seconds = self.running
        self.send(run_events.StepChanged(step=step, state="running", figure=record.getMessage(), seconds=seconds))


def _interrupt(signum: int, frame: object) -> None:
    # An Exception, not an exit: TFX then records the running execution as failed and removes its outputs.
    raise StepFailed("interrupted; the same command takes finished steps from the cache and goes on")


def _end_with_parent() -> None:
    """Ends this process when the one that shows it is gone: nobody would see or stop it."""
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.killpg(0, signal.SIGKILL)  # itself, and what it has started in its session, such as Beam's job server


def _run(request: RunRequest, sender: _Sender, run: RunFiles) -> run_events.RunFinished:
    progress = logging.getLogger("lockstep.progress")
    progress.addHandler(sender)
    try:
        config = PipelineConfig.from_json(request.config)
        with (
            run_guards.after_predecessor(RootFiles(pathlib.Path(request.root)).steps_lock_path),
            temporary_files_in(config.beam.shared_dir),
            job_server(config.beam) as beam_arguments,
        ):
            return _run_steps(request, config, beam_arguments, sender)
    except Exception as e:  # Whatever a step raised ends here, as the run's outcome.
        _logger.exception("the run failed")
        step, seconds = sender.running
        finished = explain(e, step=step, root=pathlib.Path(request.root))
        if step:
            sender.send(run_events.StepChanged(step=step, state="failed", seconds=seconds))
        return finished
    finally:
        progress.removeHandler(sender)


def _run_steps(
    request: RunRequest, config: PipelineConfig, beam_arguments: tuple[str, ...], sender: _Sender
) -> run_events.RunFinished:
    folder = pathlib.Path(request.folder) if request.folder else None
    if folder is not None:
        # Last, never first: a user's own `components` or `keras.py` must not shadow an installed package.
        sys.path.append(str(folder))
    fingerprints = StepFingerprints(config, folder)
    fingerprints.check()

    # Here and not at the top: these take seconds, and a wrong import path is told before.
    with collector_off():
        from tfx.orchestration import metadata

        from lockstep.pipelines import definition, figures, leftovers, local

    root = RootFiles(pathlib.Path(request.root))
    pipeline = definition.build_pipeline(config, definition.Site.local(config, root, folder, beam_arguments))
    ir = local.compile_pipeline(pipeline)
    steps = tuple(node.pipeline_node.node_info.id for node in ir.nodes)
    upstream = {node.pipeline_node.node_info.id: list(node.pipeline_node.upstream_nodes) for node in ir.nodes}
    sender.send(run_events.RunStarted(steps=steps, versions=figures.versions(), upstream=upstream))
    connection = metadata.Metadata(metadata.sqlite_metadata_connection_config(str(root.metadata_path)))
    _check_metadata(connection, root)
    if left := leftovers.fail_leftovers(connection, ir.pipeline_info.id):
        _logger.warning("executions %s of runs that were killed are marked as failed", ", ".join(map(str, left)))
    outcome = figures.RunOutcome()
    for event in local.run_steps(ir, connection, fingerprint=fingerprints.of, force=request.force):
        if isinstance(event, local.StepStarted):
            sender.begin(event.step)
            continue
        outcome = outcome.after(event)
        sender.send(figures.record(event, began=time.time() - event.seconds))
        sender.send(
            run_events.StepChanged(
                step=event.step,
                state="cached" if event.cached else "done",
                figure=figures.telling_figure(event),
                seconds=event.seconds,
            )
        )
        if outcome.refused:
            for step in steps[steps.index(event.step) + 1 :]:
                sender.send(run_events.StepChanged(step=step, state="skipped", figure="the model was not blessed"))
            break
    return outcome.finished()


def _check_metadata(connection: "metadata.Metadata", root: RootFiles) -> None:
    """Raises StepFailed, naming the file, where the metadata cannot be read."""
    try:
        with connection:
            pass
    except RuntimeError as e:
        raise StepFailed(
            f"{root.metadata_path} cannot be used as ML Metadata's store: {e}; move {root.root} away, or give another"
            " --root"
        ) from e
