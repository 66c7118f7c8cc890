"""The learning rate of each step."""

import math
from typing import Any

import keras
import numpy as np
import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer import loop
from lockstep.components.trainer.learning_rate import Schedule
from lockstep.components.trainer.schedule_options import ScheduleOptions
from lockstep.components.trainer.spec import TrainOptions


def rates(num_steps: int, **options: Any) -> list[float]:
    """The learning rate of each step; the full one is 0.5."""
    schedule = Schedule(0.5, ScheduleOptions(**options), num_steps)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    values = [float(schedule(step)) for step in range(num_steps)]
    assert [float(again(step)) for step in range(num_steps)] == values
    return values


def test_warming_up_rises_evenly_to_the_full_rate() -> None:
    """And stays there."""
    np.testing.assert_allclose(rates(6, warmup_steps=4), [0.125, 0.25, 0.375, 0.5, 0.5, 0.5])


def test_a_cosine_falls_to_its_end_with_the_training() -> None:
    """Half a cosine over the steps after the warm-up, down to the final share, or over as many as are given."""
    expected = [0.25, *(0.5 * (0.2 + 0.8 * (1 + math.cos(math.pi * step / 8)) / 2) for step in range(1, 8))]
    np.testing.assert_allclose(rates(10, kind="cosine", warmup_steps=2, final=0.2)[:1], expected[:1])
    np.testing.assert_allclose(rates(10, kind="cosine", warmup_steps=2, final=0.2)[3:], expected[1:], rtol=1e-5)
    np.testing.assert_allclose(rates(6, kind="cosine", decay_steps=2), [0.5, 0.25, 0, 0, 0, 0], atol=1e-7)


def test_an_exponential_is_multiplied_by_its_rate() -> None:
    """Evenly over the steps of one multiplication, and not under the final share."""
    expected = [0.5, 0.5 * 0.25**0.5, 0.125, 0.1, 0.1]
    np.testing.assert_allclose(rates(5, kind="exponential", decay_steps=2, decay_rate=0.25, final=0.2), expected, 1e-6)


def test_pieces_begin_at_their_steps() -> None:
    """Factors are of the full rate, not of the piece before."""
    expected = [0.5, 0.5, 0.05, 0.05, 0.0, 0.0]
    np.testing.assert_allclose(rates(6, kind="piecewise", boundaries=(2, 4), factors=(0.1, 0.0)), expected, rtol=1e-6)


def test_a_schedule_beside_a_compiled_model_is_refused() -> None:
    """Its optimizer has a learning rate already."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd")
    with pytest.raises(ConfigurationError, match=r"train\.schedule: not allowed beside a model that is compiled"):
        loop.optimizer_of(model, TrainOptions(schedule=ScheduleOptions(kind="cosine")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_steps": -1}, "warmup_steps: -1 is not allowed; give 0 or more"),
        ({"decay_steps": 5}, "decay_steps: 5 is not allowed; kind constant has none; leave it out, or give kind: cosi"),
        ({"kind": "cosine", "decay_rate": 0.5}, "decay_rate: 0.5 is not allowed; kind cosine has none"),
        ({"kind": "cosine", "decay_steps": 0}, "decay_steps: 0 is not allowed; give 1 or more"),
        ({"kind": "cosine", "final": 1.5}, "final: 1.5 is not allowed; give a number from 0 to 1"),
        ({"kind": "exponential"}, "decay_rate: None is not allowed; give a number above 0"),
        ({"kind": "piecewise"}, r"boundaries: \[\] is not allowed; give steps in ascending order"),
        ({"kind": "piecewise", "boundaries": (3, 3), "factors": (1.0, 1.0)}, "boundaries: .* ascending"),
        ({"kind": "piecewise", "boundaries": (3, 4), "factors": (1.0,)}, "factors: .* one for each of 2 boundaries"),
        ({"kind": "piecewise", "boundaries": (3,), "factors": (-1.0,)}, "factors: .* give numbers of 0 or more"),
    ],
)
def test_a_schedule_is_checked(options: dict[str, Any], message: str) -> None:
    """Each message begins with the key."""
    with pytest.raises(ValueError, match=f"^{message}"):
        ScheduleOptions(**options)
