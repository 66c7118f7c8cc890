"""A package's second document: what its steps ask of Kubernetes beside their containers.

The names of fields are those of KFP's ``kubernetes_executor_config.proto``. Fields that only newer releases know are
written where they are asked for, so that a package without them runs on every release.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.pipelines.kubeflow.mend import Step
from lockstep.pipelines.kubeflow.options import KubeflowOptions, SecretOptions, StepOptions, VolumeOptions

__all__ = ["platform_document"]


def platform_document(steps: Sequence[Step], options: KubeflowOptions) -> dict[str, Any] | None:
    """Returns the document, or None where no step asks for anything.

    Args:
      steps: All tasks that run in a container.
      options: The ``kubeflow`` block.
    """
    executors = {step.executor_label: _executor(step, options) for step in steps}
    executors = {label: executor for label, executor in executors.items() if executor}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}} if executors else None


def _executor(step: Step, options: KubeflowOptions) -> dict[str, Any]:
    own = options.of_step(step.option_key, probe=step.is_probe)
    volumes = {
        name: volume
        for name, volume in options.volumes.items()
        if not volume.components or step.option_key in volume.components
    }
    fields: dict[str, Any] = {
        "imagePullPolicy": options.image_pull_policy,
        "imagePullSecret": [{"secretName": name} for name in options.image_pull_secrets],
        "secretAsEnv": [*_store_credentials(options), *_as_env(options.secrets, "secretName", "secretKey")],
        "secretAsVolume": _as_volume(options.secrets, "secretName"),
        "configMapAsEnv": _as_env(options.config_maps, "configMapName", "configMapKey"),
        "configMapAsVolume": _as_volume(options.config_maps, "configMapName"),
        "pvcMount": [_claim(volume) for volume in volumes.values() if volume.claim is not None],
        "emptyDirMounts": [_empty_dir(name, volume) for name, volume in volumes.items() if volume.claim is None],
        **_pod(own),
    }
    return {key: value for key, value in fields.items() if value}


def _pod(own: StepOptions) -> dict[str, Any]:
    metadata = {"labels": dict(own.labels), "annotations": dict(own.annotations)}
    return {
        "nodeSelector": {"labels": dict(own.node_selector)} if own.node_selector else None,
        "tolerations": [
            _given(
                key=toleration.key,
                operator=toleration.operator,
                value=toleration.value,
                effect=toleration.effect,
                tolerationSeconds=toleration.seconds,
            )
            for toleration in own.tolerations
        ],
        "nodeAffinity": _node_affinity(own),
        "podMetadata": {key: value for key, value in metadata.items() if value},
        "activeDeadlineSeconds": own.deadline_s,
    }


def _node_affinity(own: StepOptions) -> list[dict[str, Any]]:
    """Returns one term of all conditions, since of several terms a node need meet one; each wish is a term."""
    conditions = [_requirement(item.key, item.operator, item.values) for item in own.node_affinity if not item.weight]
    wishes = [
        {"matchExpressions": [_requirement(item.key, item.operator, item.values)], "weight": item.weight}
        for item in own.node_affinity
        if item.weight
    ]
    return ([{"matchExpressions": conditions}] if conditions else []) + wishes


def _requirement(key: str, operator: str, values: Sequence[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _store_credentials(options: KubeflowOptions) -> list[dict[str, Any]]:
    if options.store_secret is None:
        return []
    keys = {"AWS_ACCESS_KEY_ID": options.store.access_key, "AWS_SECRET_ACCESS_KEY": options.store.secret_key}
    return [
        {
            "secretName": options.store_secret,
            "keyToEnv": [{"envVar": variable, "secretKey": key} for variable, key in keys.items()],
        }
    ]


def _as_env(sources: Mapping[str, SecretOptions], name_field: str, key_field: str) -> list[dict[str, Any]]:
    return [
        {
            name_field: name,
            "keyToEnv": [{"envVar": variable, key_field: key} for variable, key in sorted(source.env.items())],
            **({"optional": True} if source.optional else {}),
        }
        for name, source in sorted(sources.items())
        if source.env
    ]


def _as_volume(sources: Mapping[str, SecretOptions], name_field: str) -> list[dict[str, Any]]:
    return [
        {name_field: name, "mountPath": source.mount_path, **({"optional": True} if source.optional else {})}
        for name, source in sorted(sources.items())
        if source.mount_path is not None
    ]


def _claim(volume: VolumeOptions) -> dict[str, Any]:
    return _given(constant=volume.claim, mountPath=volume.mount_path, subPath=volume.sub_path)


def _empty_dir(name: str, volume: VolumeOptions) -> dict[str, Any]:
    medium = "Memory" if volume.medium == "memory" else None
    return _given(volumeName=name, mountPath=volume.mount_path, medium=medium, sizeLimit=volume.size_limit)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
