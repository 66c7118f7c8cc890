"""Beam's Flink runner for real: its job server with the Flink cluster within it (``make test-flink``)."""
