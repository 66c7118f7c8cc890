"""Losses that went down with a worker are waited for; an error of the step itself is told at once."""

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer import asynchronous

REMOTE = "\nAdditional GRPC error information from remote target /job:worker/replica:0/task:0/device:CPU:0"


class Result:
    """Fails as TensorFlow's remote value does, then has the losses of the same steps made again."""

    def __init__(self, *errors: tf.errors.OpError) -> None:
        self._errors = list(errors)

    def fetch(self) -> list[float]:
        """Returns the losses once all errors have come."""
        if self._errors:
            raise self._errors.pop(0)
        return [0.5, 0.25]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (tf.errors.UnavailableError, "Socket closed"),
        (tf.errors.AbortedError, "Worker is gone"),
        (tf.errors.CancelledError, "RecvFromRemoteAsync is cancelled."),
        (
            tf.errors.InvalidArgumentError,
            "Unable to find the relevant tensor remote_handle: Op ID: 400, Output num: 0.",
        ),
        (tf.errors.InvalidArgumentError, "Primary device is not remote"),
    ],
)
def test_losses_of_a_dead_worker_are_waited_for(kind: type[tf.errors.OpError], text: str) -> None:
    """The process that took its address may be the one that answers."""
    error = kind(None, None, text + REMOTE)
    assert np.array_equal(asynchronous._fetched(Result(error, error)), [0.5, 0.25])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (tf.errors.InvalidArgumentError, "indices[3] = 70 is not in [0, 64)" + REMOTE),
        (tf.errors.ResourceExhaustedError, "OOM when allocating tensor" + REMOTE),
        (tf.errors.UnavailableError, "Socket closed: /job:ps/replica:0/task:1"),
        (tf.errors.CancelledError, "The corresponding function is aborted. Please reschedule the function."),
    ],
)
def test_other_errors_are_told(kind: type[tf.errors.OpError], text: str) -> None:
    """Asking again would change nothing."""
    with pytest.raises(kind):
        asynchronous._fetched(Result(kind(None, None, text)))
