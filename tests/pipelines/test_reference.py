"""The reference of the configuration says what the code does."""

import pathlib

from lockstep.pipelines.reference import configuration_reference


def test_the_reference_is_the_codes_own() -> None:
    """An option added or described anew is in the reference; if this fails: make docs."""
    path = pathlib.Path(__file__).parents[2] / "docs" / "configuration.md"
    assert path.read_text(encoding="utf-8") == configuration_reference()
