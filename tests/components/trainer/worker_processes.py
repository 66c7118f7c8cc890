"""Runs real worker processes of a specification, as the supervisor does, and reads what they say."""

import dataclasses
import json
import os
import socket
from pathlib import Path

from lockstep.components.trainer.heartbeat import WorkerEvent
from lockstep.components.trainer.spec import RunFiles, TrainSpec, worker_command
from tests.components.trainer.loaded_processes import ForkedWorker, fork_worker

DEADLINE_S = 300


@dataclasses.dataclass
class Finished:
    """How one worker ended."""

    code: int
    events: list[WorkerEvent]
    log: str

    def last(self, name: str) -> WorkerEvent:
        """The worker's last event of that name."""
        return [event for event in self.events if event.event == name][-1]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start_group(spec: TrainSpec, *, attempt: int = 1) -> list[ForkedWorker]:
    """Starts all workers of the specification; their standard input stays open."""
    files = RunFiles(Path(spec.run_dir))
    files.spec_path.write_text(spec.to_json())
    addresses = [f"localhost:{port}" for port in free_ports(spec.options.workers)]
    processes = []
    for index in range(spec.options.workers):
        files.worker_dir(index).mkdir(exist_ok=True)
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        processes.append(
            fork_worker(
                index,
                worker_command(spec_path=files.spec_path, attempt=attempt)[
                    3:
                ],  # behind the interpreter and the program
                folder=files.worker_dir(index),
                environment={**os.environ, "TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": "-1"},
                log_path=files.worker_dir(index) / "stderr.txt",
            )
        )
    return processes


def run_group(spec: TrainSpec, *, attempt: int = 1) -> list[Finished]:
    """Runs all workers of the specification to their end."""
    processes = start_group(spec, attempt=attempt)
    try:
        outputs = [read_to_end(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    finished = []
    for index, (process, lines) in enumerate(zip(processes, outputs, strict=True)):
        events = [event for event in map(WorkerEvent.from_line, lines) if event is not None]
        log = (RunFiles(Path(spec.run_dir)).worker_dir(index) / "stderr.txt").read_text()
        finished.append(Finished(code=process.returncode, events=events, log=log))
    return finished


def read_to_end(process: ForkedWorker) -> list[str]:
    """The lines of a worker that must end within the deadline; its standard input stays open meanwhile."""
    stdin, process.stdin = process.stdin, None  # or `communicate` closes it, and the worker thinks it is orphaned
    try:
        stdout, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        if stdin is not None:
            stdin.close()
    return stdout.splitlines()
