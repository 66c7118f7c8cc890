"""TFX's StatisticsGen with Lockstep's source of examples."""
