"""What happens to the data: declared features turned into a tf.Transform ``preprocessing_fn``."""
