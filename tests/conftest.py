"""What all tests share."""

from hypothesis import settings

# A commit passes or fails, not a day: every run draws the same examples. `pytest --hypothesis-profile=default` draws new
# ones, to look for faults.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
