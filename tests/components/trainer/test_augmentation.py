"""Random changes that follow from seed, epoch and record alone."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.augmentation import augmented, load_augmentation, record_seeds
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.transforms.augmentation import ImageAugmentation
from tests.components.trainer import sample_augmentations
from tests.components.trainer.conftest import MakeSpec
from tests.components.trainer.test_input_pipeline import records, training_input
from tests.components.trainer.worker_processes import run_group


def fares(data: TrainingInput, num_steps: int, start_step: int = 0) -> dict[tuple[int, int], float]:
    """(epoch, record) -> the changed fare."""
    found = {}
    for step, (columns, weights, _) in enumerate(data.batches(start_step).take(num_steps), start=start_step):
        rows = zip(columns["record_id"].numpy(), columns["fare"].numpy(), weights.numpy(), strict=True)
        for record, fare, weight in rows:
            if weight:
                found[step // data.steps_per_epoch, int(record[0])] = float(fare[0])
            else:
                assert fare == 0  # padding stays zero
    return found


@pytest.mark.parametrize(("num_files", "cache"), [(1, "memory"), (8, "disk"), (8, "none")])
def test_a_record_is_changed_alike_by_any_worker_and_after_a_resume(tmp_path: Path, num_files: int, cache: str) -> None:
    """By record and epoch: over 1 and 2 workers, another batch size, and a resume in the middle of an epoch."""
    split = records(tmp_path / "split", num_files=num_files)

    def make(worker: int = 0, num_workers: int = 1, **options: Any) -> TrainingInput:
        options = {"cache": cache, "cache_dir": tmp_path / "cache", **options}
        return training_input(
            split, worker=worker, num_workers=num_workers, augmentation=sample_augmentations.jitter, **options
        )

    one = make()
    steps = one.steps_per_epoch
    whole = fares(one, 2 * steps)
    assert set(whole) == set(itertools.product(range(2), range(103)))
    both = [make(worker, 2) for worker in range(2)]
    assert fares(both[0], 2 * steps) | fares(both[1], 2 * steps) == whole
    late = fares(make(), 2 * steps - 5, start_step=5)
    assert late.items() <= whole.items()
    assert len(late) > 103
    other = make(batch_size=8, num_shards=2)
    assert fares(other, 2 * other.steps_per_epoch) == whole


def test_another_epoch_and_another_seed_change_otherwise(tmp_path: Path) -> None:
    """Every record; and no two records alike."""
    split = records(tmp_path / "split")
    plain = fares(training_input(split), 20)
    data = training_input(split, augmentation=sample_augmentations.jitter)
    noise = {key: fare - plain[key] for key, fare in fares(data, 20).items()}
    assert all(abs(noise[0, record] - noise[1, record]) > 1e-6 for record in range(103))
    assert len({round(noise[0, record], 5) for record in range(103)}) > 95
    other = fares(training_input(split, augmentation=sample_augmentations.jitter, seed=6), 9)
    assert all(abs(other[0, record] - plain[0, record] - noise[0, record]) > 1e-6 for record in range(103))


def test_seeds_are_spread(tmp_path: Path) -> None:
    """No two of a million records share one, in any of some epochs, and each bit is set in half of them."""
    seeds = [record_seeds(7, epoch, np.arange(250_000)) for epoch in range(4)]
    words = np.concatenate(seeds).view(np.uint64)
    assert len(np.unique(words)) == 1_000_000
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    np.testing.assert_allclose(bits, 0.5, atol=0.005)


def test_a_function_that_is_not_there_is_the_user_s_error() -> None:
    """Told by the key."""
    with pytest.raises(ConfigurationError, match=r"train\.augment: there is no module 'nowhere'"):
        load_augmentation("nowhere:f")
    with pytest.raises(ConfigurationError, match=r"train\.augment: module 'json' has no function 'f'"):
        load_augmentation("json:f")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (sample_augmentations.loses_the_label, r"gives \['fare'\]; it must give the columns that it takes"),
        (sample_augmentations.changes_the_shape, r"gives 'fare' as float32 \(3, 2\); it must stay float32 \(3, 1\)"),
    ],
)
def test_other_columns_are_refused(function: Any, message: str) -> None:
    """Names, types and shapes are those of the records, which the served model takes too."""
    columns = {"fare": tf.ones([3, 1]), "tips": tf.ones([3, 1])}
    with pytest.raises(ConfigurationError, match=message):
        augmented(function, columns, tf.zeros([3, 2], tf.int32), tf.ones([3, 1]))


def test_images_of_a_declaration_are_changed_as_any_function_changes_them(tmp_path: Path) -> None:
    """An ``ImageAugmentation`` by its import path: traced, in batches, padding left at zero."""
    images = tf.constant(np.random.default_rng(1).random((3, 8, 8, 3)), tf.float32)
    columns = {"image": images, "tips": tf.ones([3, 1])}
    seeds = tf.constant(record_seeds(0, 0, np.arange(3)))
    augmentation = load_augmentation("tests.components.trainer.sample_augmentations:mirrored")
    changed = tf.function(lambda: augmented(augmentation, columns, seeds, tf.constant([[1.0], [1.0], [0.0]])))()
    np.testing.assert_allclose(changed["image"].numpy()[:2], images.numpy()[:2, :, ::-1], atol=1e-5)
    assert not np.any(changed["image"].numpy()[2])


@pytest.mark.slow
def test_two_workers_augment_as_one(make_spec: MakeSpec) -> None:
    """Real processes: the losses of two workers are those of one; the model that is served knows no seeds."""
    first_losses = {}
    for workers in (1, 2):
        spec = make_spec(f"run-{workers}", workers=workers, steps=30, augment="sample_augmentations:jitter")
        finished = run_group(spec)
        assert [worker.code for worker in finished] == [0] * workers
        losses = [event.loss for event in finished[0].events if event.event == "heartbeat" and event.loss is not None]
        first_losses[workers] = losses[0]
    assert first_losses[1] == pytest.approx(first_losses[2], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", r"'sample_augmentations:fails' failed at .*sample_augmentations\.py:\d+: KeyError"),
        ("exits", "failed"),
    ],
)
def test_a_function_that_fails_is_told_before_the_first_step(make_spec: MakeSpec, name: str, message: str) -> None:
    """With the place in the user's own code, and it is not tried again."""
    (finished,) = run_group(make_spec(augment=f"sample_augmentations:{name}"))
    assert finished.code == 2
    failed = finished.last("failed")
    assert failed.user_error
    assert failed.message is not None
    assert re.search(message, failed.message)


def test_a_class_is_made_with_its_parameters() -> None:
    """Lists of a configuration come as tuples; what it refuses is told by the key."""
    name = "lockstep.transforms.augmentation:ImageAugmentation"
    made = load_augmentation(name, {"image": "photo", "zoom": [0.5, 2.0]})
    assert made == ImageAugmentation(image="photo", zoom=(0.5, 2.0))
    with pytest.raises(
        ConfigurationError, match=r"train.augment_parameters: .* refuses them: rotate: 200 is not allowed"
    ):
        load_augmentation(name, {"image": "photo", "rotate": 200})
    with pytest.raises(ConfigurationError, match=r"refuses them: .* unexpected keyword argument 'rotat'"):
        load_augmentation(name, {"image": "photo", "rotat": 1})
