"""Distributed training as a step of a pipeline; import the submodule you need, nothing is imported here."""
