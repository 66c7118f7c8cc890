"""What a step does beside plain training, by real processes: the same on any number of workers and devices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.spec import TrainSpec
from tests.components.trainer.conftest import MakeSpec
from tests.components.trainer.worker_processes import run_group

pytestmark = pytest.mark.slow

ONE = {"strategy": "one_device", "workers": 1}
MIRRORED = {"strategy": "mirrored", "workers": 1, "devices_per_worker": 2}
MULTI_WORKER = {"strategy": "multi_worker_mirrored", "workers": 2}
PRECISION = [("small_model", 1e-5), ("double_model", 1e-9)]


def final_variables(spec: TrainSpec) -> list[np.ndarray[Any, Any]]:
    """Weights and optimizer variables of the last checkpoint, in order."""
    path = Path(spec.checkpoint_dir) / f"step-{spec.options.steps:08d}" / "checkpoint"
    reader = tf.train.load_checkpoint(str(path))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    return [reader.get_tensor(name) for name in sorted(names, key=lambda name: int(name.split("/")[1]))]


def trained(spec: TrainSpec) -> list[np.ndarray[Any, Any]]:
    """Runs the group to its end; all succeed, with the same weights."""
    workers = run_group(spec)
    assert [worker.code for worker in workers] == [0] * len(workers), workers[0].events[-1]
    assert len({worker.last("done").digest for worker in workers}) == 1
    assert Path(spec.export_dir, "saved_model.pb").exists()
    return final_variables(spec)


def check_close(got: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]], tolerance: float) -> None:
    """Asserts that all variables are equal to the tolerance."""
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(("build", "tolerance"), PRECISION)
def test_accumulated_parts_equal_one_batch(make_spec: MakeSpec, optimizer: str, build: str, tolerance: float) -> None:
    """Four parts, on one device and on two in a process and in two, over uneven ends of epochs."""
    model = {"build": f"sample_models:{build}", "optimizer": optimizer}
    whole = trained(make_spec("whole", **model, **ONE))
    for name, options in (("one", ONE), ("mirrored", MIRRORED), ("multi", MULTI_WORKER)):
        check_close(trained(make_spec(name, **model, **options, accumulate=4)), whole, tolerance)


def test_a_penalty_on_weights_counts_once_a_step_however_many_parts(make_spec: MakeSpec) -> None:
    """With a kernel's L2 penalty in the model."""
    model = {"build": "sample_models:named_model"}
    whole = trained(make_spec("whole", **model, **ONE))
    check_close(trained(make_spec("parts", **model, **MULTI_WORKER, accumulate=2)), whole, 1e-5)
