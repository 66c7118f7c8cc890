"""The component ExampleGen: CSV or Parquet files to sharded TFRecords of tf.Example."""

from collections.abc import Mapping, Sequence
from typing import Literal

from tfx import types
from tfx.components.example_gen import component
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.orchestration import data_types
from tfx.proto import example_gen_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from lockstep.components.example_gen.driver import ContentDriver
from lockstep.components.example_gen.executor import Executor
from lockstep.components.example_gen.files import input_patterns
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_gen.spec import ExampleGenSpec


class ExampleGenComponentSpec(component_spec.ComponentSpec):
    """TFX's FileBasedExampleGenSpec and our own JSON document."""

    PARAMETERS = {  # noqa: RUF012 - as TFX declares it
        **standard_component_specs.FileBasedExampleGenSpec.PARAMETERS,
        "spec": component_spec.ExecutionParameter(type=str),
        "data_path": component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS = standard_component_specs.FileBasedExampleGenSpec.INPUTS
    OUTPUTS = standard_component_specs.FileBasedExampleGenSpec.OUTPUTS


class ExampleGen(component.FileBasedExampleGen):
    """Reads the rows of CSV or Parquet files and deals them into splits and shards.

    Output ``examples``: gzip TFRecords of tf.Example, ``Split-<name>/data_tfrecord-0000i-of-0000n.gz``, where a
    missing cell's feature is absent, and ``manifest.json``. A cached output is used again only while names and bytes of
    the input files are the same; of objects in a store, names and ETags.

    Args:
      data: Which files, how they are read, splits and shards.
      required_columns: Columns that must be there, with a value in some row of the split ``train``.
      complete_columns: Columns that must be there with a value in every row: the label's.
      complete_if_present: Columns that must have a value in every row if they are there.
      weight_column: Column that must be there with a finite number of 0 or more in every row; None asks for none.
      images: Column -> channels, of columns whose values must be images that TensorFlow decodes.
      on_missing: What a row without such a value means: ``error`` stops, ``drop`` leaves the row out and counts it.
      data_path: A run-time property: what to read instead of ``data.path``, spelled alike. An empty text is as None.

    Raises:
      ValueError: ``on_missing`` is neither.
    """

    SPEC_CLASS = ExampleGenComponentSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = ContentDriver

    def __init__(
        self,
        data: DataOptions,
        required_columns: Sequence[str] = (),
        complete_columns: Sequence[str] = (),
        complete_if_present: Sequence[str] = (),
        weight_column: str | None = None,
        images: Mapping[str, int] | None = None,
        on_missing: Literal["error", "drop"] = "error",
        data_path: str | data_types.RuntimeParameter | None = None,
    ) -> None:
        folder, patterns = input_patterns(data.path, data.split_by.paths)
        requirements = Requirements(
            columns=tuple(required_columns),
            complete_columns=tuple(complete_columns),
            complete_if_present=tuple(complete_if_present),
            weight_column=weight_column,
            images=dict(images or {}),
            on_missing=on_missing,
        )
        split = example_gen_pb2.SplitConfig.Split
        spec = ExampleGenComponentSpec(
            input_base=folder,
            input_config=example_gen_pb2.Input(
                splits=[example_gen_pb2.Input.Split(name=name, pattern=each) for name, each in patterns.items()]
            ),
            output_config=example_gen_pb2.Output(
                split_config=example_gen_pb2.SplitConfig(
                    splits=[split(name=name, hash_buckets=weight) for name, weight in data.splits.items()]
                )
            ),
            output_data_format=example_gen_pb2.FORMAT_TF_EXAMPLE,
            output_file_format=example_gen_pb2.FORMAT_TFRECORDS_GZIP,
            spec=ExampleGenSpec(data=data, requirements=requirements).to_json(),
            data_path=data_path,
            examples=types.Channel(type=standard_artifacts.Examples),
        )
        # Past TFX's own constructor, which has no place for our document.
        base_beam_component.BaseBeamComponent.__init__(self, spec=spec)
