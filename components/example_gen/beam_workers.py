"""The workers of a distributed Beam runner, and which workers a pipeline's Beam options mean.

A job is a Beam pipeline of its own: its tasks are dealt to the runner's workers, and each result goes to a file in the
scratch folder of the job, which all workers and this process must see: a shared volume, as the artifact itself is on.
"""

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lockstep.components.example_gen.process_pool import ProcessPool, Workers, num_processors, portable_error

_J = TypeVar("_J")
_T = TypeVar("_T")
_R = TypeVar("_R")

# Beam's own ways to run in one process, or in processes of this machine: our pool does that without Beam.
_LOCAL_RUNNERS = ("DirectRunner", "FnApiRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner")


def workers_of(beam_arguments: Sequence[str] | None, make_pipeline: Callable[[], Any]) -> Workers:
    """Returns the workers that a component's Beam arguments mean.

    Args:
      beam_arguments: As Beam's command line has them. A runner of this machine, or none, means a pool of processes;
        ``--direct_num_workers`` says how many, where it is 1 or more; the processors' number otherwise.
      make_pipeline: Makes a Beam pipeline with these arguments, for any other runner.
    """
    if not is_local(beam_arguments):
        return BeamWorkers(make_pipeline)
    number = _options(beam_arguments).get("direct_num_workers", "0")
    return ProcessPool(int(number) if number.isdecimal() and int(number) else num_processors())


def is_local(beam_arguments: Sequence[str] | None) -> bool:
    """Returns whether a component's Beam arguments name a runner of this machine, or none."""
    return _options(beam_arguments).get("runner", "DirectRunner").rpartition(".")[2] in _LOCAL_RUNNERS


def _options(beam_arguments: Sequence[str] | None) -> dict[str, str]:
    return dict(argument.removeprefix("--").partition("=")[::2] for argument in beam_arguments or ())


class BeamWorkers:
    """Works on the workers of a Beam runner.

    Args:
      make_pipeline: Makes a Beam pipeline for a job.
      folder: Where results are kept meanwhile; seen by all workers. None takes the system's folder for such.
    """

    def __init__(self, make_pipeline: Callable[[], Any], folder: Path | None = None) -> None:
        self._make_pipeline = make_pipeline
        self._folder = folder

    def within(self, folder: Path) -> "BeamWorkers":
        """Returns the same workers, with results in a folder that they see."""
        return BeamWorkers(self._make_pipeline, folder)

    def map(self, function: Callable[[_J, _T], _R], job: _J, tasks: Sequence[_T]) -> Iterator[_R]:
        """See ``Workers``. All tasks are done before the first result is given."""
        import apache_beam as beam

        folder = Path(tempfile.mkdtemp(prefix="results-", dir=self._folder))
        try:
            work = _Work(function, job, str(folder))
            with self._make_pipeline() as pipeline:
                _ = (
                    pipeline
                    | "Tasks" >> beam.Create([pickle.dumps(task) for task in enumerate(tasks)])
                    | "Deal" >> beam.Reshuffle()
                    | "Work" >> beam.Map(work)
                )
            for number in range(len(tasks)):
                path = folder / str(number)
                done, result = pickle.loads(path.read_bytes())  # noqa: S301 - of our own workers
                path.unlink()
                if not done:
                    raise result
                yield result
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Does nothing: a pipeline ends with its job."""


class _Work:
    """Does one task, and writes its result; the work of a Beam worker."""

    def __init__(self, function: Callable[[Any, Any], Any], job: Any, folder: str) -> None:
        self._content = pickle.dumps((function, job))
        self._folder = folder

    def __call__(self, task: bytes) -> int:
        function, job = pickle.loads(self._content)  # noqa: S301 - of our own making
        number, argument = pickle.loads(task)  # noqa: S301 - of our own making
        try:
            outcome = (True, function(job, argument))
        except Exception as e:  # noqa: BLE001 - it is raised where the results are read
            outcome = (False, portable_error(e))
        target = Path(self._folder, str(number))
        # A runner may do a task twice, at once.
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL))
        Path(file.name).replace(target)
        return int(number)
