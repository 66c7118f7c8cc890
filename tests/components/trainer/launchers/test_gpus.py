"""GPUs dealt out to workers, with made-up machines."""

from pathlib import Path

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.launchers import TooFewPlaces
from lockstep.components.trainer.launchers.gpus import deal_gpus, visible_gpus


def test_each_worker_has_gpus_of_its_own() -> None:
    """So many as it drives devices; what is over stays idle."""
    assert deal_gpus(["0", "1", "2", "3", "4"], num_workers=2, devices_per_worker=2) == (("0", "1"), ("2", "3"))
    assert deal_gpus(["GPU-a", "GPU-b"], num_workers=2, devices_per_worker=1) == (("GPU-a",), ("GPU-b",))


def test_a_machine_without_gpus_deals_none() -> None:
    """The workers train on the CPU then."""
    assert deal_gpus([], num_workers=2, devices_per_worker=2) == ((), ())


def test_too_few_gpus_are_refused() -> None:
    """No two workers share one; the message has the numbers and the way out."""
    message = r"workers: 2 with devices_per_worker: 2 needs 4 GPUs, .* has 3; .*=-1"
    with pytest.raises(TooFewPlaces, match=message) as caught:
        deal_gpus(["0", "1", "2"], num_workers=2, devices_per_worker=2)
    assert caught.value.available == 1
    assert isinstance(caught.value.error, ConfigurationError)
    with pytest.raises(ConfigurationError, match="needs 2 GPUs, this machine has 1"):
        deal_gpus(["0"], num_workers=1, devices_per_worker=2)


@pytest.mark.parametrize(
    ("value", "gpus"), [("0,1", ("0", "1")), (" GPU-a , 3", ("GPU-a", "3")), ("", ()), ("-1", ()), ("2,-1,3", ("2",))]
)
def test_the_environment_restricts_the_gpus(value: str, gpus: tuple[str, ...]) -> None:
    """As CUDA reads the variable: -1 ends the list."""
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": value}) == gpus


def test_the_driver_is_asked_where_the_environment_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own program; without one, or where it fails, there is no GPU."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus({}) == ()
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 0\necho 1\n")
    program.chmod(0o755)
    assert visible_gpus({}) == ("0", "1")
    program.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert visible_gpus({}) == ()
