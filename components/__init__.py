"""What each step of a Lockstep pipeline does; import the submodule you need, nothing is imported here."""
