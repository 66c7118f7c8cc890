"""What runs in the container of a step: Kubeflow Pipelines' launcher starts it as the step's command.

``python -m lockstep.pipelines.kubeflow.entry_point --node_id=ID --code_fingerprint=HASH --executor_class_path PATH
--json_serialized_invocation_args {{$}} --json_serialized_inputs_spec_args JSON [BEAM ARGUMENT ...]``; a driver's task
has ``--driver_class_path PATH`` in place of the executor's. The executor or driver, TFX's own or anyone's, sees local
paths only; what it did goes into the launcher's output file with the URIs of the object store. Exit codes are the
command line's; the last line of standard error is what went wrong.
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.components import object_store
from lockstep.components.errors import StepFailed
from lockstep.components.loading import collector_off
from lockstep.pipelines.explanation import explain
from lockstep.pipelines.kubeflow.container_paths import ContainerPaths

_logger = logging.getLogger(__name__)
# Less than the 30 s that Kubernetes and Argo wait before they kill.
_GRACE_S = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one step and returns the exit code.

    Args:
      arguments: Without the program's name; None takes the process's.
    """
    working_dir_last()
    signal.signal(signal.SIGTERM, _interrupt)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # A hundred lines about type hints of Beam's own.
    logging.getLogger("apache_beam.typehints").setLevel(logging.WARNING)
    options, beam_arguments = parse(sys.argv[1:] if arguments is None else arguments)
    root = os.environ.get("LOCKSTEP_CONTAINER_DIR", "/")
    object_store.configure(os.environ)
    try:
        with _local_temporary_dir() as temporary_dir:
            # Here and not at the top: TFX takes seconds, and a failure to import it is told like any other.
            with collector_off():
                from lockstep.pipelines.kubeflow import step_execution

            command = step_execution.StepCommand(beam_arguments=tuple(beam_arguments), **vars(options))
            step_execution.run_step(command, ContainerPaths(root), temporary_dir)
    except (Exception, SystemExit) as e:  # Whatever a step raised ends here, as its outcome.
        _logger.exception("the step failed")
        # An executor that ends the process leaves no outputs: that is no success, whatever its code says.
        error = StepFailed(f"its code ended the process (exit code {e.code})") if isinstance(e, SystemExit) else e
        finished = explain(
            error, step=options.node_id, root=Path(root), make_room="give the step a larger volume or disk"
        )
        sys.stdout.flush()
        sys.stderr.write(f"{finished.message}\n")
        sys.stderr.flush()
        return finished.exit_code
    return 0


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and the rest, which is Beam's; prints the usage and exits with 2 where one is absent."""
    # No abbreviations: Beam's arguments must not be taken for ours.
    parser = argparse.ArgumentParser(prog="lockstep.pipelines.kubeflow.entry_point", allow_abbrev=False)
    parser.add_argument("--node_id", required=True, help="the component's name in TFX")
    parser.add_argument("--code_fingerprint", default="", help="hash of the code that the package was compiled with")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--executor_class_path", default="", help="import path of the executor")
    what.add_argument("--driver_class_path", default="", help="import path of the driver: this is its task")
    parser.add_argument("--json_serialized_invocation_args", required=True, help="the launcher's ExecutorInput")
    parser.add_argument("--json_serialized_inputs_spec_args", default="", help="types of the component's inputs")
    parser.add_argument("--beam_shared_dir", default="", help="folder that the workers of Beam's cluster see")
    return parser.parse_known_args(arguments)


def working_dir_last() -> None:
    """Moves the working folder behind every other place of modules, where ``python -m`` has put it first.

    A user's own ``keras.py`` or ``tests`` must not stand in front of an installed package.
    """
    if sys.path and sys.path[0] in ("", str(Path.cwd())):
        sys.path.append(sys.path.pop(0))


@contextlib.contextmanager
def _local_temporary_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lockstep-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _interrupt(signum: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_soon, daemon=True).start()
    # An Exception, not an exit: what the executor holds, such as worker processes, is ended on its way out.
    raise StepFailed("stopped from outside (SIGTERM): the run was cancelled, or its pod was evicted")


def _end_soon() -> None:
    time.sleep(_GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
