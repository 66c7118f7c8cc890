"""What a user reads of an exception that ended a step, here and in a container alike."""

import errno
import pathlib
import re
import shutil
import traceback
from collections.abc import Iterator

from lockstep.components import errors
from lockstep.pipelines import run_events

_PREPROCESSING = re.compile(
    r"assertion failed: \[(?P<assertion>(?:features|label)\.[^\]]*)\]"
    r"|\A(?P<message>(?:(?:features|label)\.|preprocessing: ).*?)(?: \[while running|\Z)",
    re.DOTALL,
)
# An error that a worker of Beam's raised comes as the text of its traceback, in an exception of Beam's.
_REMOTE = re.compile(
    r"lockstep\.components\.errors\.(?P<name>\w+): (?P<message>.*?)(?: \[while running|$)", re.MULTILINE
)
# The node is named by lockstep.transforms.images.
_IMAGE = re.compile(r"(?P<reason>[^\n]+)\n\s*\[\[\{\{[^\n]*?(?P<key>features\.\w+)/decode_image/")
_DISK_FULL = ("no space left on device", "database or disk is full", "disk quota exceeded")


def explain(
    error: BaseException, *, step: str, root: pathlib.Path, make_room: str = "free some, or give another --root"
) -> run_events.RunFinished:
    """Turns an exception into what the user reads.

    Args:
      error: What ended the run; Beam and TFX may have wrapped the cause.
      step: The step that was running; empty before the first.
      root: Folder on the disk that the step writes to.
      make_room: What to do if that disk is full.

    Returns:
      Exit code 2 and the message for what the user gave, 3 for anomalies in the data, 1 for the rest.
    """
    prefix = f"{step}: " if step else ""
    for cause in _causes(error):
        code = _exit_code(type(cause))
        if code is not None:
            return run_events.RunFinished(exit_code=code, message=f"{prefix}{cause}")
    for cause in _causes(error):
        remote = _REMOTE.search(str(cause))
        code = _exit_code(getattr(errors, remote["name"], Exception)) if remote else None
        if remote and code is not None:
            return run_events.RunFinished(exit_code=code, message=f"{prefix}{remote['message']}")
    for cause in _causes(error):
        # Preprocessing runs inside TensorFlow and Beam, which allow it no exception of ours.
        found = _PREPROCESSING.search(str(cause))
        if found:
            return run_events.RunFinished(exit_code=2, message=f"{prefix}{found['assertion'] or found['message']}")
        found = _IMAGE.search(str(cause))
        if found:
            reason = found["reason"].rpartition("}} ")[2].strip(" .")
            message = (
                f"{prefix}{found['key']}: an image of this column cannot be decoded: {reason};"
                " ExampleGen names the file with data.images.verify: true"
            )
            return run_events.RunFinished(exit_code=2, message=message)
    for cause in _causes(error):
        full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or any(words in str(cause).lower() for words in _DISK_FULL):
            free_mb = shutil.disk_usage(root).free // 2**20
            message = f"{prefix}the disk is full: {free_mb} MB free under {root}; {make_room}"
            return run_events.RunFinished(exit_code=1, message=message)
    last = traceback.format_exception_only(type(error), error)[-1].strip()
    return run_events.RunFinished(exit_code=1, message=f"{prefix}{last[:2000]}")


def _exit_code(error: type[BaseException]) -> int | None:
    """Returns the exit code of an error whose message is a person's to read; None of any other."""
    codes = ((errors.UserError, 2), (errors.AnomaliesFound, 3), (errors.StepFailed, 1))
    return next((code for kind, code in codes if issubclass(error, kind)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and what it was raised from, nearest first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
