"""What a step does beside plain training, by real processes: the same on any number of workers and devices."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer.schedule_options import ScheduleOptions
from lockstep.components.trainer.spec import RunFiles, TrainSpec
from tests.components.trainer.conftest import MakeSpec, example
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


Alone = Callable[..., tuple[TrainSpec, list[np.ndarray[Any, Any]]]]


@pytest.fixture(scope="module")
def trained_before() -> dict[str, tuple[TrainSpec, list[np.ndarray[Any, Any]]]]:
    """What one process trained for a test of this file, by its options."""
    return {}


@pytest.fixture
def alone(make_spec: MakeSpec, trained_before: dict[str, tuple[TrainSpec, list[np.ndarray[Any, Any]]]]) -> Alone:
    """Trains in one process on one device, once for all tests that ask for the same options."""

    def train(**options: Any) -> tuple[TrainSpec, list[np.ndarray[Any, Any]]]:
        key = json.dumps(options, sort_keys=True)
        if key not in trained_before:
            spec = make_spec(f"alone-{len(trained_before)}", **options, **ONE)
            trained_before[key] = spec, trained(spec)
        return trained_before[key]

    return train


def check_close(got: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]], tolerance: float) -> None:
    """Asserts that all variables are equal to the tolerance."""
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(("build", "tolerance"), PRECISION)
def test_accumulated_parts_equal_one_batch(
    make_spec: MakeSpec, alone: Alone, optimizer: str, build: str, tolerance: float
) -> None:
    """Four parts, on one device and on two in a process and in two, over uneven ends of epochs."""
    model = {"build": f"sample_models:{build}", "optimizer": optimizer}
    _, whole = alone(**model)
    for name, options in (("one", ONE), ("mirrored", MIRRORED), ("multi", MULTI_WORKER)):
        check_close(trained(make_spec(name, **model, **options, accumulate=4)), whole, tolerance)


def test_a_penalty_on_weights_counts_once_a_step_however_many_parts(make_spec: MakeSpec) -> None:
    """With a kernel's L2 penalty in the model."""
    model = {"build": "sample_models:named_model"}
    whole = trained(make_spec("whole", **model, **ONE))
    check_close(trained(make_spec("parts", **model, **MULTI_WORKER, accumulate=2)), whole, 1e-5)


@pytest.mark.parametrize("clip", [{"clip_norm": 0.05}, {"clip_value": 0.01}])
@pytest.mark.parametrize(("build", "tolerance"), PRECISION)
def test_clipping_is_that_of_the_whole_batch(
    make_spec: MakeSpec, alone: Alone, clip: dict[str, float], build: str, tolerance: float
) -> None:
    """On two devices, on two workers in parts, and on one: equal, and not what no clipping gives."""
    unclipped = {"build": f"sample_models:{build}", "optimizer": "sgd", "learning_rate": 0.5}
    model = {**unclipped, **clip}
    _, whole = alone(**model)
    check_close(trained(make_spec("mirrored", **model, **MIRRORED)), whole, tolerance)
    check_close(trained(make_spec("multi", **model, **MULTI_WORKER, accumulate=2)), whole, tolerance)
    _, free = alone(**unclipped)
    assert max(float(np.max(np.abs(a - b))) for a, b in zip(free, whole, strict=True)) > 0.01


SCHEDULE = {"schedule": ScheduleOptions(kind="cosine", warmup_steps=5), "optimizer": "sgd", "learning_rate": 0.5}


def test_a_schedule_is_the_same_on_any_number_of_workers_and_goes_on(make_spec: MakeSpec) -> None:
    """Two workers equal one; a training that resumes takes the learning rate of its step."""
    whole = trained(make_spec("whole", **SCHEDULE, **ONE))
    multi = make_spec("multi", **SCHEDULE, **MULTI_WORKER)
    check_close(trained(multi), whole, 1e-5)
    shutil.rmtree(Path(multi.checkpoint_dir) / "step-00000040")
    (first, _) = run_group(multi, attempt=2)
    assert first.last("training").step == 20
    check_close(final_variables(multi), whole, 1e-5)


def test_a_schedule_works_with_a_split_model(make_spec: MakeSpec) -> None:
    """Its rate is that of the unsplit one at each step."""
    model = {"build": "sample_models:named_model", **SCHEDULE}
    whole = trained(make_spec("whole", **model, **ONE))
    mesh = {"strategy": "dtensor", "workers": 1, "mesh": {"model": 2}, "layout": {"hidden_1/kernel": (None, "model")}}
    check_close(trained(make_spec("split", **model, **mesh)), whole, 1e-6)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_learns_and_serves_float32(make_spec: MakeSpec, alone: Alone, precision: str) -> None:
    """In parts, clipped, on two workers: weights are float32 and learn as in full precision."""
    model = {"build": "sample_models:small_model", "learning_rate": 0.05, "clip_norm": 1.0}
    full, weights = alone(**model)
    half = make_spec("half", **model, **MULTI_WORKER, accumulate=2, precision=precision)
    got = trained(half)
    scales = [float(value) for value in got if value.shape == () and value.dtype == np.float32 and value >= 1]
    assert len(scales) == (precision == "mixed_float16")
    assert all(2.0**10 <= scale <= 2.0**15 for scale in scales)  # halved by a few overflows, if any
    assert all(a.dtype == np.float32 for a in got[:5])
    check_close(got[:5], weights[:5], 0.1)
    reports = [json.loads(RunFiles(Path(spec.run_dir)).training_path.read_text()) for spec in (full, half)]
    assert reports[1]["evaluation"]["auc"] == pytest.approx(reports[0]["evaluation"]["auc"], abs=0.02)
    served = tf.saved_model.load(half.export_dir).signatures["serving_default"]
    low, high = served(tf.constant([example({"fare": fare, "company": "blue"}) for fare in (2.0, 30.0)]))["predictions"]
    assert low.dtype == tf.float32
    assert low < high


@pytest.mark.parametrize(("build", "tolerance"), PRECISION)
def test_class_weights_are_those_of_the_whole_batch(
    make_spec: MakeSpec, alone: Alone, build: str, tolerance: float
) -> None:
    """Two workers in parts equal one, which is not what no weights give: a rarer label that weighs more is foretold."""
    unweighted = {"build": f"sample_models:{build}", "optimizer": "adam"}
    model = {**unweighted, "class_weights": {"1": 5.0, "0": 0.5}}
    one, whole = alone(**model)
    check_close(trained(make_spec("multi", **model, **MULTI_WORKER, accumulate=2)), whole, tolerance)
    plain, _ = alone(**unweighted)
    examples = tf.constant([example({"fare": fare, "company": "blue"}) for fare in (2.0, 8.0, 12.0)])
    heavy, light = (
        tf.saved_model.load(spec.export_dir).signatures["serving_default"](examples)["predictions"].numpy()
        for spec in (one, plain)
    )
    assert np.all(heavy > light)


def test_class_weights_work_with_a_split_model(make_spec: MakeSpec) -> None:
    """On a mesh whose batches are split, as in one process."""
    model = {"build": "sample_models:named_model", "class_weights": {"1": 5.0}, "steps": 20}
    mesh = {"strategy": "dtensor", "workers": 1, "mesh": {"batch": 2}}
    whole = trained(make_spec("whole", **model, **ONE))
    check_close(trained(make_spec("split", **model, **mesh)), whole, 1e-6)
