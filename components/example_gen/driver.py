"""What TFX asks before it runs ExampleGen: which span of the input, and has its content changed."""

from collections.abc import Iterable

from tfx.components.example_gen import driver, input_processor
from tfx.proto import example_gen_pb2, range_config_pb2

from lockstep.components.errors import DataError
from lockstep.components.example_gen.files import input_fingerprint, matched_files


class ContentDriver(driver.FileBasedDriver):
    """Fingerprints the content of the input files, where TFX takes sizes and times.

    So a touched or copied file does not run the step again, and an edit that keeps size and time does. Patterns with
    ``{SPAN}``, ``{VERSION}`` and dates resolve as in TFX.
    """

    def get_input_processor(
        self,
        splits: Iterable[example_gen_pb2.Input.Split],
        range_config: range_config_pb2.RangeConfig | None = None,
        input_base_uri: str | None = None,
    ) -> input_processor.InputProcessor:
        """Returns the processor that resolves patterns and computes the fingerprint."""
        assert input_base_uri
        return ContentInputProcessor(input_base_uri, splits, range_config)


class ContentInputProcessor(input_processor.FileBasedInputProcessor):
    """Resolves patterns as TFX does, and fingerprints names and bytes."""

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        """Returns the newest span and version that the patterns match.

        Raises:
          DataError: None does.
        """
        try:
            span, version = super().resolve_span_and_version()
        except ValueError as e:
            raise DataError(f"data.path: {e} (in {self._input_base_uri})") from e
        return span, version

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        """Returns the fingerprint of the files of that span and version.

        Raises:
          DataError: No file matches.
        """
        files_by_split = {
            split.name: matched_files(
                self._input_base_uri, self.get_pattern_for_span_version(split.pattern, span, version)
            )
            for split in self._splits
        }
        return input_fingerprint(self._input_base_uri, files_by_split)
