"""The fields of a package's documents, as Kubeflow Pipelines' protobuf messages have them in their JSON form.

Kubeflow's server parses strictly: a field that it does not know, or a value of another type, makes it take the whole
file for something else ("unknown template format"). Own tables and not kfp's messages, whose releases differ: fields of
any release up to 2.17 are known here, spelled as kfp writes them.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from lockstep.pipelines.kubeflow.findings import Finding, shown

__all__ = ["DEPLOYMENT", "EXECUTOR_CONFIG", "PIPELINE_SPEC", "PLATFORM_SPEC", "structure_findings"]

# What a place holds: the name of a kind below, a message (mapping of its fields), or a list or a map of such.
Kind: TypeAlias = "str | Mapping[str, Any] | tuple[str, Any]"


def _is_number(value: Any) -> bool:
    """Returns whether a double can hold it: NaN and what is beyond are no numbers in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any, bits: int) -> bool:
    return _is_number(value) and value == value // 1 and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[0-9]{1,19}", value) is not None and int(value) < 2**63
    return _is_whole(value, 64)


_DURATION = re.compile(r"-?\d+(\.\d{1,9})?s")
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "string": (lambda value: isinstance(value, str), "text; in quotes where YAML takes it for something else"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (lambda value: _is_whole(value, 32), "a whole number below 2**31"),
    "long": (_is_long, "a whole number below 2**63"),
    "number": (_is_number, "a number"),
    "duration": (lambda value: isinstance(value, str) and _DURATION.fullmatch(value) is not None, "seconds, as '30s'"),
    "struct": (lambda value: isinstance(value, dict), "a mapping"),
    "value": (lambda value: True, ""),
}


def _list(kind: Kind) -> Kind:
    return ("list", kind)


def _map(kind: Kind) -> Kind:
    return ("map", kind)


# api/v2alpha1/pipeline_spec.proto
_VALUE_OR_PARAMETER = {"constant": "value", "runtimeParameter": "string", "constantValue": "struct"}
_ARTIFACT_TYPE = {"schemaTitle": "string", "instanceSchema": "string", "schemaUri": "string", "schemaVersion": "string"}
_INPUT_PARAMETER = {
    "taskOutputParameter": {"producerTask": "string", "outputParameterKey": "string"},
    "runtimeValue": _VALUE_OR_PARAMETER,
    "componentInputParameter": "string",
    "taskFinalStatus": {"producerTask": "string"},
    "parameterExpressionSelector": "string",
}
_TASK = {
    "taskInfo": {"name": "string"},
    "inputs": {
        "parameters": _map(_INPUT_PARAMETER),
        "artifacts": _map(
            {
                "taskOutputArtifact": {"producerTask": "string", "outputArtifactKey": "string"},
                "componentInputArtifact": "string",
            }
        ),
    },
    "dependentTasks": _list("string"),
    "cachingOptions": {"enableCache": "bool", "cacheKey": "string"},
    "componentRef": {"name": "string"},
    "triggerPolicy": {"condition": "string", "strategy": "string"},
    "artifactIterator": "struct",
    "parameterIterator": {"items": {"raw": "string", "inputParameter": "string"}, "itemInput": "string"},
    "retryPolicy": {
        "maxRetryCount": "int",
        "backoffDuration": "duration",
        "backoffFactor": "number",
        "backoffMaxDuration": "duration",
    },
    "iteratorPolicy": {"parallelismLimit": "int"},
}
_DAG = {
    "tasks": _map(_TASK),
    "outputs": {
        "artifacts": _map({"artifactSelectors": _list({"producerSubtask": "string", "outputArtifactKey": "string"})}),
        "parameters": _map(
            {
                "valueFromParameter": {"producerSubtask": "string", "outputParameterKey": "string"},
                "valueFromOneof": {
                    "parameterSelectors": _list({"producerSubtask": "string", "outputParameterKey": "string"})
                },
            }
        ),
    },
}
_COMPONENT = {
    "inputDefinitions": {
        "artifacts": _map(
            {"artifactType": _ARTIFACT_TYPE, "isArtifactList": "bool", "isOptional": "bool", "description": "string"}
        ),
        "parameters": _map(
            {
                "parameterType": "string",
                "type": "string",
                "defaultValue": "value",
                "isOptional": "bool",
                "description": "string",
                "literals": _list("value"),
            }
        ),
    },
    "outputDefinitions": {
        "artifacts": _map(
            {
                "artifactType": _ARTIFACT_TYPE,
                "properties": _map(_VALUE_OR_PARAMETER),
                "customProperties": _map(_VALUE_OR_PARAMETER),
                "metadata": "struct",
                "isArtifactList": "bool",
                "description": "string",
            }
        ),
        "parameters": _map({"parameterType": "string", "type": "string", "description": "string"}),
    },
    "dag": _DAG,
    "executorLabel": "string",
    "singlePlatformSpecs": _list("struct"),
    "taskConfigPassthroughs": _list("struct"),
}
PIPELINE_SPEC: Kind = {
    "pipelineInfo": {"name": "string", "displayName": "string", "description": "string"},
    "deploymentSpec": "struct",
    "sdkVersion": "string",
    "schemaVersion": "string",
    "components": _map(_COMPONENT),
    "root": _COMPONENT,
    "defaultPipelineRoot": "string",
}
_HOOK = {"command": _list("string"), "args": _list("string")}
_CONTAINER = {
    "image": "string",
    "command": _list("string"),
    "args": _list("string"),
    "lifecycle": {"preCacheCheck": _HOOK},
    "resources": {
        **dict.fromkeys(("cpuLimit", "memoryLimit", "cpuRequest", "memoryRequest"), "number"),
        **dict.fromkeys(
            ("resourceCpuLimit", "resourceMemoryLimit", "resourceCpuRequest", "resourceMemoryRequest"), "string"
        ),
        "accelerator": {"type": "string", "count": "long", "resourceType": "string", "resourceCount": "string"},
    },
    "env": _list({"name": "string", "value": "string"}),
}
# Kubeflow itself takes unknown fields here; one that is misspelled would be lost.
DEPLOYMENT: Kind = {
    "@type": "string",
    "executors": _map(
        {
            "container": _CONTAINER,
            "importer": {
                "artifactUri": _VALUE_OR_PARAMETER,
                "typeSchema": _ARTIFACT_TYPE,
                "properties": _map(_VALUE_OR_PARAMETER),
                "customProperties": _map(_VALUE_OR_PARAMETER),
                "metadata": "struct",
                "reimport": "bool",
                "downloadToWorkspace": "bool",
            },
            "resolver": "struct",
            "customJob": "struct",
        }
    ),
}
PLATFORM_SPEC: Kind = {
    "platforms": _map(
        {
            "deploymentSpec": {"executors": _map("struct")},
            "platform": "string",
            "version": "string",
            "config": "struct",
            "pipelineConfig": "struct",
        }
    )
}

# kubernetes_platform/proto/kubernetes_executor_config.proto
_SELECTOR = {"key": "string", "operator": "string", "values": _list("string")}
_METADATA = {"labels": _map("string"), "annotations": _map("string")}


def _source(name: str) -> dict[str, Kind]:
    return {f"{name}Name": "string", f"{name}NameParameter": _INPUT_PARAMETER, "optional": "bool"}


EXECUTOR_CONFIG: Kind = {
    "secretAsVolume": _list({**_source("secret"), "mountPath": "string"}),
    "secretAsEnv": _list({**_source("secret"), "keyToEnv": _list({"secretKey": "string", "envVar": "string"})}),
    "configMapAsVolume": _list({**_source("configMap"), "mountPath": "string"}),
    "configMapAsEnv": _list(
        {**_source("configMap"), "keyToEnv": _list({"configMapKey": "string", "envVar": "string"})}
    ),
    "pvcMount": _list(
        {
            "constant": "string",
            "taskOutputParameter": {"producerTask": "string", "outputParameterKey": "string"},
            "componentInputParameter": "string",
            "pvcNameParameter": _INPUT_PARAMETER,
            "mountPath": "string",
            "subPath": "string",
        }
    ),
    "nodeSelector": {"labels": _map("string"), "nodeSelectorJson": _INPUT_PARAMETER},
    "podMetadata": _METADATA,
    "imagePullSecret": _list({"secretName": "string", "secretNameParameter": _INPUT_PARAMETER}),
    "imagePullPolicy": "string",
    "activeDeadlineSeconds": "long",
    "fieldPathAsEnv": _list({"name": "string", "fieldPath": "string"}),
    "tolerations": _list(
        {
            **dict.fromkeys(("key", "operator", "value", "effect"), "string"),
            "tolerationSeconds": "long",
            "tolerationJson": _INPUT_PARAMETER,
        }
    ),
    "genericEphemeralVolume": _list(
        {
            **dict.fromkeys(("volumeName", "mountPath", "size", "storageClassName"), "string"),
            "accessModes": _list("string"),
            "defaultStorageClass": "bool",
            "metadata": _METADATA,
        }
    ),
    "nodeAffinity": _list(
        {
            "matchExpressions": _list(_SELECTOR),
            "matchFields": _list(_SELECTOR),
            "weight": "int",
            "nodeAffinityJson": _INPUT_PARAMETER,
        }
    ),
    "podAffinity": _list("struct"),
    "enabledSharedMemory": "struct",
    "emptyDirMounts": _list(dict.fromkeys(("volumeName", "mountPath", "medium", "sizeLimit"), "string")),
    "securityContext": {"runAsUser": "long", "runAsGroup": "long", "runAsNonRoot": "bool"},
}


def structure_findings(value: Any, kind: Kind, place: str) -> Iterator[Finding]:
    """Yields what Kubeflow's parser would not take.

    Args:
      value: A part of a document.
      kind: What has to stand there.
      place: Where it stands.
    """
    if isinstance(kind, str):
        matches, wanted = _KINDS[kind]
        if not matches(value):
            yield Finding(place=place, reason=f"{shown(value)} is not allowed; Kubeflow takes {wanted}")
    elif isinstance(kind, tuple):
        collection, inner = kind
        if collection == "list" and isinstance(value, list):
            for index, item in enumerate(value):
                yield from structure_findings(item, inner, f"{place}[{index}]")
        elif collection == "map" and isinstance(value, dict):
            for key, item in value.items():
                yield from structure_findings(item, inner, f"{place}.{key}")
        else:
            yield Finding(place=place, reason=f"{shown(value)} is not allowed; Kubeflow takes a {collection}")
    elif not isinstance(value, dict):
        yield Finding(place=place, reason=f"{shown(value)} is not allowed; Kubeflow takes a mapping")
    else:
        for key, item in value.items():
            if key in kind:
                yield from structure_findings(item, kind[key], f"{place}.{key}")
            else:
                yield Finding(place=f"{place}.{key}", reason=f"no such field; Kubeflow knows {', '.join(sorted(kind))}")
