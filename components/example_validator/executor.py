"""What the ExampleValidator does: TFX's validation, then the verdict on it."""

import logging
import os
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import types
from tfx.components.example_validator import executor
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils
from tfx.utils import io_utils

from lockstep.components.errors import AnomaliesFound
from lockstep.components.example_validator.gate import findings, message, stopping
from lockstep.components.example_validator.options import ValidateOptions
from lockstep.components.example_validator.rows import example_rows

_log = logging.getLogger(__name__)


class Executor(executor.Executor):
    """TFX's, which fails where an anomaly is not let pass."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> execution_result_pb2.ExecutorOutput:
        """Validates all splits.

        Raises:
          AnomaliesFound: What was seen, what is expected, which rows, and what to do.
        """
        result = super().Do(input_dict, output_dict, exec_properties)
        options = ValidateOptions.from_json(exec_properties["spec"])
        anomalies = artifact_utils.get_single_instance(output_dict["anomalies"])
        found = list(
            findings(
                {
                    split: _read(artifact_utils.get_split_uri([anomalies], split))
                    for split in artifact_utils.decode_split_names(anomalies.split_names)
                }
            )
        )
        stopped = stopping(found, options.allow or ())
        for finding in found:
            if finding not in stopped:
                _log.warning("%s: %s: %s; let pass by validate.allow", finding.split, finding.column, finding.seen)
        if not stopped:
            return result
        schema_dir = artifact_utils.get_single_uri(input_dict["schema"])
        schema = io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(schema_dir))
        rows = None
        if input_dict.get("examples"):
            examples = artifact_utils.get_single_instance(input_dict["examples"])
            rows = example_rows(examples.uri, stopped, schema)
        raise AnomaliesFound(message(stopped, schema, rows))


def _read(folder: str) -> anomalies_pb2.Anomalies:
    path = os.path.join(folder, executor.DEFAULT_FILE_NAME)  # noqa: PTH118 - may be a URI
    return anomalies_pb2.Anomalies.FromString(io_utils.read_bytes_file(path))
