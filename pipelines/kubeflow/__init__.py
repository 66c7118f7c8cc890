"""Packages for Kubeflow Pipelines: compiled, validated, run here, handed to a server."""
