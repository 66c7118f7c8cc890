"""What TFX asks before it runs ExampleGen: which span of the input, and has its content changed."""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfx.components.example_gen import driver, input_processor
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.types import standard_component_specs
from tfx.utils import proto_utils

from lockstep.components.errors import DataError
from lockstep.components.example_gen import inputs
from lockstep.components.example_gen.files import input_patterns, local_folder
from lockstep.components.example_gen.spec import ExampleGenSpec
from lockstep.components.object_store import find_objects, is_object_uri


class ContentDriver(driver.FileBasedDriver):
    """Fingerprints the content of the input files, where TFX takes sizes and times.

    So a touched or copied file does not run the step again, and an edit that keeps size and time does. Objects of a
    store are fingerprinted by their ETags. Patterns with ``{SPAN}``, ``{VERSION}`` and dates resolve as in TFX.
    """

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        """Returns the properties with input, span, version and fingerprint resolved; ``data_path`` comes first."""
        return dict(super().resolve_exec_properties(with_data_path(exec_properties), pipeline_info, component_info))

    def get_input_processor(
        self,
        splits: Iterable[example_gen_pb2.Input.Split],
        range_config: range_config_pb2.RangeConfig | None = None,
        input_base_uri: str | None = None,
    ) -> input_processor.InputProcessor:
        """Returns the processor that resolves patterns and computes the fingerprint."""
        assert input_base_uri
        return ContentInputProcessor(local_folder(input_base_uri), splits, range_config)


def with_data_path(exec_properties: dict[str, Any]) -> dict[str, Any]:
    """Returns ExampleGen's properties with the input that the run-time property ``data_path`` says, if it is given."""
    path = exec_properties.get("data_path")
    if not path:
        return exec_properties
    config = example_gen_pb2.Input()
    proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], config)
    paths = ExampleGenSpec.from_json(exec_properties["spec"]).data.split_by.paths
    folder, patterns = input_patterns(path, paths)
    for split in config.splits:
        split.pattern = patterns[split.name]
    return {
        **exec_properties,
        standard_component_specs.INPUT_BASE_KEY: folder,
        standard_component_specs.INPUT_CONFIG_KEY: proto_utils.proto_to_json(config),
    }


class ContentInputProcessor(input_processor.FileBasedInputProcessor):
    """Resolves patterns as TFX does, and fingerprints names and bytes."""

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        """Returns the newest span and version that the patterns match.

        Raises:
          DataError: None does.
        """
        if is_object_uri(self._input_base_uri):
            return self._resolve_in_store()
        try:
            span, version = super().resolve_span_and_version()
        except ValueError as e:
            raise DataError(f"data.path: {e} (in {self._input_base_uri})") from e
        return span, version

    def _resolve_in_store(self) -> tuple[int, int | None]:
        """Resolves as TFX does, on empty local files of the objects' names: TFX itself looks on local disks only."""
        if not any("{" in split.pattern for split in self._splits):
            return 0, None
        with tempfile.TemporaryDirectory(prefix="lockstep-names-") as folder:
            for split in self._splits:
                pattern = re.sub(r"\{[^}]*\}", "*", split.pattern)
                found = find_objects(self._input_base_uri, pattern)
                for item in found or find_objects(self._input_base_uri, f"{pattern}/**"):  # a folder
                    path = Path(folder) / item.uri.removeprefix(self._input_base_uri).lstrip("/")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
            try:
                names = input_processor.FileBasedInputProcessor(folder, self._splits, self._range_config)
                span, version = names.resolve_span_and_version()
            except ValueError as e:
                raise DataError(f"data.path: {e} (in {self._input_base_uri})") from e
        return span, version

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        """Returns the fingerprint of the files of that span and version.

        Raises:
          DataError: No file matches.
        """
        patterns = {
            split.name: self.get_pattern_for_span_version(split.pattern, span, version) for split in self._splits
        }
        return inputs.fingerprint(self._input_base_uri, patterns)
