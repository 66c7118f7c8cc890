"""Runs ExampleGen's work inside a TFX pipeline."""

import contextlib
import json
from pathlib import Path
from typing import Any

from tfx import types
from tfx.components.example_gen import utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from lockstep.components.example_gen.beam_workers import is_local, workers_of
from lockstep.components.example_gen.driver import with_data_path
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.inputs import fingerprint, opened_splits
from lockstep.components.example_gen.spec import ExampleGenSpec

ROWS_PROPERTY = "rows"
DROPPED_PROPERTY = "dropped"
QUARANTINED_PROPERTY = "quarantined"


class Executor(base_beam_executor.BaseBeamExecutor):
    """Writes the examples: by processes of its own, or by a distributed Beam runner where the pipeline has one.

    It is a Beam executor to TFX, whose Kubeflow compiler expects one of a file-based ExampleGen.
    """

    def __init__(self, context: base_beam_executor.BaseBeamExecutor.Context | None = None) -> None:
        arguments = list(context.beam_pipeline_args or ()) if context else []
        if not is_local(arguments):
            super().__init__(context)
            return
        # Not the Beam executor's own: given Beam arguments, that builds a package of TFX for workers, for two seconds.
        base_executor.BaseExecutor.__init__(self, context)
        self._beam_pipeline_args = arguments

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Fills the output artifact ``examples``; it appears whole or not at all.

        Custom properties: TFX's own, the JSON texts ``rows`` (split -> rows) and ``dropped`` (reason -> rows), and the
        number ``quarantined`` of rows that cannot be used.

        Raises:
          DataError: The input cannot be used, or more rows of it than allowed.
          ConfigurationError: The object store denies access, or there is no such bucket.
          StepFailed: There is no space left, a process that reads rows was killed, an object store does not answer, or
            a file is not what the driver's fingerprint says: the cache would serve what was read under the name of what
            the driver saw.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        spec = ExampleGenSpec.from_json(exec_properties["spec"])
        if not exec_properties.get(utils.FINGERPRINT_PROPERTY_NAME):
            exec_properties = with_data_path(exec_properties)  # a driver has done so, and filled the span in
        input_config = example_gen_pb2.Input()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], input_config)
        patterns = {split.name: split.pattern for split in input_config.splits}
        folder = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        expected = exec_properties.get(utils.FINGERPRINT_PROPERTY_NAME) or fingerprint(folder, patterns)
        artifact = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        workers = workers_of(self._beam_pipeline_args, self._make_beam_pipeline)
        with opened_splits(folder, patterns, expected) as found, contextlib.closing(workers):
            manifest = ingest(
                found.files,
                spec.data,
                Path(artifact.uri),
                spec.requirements,
                found.check,
                found.root,
                split_of=found.split_of,
                workers=workers,
            )
        artifact.split_names = artifact_utils.encode_split_names(list(manifest.rows))
        examples_utils.set_payload_format(artifact, example_gen_pb2.FORMAT_TF_EXAMPLE)
        examples_utils.set_file_format(artifact, "tfrecords_gzip")
        artifact.set_string_custom_property(ROWS_PROPERTY, json.dumps(manifest.rows))
        artifact.set_string_custom_property(DROPPED_PROPERTY, json.dumps(dict(manifest.dropped)))
        artifact.set_int_custom_property(QUARANTINED_PROPERTY, manifest.quarantined)
