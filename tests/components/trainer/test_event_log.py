"""What TensorBoard reads of a training."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.event_log import EventLog
from lockstep.components.trainer.usage import Shares, Usage


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> (step, value) of all events, as TensorBoard reads them."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in folder.iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, float(tf.make_ndarray(value.tensor))))
    return found


def test_the_chief_tells_what_all_workers_use_and_wait_for(tmp_path: Path) -> None:
    """Loss, rate and learning rate; each worker's processor, memory, GPU memory where there is one; validations."""
    log = EventLog(str(tmp_path), lambda step: step / 1000)
    log.on_call(20, np.array([2.0, 1.0]), 5000.0)
    with_gpu = Usage(cpu=0.5, memory_mb=700.0, gpu_memory_mb=90.0)
    shares = Shares(usage=with_gpu, input_share=0.25), Shares(usage=Usage(cpu=1.5, memory_mb=800.0), input_share=0.0)
    log.on_beat(20, shares)
    log.on_validation(20, {"loss": 0.75})
    log.close()
    expected = {"train/loss": 1.5, "train/learning_rate": 0.02, "train/examples_per_s": 5000.0, "validation/loss": 0.75}
    expected |= {"input_share/worker-0": 0.25, "cpu/worker-0": 0.5, "memory_mb/worker-0": 700.0}
    expected |= {"gpu_memory_mb/worker-0": 90.0}
    expected |= {"input_share/worker-1": 0.0, "cpu/worker-1": 1.5, "memory_mb/worker-1": 800.0}
    assert scalars(tmp_path) == {tag: [(20, pytest.approx(value))] for tag, value in expected.items()}


def test_other_workers_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor leave a file."""
    monkeypatch.chdir(tmp_path)
    log = EventLog(None)
    log.on_call(10, np.array([1.0]), 1.0)
    log.close()
    assert not list(tmp_path.iterdir())
