"""The ``kubeflow`` block of a pipeline's configuration: what a compiled package asks of Kubernetes."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

# Kubeflow's own object store as it is installed: https://github.com/kubeflow/pipelines, manifests/kustomize.
_MINIO_ENDPOINT = "http://minio-service.kubeflow:9000"
_MINIO_SECRET = "mlpipeline-minio-artifact"  # noqa: S105 - the name of a secret
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUANTITY = re.compile(r"(?P<number>\d+(\.\d+)?|\.\d+)(?P<suffix>m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
QUALIFIED_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_STORE_URI = re.compile(r"(minio|s3|gs)://[^/?#\s]+(/[^?#\s]*)?")
# Folders and volumes that Kubeflow itself puts into every pod: backend/src/v2/compiler/argocompiler/container.go.
KUBEFLOW_FOLDERS = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/kfp-launcher", "/kfp")
KUBEFLOW_VOLUMES = (
    "kfp-launcher",
    "gcs-scratch",
    "s3-scratch",
    "minio-scratch",
    "dot-local-scratch",
    "dot-cache-scratch",
    "dot-config-scratch",
    "ca-bundle",
)
_MAX_SHOWN = 60
_FACTORS = {
    "m": 1e-3,
    "": 1.0,
    **{suffix: 1000.0 ** (i + 1) for i, suffix in enumerate(("k", "M", "G", "T", "P"))},
    **{suffix: 1024.0 ** (i + 1) for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"))},
}


def quantity(text: str) -> float:
    """Returns the number that a quantity of Kubernetes means: cores, or bytes.

    Raises:
      ValueError: It is not spelled as one, such as ``500m``, ``2``, ``4Gi``.
    """
    spelled = _QUANTITY.fullmatch(text)
    if spelled is None:
        raise ValueError(f"{_shown(text)} is not allowed; give a quantity of Kubernetes, such as '500m', '2' or '4Gi'")
    return float(spelled["number"]) * _FACTORS[spelled["suffix"] or ""]


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]!r}..."


def _check(pattern: re.Pattern[str], value: str, key: str, wanted: str, *, own_key: bool = False) -> None:
    """Raises unless a value, or (own_key) a name that stands as a key, is of a pattern."""
    if not pattern.fullmatch(value):
        raise ValueError(f"{key}: {'the name ' if own_key else ''}{value!r} is not allowed; give {wanted}")


def _check_quantity(value: str, key: str, *, at_least: float) -> None:
    try:
        number = quantity(value)
    except ValueError as e:
        raise ValueError(f"{key}: {e}") from e
    if number >= 2**63:
        raise ValueError(f"{key}: {_shown(value)} is not allowed; Kubernetes takes less than 2**63, 8Ei")
    if number < at_least:
        raise ValueError(f"{key}: {value!r} is not allowed; give more, such as '500m' cores, or '4Gi' of memory")


def _check_mount_path(path: str | None) -> None:
    # Kubernetes takes no ':' in it; the launcher of KFP has folders of its own.
    if path is not None and (not re.fullmatch(r"/[^:\s]*[^:/\s]/?", path) or ".." in path.split("/")):
        raise ValueError(f"mount_path: {path!r} is not allowed; give an absolute folder in the container")
    if path is not None and any(f"{path}/".startswith(f"{folder}/") for folder in KUBEFLOW_FOLDERS):
        raise ValueError(f"mount_path: {path!r} is in a folder of Kubeflow's own; give another one")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How the containers reach the object store.

    Args:
      endpoint: URL of the S3 service behind ``minio://`` and ``s3://``. None is Kubeflow's own MinIO for a
        ``minio://`` root, ``http://minio-service.kubeflow:9000``, and the cloud's service for others.
      region: Of that service.
      secret: Kubernetes secret with the credentials, read into ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``.
        None is Kubeflow's own, ``mlpipeline-minio-artifact``, for a ``minio://`` root, and none for others, whose pods
        have an identity of their cloud.
      access_key: Key in the secret that holds the access key.
      secret_key: Key in the secret that holds the secret key.
    """

    endpoint: str | None = None
    region: str | None = None
    secret: str | None = None
    access_key: str = "accesskey"
    secret_key: str = "secretkey"  # noqa: S105 - the name of a key

    def __post_init__(self) -> None:
        if self.endpoint is not None and re.search("[@?#]", self.endpoint):  # not shown: a password may be in it
            raise ValueError(
                "endpoint: '@', '?' and '#' are not allowed; give http://HOST:PORT, and credentials in a secret"
            )
        if self.endpoint is not None and not re.fullmatch(r"https?://[^/\s]+/?", self.endpoint):
            raise ValueError(f"endpoint: {self.endpoint!r} is not allowed; give http://HOST:PORT or https://HOST")
        if self.region == "":
            raise ValueError("region: '' is not allowed; leave it out, or give the region's name")
        if self.secret is not None:
            _check(DNS_SUBDOMAIN, self.secret, "secret", "the secret's name in Kubernetes")
        for key in ("access_key", "secret_key"):
            _check(re.compile(r"[-._A-Za-z0-9]{1,253}"), getattr(self, key), key, "the name of a key in the secret")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecretOptions:
    """What the containers get of one secret or config map.

    Args:
      env: Environment variable -> key in the secret or config map.
      mount_path: Folder in the container where each key is a file; None mounts nothing.
      optional: The pod starts also where the secret or config map is absent.
    """

    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    mount_path: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        if not self.env and self.mount_path is None:
            raise ValueError("env: nothing is taken of it; give env: {VARIABLE: key}, mount_path, or both")
        for variable, key in self.env.items():
            _check(_ENV_NAME, variable, "env", "an environment variable's name", own_key=True)
            _check(re.compile(r"[-._A-Za-z0-9]{1,253}"), key, f"env.{variable}", "the name of a key")
        _check_mount_path(self.mount_path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VolumeOptions:
    """One volume and where it is mounted.

    Args:
      mount_path: Folder in the container.
      claim: A PersistentVolumeClaim that exists; None makes an empty folder that lives as long as the pod.
      sub_path: Folder in the claim that is mounted; None is all of it.
      medium: Of an empty folder: ``memory`` holds it in memory, which counts for the pod's limit. With mount_path
        ``/dev/shm`` that is the shared memory.
      size_limit: Of an empty folder, such as ``2Gi``; the pod is evicted above it.
      components: Steps that mount it, such as ``[DistributedTrainer]``; empty is all. A claim that one node alone can
        mount at a time (ReadWriteOnce) makes steps wait for each other.
    """

    mount_path: str
    claim: str | None = None
    sub_path: str | None = None
    medium: Literal["disk", "memory"] = "disk"
    size_limit: str | None = None
    components: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_mount_path(self.mount_path)
        if self.claim is None:
            if self.sub_path is not None:
                raise ValueError("sub_path: not allowed without claim; an empty folder has no folders")
        else:
            # KFP names the pod's volume like the claim, and that name takes no dots.
            _check(DNS_LABEL, self.claim, "claim", "a claim's name of a-z, 0-9 and '-', 63 at most")
            if self.medium == "memory" or self.size_limit is not None:
                raise ValueError("medium, size_limit: not allowed beside claim; they are for an empty folder")
        if self.sub_path is not None and (not self.sub_path or self.sub_path.startswith("/") or ".." in self.sub_path):
            raise ValueError(f"sub_path: {self.sub_path!r} is not allowed; give a folder in the claim, without '..'")
        if self.size_limit is not None:
            _check_quantity(self.size_limit, "size_limit", at_least=1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """How often Kubeflow starts a failed step anew, each time in a new pod.

    Args:
      max: Further tries, 0 or more.
      backoff_s: Seconds before the first of them.
      factor: What the wait is multiplied by for each further one, 1 or more.
      window_s: Seconds from the start of the first try: no further try begins later, and one that runs then is ended.
        The default is a week.
    """

    max: int = 2
    backoff_s: int = 30
    # Whole, since Argo fails the step that it shall start anew on any other.
    factor: int = 2
    window_s: int = 604_800

    def __post_init__(self) -> None:
        if not 0 <= self.max <= 100:
            raise ValueError(f"max: {self.max} is not allowed; give 0 to 100")
        if self.backoff_s < 1:
            raise ValueError(f"backoff_s: {self.backoff_s} is not allowed; give 1 or more")
        if not 1 <= self.factor <= 100:
            raise ValueError(f"factor: {self.factor} is not allowed; give 1 to 100")
        if self.window_s <= self.backoff_s:
            raise ValueError(
                f"window_s: {self.window_s} is not allowed; no try would begin within it: give more than backoff_s,"
                f" {self.backoff_s}, and than a try takes"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceOptions:
    """What a step's container asks of its node.

    Args:
      cpu: Cores requested, such as ``500m`` or ``2``.
      cpu_limit: Cores it may use at most.
      memory: Memory requested, such as ``4Gi``.
      memory_limit: Memory above which it is killed.
      accelerator: The node's resource, such as ``nvidia.com/gpu``.
      accelerator_count: How many of them, 1 or more.
    """

    cpu: str | None = None
    cpu_limit: str | None = None
    memory: str | None = None
    memory_limit: str | None = None
    accelerator: str | None = None
    accelerator_count: int = 1

    def __post_init__(self) -> None:
        for name, at_least in (("cpu", 1e-3), ("cpu_limit", 1e-3), ("memory", 1e6), ("memory_limit", 1e6)):
            value = getattr(self, name)
            if value is not None:
                _check_quantity(value, name, at_least=at_least)
        for name in ("cpu", "memory"):
            request, limit = getattr(self, name), getattr(self, f"{name}_limit")
            if request is not None and limit is not None and quantity(request) > quantity(limit):
                raise ValueError(f"{name}: {request!r} is above {name}_limit, {limit!r}; give no more than that")
        if self.accelerator is not None:
            if "/" not in self.accelerator:
                raise ValueError(
                    f"accelerator: {self.accelerator!r} is not allowed; give the resource's full name, such as"
                    " nvidia.com/gpu"
                )
            _check(QUALIFIED_NAME, self.accelerator, "accelerator", "a resource's name, such as nvidia.com/gpu")
        if self.accelerator_count < 1:
            raise ValueError(f"accelerator_count: {self.accelerator_count} is not allowed; give 1 or more")


# A probe imports TFX and looks at files: that takes a second of a core and half a GiB.
_PROBE_RESOURCES = ResourceOptions(cpu="500m", memory="1Gi")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TolerationOptions:
    """One toleration: a taint of nodes on which the pod may run all the same.

    Args:
      key: The taint's key; None, with operator Exists, is every taint.
      operator: ``Exists`` asks for the key alone, ``Equal`` for the value too.
      value: The taint's value.
      effect: The taint's effect; None is every effect.
      seconds: How long the pod stays after a taint NoExecute appears; None is for ever.
    """

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            _check(QUALIFIED_NAME, self.key, "key", "a taint's key, such as nvidia.com/gpu")
        elif self.operator == "Equal":
            raise ValueError("key: required with operator Equal")
        if self.operator == "Exists" and self.value is not None:
            raise ValueError(f"value: {self.value!r} is not allowed with operator Exists; give operator: Equal")
        if self.value is not None:
            _check(LABEL_VALUE, self.value, "value", "a taint's value")
        if self.seconds is not None and self.effect != "NoExecute":
            raise ValueError("seconds: allowed with effect NoExecute alone")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AffinityOptions:
    """One condition on a node's label.

    Args:
      key: The label's key.
      operator: How it is compared; ``Gt`` and ``Lt`` take one whole number.
      values: What it is compared with; none for ``Exists`` and ``DoesNotExist``.
      weight: 1 to 100 makes it a wish that counts so much; None makes it a condition.
    """

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = "In"
    values: tuple[str, ...] = ()
    weight: int | None = None

    def __post_init__(self) -> None:
        _check(QUALIFIED_NAME, self.key, "key", "a label's key")
        if self.operator in ("Exists", "DoesNotExist"):
            if self.values:
                raise ValueError(f"values: not allowed with operator {self.operator}")
        elif not self.values:
            raise ValueError(f"values: operator {self.operator} needs at least one")
        if self.operator in ("Gt", "Lt") and not (len(self.values) == 1 and re.fullmatch(r"-?\d+", self.values[0])):
            raise ValueError(f"values: {list(self.values)} is not allowed; {self.operator} takes one whole number")
        for value in self.values:
            _check(LABEL_VALUE, value, "values", "a label's value")
        if self.weight is not None and not 1 <= self.weight <= 100:
            raise ValueError(f"weight: {self.weight} is not allowed; give 1 to 100")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """What one step has beside or instead of the general values.

    Args:
      resources: Instead of the general ones.
      retries: Instead of the general ones.
      cache: Instead of the general value; a probe is never cached.
      env: Beside the general ones; of two of one name this one counts.
      node_selector: Likewise.
      labels: Likewise.
      annotations: Likewise.
      tolerations: Beside the general ones.
      node_affinity: Beside the general ones.
      deadline_s: Instead of the general one.
    """

    resources: ResourceOptions | None = None
    retries: RetryOptions | None = None
    cache: bool | None = None
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tolerations: tuple[TolerationOptions, ...] = ()
    node_affinity: tuple[AffinityOptions, ...] = ()
    deadline_s: int | None = None

    def __post_init__(self) -> None:
        _check_pod(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubeflowOptions:
    """The ``kubeflow`` block: `lockstep compile` reads it, `lockstep run` does not.

    Args:
      image: Container image with Lockstep and the user's modules; None is ``lockstep:<its version>``.
      image_pull_policy: When a node pulls it; None leaves that to Kubernetes.
      image_pull_secrets: Secrets with the registry's credentials.
      pipeline_root: Where artifacts are kept, ``minio://``, ``s3://`` or ``gs://``; the default is the bucket of a
        Kubeflow as it is installed.
      work_dir: Folder in the container for checkpoints. Below a mounted volume they survive the pod.
      store: How the containers reach the object store.
      env: Environment variables of every container.
      secrets: Name of a Kubernetes secret -> what the containers get of it.
      config_maps: Name of a config map -> what the containers get of it.
      volumes: A name of your choice -> a volume and where it is mounted.
      retries: How often a failed step is started anew.
      cache: Kubeflow takes a step whose inputs, arguments and code are unchanged from its cache.
      resources: What each step asks of its node; a probe (``ExampleGen-probe``) asks for
        little, whatever stands here.
      node_selector: Labels that a node must have.
      node_affinity: Conditions on a node's labels.
      tolerations: Taints on which the pods may run all the same.
      labels: Of each pod, such as Kueue's ``kueue.x-k8s.io/queue-name``.
      annotations: Of each pod.
      deadline_s: Seconds after which Kubernetes ends a step's pod; None is never.
      components: Name of a step, such as ``DistributedTrainer`` or ``ExampleGen-probe`` -> what it has beside or
        instead of these values.
    """

    image: str | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: tuple[str, ...] = ()
    pipeline_root: str = "minio://mlpipeline/lockstep"
    work_dir: str = "/tmp/lockstep-work"  # noqa: S108 - of a container's own
    store: StoreOptions = StoreOptions()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    secrets: Mapping[str, SecretOptions] = dataclasses.field(default_factory=dict)
    config_maps: Mapping[str, SecretOptions] = dataclasses.field(default_factory=dict)
    volumes: Mapping[str, VolumeOptions] = dataclasses.field(default_factory=dict)
    retries: RetryOptions = RetryOptions()
    cache: bool = True
    resources: ResourceOptions = ResourceOptions()
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node_affinity: tuple[AffinityOptions, ...] = ()
    tolerations: tuple[TolerationOptions, ...] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    deadline_s: int | None = None
    components: Mapping[str, StepOptions] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.image is not None and not re.fullmatch(r"[A-Za-z0-9][\w.:/@-]*", self.image):
            raise ValueError(f"image: {self.image!r} is not allowed; give REGISTRY/NAME:TAG")
        for secret in self.image_pull_secrets:
            _check(DNS_SUBDOMAIN, secret, "image_pull_secrets", "a secret's name in Kubernetes")
        if not _STORE_URI.fullmatch(self.pipeline_root):
            raise ValueError(
                f"pipeline_root: {self.pipeline_root!r} is not allowed; Kubeflow keeps artifacts in an object store:"
                " give minio://BUCKET/PATH, s3://BUCKET/PATH or gs://BUCKET/PATH"
            )
        if not self.work_dir.startswith("/") or ".." in self.work_dir.split("/"):
            raise ValueError(f"work_dir: {self.work_dir!r} is not allowed; give an absolute path in the container")
        _check_pod(self)
        self._check_names()
        self._check_mounts()
        self._check_variables()

    @property
    def store_endpoint(self) -> str | None:
        """URL of the S3 service, None for the cloud's own."""
        if self.store.endpoint is None and self.pipeline_root.startswith("minio://"):
            return _MINIO_ENDPOINT
        return self.store.endpoint

    @property
    def store_secret(self) -> str | None:
        """The secret with the store's credentials, None where the pods have an identity of their own."""
        if self.store.secret is None and self.pipeline_root.startswith("minio://"):
            return _MINIO_SECRET
        return self.store.secret

    def of_step(self, step: str, *, probe: bool) -> StepOptions:
        """Returns what a step has, the general values included: none of its options is None but ``deadline_s``."""
        own = self.components.get(step, StepOptions())
        general = _PROBE_RESOURCES if probe else self.resources
        return StepOptions(
            resources=own.resources or general,
            retries=own.retries or self.retries,
            cache=not probe and (self.cache if own.cache is None else own.cache),
            env={**self.env, **own.env},
            node_selector={**self.node_selector, **own.node_selector},
            labels={**self.labels, **own.labels},
            annotations={**self.annotations, **own.annotations},
            tolerations=(*self.tolerations, *own.tolerations),
            node_affinity=(*self.node_affinity, *own.node_affinity),
            deadline_s=self.deadline_s if own.deadline_s is None else own.deadline_s,
        )

    def mounted(self, path: str, steps: tuple[str, ...]) -> bool:
        """Returns whether a path is in a claim that each of these steps mounts."""
        return any(
            volume.claim is not None
            and f"{path}/".startswith(f"{volume.mount_path.rstrip('/')}/")
            and (not volume.components or set(steps) <= set(volume.components))
            for volume in self.volumes.values()
        )

    def _check_names(self) -> None:
        for block in ("secrets", "config_maps"):
            for name, source in getattr(self, block).items():
                # KFP names the pod's volume like the secret, and that name takes no dots.
                pattern = DNS_SUBDOMAIN if source.mount_path is None else DNS_LABEL
                _check(pattern, name, block, "a name of a-z, 0-9 and '-' as it is in Kubernetes", own_key=True)
        for name in self.volumes:
            _check(DNS_LABEL, name, "volumes", "a name of a-z, 0-9 and '-', 63 at most", own_key=True)

    def _check_variables(self) -> None:
        """A variable that stands twice has the value of whichever comes last."""
        own = {name: f"components.{step}.env" for step, options in self.components.items() for name in options.env}
        seen = own | dict.fromkeys(self.env, "env")
        if self.store_secret is not None:
            for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                if variable in seen:
                    raise ValueError(f"{seen[variable]}: {variable} is set by store, too; set store.secret instead")
                seen[variable] = "store"
        for block in ("secrets", "config_maps"):
            for name, source in getattr(self, block).items():
                for variable in source.env:
                    first = seen.setdefault(variable, f"{block}.{name}.env")
                    if first != f"{block}.{name}.env":
                        raise ValueError(f"{block}.{name}.env: {variable} is set by {first}, too; set it once")

    def _check_mounts(self) -> None:
        """Two volumes of one name, or at one place, make a pod that Kubernetes refuses."""
        volumes: dict[str, str] = {}
        paths: dict[str, str] = {}
        mounts = [
            *((f"volumes.{name}", volume.claim or name, volume.mount_path) for name, volume in self.volumes.items()),
            *(
                (f"{block}.{name}", name, source.mount_path)
                for block in ("secrets", "config_maps")
                for name, source in getattr(self, block).items()
                if source.mount_path is not None
            ),
        ]
        for key, volume_name, path in mounts:
            if volume_name in KUBEFLOW_VOLUMES:
                raise ValueError(f"{key}: {volume_name!r} is a volume of Kubeflow's own; give another name")
            first = volumes.setdefault(volume_name, key)
            if first != key:
                raise ValueError(f"{key}: Kubeflow names its volume {volume_name!r}, as {first}'s; mount it once")
            first = paths.setdefault(path.rstrip("/"), key)
            if first != key:
                raise ValueError(f"{key}.mount_path: {path!r} is {first}'s, too; give another folder")


def _check_pod(options: KubeflowOptions | StepOptions) -> None:
    for variable in options.env:
        _check(_ENV_NAME, variable, "env", "an environment variable's name", own_key=True)
    for block in ("node_selector", "labels"):
        for key, value in getattr(options, block).items():
            _check(QUALIFIED_NAME, key, block, "a label's key", own_key=True)
            _check(LABEL_VALUE, value, f"{block}.{key}", "a label's value: letters, digits, '-', '_', '.', 63 at most")
    for key in options.annotations:
        _check(QUALIFIED_NAME, key, "annotations", "an annotation's key", own_key=True)
    if options.deadline_s is not None and options.deadline_s < 1:
        raise ValueError(f"deadline_s: {options.deadline_s} is not allowed; give 1 or more, or leave it out")
