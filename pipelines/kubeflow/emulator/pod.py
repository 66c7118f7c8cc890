"""What Kubernetes would give a task's pod: environment variables, secrets, volumes, a deadline."""

import dataclasses
import os
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.emulator.files import EmulationFiles
from lockstep.pipelines.kubeflow.emulator.workload import Task

# Kubeflow's own MinIO as it is installed has these, and every namespace a secret with them.
_MINIO_KEYS = {"accesskey": "minio", "secretkey": "minio123"}
MINIO_SECRET = "mlpipeline-minio-artifact"  # noqa: S105 - the name of a secret
# What stands for the identity that a pod has in its cloud.
_IDENTITY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Volume:
    """A folder of this machine that stands for a volume.

    Args:
      kind: What it stands for, in words.
      mount_path: Where it is in the container.
      source_dir: The folder; None for an empty one of the attempt's own.
      read_only: A secret or config map.
    """

    kind: str
    mount_path: str
    source_dir: pathlib.Path | None
    read_only: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pod:
    """What is the same for every attempt of a task.

    Args:
      env: Environment variables.
      volumes: What is mounted.
      claims: Names of the volume claims, which are in KFP's cache key.
      deadline_s: Seconds after which Kubernetes ends an attempt; None is never.
    """

    env: Mapping[str, str]
    volumes: tuple[Volume, ...]
    claims: tuple[str, ...]
    deadline_s: float | None


def make_pod(
    task: Task,
    parameters: Mapping[str, Any],
    files: EmulationFiles,
    *,
    endpoint: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Pod:
    """Returns what a task's pod gets.

    A key of a secret is the file ``secrets/<name>/<key>`` under the emulator's root, as Kubernetes mounts it; where
    that is absent, the variable that it becomes is taken from the emulator's own environment. Config maps likewise, in
    ``configmaps``. Volume claims are folders in ``claims``.

    Args:
      task: The task.
      parameters: The run's, which may name secrets and claims.
      files: The emulator's root.
      endpoint: URL of a real object store, in place of what the package names: a cluster's own cannot be reached from
        here. None where the object store is a folder.
      environ: The emulator's environment.

    Raises:
      ConfigurationError: A secret or config map is required and not there.
    """
    platform = task.platform
    env = {"KFP_POD_NAME": f"{task.name}-{uuid.uuid4().hex[:8]}", "KFP_POD_UID": str(uuid.uuid4())}
    if endpoint is not None:
        env.update({name: environ[name] for name in _IDENTITY if name in environ})
    env.update(task.env)
    for source in _listed(platform, "configMapAsEnv"):
        env.update(_Source(source, "configMap", files.config_maps_dir, parameters).variables(task, environ))
    for source in _listed(platform, "secretAsEnv"):
        env.update(_Source(source, "secret", files.secrets_dir, parameters).variables(task, environ))
    for field in _listed(platform, "fieldPathAsEnv"):
        env[field["name"]] = env["KFP_POD_NAME"] if field.get("fieldPath") == "metadata.name" else ""
    if endpoint is not None:
        env.pop("FSSPEC_S3_ENDPOINT_URL", None)
        env.update({"AWS_ENDPOINT_URL": endpoint, "AWS_ENDPOINT_URL_S3": endpoint})
    claims = [(_name(mount, "pvcName", parameters), mount) for mount in _listed(platform, "pvcMount")]
    deadline = float(platform.get("activeDeadlineSeconds", 0))
    return Pod(
        env=env,
        volumes=(*_claim_volumes(claims, files), *_other_volumes(task, parameters, files)),
        claims=tuple(name for name, _ in claims),
        deadline_s=deadline or None,
    )


def _claim_volumes(claims: list[tuple[str, Mapping[str, Any]]], files: EmulationFiles) -> list[Volume]:
    return [
        Volume(
            kind=f"the volume claim {name}",
            mount_path=mount["mountPath"],
            source_dir=files.claims_dir / name / mount.get("subPath", ""),
        )
        for name, mount in claims
    ]


def _other_volumes(task: Task, parameters: Mapping[str, Any], files: EmulationFiles) -> list[Volume]:
    platform = task.platform
    volumes = [
        Volume(kind=f"the empty folder {mount.get('volumeName', '')}", mount_path=mount["mountPath"], source_dir=None)
        for key in ("emptyDirMounts", "genericEphemeralVolume")
        for mount in _listed(platform, key)
    ]
    for key, prefix, folder in (
        ("secretAsVolume", "secret", files.secrets_dir),
        ("configMapAsVolume", "configMap", files.config_maps_dir),
    ):
        for mount in _listed(platform, key):
            source = _Source(mount, prefix, folder, parameters)
            if source.folder.is_dir():
                volumes.append(
                    Volume(kind=source.kind, mount_path=mount["mountPath"], source_dir=source.folder, read_only=True)
                )
            elif not source.optional:
                raise ConfigurationError(f"task {task.name} mounts {source.kind}; make {source.folder}, a file a key")
    return volumes


class _Source:
    """A secret or config map that a task names."""

    def __init__(
        self, spec: Mapping[str, Any], prefix: str, folder: pathlib.Path, parameters: Mapping[str, Any]
    ) -> None:
        self._spec, self._prefix, self._folder = spec, prefix, folder
        self._name = _name(spec, f"{prefix}Name", parameters)
        self.folder = folder / self._name
        self.kind = f"the {'secret' if prefix == 'secret' else 'config map'} {self._name}"
        self.optional = bool(spec.get("optional"))

    def variables(self, task: Task, environ: Mapping[str, str]) -> dict[str, str]:
        found = {}
        for pair in self._spec.get("keyToEnv", ()):
            key, variable = pair[f"{self._prefix}Key"], pair["envVar"]
            value = _value(self._name, key, self._folder, environ.get(variable))
            if value is not None:
                found[variable] = value
            elif not self.optional:
                raise ConfigurationError(
                    f"task {task.name} takes {variable} from {self.kind}; write it to {self.folder / key}, or set"
                    f" {variable}"
                )
        return found


def secret_value(name: str, key: str, files: EmulationFiles, from_environment: str | None) -> str | None:
    """Returns a secret's key: of its file, else from the environment, else what a fresh Kubeflow has; None for none."""
    return _value(name, key, files.secrets_dir, from_environment)


def _value(name: str, key: str, folder: pathlib.Path, from_environment: str | None) -> str | None:
    path = folder / name / key
    if path.is_file():
        return path.read_text(encoding="utf-8").rstrip("\n")
    if from_environment is not None:
        return from_environment
    return _MINIO_KEYS.get(key) if name == MINIO_SECRET else None


def _listed(platform: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return list(platform.get(key) or ())


def _name(spec: Mapping[str, Any], key: str, parameters: Mapping[str, Any]) -> str:
    """Returns a name that stands in the package, or that a parameter of the run gives."""
    parameter = spec.get(f"{key}Parameter") or {}
    if "componentInputParameter" in parameter:
        return str(parameters[parameter["componentInputParameter"]])
    if "runtimeValue" in parameter:
        return str(parameter["runtimeValue"]["constant"])
    name = spec.get(key) or spec.get("constant")
    if not name:
        raise ConfigurationError(f"{key}: the package names none; lockstep emulate takes constants and run parameters")
    return str(name)
