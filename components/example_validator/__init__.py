"""ExampleValidator: TFX's, as the gate on data."""
