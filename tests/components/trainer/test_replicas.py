"""Workers that drive several devices, by real processes: equal to one process with the same global batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.spec import TrainSpec
from tests.components.trainer.conftest import NUM_TRAIN, MakeSpec
from tests.components.trainer.worker_processes import Finished, run_group

pytestmark = pytest.mark.slow

MIRRORED = {"strategy": "mirrored", "workers": 1, "devices_per_worker": 2}
MULTI_WORKER = {"strategy": "multi_worker_mirrored", "workers": 2, "devices_per_worker": 2}


def final_variables(spec: TrainSpec) -> list[np.ndarray[Any, Any]]:
    """Weights and optimizer variables of the last checkpoint, in order."""
    path = Path(spec.checkpoint_dir) / f"step-{spec.options.steps:08d}" / "checkpoint"
    reader = tf.train.load_checkpoint(str(path))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    return [reader.get_tensor(name) for name in sorted(names, key=lambda name: int(name.split("/")[1]))]


def trained(spec: TrainSpec) -> list[Finished]:
    """Runs the group to its end; all succeed, with the same weights."""
    workers = run_group(spec)
    assert [worker.code for worker in workers] == [0] * len(workers), workers[0].events[-1]
    assert len({worker.last("done").digest for worker in workers}) == 1
    return workers


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(("build", "tolerance"), [("small_model", 1e-5), ("double_model", 1e-9)])
def test_replicas_equal_one_process(make_spec: MakeSpec, optimizer: str, build: str, tolerance: float) -> None:
    """One process with two devices, and two with two each, over two and a half epochs with their uneven ends: the same
    weights as one device, and each record of the training read by exactly one worker.
    """
    one = make_spec("one", build=f"sample_models:{build}", optimizer=optimizer, strategy="one_device")
    (alone,) = trained(one)
    for name, options in (("mirrored", MIRRORED), ("multi", MULTI_WORKER)):
        spec = make_spec(name, build=f"sample_models:{build}", optimizer=optimizer, **options)
        workers = trained(spec)
        for expected, got in zip(final_variables(one), final_variables(spec), strict=True):
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
        records = [worker.last("done").records or 0 for worker in workers]
        assert sum(records) == alone.last("done").records
        assert sum(records) > 2 * NUM_TRAIN
        assert Path(spec.export_dir, "saved_model.pb").exists()


def test_replicas_draw_their_own_masks_and_share_statistics(make_spec: MakeSpec) -> None:
    """With dropout, and with synchronised BatchNormalization, two workers equal one process with two devices."""
    model = {"parameters": {"dropout": 0.3, "normalize": "synchronized"}}
    mirrored, multi = make_spec("mirrored", **model, **MIRRORED), make_spec("multi", workers=2, **model)
    trained(mirrored)
    trained(multi)
    for expected, got in zip(final_variables(mirrored), final_variables(multi), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
