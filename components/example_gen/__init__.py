"""From CSV or Parquet files to sharded TFRecords of tf.Example; import the submodule you need."""
