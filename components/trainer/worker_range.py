"""The ``train.workers`` block of a training whose group may shrink. Standard library only."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerRange:
    """How many workers a group may have.

    Args:
      min: With so many it still goes on, 1 or more. It divides the virtual shards.
      max: With so many it begins, ``min`` or more. It divides the virtual shards too.
    """

    min: int
    max: int

    def __post_init__(self) -> None:
        if self.min < 1:
            raise ValueError(f"min: {self.min} is not allowed; give 1 or more")
        if self.max < self.min:
            raise ValueError(f"max: {self.max} is not allowed; give min: {self.min}, or more")
