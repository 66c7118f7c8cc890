"""What every run on a root folder holds and answers to: the root's lock, signals, errors of the folder."""

import contextlib
import errno
import fcntl
import os
import pathlib
import signal
import time
from collections.abc import Iterator
from typing import TextIO

from lockstep.components.errors import ConfigurationError, StepFailed

_LOCK_ATTEMPTS = 4
_LOCK_POLL_S = 0.05
_PREDECESSOR_TIMEOUT_S = 60.0


@contextlib.contextmanager
def root_errors(root: pathlib.Path) -> Iterator[None]:
    """Tells what keeps the root from being written to in the user's terms."""
    try:
        yield
    except OSError as e:
        if e.errno == errno.ENOSPC:
            raise StepFailed(f"no space left under {root}; free some, or give another --root") from e
        raise ConfigurationError(f"--root {root}: {e.strerror}: {e.filename}; give a folder that can be written") from e


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Holds the root's lock; the kernel drops it with the process, however that ends."""
    with path.open("a+", encoding="utf-8") as lock:
        try:
            _lock(lock)
        except BlockingIOError as e:
            lock.seek(0)
            raise StepFailed(
                f"another run (process {lock.read().strip() or 'unknown'}) uses {path.parent}; wait for it, or give"
                " another --root"
            ) from e
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@contextlib.contextmanager
def after_predecessor(path: pathlib.Path, *, timeout_s: float = _PREDECESSOR_TIMEOUT_S) -> Iterator[None]:
    """Waits until no other process runs steps on the root, and keeps others waiting meanwhile.

    A run that is killed drops the root's lock at once; the process that ran its steps notices, and ends within seconds.

    Raises:
      StepFailed: It has not ended by then.
    """
    deadline_s = time.monotonic() + timeout_s
    with path.open("a+", encoding="utf-8") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as e:
                if time.monotonic() > deadline_s:
                    lock.seek(0)
                    raise StepFailed(
                        f"process {lock.read().strip() or 'unknown'} of a run that was killed still works in"
                        f" {path.parent}; end it, or give another --root"
                    ) from e
            time.sleep(_LOCK_POLL_S)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        # Beam and users' code fork: what they leave behind must not keep the root for ever.
        os.register_at_fork(after_in_child=lock.close)
        yield


def _lock(lock: TextIO) -> None:
    for _ in range(_LOCK_ATTEMPTS - 1):  # `lockstep runs` holds it for a moment to see whether a run does
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_POLL_S)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def make_run_dir(runs_dir: pathlib.Path) -> pathlib.Path:
    """Makes a folder for a run that begins now, named by the time."""
    for attempt in range(100):
        run_dir = runs_dir / (time.strftime("%Y%m%dT%H%M%S") + (f"-{attempt}" if attempt else ""))
        with contextlib.suppress(FileExistsError):
            run_dir.mkdir()
            return run_dir
    raise RuntimeError(f"{runs_dir}: 100 runs began within one second")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the run as Ctrl-C does; what is ignored (nohup's SIGHUP) stays so."""

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
