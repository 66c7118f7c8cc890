"""Values of parameters, as KFP turns them into text and back."""

import math

import hypothesis
import pytest
from hypothesis import strategies

from lockstep.pipelines.kubeflow.emulator import values

_JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.text() | strategies.integers(-(2**53), 2**53),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("a b", "a b"),
        (3, "3"),
        (3.0, "3"),
        (-0.5, "-0.5"),
        (1e-7, "0.0000001"),
        (1.5e22, "15000000000000000000000"),
        (True, "true"),
        ([1.0, "ü"], '[1,"ü"]'),
        ({"b": 1, "a": None}, '{"a":null,"b":1}'),
    ],
)
def test_a_value_as_text_is_gos(value: object, text: str) -> None:
    """Numbers without exponent and needless fraction, JSON compact with sorted keys."""
    assert values.to_text(value) == text


@hypothesis.given(strategies.floats(allow_nan=False, allow_infinity=False))
def test_a_numbers_text_is_exact_and_has_no_exponent(number: float) -> None:
    """It reads back as the same double."""
    text = values.to_text(number)
    assert "e" not in text
    assert float(text) == number


@hypothesis.given(strategies.lists(_JSON))
def test_lists_read_back(value: list[object]) -> None:
    """What a LIST is written as, the next step gets."""
    assert values.from_text(values.to_text(value), "LIST") == value


@pytest.mark.parametrize(
    ("text", "parameter_type"),
    [
        ("3.5", "NUMBER_INTEGER"),
        ("", "NUMBER_INTEGER"),
        ("\uff11", "NUMBER_INTEGER"),
        ("1_000", "NUMBER_INTEGER"),
        ("x", "NUMBER_DOUBLE"),
        ("yes", "BOOLEAN"),
        ("{}", "LIST"),
        ("[]", "STRUCT"),
        ("[1", "LIST"),
        ("x", "TASK_FINAL_STATUS"),
    ],
)
def test_a_text_of_another_type_is_refused(text: str, parameter_type: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match=r"."):
        values.from_text(text, parameter_type)


def test_a_run_time_parameter_is_a_finite_number() -> None:
    """JSON, in which KFP keeps it, has no others."""
    assert math.isinf(values.from_text("inf", "NUMBER_DOUBLE"))
    with pytest.raises(ValueError, match="no finite number"):
        values.parse_argument("inf", "NUMBER_DOUBLE")


@pytest.mark.parametrize(
    ("text", "parameter_type"),
    [
        ("9" * 400, "NUMBER_INTEGER"),
        ("9" * 5000, "NUMBER_INTEGER"),
        ("1e999", "NUMBER_DOUBLE"),
        ("x" * 5000, "NUMBER_DOUBLE"),
        ("x" * 5000, "BOOLEAN"),
        ("[NaN]", "LIST"),
        ("[-Infinity]", "LIST"),
        ('{"a": [1e999]}', "STRUCT"),
        ("[" + "9" * 400 + "]", "LIST"),
        ("[" * 101 + "]" * 101, "LIST"),
        ("[" * 100_000, "LIST"),
        ('["\\ud800"]', "LIST"),
        ('{"\\ud800": 1}', "STRUCT"),
        ("\udcff", "STRING"),
        ("\udcff", "NUMBER_INTEGER"),
    ],
)
def test_a_value_that_kfp_cannot_hold_is_refused_in_short(text: str, parameter_type: str) -> None:
    """Too large, no JSON, too deep, no text; the message holds the beginning of it at most."""
    with pytest.raises(ValueError, match=r".") as refused:
        values.parse_argument(text, parameter_type)
    assert len(str(refused.value)) < 200
    assert len(values.brief(text)) < 100
    assert values.brief(text).encode()


def test_what_is_nested_as_deep_as_kfp_takes_it_is_taken() -> None:
    """And can be written again."""
    text = "[" * 100 + "]" * 100
    assert values.to_text(values.parse_argument(text, "LIST")) == text


def test_a_wait_beyond_all_numbers_is_no_error() -> None:
    """A package may ask for it."""
    from lockstep.pipelines.kubeflow.emulator.workload import Retry

    retry = Retry(max_retries=900, backoff_s=30, factor=10, max_duration_s=100)
    assert math.isinf(retry.wait_s(900))


@pytest.mark.parametrize(
    ("num_attempts", "since_first_s", "reason"),
    [
        (1, 10.0, None),
        (2, 10.0, None),
        (3, 10.0, "No more retries left"),
        (1, 101.0, "Max duration limit exceeded"),
        (1, 80.0, "Backoff would exceed"),
        (2, 45.0, "Backoff would exceed"),
    ],
)
def test_argo_makes_further_attempts_until_the_number_or_the_time_is_over(
    num_attempts: int, since_first_s: float, reason: str | None
) -> None:
    """The maximum duration counts from the first attempt's begin, and the wait belongs to it."""
    from lockstep.pipelines.kubeflow.emulator.workload import Retry

    retry = Retry(max_retries=2, backoff_s=30, factor=2, max_duration_s=100)
    refusal = retry.refusal(num_attempts=num_attempts, since_first_s=since_first_s)
    assert (refusal is None) == (reason is None)
    assert refusal is None or refusal.startswith(str(reason))
