"""The garbage collector around heavy imports."""

import contextlib
import gc

from lockstep.components.loading import collector_off


def test_the_collector_is_off_inside_and_as_it_was_behind() -> None:
    """Also where an import fails, and where it was off before."""
    with contextlib.suppress(ImportError), collector_off():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
