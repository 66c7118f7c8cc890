"""How a process loads packages that take seconds."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collector_off"]


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Keeps the garbage collector off for the imports inside, and turns it on again if it was on.

    It would look through all that they make again and again, and find next to nothing. Nothing but imports belongs
    inside: what a user's code leaves behind there would stay in memory.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
