"""Runs one component, or a slice of a pipeline, inside a test: rows or files in, readable values out.

    def test_statistics_count_the_rows(tmp_path):
        harness = ComponentHarness(tmp_path)
        examples = harness.examples({"train": [{"x": 1.0}, {"x": None}], "eval": [{"x": 3.0}]})
        outputs = harness.run(StatisticsGen(examples=examples))
        assert outputs["statistics"].read()["train"].num_examples == 2

Components run as in a pipeline: TFX's own compiler, launcher, driver, executor and publisher, with metadata in memory
and Beam in the test's process. Any TFX component can be run, Lockstep's or another.
"""

import json
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.types import standard_artifacts
from tfx.types.artifact import Artifact
from tfx.types.channel import BaseChannel

from lockstep.components.example_gen.rows import Value, write_examples
from lockstep.pipelines import artifact_values, local
from lockstep.pipelines.beam_engines import BeamOptions, beam_arguments

__all__ = ["ComponentHarness", "Output", "Outputs"]


class _InMemoryMetadata(metadata.Metadata):
    """Metadata that live as long as this object: TFX's own forget an in-memory store whenever it is closed."""

    def __init__(self) -> None:
        super().__init__(metadata_store_pb2.ConnectionConfig(fake_database=metadata_store_pb2.FakeDatabaseConfig()))

    def __exit__(self, *_: object) -> None:
        """Keeps the store open."""

    def __enter__(self) -> "_InMemoryMetadata":
        if self._store is None:
            super().__enter__()
        return self


class Output:
    """One output of a component.

    Args:
      artifact: The artifact, as the metadata hold it.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact

    @property
    def uri(self) -> pathlib.Path:
        """The artifact's folder."""
        return pathlib.Path(self.artifact.uri)

    def read(self) -> Any:
        """Returns what the artifact says.

        - ``Examples``: split -> list of rows, each feature -> list of values.
        - ``ExampleStatistics``: split -> ``DatasetFeatureStatistics``.
        - ``Schema``: the ``Schema`` message.
        - ``ExampleAnomalies``: split -> feature -> description.
        - ``TransformGraph``: a ``tft.TFTransformOutput``.
        - ``Model``: the loaded SavedModel.
        - ``ModelRun``: the training summary.
        - ``ModelEvaluation``: the verdict.
        - ``ModelBlessing``: True if blessed.
        - ``PushedModel``: the folder pushed to, the URI of one in an object store; None if nothing was pushed.

        Raises:
          TypeError: another type of artifact; read the files under ``uri``.
        """
        return artifact_values.read(self.artifact)


class Outputs:
    """The outputs of a run: by output key, and where several components have that key by ``component.key``."""

    def __init__(self, by_step: Mapping[str, Mapping[str, list[Artifact]]]) -> None:
        self._by_step = by_step

    def __getitem__(self, key: str) -> Output:
        """Returns an output.

        Args:
          key: ``statistics``, or ``StatisticsGen.statistics``.

        Raises:
          KeyError: no output, or more than one, goes by this key.
        """
        step, _, name = key.rpartition(".")
        found = [
            outputs[name][0]
            for candidate, outputs in self._by_step.items()
            if step in ("", candidate) and outputs.get(name)
        ]
        if len(found) != 1:
            raise KeyError(f"{key!r}: {len(found)} outputs go by this key; there are {', '.join(self._keys())}")
        return Output(found[0])

    def _keys(self) -> Iterator[str]:
        for step, outputs in self._by_step.items():
            yield from (f"{step}.{name}" for name in outputs)


class ComponentHarness:
    """Makes input artifacts and runs components on them.

    Args:
      root: A folder of the test's own, such as pytest's ``tmp_path``.
      beam_arguments: Beam's command line; None runs Beam in this process.
    """

    def __init__(self, root: pathlib.Path, *, beam_arguments: Sequence[str] | None = None) -> None:
        self._root = root
        self._beam_arguments = list(_DIRECT if beam_arguments is None else beam_arguments)
        self._connection = _InMemoryMetadata()
        self._importers: dict[str, Importer] = {}
        self._runs = 0

    def examples(self, rows: Mapping[str, Sequence[Mapping[str, Value]]]) -> BaseChannel:
        """Makes an Examples artifact, as ExampleGen writes it.

        Args:
          rows: Split -> rows; a row maps a feature's name to an int, float, str or bytes, a list of one of these,
            or None where the value is missing.
        """
        folder = self._input_folder("Examples")
        write_examples(rows, folder)
        return self._import(
            standard_artifacts.Examples,
            folder,
            properties={"split_names": json.dumps(list(rows))},
            custom_properties={"payload_format": "FORMAT_TF_EXAMPLE", "file_format": "tfrecords_gzip"},
        )

    def artifact(
        self,
        artifact_type: type[Artifact],
        files: Mapping[str, bytes | str] | pathlib.Path,
        *,
        properties: Mapping[str, int | str] | None = None,
        custom_properties: Mapping[str, int | str] | None = None,
    ) -> BaseChannel:
        """Makes an artifact of any type from files.

        Args:
          artifact_type: Such as ``standard_artifacts.Schema``.
          files: Path within the artifact -> content, or a folder that is copied.
          properties: As the type declares them.
          custom_properties: Any others.
        """
        folder = self._input_folder(artifact_type.TYPE_NAME or artifact_type.__name__)
        if isinstance(files, pathlib.Path):
            shutil.copytree(files, folder, dirs_exist_ok=True)
        else:
            for name, content in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self._import(
            artifact_type, folder, properties=dict(properties or {}), custom_properties=dict(custom_properties or {})
        )

    def run(self, *components: BaseComponent) -> Outputs:
        """Runs components, in the order in which they depend on each other.

        Args:
          components: Built on channels of this harness and on each other's outputs.

        Raises:
          Exception: what an executor raised, as it raised it.
        """
        self._runs += 1
        pipeline = tfx_pipeline.Pipeline(
            pipeline_name="test",
            pipeline_root=str(self._root / "outputs" / str(self._runs)),
            components=[*self._importers_of(components), *components],
            enable_cache=False,
            metadata_connection_config=self._connection.connection_config,
            beam_pipeline_args=self._beam_arguments,
        )
        names = {component.id for component in components}
        finished = {
            event.step: event.outputs
            for event in local.run_steps(local.compile_pipeline(pipeline), self._connection)
            if isinstance(event, local.StepFinished) and event.step in names
        }
        return Outputs(finished)

    def _input_folder(self, name: str) -> pathlib.Path:
        folder = self._root / "inputs" / f"{name}-{len(self._importers)}"
        folder.mkdir(parents=True)
        return folder

    def _import(
        self,
        artifact_type: type[Artifact],
        folder: pathlib.Path,
        *,
        properties: dict[str, int | str],
        custom_properties: dict[str, int | str],
    ) -> BaseChannel:
        importer = Importer(
            source_uri=str(folder),
            artifact_type=artifact_type,
            properties=properties,
            custom_properties=custom_properties,
        ).with_id(folder.name)
        self._importers[importer.id] = importer
        return importer.outputs["result"]

    def _importers_of(self, components: Sequence[BaseComponent]) -> list[Importer]:
        needed = {
            channel.producer_component_id for component in components for channel in component.spec.inputs.values()
        }
        return [importer for name, importer in self._importers.items() if name in needed]


_DIRECT = beam_arguments(BeamOptions())
