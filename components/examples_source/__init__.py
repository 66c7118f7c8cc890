"""Where Transform, StatisticsGen and Evaluator read examples from: whole files, by tf.data, in big batches."""
