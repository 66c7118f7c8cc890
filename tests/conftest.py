"""What all tests share."""

from hypothesis import settings

# A commit passes or fails, not a day: every run draws the same examples. To look for faults among new ones:
# `pytest --hypothesis-profile=default`.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
