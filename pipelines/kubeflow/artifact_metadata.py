"""TFX's artifacts, and the JSON metadata in which Kubeflow Pipelines keeps what is known about them.

Its metadata know texts, numbers, lists and objects. Whether a number was an integer, a float or a truth value is told
beside them, so that a property arrives with the type that it was set with.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format, struct_pb2
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.types import artifact as artifact_lib
from tfx.types import artifact_utils, value_artifact
from tfx.utils import import_utils

from lockstep.pipelines.kubeflow.executor_input import RuntimeArtifact
from lockstep.pipelines.kubeflow.step_folders import EMPTY_FOLDERS_KEY

__all__ = ["TYPES_KEY", "apply_metadata", "artifact_of", "is_file", "metadata_of"]

TYPES_KEY = "lockstep_types"
"""JSON: name of the property -> ``int``, ``bool``, or ``float`` for a number that JSON does not have."""

_SINGLE_VALUE = "__value__"
_MAX_EXACT = 2**53  # a double, which is all that JSON and ML Metadata's numbers are here, holds every integer below
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def artifact_of(runtime: RuntimeArtifact) -> types.Artifact:
    """Returns TFX's artifact; its URI is the local path.

    The class is TFX's own where there is one, else the user's with that type name if its module is imported, else an
    anonymous one.
    """
    artifact = _artifact_class(runtime.type_title)()
    artifact.uri = runtime.local_path
    if runtime.name:
        artifact.id = _numeric_id(runtime.name)
    apply_metadata(artifact, runtime.metadata)
    return artifact


def is_file(artifact: types.Artifact) -> bool:
    """Returns whether the artifact is one file, not a folder."""
    return isinstance(artifact, value_artifact.ValueArtifact)


def apply_metadata(artifact: types.Artifact, metadata: Mapping[str, Any]) -> None:
    """Sets the properties that ``metadata_of`` wrote, or another program."""
    kinds = json.loads(metadata.get(TYPES_KEY, "null"))
    declared = artifact.artifact_type.properties
    record = artifact.mlmd_artifact
    for key, value in metadata.items():
        if key in (TYPES_KEY, EMPTY_FOLDERS_KEY) or value is None:
            continue
        property_value = _declared(declared[key], value) if key in declared else None
        if property_value is not None:
            record.properties[key].CopyFrom(property_value)
            continue
        name = key.removeprefix(artifact_lib.CUSTOM_PROPERTIES_PREFIX)
        custom_value = _custom(value, None if kinds is None else kinds.get(key, ""))
        record.custom_properties[name if name in declared else key].CopyFrom(custom_value)
    artifact.set_mlmd_artifact(record)


def metadata_of(artifact: types.Artifact) -> dict[str, Any]:
    """Returns properties and custom properties as JSON, none of them null.

    Raises:
      TypeError: A property is a protobuf message, which JSON cannot carry.
    """
    record = artifact.mlmd_artifact
    metadata: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    declared = artifact.artifact_type.properties
    for key, value in record.properties.items():
        _add(metadata, {}, key, value)
    for key, value in record.custom_properties.items():
        name = f"{artifact_lib.CUSTOM_PROPERTIES_PREFIX}{key}" if key in declared else key
        _add(metadata, kinds, name, value)
    metadata[TYPES_KEY] = json.dumps(kinds, sort_keys=True)
    return metadata


def _artifact_class(title: str) -> type[types.Artifact]:
    path = compiler_utils.TITLE_TO_CLASS_PATH.get(title)
    if path:
        return import_utils.import_class_by_path(path)  # type: ignore[no-any-return]
    by_name = {cls.TYPE_NAME: cls for cls in _subclasses(types.Artifact) if cls.TYPE_NAME}
    if title in by_name:
        return by_name[title]
    return artifact_utils.get_artifact_type_class(  # type: ignore[no-any-return]
        metadata_store_pb2.ArtifactType(name=title)
    )


def _subclasses(cls: type[types.Artifact]) -> list[type[types.Artifact]]:
    return [found for child in cls.__subclasses__() for found in (child, *_subclasses(child))]


def _numeric_id(name: str) -> int:
    """Returns a number for TFX, small enough that a double carries it to the next step."""
    if name.isascii() and name.isdigit() and int(name) < _MAX_EXACT:
        return int(name)
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % _MAX_EXACT


def _declared(kind: int, value: Any) -> metadata_store_pb2.Value | None:
    """Returns a property that the type declares; None for a value that does not fit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == metadata_store_pb2.INT and (number or _is_large(value)):
        return metadata_store_pb2.Value(int_value=int(value))
    if kind == metadata_store_pb2.DOUBLE and (number or value in _NO_NUMBERS):
        return metadata_store_pb2.Value(double_value=float(value))
    if kind == metadata_store_pb2.STRING and isinstance(value, str):
        return metadata_store_pb2.Value(string_value=value)
    if kind == metadata_store_pb2.STRUCT:
        return metadata_store_pb2.Value(struct_value=_struct(value))
    if kind == metadata_store_pb2.BOOLEAN and isinstance(value, int | float):
        return metadata_store_pb2.Value(bool_value=bool(value))
    return None


def _custom(value: Any, kind: str | None) -> metadata_store_pb2.Value:
    """Returns a custom property.

    Args:
      value: As JSON.
      kind: ``int``, ``bool`` or ``float`` as it was set; empty for one that needs no word; None where another program
        wrote the metadata: then a number is JSON's, which TFX's getters give as any kind that they are asked for.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "int":
        return metadata_store_pb2.Value(int_value=int(value))
    if kind == "bool":
        return metadata_store_pb2.Value(bool_value=bool(value))
    if kind == "float" or (kind == "" and number):
        return metadata_store_pb2.Value(double_value=float(value))
    if isinstance(value, str):
        return metadata_store_pb2.Value(string_value=value)
    return metadata_store_pb2.Value(struct_value=_struct(value))


def _is_large(value: Any) -> bool:
    return isinstance(value, str) and value.removeprefix("-").isdecimal()


def _struct(value: Any) -> struct_pb2.Struct:
    """Returns JSON as TFX keeps it in a structure."""
    return json_format.ParseDict(value if isinstance(value, dict) else {_SINGLE_VALUE: value}, struct_pb2.Struct())


def _add(metadata: dict[str, Any], kinds: dict[str, str], key: str, value: metadata_store_pb2.Value) -> None:
    kind = value.WhichOneof("value")
    if kind is None:
        return
    if kind == "struct_value":
        struct = json_format.MessageToDict(value.struct_value)
        content = struct[_SINGLE_VALUE] if set(struct) == {_SINGLE_VALUE} else struct
        if content is not None:
            metadata[key] = content
        return
    if kind == "proto_value":
        raise TypeError(f"property {key} is a protobuf message ({value.proto_value.type_url}), which is not supported")
    plain = getattr(value, kind)
    if kind == "int_value":
        kinds[key] = "int"
        plain = plain if abs(plain) < _MAX_EXACT else str(plain)
    elif kind == "bool_value":
        kinds[key] = "bool"
        plain = int(plain)
    elif kind == "double_value" and not math.isfinite(plain):
        kinds[key] = "float"
        plain = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(plain, "NaN")
    metadata[key] = plain
