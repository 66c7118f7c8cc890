"""A configuration as a pipeline of stock TFX components, with all that somebody who knows TFX well would do for speed.

Features, model, steps, metrics, slices and thresholds are those of the configuration, so that both pipelines do the
same work; Beam's arguments are those of Lockstep's own pipeline. ``docs/benchmarks.md`` lists what was chosen and why.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import tensorflow_model_analysis as tfma
import tensorflow_transform as tft
from tfx.components.evaluator.component import Evaluator
from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen
from tfx.components.example_validator.component import ExampleValidator
from tfx.components.pusher.component import Pusher
from tfx.components.schema_gen.component import SchemaGen
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.trainer.component import Trainer
from tfx.components.transform.component import Transform
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.proto import example_gen_pb2, pusher_pb2, trainer_pb2
from tfx.types import channel, standard_artifacts

from lockstep.components.evaluator.metrics import METRICS
from lockstep.components.trainer import models
from lockstep.components.trainer.spec import ModelOptions
from lockstep.pipelines.beam_engines import beam_arguments
from lockstep.pipelines.config import PipelineConfig

# More than the records of the largest split would cost memory for nothing; the same as Lockstep's.
_SHUFFLE_BUFFER = 10_000
_EVAL_BATCH = 4096
# From 10 to 200 steps a call take the same time; 1 and 600 take a little longer, see docs/benchmarks.md.
_STEPS_PER_EXECUTION = 100


def build_pipeline(config: PipelineConfig, root: Path) -> tfx_pipeline.Pipeline:
    """Returns the pipeline of a configuration with declared features and one CSV file in a folder of its own.

    Args:
      config: Paths absolute; ``push.dir`` is not used.
      root: Where artifacts, metadata and the pushed model go.
    """
    buckets = [example_gen_pb2.SplitConfig.Split(name=n, hash_buckets=b) for n, b in config.data.splits.items()]
    example_gen = CsvExampleGen(
        input_base=str(Path(config.data.path).parent),
        output_config=example_gen_pb2.Output(split_config=example_gen_pb2.SplitConfig(splits=buckets)),
    )
    examples = example_gen.outputs["examples"]
    statistics_gen = StatisticsGen(examples=examples)
    statistics = statistics_gen.outputs["statistics"]
    # As in Lockstep's pipeline: no shapes, and inferred from the training split.
    others = [name for name in config.data.splits if name != "train"]
    schema_gen = SchemaGen(statistics=statistics, infer_feature_shape=False, exclude_splits=others)
    schema = schema_gen.outputs["schema"]
    transform = Transform(
        examples=examples,
        schema=schema,
        # By import path: `module_file` builds a wheel with pip at each run.
        preprocessing_fn="benchmarks.stock_taxi.preprocessing_fn",
        custom_config={
            "features": {name: dataclasses.asdict(feature) for name, feature in config.features.items()},
            "label": dataclasses.asdict(config.label),
        },
        disable_statistics=True,
        disable_analyzer_cache=True,
    )
    trainer = Trainer(
        run_fn="benchmarks.stock_taxi.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        train_args=trainer_pb2.TrainArgs(num_steps=config.train.num_steps),
        eval_args=trainer_pb2.EvalArgs(),
        custom_config={
            "batch_size": config.train.batch_size,
            "learning_rate": config.train.learning_rate,
            "seed": config.train.seed,
            "label": config.label.column,
            "build": config.model.build,
            "parameters": dict(config.model.parameters),
        },
    )
    resolver = Resolver(
        strategy_class=LatestBlessedModelStrategy,
        model=channel.Channel(type=standard_artifacts.Model),
        model_blessing=channel.Channel(type=standard_artifacts.ModelBlessing),
    ).with_id("Resolver")
    evaluator = Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        baseline_model=resolver.outputs["model"],
        schema=schema,
        eval_config=eval_config(config),
    )
    pusher = Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=str(root / "pushed"))
        ),
    )
    return tfx_pipeline.Pipeline(
        pipeline_name=config.name,
        pipeline_root=str(root / "artifacts"),
        components=[
            example_gen,
            statistics_gen,
            schema_gen,
            ExampleValidator(statistics=statistics, schema=schema),
            transform,
            trainer,
            resolver,
            evaluator,
            pusher,
        ],
        enable_cache=False,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(root / "metadata.sqlite")),
        beam_pipeline_args=beam_arguments(config.beam),
    )


def eval_config(config: PipelineConfig) -> tfma.EvalConfig:
    """Returns metrics, slices and thresholds of a configuration as the stock Evaluator takes them."""
    options = config.evaluate
    metrics = []
    for name in options.computed_metrics(config.label_kind):
        metric = METRICS[name]
        settings = json.dumps({"name": name, **metric.settings})
        bound = options.thresholds.get(name)
        thresholds = []
        if bound is not None:
            threshold = tfma.MetricThreshold()
            if bound.min is not None:
                threshold.value_threshold.lower_bound.value = bound.min
            if bound.min_change is not None:
                # Without a baseline, as here, TFX leaves it out.
                threshold.change_threshold.absolute.value = bound.min_change
                threshold.change_threshold.direction = tfma.MetricDirection.HIGHER_IS_BETTER
            # Over the whole split, as in Lockstep: a plain threshold would apply to every slice.
            thresholds = [tfma.PerSliceMetricThreshold(slicing_specs=[tfma.SlicingSpec()], threshold=threshold)]
        metrics.append(
            tfma.MetricConfig(class_name=metric.tfma_class, config=settings, per_slice_thresholds=thresholds)
        )
    evaluation = tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=config.label.column,
                # Gives the label alone: with all transformed features TFMA would carry each through Beam.
                preprocessing_function_names=["transform_label"],
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), *(tfma.SlicingSpec(feature_keys=[name]) for name in options.slices)],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )
    evaluation.options.include_default_metrics.value = False
    return evaluation


def preprocessing_fn(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Transforms the declared features and the label with tf.Transform's own analyzers, as TFX's taxi example does.

    Names, types and kinds of the outputs are those of ``lockstep.transforms.preprocessing``. Missing values become 0 or
    the empty text, as in TFX's example, where Lockstep has an index of their own for them.
    """
    outputs = {}
    for name, feature in custom_config["features"].items():
        column = inputs[name]
        if feature["kind"] == "numeric":
            outputs[name] = _fill(tft.scale_to_z_score(tf.cast(column, tf.float32)))
            present = tf.SparseTensor(column.indices, tf.ones_like(column.values, tf.float32), column.dense_shape)
            outputs[name + "_missing"] = 1.0 - _fill(present)
        elif feature["kind"] == "buckets":
            outputs[name] = tft.bucketize(_fill(column), feature["num_buckets"])
        else:
            # Analyses all vocabularies in one packed combine, tft.vocabulary in a dozen stages each; exact as long as
            # there are fewer values than top_k, as here.
            outputs[name] = tft.experimental.compute_and_apply_approximate_vocabulary(
                _fill(column) if column.dtype == tf.string else tf.strings.as_string(_fill(column)),
                top_k=feature["top_k"],
                num_oov_buckets=feature["num_oov"],
                vocab_filename=f"vocabulary_{name}",
            )
    label = custom_config["label"]
    bound = label["threshold"] * tf.cast(_fill(inputs[label["relative_to"]]), tf.float64)
    outputs[label["column"]] = tf.cast(tf.cast(_fill(inputs[label["column"]]), tf.float64) > bound, tf.float32)
    return outputs


def _fill(column: tf.SparseTensor) -> tf.Tensor:
    """Returns a column as dense [batch, 1], with 0 or the empty text where a value is missing."""
    one_wide = tf.SparseTensor(column.indices, column.values, [column.dense_shape[0], 1])
    return tf.sparse.to_dense(one_wide, default_value="" if column.dtype == tf.string else 0)


def run_fn(fn_args: Any) -> None:
    """Trains Lockstep's model with Keras' own ``fit``: records are batched, then parsed, many steps a call."""
    options = fn_args.custom_config
    label = options["label"]
    transform_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    keras.utils.set_random_seed(options["seed"])
    model = models.build_model(
        ModelOptions(build=options["build"], parameters=options["parameters"]), transform_output, label
    )
    spec = transform_output.transformed_feature_spec()
    train = _records(fn_args.train_files).shuffle(_SHUFFLE_BUFFER).repeat()
    evaluation = _records(fn_args.eval_files)
    model.compile(
        optimizer=keras.optimizers.Adam(options["learning_rate"]),
        loss="binary_crossentropy",
        weighted_metrics=[],
        steps_per_execution=min(_STEPS_PER_EXECUTION, fn_args.train_steps),
    )
    model.fit(
        _parsed(train, options["batch_size"], spec, label),
        steps_per_epoch=fn_args.train_steps,
        callbacks=[keras.callbacks.TensorBoard(fn_args.model_run_dir, update_freq="epoch", write_graph=False)],
        verbose=0,
    )
    # What the comparison of the two runs reads, under the name that Lockstep's has.
    summary = {"steps": int(model.optimizer.iterations.numpy())}
    Path(fn_args.model_run_dir, "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    model.compile(loss="binary_crossentropy", metrics=["AUC", "binary_accuracy"])
    model.evaluate(_parsed(evaluation, _EVAL_BATCH, spec, label), verbose=0)
    _export(model, transform_output, label, fn_args.serving_model_dir)


def _records(patterns: list[str]) -> tf.data.Dataset:
    files = [path for pattern in patterns for path in tf.io.gfile.glob(pattern)]
    return tf.data.TFRecordDataset(files, compression_type="GZIP", num_parallel_reads=2)


def _parsed(records: tf.data.Dataset, batch_size: int, spec: Mapping[str, Any], label: str) -> tf.data.Dataset:
    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        columns = {
            name: value if value.shape.rank > 1 else value[:, None]
            for name, value in tf.io.parse_example(serialized, spec).items()
        }
        return columns, columns.pop(label)

    batches = records.batch(batch_size, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _export(model: keras.Model, transform_output: tft.TFTransformOutput, label: str, export_dir: str) -> None:
    raw_spec = transform_output.raw_feature_spec()
    root = tf.Module()
    # What tf.Transform saved: its TransformFeaturesLayer is a Keras 2 model, which is traced for seconds.
    root.model, root.transform = model, tf.saved_model.load(transform_output.transform_savedmodel_dir)
    examples = tf.TensorSpec([None], tf.string, name="examples")

    @tf.function(input_signature=[examples], autograph=False)
    def serve(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        columns = root.transform.transform_fn(tf.io.parse_example(examples, raw_spec))
        return {"predictions": model({name: columns[name] for name in model.input}, training=False)}

    @tf.function(input_signature=[examples], autograph=False)
    def transform_label(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {label: root.transform.transform_fn(tf.io.parse_example(examples, raw_spec))[label]}

    tf.saved_model.save(root, export_dir, signatures={"serving_default": serve, "transform_label": transform_label})
