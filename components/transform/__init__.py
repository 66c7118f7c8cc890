"""TFX's Transform with its own source of raw examples and its own sharded writer."""
