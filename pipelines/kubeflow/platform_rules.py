"""Rules of a package's second document: what its steps ask of Kubernetes.

Kubeflow hands most of it on when a step starts, so that what is wrong shows up in the middle of a run. Places in the
comments are below ``backend/src`` of Kubeflow Pipelines.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.pipelines.kubeflow.findings import Finding, shown
from lockstep.pipelines.kubeflow.options import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    KUBEFLOW_FOLDERS,
    KUBEFLOW_VOLUMES,
    LABEL_VALUE,
    QUALIFIED_NAME,
    quantity,
)
from lockstep.pipelines.kubeflow.package import Package

_DATA_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")
_MAX_ANNOTATIONS_BYTES = 256 << 10
_NAMES_A_SOURCE = {
    "secretAsEnv": ("secretName", DNS_SUBDOMAIN),
    "secretAsVolume": ("secretName", DNS_LABEL),
    "configMapAsEnv": ("configMapName", DNS_SUBDOMAIN),
    "configMapAsVolume": ("configMapName", DNS_LABEL),
    "imagePullSecret": ("secretName", DNS_SUBDOMAIN),
    "pvcMount": ("constant", DNS_LABEL),
    "emptyDirMounts": ("volumeName", DNS_LABEL),
    "genericEphemeralVolume": ("volumeName", DNS_LABEL),
}
_PARAMETER_FIELDS = ("secretNameParameter", "configMapNameParameter", "pvcNameParameter", "componentInputParameter")
_VOLUMES = ("pvcMount", "secretAsVolume", "configMapAsVolume", "emptyDirMounts", "genericEphemeralVolume")
_KEYS = {
    "secretAsEnv": "kubeflow.secrets",
    "secretAsVolume": "kubeflow.secrets",
    "configMapAsEnv": "kubeflow.config_maps",
    "configMapAsVolume": "kubeflow.config_maps",
    "imagePullSecret": "kubeflow.image_pull_secrets",
    "pvcMount": "kubeflow.volumes",
    "emptyDirMounts": "kubeflow.volumes",
    "nodeAffinity": "kubeflow.node_affinity",
    "nodeSelector": "kubeflow.node_selector",
    "tolerations": "kubeflow.tolerations",
}
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICIES = ("Always", "Never", "IfNotPresent")
_NEVER_READ = ("podAffinity", "enabledSharedMemory")


def platform_findings(package: Package) -> Iterator[Finding]:
    """Yields what is wrong with the platform's document of a package of the right structure."""
    assert package.platform is not None
    known = package.spec.get("deploymentSpec", {}).get("executors", {})
    kubernetes = package.platform["platforms"].get("kubernetes", {})
    for label, config in kubernetes.get("deploymentSpec", {}).get("executors", {}).items():
        place = f"platforms.kubernetes.executors.{label}"
        if label not in known:
            yield Finding(place=place, reason="no executor of that label in the pipeline: Kubeflow would not read it")
            continue
        yield from _source_findings(place, config)
        yield from _volume_findings(place, config)
        yield from _environment_findings(place, config, known[label].get("container", {}).get("env", []))
        yield from _pod_findings(place, config)


def _source_findings(place: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    for field, (name_field, pattern) in _NAMES_A_SOURCE.items():
        for index, source in enumerate(config.get(field, [])):
            name = source.get(name_field, "")
            if not name and any(parameter in source for parameter in _PARAMETER_FIELDS):
                continue
            if not pattern.fullmatch(name):
                yield Finding(
                    place=f"{place}.{field}[{index}].{name_field}",
                    reason=f"{name!r} is not allowed; give a name of a-z, 0-9 and '-'",
                    key=_KEYS.get(field),
                )


def _volume_findings(place: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    names: dict[str, str] = {}
    paths: dict[str, str] = {}
    for field in _VOLUMES:
        for index, source in enumerate(config.get(field, [])):
            here, key = f"{place}.{field}[{index}]", _KEYS.get(field)
            name, path = source.get(_NAMES_A_SOURCE[field][0], ""), source.get("mountPath", "")
            # v2/driver/k8s.go: the pod's volume has the name of the claim, secret or config map.
            if name in KUBEFLOW_VOLUMES or (name and names.setdefault(name, here) != here):
                yield Finding(place=here, reason=f"the pod has a volume {name!r} already; mount it once", key=key)
            if not path.startswith("/") or ":" in path:
                yield Finding(
                    place=f"{here}.mountPath", reason=f"{path!r} is not allowed; give an absolute path", key=key
                )
            elif any(f"{path.rstrip('/')}/".startswith(f"{folder}/") for folder in KUBEFLOW_FOLDERS):
                yield Finding(place=f"{here}.mountPath", reason=f"{path!r} is a folder of Kubeflow's own", key=key)
            elif paths.setdefault(path.rstrip("/"), here) != here:
                yield Finding(place=f"{here}.mountPath", reason=f"{path!r} is mounted twice", key=key)
            for size in ("sizeLimit", "size"):
                if size in source:
                    yield from _quantity_findings(f"{here}.{size}", source[size])


def _quantity_findings(place: str, text: str) -> Iterator[Finding]:
    try:
        quantity(text)
    except ValueError as e:
        yield Finding(place=place, reason=str(e), key="kubeflow.volumes")


def _environment_findings(
    place: str, config: Mapping[str, Any], variables: Sequence[Mapping[str, str]]
) -> Iterator[Finding]:
    seen = {variable.get("name", ""): "the container's env" for variable in variables}
    for field in ("secretAsEnv", "configMapAsEnv"):
        for index, source in enumerate(config.get(field, [])):
            for entry in source.get("keyToEnv", []):
                name, here = entry.get("envVar", ""), f"{place}.{field}[{index}]"
                if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                    yield Finding(place=here, reason=f"the variable {name!r} is not allowed", key=_KEYS[field])
                if name in seen:
                    yield Finding(
                        place=here, reason=f"{name} stands twice: it is in {seen[name]}, too", key=_KEYS[field]
                    )
                seen[name] = here
                key = entry.get("secretKey") or entry.get("configMapKey") or ""
                if key and not _DATA_KEY.fullmatch(key):
                    yield Finding(
                        place=here,
                        reason=f"{shown(name)}: the key {shown(key)} is not allowed; give letters, digits, '-', '_',"
                        " '.', 253 at most",
                        key=_KEYS[field],
                    )
                if not key:
                    yield Finding(place=here, reason=f"{name}: no key is given", key=_KEYS[field])


def _pod_findings(place: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    policy = config.get("imagePullPolicy", "")
    if policy and policy not in _POLICIES:  # v2/driver/k8s.go
        yield Finding(
            place=f"{place}.imagePullPolicy",
            reason=f"{policy!r} is not allowed; give {', '.join(_POLICIES)}",
            key="kubeflow.image_pull_policy",
        )
    if int(config.get("activeDeadlineSeconds", 1)) < 1:
        yield Finding(place=f"{place}.activeDeadlineSeconds", reason="give 1 or more", key="kubeflow.deadline_s")
    for field in _NEVER_READ:
        if field in config:
            yield Finding(place=f"{place}.{field}", reason="is in Kubeflow's schema, and never read by it")
    metadata = config.get("podMetadata", {})
    labels = {
        "podMetadata.labels": metadata.get("labels", {}),
        "nodeSelector": config.get("nodeSelector", {}).get("labels", {}),
    }
    for field, pairs in labels.items():
        for name, value in pairs.items():
            if not QUALIFIED_NAME.fullmatch(name) or not LABEL_VALUE.fullmatch(value):
                yield Finding(
                    place=f"{place}.{field}.{name}",
                    reason=f"{name!r}: {value!r} is no label; a value has letters, digits, '-', '_', '.', 63 at most",
                    key=_KEYS.get(field, "kubeflow.labels"),
                )
    annotations = metadata.get("annotations", {})
    size = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if size > _MAX_ANNOTATIONS_BYTES or not all(QUALIFIED_NAME.fullmatch(name) for name in annotations):
        yield Finding(
            place=f"{place}.podMetadata.annotations",
            reason=f"{size} bytes, keys {', '.join(annotations)}: Kubernetes takes {_MAX_ANNOTATIONS_BYTES} bytes, and"
            " keys such as example.com/name",
            key="kubeflow.annotations",
        )
    yield from _scheduling_findings(place, config)


def _scheduling_findings(place: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    for index, toleration in enumerate(config.get("tolerations", [])):
        if "tolerationJson" in toleration:
            continue
        operator, here = toleration.get("operator", "Equal"), f"{place}.tolerations[{index}]"
        if operator not in ("Exists", "Equal") or toleration.get("effect", "") not in _EFFECTS:
            yield Finding(
                place=here,
                reason=f"operator {operator!r}, effect {toleration.get('effect')!r}: give Exists or Equal, and"
                " NoSchedule, PreferNoSchedule, NoExecute or none",
                key="kubeflow.tolerations",
            )
        elif (operator == "Exists" and toleration.get("value")) or (operator == "Equal" and not toleration.get("key")):
            yield Finding(place=here, reason="Exists takes no value, and Equal needs a key", key="kubeflow.tolerations")
    for index, term in enumerate(config.get("nodeAffinity", [])):
        here = f"{place}.nodeAffinity[{index}]"
        if "weight" in term and not 1 <= term["weight"] <= 100:
            yield Finding(place=here, reason=f"weight {term['weight']}: give 1 to 100", key="kubeflow.node_affinity")
        requirements = [*term.get("matchExpressions", []), *term.get("matchFields", [])]
        if not requirements and "nodeAffinityJson" not in term:
            yield Finding(place=here, reason="is empty: Kubeflow skips it", key="kubeflow.node_affinity")
        for requirement in requirements:
            operator, values = requirement.get("operator", ""), requirement.get("values", [])
            needs = operator not in ("Exists", "DoesNotExist")
            if operator not in _OPERATORS or bool(values) != needs:
                yield Finding(
                    place=here,
                    reason=f"operator {operator!r} with values {values}: give {', '.join(_OPERATORS)}, and values"
                    " for all but Exists and DoesNotExist",
                    key="kubeflow.node_affinity",
                )
