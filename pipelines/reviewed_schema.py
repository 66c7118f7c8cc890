"""A schema in the user's repository: read, inferred anew, compared, and frozen."""

import pathlib
import secrets
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines.run_files import RootFiles
from lockstep.pipelines.yaml_reader import parse_yaml

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

_HEADER = "# What each column is expected to be. `lockstep schema diff` compares it with the newest data.\n"


def parse(path: str) -> "schema_pb2.Schema":
    """Returns the schema in a file.

    Raises:
      ConfigurationError: There is no such file, or it holds no schema.
    """
    return _read(path)[1]


def read_schema(path: str) -> str:
    """Returns the text of a schema; raises as ``parse`` does."""
    return _read(path)[0]


def _read(path: str) -> "tuple[str, schema_pb2.Schema]":
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        problem = e.strerror if isinstance(e, OSError) else "not UTF-8"
        raise ConfigurationError(f"schema: {path}: {problem}; make one by lockstep schema freeze") from e
    try:
        schema = text_format.Parse(text, schema_pb2.Schema())
    except text_format.ParseError as e:
        raise ConfigurationError(f"schema: {path}: {e}; it holds a Schema of tensorflow-metadata as text") from e
    if not schema.feature:
        raise ConfigurationError(f"schema: {path}: names no column; make one by lockstep schema freeze")
    return text, schema


def infer(root: pathlib.Path) -> "schema_pb2.Schema":
    """Returns the schema that TFX infers from the training split of the newest run.

    Raises:
      ConfigurationError: There was no run that came as far as StatisticsGen.
    """
    import tensorflow_data_validation as tfdv

    found = sorted(
        (RootFiles(root).artifacts_dir / "StatisticsGen" / "statistics").glob("*/Split-train/FeatureStats.pb"),
        key=lambda path: int(path.parent.parent.name),
    )
    if not found:
        raise ConfigurationError(
            f"{root}: no statistics there; run the pipeline first (lockstep run), with the same --root"
        )
    return tfdv.infer_schema(tfdv.load_stats_binary(str(found[-1])), infer_feature_shape=False)


def to_text(schema: "schema_pb2.Schema") -> str:
    """Returns a schema as its file holds it."""
    from google.protobuf import text_format

    return _HEADER + text_format.MessageToString(schema)


def differences(reviewed: "schema_pb2.Schema", inferred: "schema_pb2.Schema") -> Iterator[str]:
    """Gives a line for each column that is expected otherwise than the data are."""
    from lockstep.components.example_validator.gate import domain_values, expectation

    expected = {feature.name: feature for feature in reviewed.feature}
    present = {feature.name: feature for feature in inferred.feature}
    for name in [*expected, *(name for name in present if name not in expected)]:
        if name not in present:
            yield f"- {name}: {expectation(expected[name], reviewed)}; the data have no such column"
            continue
        now = expectation(present[name], inferred)
        if name not in expected:
            yield f"+ {name}: {now}; the schema has no such column"
            continue
        old, new = domain_values(expected[name], reviewed), domain_values(present[name], inferred)
        if old is not None and new is not None:
            lost, added = sorted(set(old) - set(new)), sorted(set(new) - set(old))
            changes = [f"{sign}{value}" for sign, values in (("-", lost), ("+", added)) for value in values]
            if changes:
                yield f"~ {name}: values {', '.join(changes[:20])}{', ...' if len(changes) > 20 else ''}"
        before = expectation(expected[name], reviewed)
        if before != now and (old is None or new is None or set(old) == set(new)):
            yield f"~ {name}: {before}; the data: {now}"


def freeze(pipeline: pathlib.Path, schema: "schema_pb2.Schema") -> pathlib.Path:
    """Writes a schema beside a pipeline's YAML file, which is told of it; returns the schema's path.

    Raises:
      ConfigurationError: There is another schema already, or the YAML file cannot be added to.
    """
    path = pipeline.with_name(f"{pipeline.stem}.schema.pbtxt")
    text = to_text(schema)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise ConfigurationError(
            f"{path}: is there already, and was made of other data or changed by hand; see lockstep schema diff, and"
            " remove it to freeze the data as they are now"
        )
    document = pipeline.read_text(encoding="utf-8")
    if "schema" not in parse_yaml(document):
        told = f"{document.rstrip()}\nschema: {path.name}\n"
        try:
            is_kept = parse_yaml(told) == {**parse_yaml(document), "schema": path.name}
        except ValueError:
            is_kept = False
        if not is_kept:
            raise ConfigurationError(
                f"{pipeline}: nothing can be added to it; write schema: {path.name} there, and try again"
            )
        _replace(path, text)
        _replace(pipeline, told)
    else:
        _replace(path, text)
    return path


def _replace(path: pathlib.Path, text: str) -> None:
    """Writes a file whole or not at all, where a link leads to; it keeps its mode.

    Raises:
      StepFailed: It cannot be written; what was there is there still.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_text(text, encoding="utf-8")
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except OSError as e:
        raise StepFailed(f"{path}: {e.strerror}") from e
    finally:
        temporary.unlink(missing_ok=True)
