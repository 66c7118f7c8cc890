"""``lockstep init``: a project of a user's own, made from his data."""
