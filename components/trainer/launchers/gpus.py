"""Which of the machine's GPUs each worker process sees."""

import subprocess
from collections.abc import Mapping, Sequence

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.launchers import TooFewPlaces

__all__ = ["deal_gpus", "visible_gpus"]

VARIABLE = "CUDA_VISIBLE_DEVICES"
_QUERY = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_QUERY_TIMEOUT_S = 20.0  # a driver that is loaded anew for each query takes some seconds


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the GPUs that a process of this environment may use, as CUDA names them; none without a driver.

    Args:
      environment: Where ``CUDA_VISIBLE_DEVICES`` may restrict them; -1 ends the list, as CUDA has it.
    """
    if VARIABLE in environment:
        names = [name.strip() for name in environment[VARIABLE].split(",")]
    else:
        try:
            query = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True)
        except (OSError, subprocess.SubprocessError):
            return ()
        names = query.stdout.split()
    wrong = next((index for index, name in enumerate(names) if name in ("", "-1")), len(names))
    return tuple(names[:wrong])


def deal_gpus(gpus: Sequence[str], *, num_workers: int, devices_per_worker: int) -> tuple[tuple[str, ...], ...]:
    """Returns the GPUs of each worker, in order: so many as it drives devices, none shared; empty without any GPU.

    Raises:
      ConfigurationError: There are GPUs, but too few: two processes on one would wait for each other for ever.
      TooFewPlaces: The same, and they are enough for fewer workers.
    """
    needed = num_workers * devices_per_worker
    if gpus and len(gpus) < needed:
        error = ConfigurationError(
            f"workers: {num_workers} with devices_per_worker: {devices_per_worker} needs {needed} GPUs, this machine "
            f"has {len(gpus)}; give smaller numbers, or hide the GPUs ({VARIABLE}=-1) to train on the CPU"
        )
        if available := len(gpus) // devices_per_worker:
            raise TooFewPlaces(error, available=available)
        raise error
    return tuple(
        tuple(gpus[worker * devices_per_worker : (worker + 1) * devices_per_worker]) for worker in range(num_workers)
    )
