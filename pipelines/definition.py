"""Which step runs after which: TFX components wired as the configuration says."""

import dataclasses
import pathlib

from tfx import types
from tfx.components.schema_gen.component import SchemaGen
from tfx.dsl.components.base import base_component
from tfx.orchestration import data_types, metadata
from tfx.orchestration import pipeline as tfx_pipeline

from lockstep.components.evaluator.component import Evaluator
from lockstep.components.evaluator.options import EvaluateSpec
from lockstep.components.example_gen.component import ExampleGen
from lockstep.components.example_validator.component import ExampleValidator
from lockstep.components.pusher.component import Pusher
from lockstep.components.schema_gen.component import SchemaGen as ReviewedSchemaGen
from lockstep.components.statistics_gen.component import StatisticsGen
from lockstep.components.trainer.component import DistributedTrainer
from lockstep.components.trainer.decoder_options import DecoderOptions
from lockstep.components.trainer.step import TrainStep
from lockstep.components.trainer.worker_range import WorkerRange
from lockstep.components.transform.component import Transform
from lockstep.pipelines import reviewed_schema
from lockstep.pipelines.beam_engines import beam_arguments
from lockstep.pipelines.config import PipelineConfig
from lockstep.pipelines.kubeflow.options import KubeflowOptions
from lockstep.pipelines.run_files import RootFiles
from lockstep.transforms.features import source_columns, to_config

_BUILT_IN_PREPROCESSING = "lockstep.transforms.preprocessing.preprocessing_fn"
_CONFIG_RESOLVER = "lockstep.transforms.auto.resolve"
_IMAGE_DECODER = "lockstep.transforms.images:ImageDecoder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """Where a pipeline runs.

    Args:
      name: The pipeline's name there.
      pipeline_root: Where artifacts are kept: a local folder, or an object store's URI.
      work_dir: Local folder of unfinished trainings' checkpoints, on the machine that trains.
      import_paths: Folders appended to the import path of every process that runs user code.
      metadata_path: ML Metadata's SQLite file; None where the runner keeps none.
      run_parameters: Whether a run may set the data's path and the training's steps and workers by parameters.
      beam_arguments: Of the Beam steps, behind those of the configuration.
    """

    name: str
    pipeline_root: str
    work_dir: str
    import_paths: tuple[str, ...] = ()
    metadata_path: pathlib.Path | None = None
    run_parameters: bool = False
    beam_arguments: tuple[str, ...] = ()

    @classmethod
    def local(
        cls,
        config: PipelineConfig,
        root: RootFiles,
        folder: pathlib.Path | None,
        beam_arguments: tuple[str, ...] = (),
    ) -> "Site":
        """Returns this machine: everything under the pipeline's root folder, user code in the user's folder."""
        return cls(
            name=config.name,
            pipeline_root=str(root.artifacts_dir),
            work_dir=str(root.training_dir),
            import_paths=(str(folder),) if folder else (),
            metadata_path=root.metadata_path,
            beam_arguments=beam_arguments,
        )

    @classmethod
    def kubeflow(cls, name: str, options: KubeflowOptions, beam_shared_dir: str | None = None) -> "Site":
        """Returns Kubeflow: artifacts in an object store, user code in the image, a run has parameters."""
        return cls(
            name=name,
            pipeline_root=options.pipeline_root,
            work_dir=options.work_dir,
            # The image's working folder: a worker has one of its own.
            import_paths=(".",),
            run_parameters=True,
            beam_arguments=(f"--beam_shared_dir={beam_shared_dir}",) if beam_shared_dir else (),
        )


def build_pipeline(config: PipelineConfig, site: Site) -> tfx_pipeline.Pipeline:
    """Returns the pipeline of a configuration: the one wiring, wherever it runs.

    Args:
      config: Its paths are the site's: absolute on this machine.
      site: Where it runs.
    """
    parameters = _run_parameters(config) if site.run_parameters else {}
    example_gen = ExampleGen(
        data=config.data,
        # A function of the user's may take any columns and make the label of others: TFX tells what it misses.
        required_columns=tuple(dict.fromkeys((*source_columns(config.features), *config.evaluate.slices))),
        complete_columns=config.label_columns if config.features else (),
        weight_column=config.train.weight_column if config.features else None,
        complete_if_present=() if config.features else config.label_columns,
        images=_images(config),
        on_missing=config.label.missing,
        data_path=parameters.get("data_path"),
    )
    examples = example_gen.outputs["examples"]
    statistics_gen = StatisticsGen(examples=examples)
    statistics = statistics_gen.outputs["statistics"]
    schema_gen = _schema_gen(config, statistics)
    schema = schema_gen.outputs["schema"]
    example_validator = ExampleValidator(
        statistics=statistics,
        schema=schema,
        options=config.validate.resolved(is_reviewed=config.schema is not None),
        examples=examples if config.data.keep_origin else None,
    )
    is_open = any(feature.kind == "auto" for feature in config.features.values())
    transform = Transform(
        examples=examples,
        schema=schema,
        statistics=statistics if is_open else None,
        config_resolver=_CONFIG_RESOLVER if is_open else None,
        options=config.transform,
        preprocessing_fn=_preprocessing_function(config),
        custom_config=_preprocessing_parameters(config),
        disable_statistics=True,
        disable_analyzer_cache=True,
    )
    transform.add_upstream_node(example_validator)  # nothing is made of data that have anomalies
    trainer = DistributedTrainer(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        spec=_training(config, site),
        steps=parameters.get("steps"),
        workers=parameters.get("workers"),
    )
    model = trainer.outputs["model"]
    evaluator = Evaluator(examples=examples, model=model, schema=schema, spec=_evaluation(config))
    pusher = Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        spec=config.push.to_json(),
    )
    return tfx_pipeline.Pipeline(
        pipeline_name=site.name,
        pipeline_root=site.pipeline_root,
        components=[
            example_gen,
            statistics_gen,
            schema_gen,
            example_validator,
            transform,
            trainer,
            evaluator,
            pusher,
        ],
        enable_cache=True,
        metadata_connection_config=(
            metadata.sqlite_metadata_connection_config(str(site.metadata_path)) if site.metadata_path else None
        ),
        beam_pipeline_args=[*beam_arguments(config.beam), *site.beam_arguments],
    )


def _schema_gen(config: PipelineConfig, statistics: types.BaseChannel) -> base_component.BaseComponent:
    if config.schema is not None:
        return ReviewedSchemaGen(statistics, reviewed_schema.read_schema(config.schema))
    return SchemaGen(
        statistics=statistics,
        # No shapes: every column may be missing at serving, even one that never was in training.
        infer_feature_shape=False,
        # TFX alone infers from all splits, so that no other split could ever differ from the schema.
        exclude_splits=[split for split in config.data.splits if split != "train"],
    )


def _images(config: PipelineConfig) -> dict[str, int]:
    """Returns the columns of images that ExampleGen decodes, and with how many channels."""
    if not config.data.images.verify:
        return {}
    return {name: feature.channels for name, feature in config.features.items() if feature.kind == "image"}


def _preprocessing_function(config: PipelineConfig) -> str:
    """Returns the import path of the ``preprocessing_fn``: beside ``features`` ours, which calls the user's."""
    own = None if config.features else config.preprocessing
    return (own or _BUILT_IN_PREPROCESSING).replace(":", ".")


def _preprocessing_parameters(config: PipelineConfig) -> dict[str, object]:
    """Returns what a ``preprocessing_fn(inputs, custom_config)`` reads."""
    if not config.features:
        return to_config({}, config.label)
    return to_config(config.features, config.label, config.train.weight_column, config.preprocessing)


def _run_parameters(config: PipelineConfig) -> dict[str, data_types.RuntimeParameter]:
    """Returns component's argument -> parameter of a run, the configuration's value its default."""
    parameters = {
        "data_path": data_types.RuntimeParameter(name="data_path", ptype=str, default=config.data.path),
        "steps": data_types.RuntimeParameter(name="train_steps", ptype=int, default=config.train.steps),
        "workers": data_types.RuntimeParameter(name="train_workers", ptype=int, default=config.train.most_workers),
    }
    if isinstance(config.train.workers, WorkerRange):  # likewise: a number would take the place of the range
        del parameters["workers"]
    if config.train.epochs is not None:  # a parameter has a default, which would take the place of the epochs
        del parameters["steps"]
    return parameters


def _training(config: PipelineConfig, site: Site) -> str:
    return TrainStep(
        options=config.train,
        model=config.model,
        label=config.label.output,
        label_kind=config.label_kind,
        classes=config.class_options,
        decoder=_decoder(config),
        run_fn=config.run_fn,
        work_dir=site.work_dir,
        import_paths=site.import_paths,
    ).to_json()


def _decoder(config: PipelineConfig) -> DecoderOptions | None:
    """Returns what decodes the images that the trainer has to."""
    features = {name: feature.to_json() for name, feature in config.features.items() if feature.decode == "train"}
    return DecoderOptions(build=_IMAGE_DECODER, parameters={"features": features}) if features else None


def _evaluation(config: PipelineConfig) -> str:
    return EvaluateSpec(
        options=config.evaluate,
        label=config.label.output,
        label_kind=config.label_kind,
        classes=config.class_options,
        weight=config.train.weight_column,
        push_dir=config.push.dir,
    ).to_json()
