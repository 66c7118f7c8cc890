"""`lockstep init`."""
