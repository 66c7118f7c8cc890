"""TFX's transformation with another source and another writer.

``TransformProcessor`` is made to be extended: it asks its own methods for the source, the writer and the columns that
pass through. What is overridden here is the same in both releases of TFX; a test holds it.
"""

import apache_beam as beam
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.transform import executor

from lockstep.components.examples_source.source import BATCH_KEY, ExampleFiles
from lockstep.components.transform.writer import WriteParts


class Processor(executor.TransformProcessor):
    """Reads by ``ExampleFiles`` and writes by ``WriteParts``; the output paths are their folders.

    Args:
      num_shards: Shards into which the parts will be joined.
    """

    def __init__(self, num_shards: int) -> None:
        super().__init__()
        self._num_shards = num_shards

    def _CreateTFXIO(self, dataset: executor._Dataset, schema: schema_pb2.Schema) -> ExampleFiles:  # noqa: N802
        return ExampleFiles(dataset.file_pattern, schema=schema, telemetry_descriptors=["Transform"])

    @staticmethod
    def _GetTFXIOPassthroughKeys() -> set[str]:  # noqa: N802
        return {BATCH_KEY}

    def _EncodeAndWrite(  # noqa: N802
        self, *, schema: schema_pb2.Schema, file_format: str, output_path: str
    ) -> beam.PTransform:
        del file_format  # of the input: the executor takes gzip TFRecords alone
        return WriteParts(output_path, schema, self._num_shards)
