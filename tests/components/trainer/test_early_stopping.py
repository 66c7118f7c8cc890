"""When validations end a training."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.components.trainer.early_stopping import Course, EarlyStopping, Validation


def course_of(values: list[float], stopping: EarlyStopping | None, name: str = "loss") -> Course:
    """The course of validations with these values, ten steps apart, as far as it goes."""
    course = Course()
    for index, value in enumerate(values, start=1):
        if course.has_stopped:
            break
        course = course.after(Validation(step=10 * index, metrics={name: value}), stopping)
    return course


def test_a_training_ends_after_so_many_validations_without_a_better_one() -> None:
    """They are counted from the best one on; an equal value is no better."""
    course = course_of([3.0, 2.0, 2.5, 2.0, 1.0, 1.5], EarlyStopping(patience=2))
    assert (course.best_step, course.num_worse, course.has_stopped) == (20, 2, True)
    assert [validation.step for validation in course.validations] == [10, 20, 30, 40]


def test_a_better_value_starts_the_count_anew() -> None:
    """Not the number of worse ones in all counts."""
    course = course_of([3.0, 3.5, 2.0, 2.5, 1.0], EarlyStopping(patience=2))
    assert (course.best_step, course.num_worse, course.has_stopped) == (50, 0, False)


def test_less_than_min_delta_is_not_better() -> None:
    """Slow progress is compared with the best value that counted, so that it adds up."""
    course = course_of([3.0, 2.9, 2.8, 2.7], EarlyStopping(patience=3, min_delta=0.25))
    assert (course.best_step, course.has_stopped) == (40, False)
    course = course_of([3.0, 2.9, 2.8, 2.7], EarlyStopping(patience=2, min_delta=0.25))
    assert (course.best_step, course.has_stopped) == (10, True)


@pytest.mark.parametrize("monitor", ["auc", "accuracy"])
def test_more_is_better_of_some_metrics(monitor: str) -> None:
    """The monitor says which way."""
    stopping = EarlyStopping(monitor=monitor, patience=1)  # type: ignore[arg-type]
    assert course_of([0.5, 0.6, 0.55], stopping, monitor).best_step == 20


def test_nothing_stops_without_the_option() -> None:
    """Validations are noted all the same."""
    course = course_of([1.0, 2.0, 3.0, 4.0, 5.0], None)
    assert (len(course.validations), course.best_step, course.has_stopped) == (5, 0, False)


@given(st.lists(st.floats(0, 10), max_size=12), st.integers(1, 4), st.floats(0, 2))
def test_a_course_read_back_goes_on_as_if_it_had_not_been_written(
    values: list[float], patience: int, min_delta: float
) -> None:
    """From every point, to the bit."""
    stopping = EarlyStopping(patience=patience, min_delta=min_delta)
    course = Course.from_json("")
    for index, value in enumerate(values):
        validation = Validation(step=index + 1, metrics={"loss": value})
        kept = Course.from_json(course.to_json())
        assert kept == course
        course = kept.after(validation, stopping)
        assert course.has_stopped == (course.num_worse >= patience)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience: 0 is not allowed; give 1 or more"),
        ({"min_delta": -1.0}, "min_delta: -1.0 is not allowed; give a number of 0 or more"),
        ({"min_delta": float("nan")}, "min_delta: nan is not allowed"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=message):
        EarlyStopping(**options)  # type: ignore[arg-type]
