"""Parses packages by the messages and the loader of a kfp release. Runs in its environment, without Lockstep.

Kubeflow's server parses the same messages, and as strictly: no unknown field, no value of another type.
"""

import json
import pathlib
import sys
from typing import Any

import kfp
import yaml
from google.protobuf import descriptor, json_format
from kfp import components
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

_ROOTS = {
    "PIPELINE_SPEC": pipeline_spec_pb2.PipelineSpec,
    "DEPLOYMENT": pipeline_spec_pb2.PipelineDeploymentConfig,
    "EXECUTOR_CONFIG": kubernetes_executor_config_pb2.KubernetesExecutorConfig,
}


def parse(path: pathlib.Path) -> str:
    """Returns why the release refuses a package; empty where it takes it."""
    text = path.read_text(encoding="utf-8")
    try:
        spec, *others = [document for document in yaml.safe_load_all(text) if document is not None]
        json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        json_format.ParseDict(spec["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())
        for other in others:
            json_format.ParseDict(other, pipeline_spec_pb2.PlatformSpec())
            for config in other["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values():
                json_format.ParseDict(config, kubernetes_executor_config_pb2.KubernetesExecutorConfig())
        components.load_component_from_text(text)
    except Exception as e:  # noqa: BLE001 - whatever kfp raises is its answer
        return f"{type(e).__name__}: {e}"
    return ""


def fields(message: descriptor.Descriptor, path: str = "", depth: int = 9) -> list[str]:
    """Returns the places of all fields of a message, as JSON spells them, to a depth that holds no circle."""
    if message.full_name.startswith("google.protobuf.") or depth == 0:
        return []
    places = []
    for field in message.fields:
        inner = field.message_type
        place = f"{path}.{field.json_name}" if path else field.json_name
        places.append(place)
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_name["value"].message_type
        if inner is not None:
            places += fields(inner, place, depth - 1)
    return places


def main(paths: list[str]) -> None:
    """Prints one JSON document: the release, what it says of each package, and its fields."""
    answer: dict[str, Any] = {
        "release": kfp.__version__,
        "refused": {path: parse(pathlib.Path(path)) for path in paths},
        "fields": {name: fields(message.DESCRIPTOR) for name, message in _ROOTS.items()},
    }
    sys.stdout.write(f"{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
