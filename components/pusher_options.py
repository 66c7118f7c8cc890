"""The old place of ``lockstep.components.pusher.options``, for importers that have not moved yet."""

from lockstep.components.pusher.options import PushOptions

__all__ = ["PushOptions"]
