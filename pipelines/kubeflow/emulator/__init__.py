"""Runs a compiled package on this machine as Kubeflow Pipelines would: driver, cache, launcher, object store, retries.

What each module follows is in KFP's own sources, https://github.com/kubeflow/pipelines, under ``backend/src/v2``. The
emulator needs the package alone: nothing of how Lockstep made it.
"""
