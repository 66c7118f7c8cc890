"""What an artifact is called outside the process that reads it."""

from tfx import types

STORE_URI_PROPERTY = "store_uri"
"""Custom property of an input: its URI in the object store, where a step reads a local copy."""


def store_uri(artifact: types.Artifact) -> str:
    """Returns where an artifact is kept: what to write down about it, and what it is the same by in the next run."""
    return str(artifact.get_string_custom_property(STORE_URI_PROPERTY) or artifact.uri)
