"""What the chief tells TensorBoard while it trains; the other workers write nothing."""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.components.trainer.usage import Shares

_log = logging.getLogger(__name__)

# Steps between two points of the loss curve: an event costs as much time as a step of a small model.
_EVENT_STEPS = 10
_EVENT_S = 0.05  # and seconds, where many steps are made


class EventLog:
    """TensorBoard's scalars of one training.

    Args:
      folder: Where the events go; None writes none.
      learning_rate: Step -> rate; None where the optimizer's own does not change.
    """

    def __init__(self, folder: str | None, learning_rate: Callable[[int], float] | None = None) -> None:
        self._writer = tf.summary.create_noop_writer() if folder is None else tf.summary.create_file_writer(folder)
        self._learning_rate = learning_rate
        self._written_s = 0.0

    def on_call(self, step: int, losses: "np.ndarray[Any, Any]", rate: float | None) -> None:
        """Takes the losses [steps] of a call that ended with ``step``; ``rate``, examples/s, is always written."""
        now_s = time.monotonic()
        if rate is None and (step % _EVENT_STEPS >= len(losses) or now_s - self._written_s < _EVENT_S):
            return
        self._written_s = now_s
        scalars = {"train/loss": float(losses.mean())}
        if self._learning_rate is not None:
            scalars["train/learning_rate"] = self._learning_rate(step)
        if rate is not None:
            scalars["train/examples_per_s"] = rate
        self.write(step, scalars)

    def on_beat(self, step: int, shares: Sequence[Shares]) -> None:
        """Takes what each worker waits for and uses; what is not known is left out."""
        scalars: dict[str, float] = {}
        for worker, share in enumerate(shares):
            for name, value in {"input_share": share.input_share, **dataclasses.asdict(share.usage)}.items():
                if value is not None:
                    scalars[f"{name}/worker-{worker}"] = value
        self.write(step, scalars)

    def on_validation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the metrics of a validation."""
        _log.info("validation after step %d: %s", step, metrics)
        self.write(step, {f"validation/{name}": value for name, value in metrics.items()})

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes scalars of one step."""
        with self._writer.as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)

    def close(self) -> None:
        """Writes out what is kept back."""
        self._writer.close()
