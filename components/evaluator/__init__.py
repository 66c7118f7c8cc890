"""Judges a trained model against thresholds and against the model that is served now; import the submodule you need."""
