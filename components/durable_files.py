"""Files that are on the disk when the caller is told so. Standard library only."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Returns when the file, or the folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
