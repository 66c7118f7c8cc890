"""A pipeline's configuration made into a package for Kubeflow Pipelines."""

import importlib.metadata
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from tfx.dsl.components.base import base_component, base_driver
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner

from lockstep.components.errors import ConfigurationError
from lockstep.components.object_store import is_object_uri
from lockstep.components.package_files import is_package_path
from lockstep.pipelines.beam_engines import BEAM_STEPS, check_options
from lockstep.pipelines.config import ConfigSource, PipelineConfig
from lockstep.pipelines.definition import Site, build_pipeline
from lockstep.pipelines.fingerprint import StepFingerprints
from lockstep.pipelines.kubeflow.mend import COMMAND, Node, Step, mend, steps_of
from lockstep.pipelines.kubeflow.names import PROBE, pipeline_name
from lockstep.pipelines.kubeflow.options import KubeflowOptions
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.platform import platform_document
from lockstep.pipelines.kubeflow.validation import check

__all__ = ["compile_package", "default_image", "summary"]


def default_image() -> str:
    """Returns the image that steps run in where the configuration names none."""
    return f"lockstep:{importlib.metadata.version('tfx-lockstep')}"


def compile_package(source: ConfigSource) -> Package:
    """Returns the package of a configuration; equal configurations and code give equal packages.

    Args:
      source: Of ``load_package_config``.

    Raises:
      ConfigurationError: A path is this machine's, a name in the ``kubeflow`` block is no step's, a function of the
        user's is not there, or Kubeflow would refuse the package.
    """
    config, options = source.config, source.config.kubeflow
    fingerprints = StepFingerprints(config, source.folder)
    fingerprints.check()
    _check_paths(config)
    _check_engine(config)
    name = pipeline_name(config.name)
    pipeline = build_pipeline(config, Site.kubeflow(name, options, config.beam.shared_dir))
    nodes = [_node(component, fingerprints) for component in pipeline.components]
    steps = steps_of([node.id for node in nodes], nodes)
    _check_step_names(options, steps)
    spec = mend(
        _tfx_spec(pipeline, options.image or default_image()), nodes, options, name=name, defaults=_defaults(config)
    )
    package = Package(spec=spec, platform=platform_document(steps, options))
    check(package)
    return package


def summary(package: Package, path: pathlib.Path, source: ConfigSource, *, command: str) -> str:
    """Returns what was written, and what to do next, for a person.

    Args:
      package: The package.
      path: Where it is.
      source: What it was made of.
      command: How ``lockstep`` is called here.
    """
    file = shlex.quote(str(path))
    config = source.config
    functions = (config.preprocessing, config.run_fn, config.model.build)
    own_modules = source.folder is not None and any(":" in function for function in functions if function)
    emulated = f"emulate {file}" + (f" --working-dir {shlex.quote(str(source.folder))}" if own_modules else "")
    submitted = f"submit {file} --endpoint URL --run"
    width = max(len(emulated), len(submitted)) + 4
    tasks = package.spec["root"]["dag"]["tasks"]
    parameters = package.spec["root"]["inputDefinitions"]["parameters"]
    images = sorted({e["container"]["image"] for e in package.spec["deploymentSpec"]["executors"].values()})
    num_probes = sum(name.endswith(PROBE) for name in tasks)
    return "\n".join(
        [
            f"{path}: pipeline {package.name}, {len(tasks) - num_probes} steps and {num_probes} probes for what is new",
            f"  image       {', '.join(images)}: has to hold Lockstep and your modules",
            f"  artifacts   {package.spec['defaultPipelineRoot']}",
            "  parameters  "
            + ", ".join(f"{name}={value.get('defaultValue')}" for name, value in sorted(parameters.items())),
            "",
            "Next:",
            f"  {command} {emulated:<{width}}runs it here, as Kubeflow would",
            f"  {command} {submitted:<{width}}runs it there",
        ]
    )


def _node(component: base_component.BaseComponent, fingerprints: StepFingerprints) -> Node:
    driver = type(component).DRIVER_CLASS
    own = driver is not base_driver.BaseDriver
    return Node(
        id=component.id,
        code_fingerprint=fingerprints.of(component.id),
        driver_class_path=f"{driver.__module__}.{driver.__qualname__}" if own else None,
        driver_inputs=getattr(driver, "READ_INPUTS", None),
    )


def _tfx_spec(pipeline: tfx_pipeline.Pipeline, image: str) -> dict[str, Any]:
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(
        config=kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
            default_image=image, default_commands=list(COMMAND), use_pipeline_spec_2_1=True
        )
    )
    job: dict[str, Any] = runner.run(pipeline, write_out=False)
    return dict(job["pipelineSpec"])


def _defaults(config: PipelineConfig) -> dict[str, str | int]:
    steps = {} if config.train.steps is None else {"train_steps": config.train.steps}
    workers = {"train_workers": config.train.workers} if isinstance(config.train.workers, int) else {}
    return {"data_path": config.data.path, **steps, **workers}


def _check_paths(config: PipelineConfig) -> None:
    """Refuses what only this machine has."""
    options = config.kubeflow
    places = (
        ("data.path", config.data.path, ("ExampleGen", f"ExampleGen{PROBE}")),
        ("push.dir", config.push.dir, ("Evaluator", f"Evaluator{PROBE}", "Pusher", f"Pusher{PROBE}")),
    )
    for key, path, steps in places:
        if is_object_uri(path) or (key == "data.path" and is_package_path(path)):
            continue
        if path.startswith("/") and options.mounted(path, steps):
            continue
        in_image = "package:NAME/PATH of a package in the image, " if key == "data.path" else ""
        raise ConfigurationError(
            f"{key}: {path!r} is a path of this machine, which a container does not have; give minio://, s3:// or"
            f" gs://BUCKET/PATH, {in_image}or an absolute path below the mount_path of a claim in kubeflow.volumes that"
            f" {', '.join(steps)} mount"
        )


def _check_engine(config: PipelineConfig) -> None:
    """Refuses Beam options that no container could follow."""
    check_options(config.beam)
    shared = config.beam.shared_dir
    if shared is not None and not config.kubeflow.mounted(shared, BEAM_STEPS):
        raise ConfigurationError(
            f"beam.shared_dir: {shared!r} is not below the mount_path of a claim in kubeflow.volumes that"
            f" {', '.join(BEAM_STEPS)} mount"
        )


def _check_step_names(options: KubeflowOptions, steps: Sequence[Step]) -> None:
    known = [step.option_key for step in steps]
    given = {f"kubeflow.components.{name}": name for name in options.components}
    for volume_name, volume in options.volumes.items():
        given |= {f"kubeflow.volumes.{volume_name}.components: {name}": name for name in volume.components}
    for key, name in given.items():
        if name not in known:
            raise ConfigurationError(f"{key}: no such step; there are {', '.join(known)}")
