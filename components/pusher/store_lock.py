"""One push at a time to a folder of an object store, which has no locks: by objects that say who pushes.

Whoever wants to push writes an object of its own name into ``.lockstep-lock``, then lists that folder. Alone there, it
may push; beside another it takes its own back and tries again later. Stores list what was written before the listing
began (S3 since 2020, MinIO, Google's), so of two that come at once at least one sees the other, and both never go on.
This needs no conditional writes, which older MinIO servers take and ignore.

The holder writes its object anew every few seconds. One that was not, by the store's own clock, for ``lease_s`` belongs
to a process that died: it says which versions that one was writing or removing, so that nobody else's are touched. A
holder that could not write for half that time gives up by itself.
"""

import contextlib
import json
import logging
import math
import random
import threading
import time
import uuid
from collections.abc import Iterator, Sequence

from lockstep.components.errors import DataError, StepFailed, UserError
from lockstep.components.object_store import StoreFolder

LOCK_FOLDER = ".lockstep-lock"
LEASE_S = 60.0

_logger = logging.getLogger(__name__)
_progress = logging.getLogger("lockstep.progress")

_POLL_S = 0.5
_REFRESHES_A_LEASE = 6


class Lease:
    """The right to push, for as long as it is kept alive.

    Args:
      folder: The lock's.
      name: Of the holder's object.
      lease_s: How long it holds without being written anew.
      left: Versions that dead processes were writing or removing.
    """

    def __init__(self, folder: StoreFolder, name: str, lease_s: float) -> None:
        self.left: tuple[int, ...] = ()
        self.name = name
        self._folder, self._lease_s = folder, lease_s
        self._versions: tuple[int, ...] = ()
        self._written_at = math.inf  # never
        self._write_lock = threading.Lock()
        self._ended = threading.Event()

    def write(self) -> None:
        """Writes the holder's object.

        Raises:
          StepFailed: That comes too late, since others may take this process for dead by now.
        """
        with self._write_lock:
            now = _clock()
            if now - self._written_at > self._lease_s / 2:
                self._ended.set()
            if self._ended.is_set():
                raise StepFailed(
                    f"push: {self._folder} could not be kept for {self._lease_s / 2:g} s, and another push may have"
                    " begun; nothing was pushed. Run again"
                )
            self._folder.write(self.name, json.dumps({"versions": self._versions}).encode())
            self._written_at = now

    def touches(self, versions: Sequence[int]) -> None:
        """Says which versions are written or removed next, so that others know what to clean up; before it is done."""
        self._versions = tuple(versions)
        self.write()

    def check(self) -> None:
        """Returns while nobody else may push; to be called before every change.

        Raises:
          StepFailed: The lease was lost.
        """
        if self._ended.is_set() or _clock() - self._written_at > self._lease_s / 2:
            self.write()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps it alive while the block runs, and gives it up after."""
        thread = threading.Thread(target=self._refresh, name="push lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._folder.remove(self.name)

    def _refresh(self) -> None:
        while not self._ended.wait(self._lease_s / _REFRESHES_A_LEASE):
            try:
                self.write()
            except (StepFailed, UserError) as e:  # noqa: PERF203 - once in seconds
                # The next one may succeed in time; `check` tells the pushing thread if none does.
                _logger.warning("the lock of a push could not be written anew: %s", e)


@contextlib.contextmanager
def locked(push_dir: StoreFolder, timeout_s: float, lease_s: float = LEASE_S) -> Iterator[Lease]:
    """Holds a push folder; blocks while another push goes on, or may: a killed one is waited for ``lease_s`` long.

    Args:
      push_dir: The folder.
      timeout_s: How long to wait for others.
      lease_s: How long the lock holds that was not written anew. Longer than the store's answers take, and than a
        process may pause; 60 is that, and a person can still wait for it.

    Raises:
      StepFailed: Another push did not end in time, or the store does not answer.
      ConfigurationError: The store denies access.
    """
    folder = push_dir / LOCK_FOLDER
    deadline = time.monotonic() + timeout_s
    waits = False
    while True:
        lease = Lease(folder, uuid.uuid4().hex, lease_s)
        lease.write()
        try:
            dead = _dead_others(folder, lease, lease_s)
        except BaseException:
            folder.remove(lease.name)
            raise
        if dead is not None:
            break
        folder.remove(lease.name)
        if time.monotonic() >= deadline:
            raise StepFailed(
                f"push: another push to {push_dir} did not end within {timeout_s:g} s; end it and run again"
            )
        if not waits:
            _progress.info("waits for another push to %s, which goes on or was killed", push_dir)
            waits = True
        time.sleep(_POLL_S * (1 + random.random()))  # noqa: S311 - so that two do not meet again and again
    with lease.kept():
        lease.left = tuple(sorted({number for name in dead for number in _versions_of(folder, name)}))
        yield lease
        for name in dead:
            folder.remove(name)


def _dead_others(folder: StoreFolder, lease: Lease, lease_s: float) -> tuple[str, ...] | None:
    """Returns the objects of dead holders; None where another one is alive."""
    found = folder.objects()
    own = found.pop(lease.name, None)
    if own is None:
        return None  # Taken away by a person; the next attempt tells.
    if any(own.modified - other.modified <= lease_s for other in found.values()):
        return None
    return tuple(found)


def _versions_of(folder: StoreFolder, name: str) -> tuple[int, ...]:
    with contextlib.suppress(DataError, ValueError, KeyError, TypeError):
        return tuple(int(number) for number in json.loads(folder.read(name))["versions"])
    return ()


def _clock() -> float:
    """Returns a time in seconds that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
