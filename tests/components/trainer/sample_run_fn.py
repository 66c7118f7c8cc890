"""Modules for TFX's stock Trainer, as its users have them: they know nothing of Lockstep but what FnArgs holds."""

import json
import os
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import tensorflow_transform as tft

_LABEL = "tips"
_BATCH = 64
_CHECKPOINT_EVERY = 50


def run_fn(fn_args: Any) -> None:
    """A custom loop over several workers, as in TensorFlow's tutorial: checkpoints of the chief, all workers save."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id or 0
    transform_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    checkpoint_dir = fn_args.custom_config["lockstep"]["checkpoint_dir"]

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        files = tf.data.Dataset.list_files(fn_args.train_files, shuffle=False)
        records = tf.data.TFRecordDataset(files, compression_type="GZIP")
        records = records.shard(context.num_input_pipelines, context.input_pipeline_id).repeat()
        spec = transform_output.transformed_feature_spec()
        batches = records.batch(context.get_per_replica_batch_size(_BATCH), drop_remainder=True)
        return batches.map(lambda serialized: tf.io.parse_example(serialized, spec))

    batches = iter(strategy.distribute_datasets_from_function(dataset))
    with strategy.scope():
        # Keras 3; `tf.keras` is Keras 2 once tf.Transform is imported.
        inputs = keras.Input(shape=(1,), name="fare")
        model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(inputs))
        optimizer = keras.optimizers.Adam(fn_args.custom_config["learning_rate"])
        optimizer.build(model.trainable_variables)
        step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    variables = [*model.weights, *optimizer.variables]
    checkpoint = tf.train.Checkpoint(step=step, variables=[getattr(v, "value", v) for v in variables])
    own_dir = checkpoint_dir if worker == 0 else f"{fn_args.serving_model_dir}-checkpoints"
    manager = tf.train.CheckpointManager(checkpoint, own_dir, max_to_keep=2)
    newest = tf.train.latest_checkpoint(checkpoint_dir)
    if newest:
        checkpoint.restore(newest)
    began = int(step.numpy())

    @tf.function
    def train_step(columns: Any) -> tf.Tensor:
        def one(columns: Any) -> tf.Tensor:
            with tf.GradientTape() as tape:
                predictions = model(columns["fare"], training=True)
                losses = keras.losses.binary_crossentropy(tf.reshape(columns[_LABEL], [-1, 1]), predictions)
                loss = tf.reduce_sum(losses) / _BATCH
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, [getattr(w, "value", w) for w in weights]), weights)
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(one, args=(columns,)), axis=None)

    while int(step.numpy()) < fn_args.train_steps:
        loss = train_step(next(batches))
        step.assign_add(1)
        if int(step.numpy()) % _CHECKPOINT_EVERY == 0:
            manager.save(checkpoint_number=int(step.numpy()))
            fn_args.custom_config["lockstep"]["report"](step=int(step.numpy()), loss=float(loss))
    (Path(fn_args.model_run_dir) / f"worker-{worker}.json").write_text(json.dumps({"began": began}))
    _export(model, transform_output, fn_args.serving_model_dir)


def write_arguments(fn_args: Any) -> None:
    """Leaves what it was given, and a model that any input suits."""
    given = {name: value for name, value in vars(fn_args).items() if name not in ("data_accessor", "custom_config")}
    own = dict(fn_args.custom_config["lockstep"])
    del own["report"]
    given["custom_config"] = {**fn_args.custom_config, "lockstep": own}
    given["TF_CONFIG"] = json.loads(os.environ["TF_CONFIG"])
    from tfx_bsl.tfxio import dataset_options

    options = dataset_options.TensorFlowDatasetOptions(batch_size=10, num_epochs=1, label_key=_LABEL)
    schema = tft.TFTransformOutput(fn_args.transform_output).transformed_metadata.schema
    rows = fn_args.data_accessor.tf_dataset_factory(fn_args.eval_files, options, schema)
    given["eval_rows"] = sum(int(label.shape[0]) for _, label in rows)
    worker = given["TF_CONFIG"]["task"]["index"]
    (Path(fn_args.model_run_dir) / f"arguments-{worker}.json").write_text(json.dumps(given))
    module = tf.Module()
    module.serve = tf.function(lambda examples: {"o": examples}, [tf.TensorSpec([None], tf.string, name="examples")])
    tf.saved_model.save(module, fn_args.serving_model_dir, signatures={"serving_default": module.serve})


def hang_once(fn_args: Any) -> None:
    """Worker 1 hangs in Python in the first attempt, while its peer waits for it in a collective."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if strategy.cluster_resolver.task_id == 1 and fn_args.custom_config["lockstep"]["attempt"] == 1:
        time.sleep(600)
    strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)
    write_arguments(fn_args)


def spin(fn_args: Any) -> None:
    """Never ends, and keeps the processor busy."""
    while fn_args:
        sum(range(1000))


def no_model(fn_args: Any) -> None:
    """Trains nothing."""


def fail(fn_args: Any) -> None:
    """Has a mistake in it."""
    raise KeyError(fn_args.custom_config["no such parameter"])


def _export(model: Any, transform_output: Any, folder: str) -> None:
    root = tf.Module()
    root.model, root.transform = model, transform_output.transform_features_layer()
    raw_spec = transform_output.raw_feature_spec()
    signature = [tf.TensorSpec([None], tf.string, name="examples")]

    @tf.function(input_signature=signature)
    def serve(examples: tf.Tensor) -> Any:
        columns = root.transform(tf.io.parse_example(examples, {n: s for n, s in raw_spec.items() if n != _LABEL}))
        return {"outputs": model(columns["fare"])}

    @tf.function(input_signature=signature)
    def transform_features(examples: tf.Tensor) -> Any:
        return root.transform(tf.io.parse_example(examples, raw_spec))

    signatures = {"serving_default": serve, "transform_features": transform_features}
    tf.saved_model.save(root, folder, signatures=signatures)
