"""A compiled pipeline as Kubeflow Pipelines takes it: one YAML file of one or two documents."""

import dataclasses
import io
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import yaml

from lockstep.components import durable_files
from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.yaml_reader import parse_documents

SCHEMA_VERSION = "2.1.0"
# What Kubeflow's server reads of a file: backend/src/apiserver/common/const.go, MaxFileLength.
MAX_BYTES = 32 << 20
# A word that no YAML, 1.1 or 1.2, takes for anything but text.
_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[A-Za-z][\w./-]*", re.IGNORECASE)

# Within single quotes each of these would be folded into a blank.
_LINE_BREAK = re.compile("[\n\r\x85\u2028\u2029]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """The documents of a package.

    Args:
      spec: Kubeflow's PipelineSpec, schema 2.1.0, as its JSON form.
      platform: Kubeflow's PlatformSpec, ``{"platforms": {"kubernetes": ...}}``; None where the pipeline asks nothing of
        Kubernetes.
    """

    spec: Mapping[str, Any]
    platform: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The pipeline's name in Kubeflow."""
        return str(self.spec["pipelineInfo"]["name"])

    def to_yaml(self) -> str:
        """Returns the file's text, equal for equal packages: keys sorted, what could be no text in quotes."""
        stream = io.StringIO()
        documents = [self.spec] if self.platform is None else [self.spec, self.platform]
        yaml.dump_all(
            documents, stream, Dumper=_Dumper, sort_keys=True, allow_unicode=True, default_flow_style=False, width=2**31
        )
        return stream.getvalue()

    def write(self, path: pathlib.Path) -> None:
        """Writes the file, whole or not at all.

        Raises:
          OSError: It cannot be written; the error names it.
        """
        try:
            self._write(path.resolve())
        except OSError as e:
            raise OSError(e.errno, e.strerror, str(path)) from e

    def _write(self, path: pathlib.Path) -> None:
        if path.exists() and not path.is_file():  # A pipe or a device.
            path.write_text(self.to_yaml(), encoding="utf-8")
            return
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            partial.write_text(self.to_yaml(), encoding="utf-8")
            durable_files.sync(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def from_yaml(cls, text: str, source: str = "package") -> "Package":
        """Returns the package of a file's text.

        Args:
          text: One or two YAML documents.
          source: What errors call it.

        Raises:
          ConfigurationError: It holds no package; the message says what it is instead.
        """
        try:
            documents = [document for document in parse_documents(text) if document is not None]
        except ValueError as e:
            raise ConfigurationError(f"{source}: {e}; is the file cut off, or another one?") from e
        if not documents:
            raise ConfigurationError(f"{source}: is empty; write it anew by lockstep compile")
        specs: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for document in documents:
            (specs if _is_spec(document, source) else others).append(document)
        if len(specs) != 1 or len(others) > 1:
            raise ConfigurationError(
                f"{source}: holds {len(specs)} pipelines and {len(others)} other documents; a package holds one"
                " pipeline, and at most one document for the platform"
            )
        if others and not isinstance(others[0].get("platforms"), dict):
            raise ConfigurationError(f"{source}: its second document is not for a platform; it has no 'platforms:'")
        return cls(spec=specs[0], platform=others[0] if others else None)

    @classmethod
    def read(cls, path: pathlib.Path) -> "Package":
        """Returns the package in a file.

        Raises:
          ConfigurationError: There is no such file, or it holds no package; the message says what it is instead.
        """
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError as e:
            raise ConfigurationError(
                f"{path}: {e.strerror}; make a package by lockstep compile PIPELINE -o FILE"
            ) from e
        if len(data) > MAX_BYTES:
            raise ConfigurationError(f"{path}: is larger than {MAX_BYTES} bytes, which Kubeflow takes at most")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as e:
            raise ConfigurationError(f"{path}: is no text ({e}); a package is YAML, written by lockstep compile") from e
        return cls.from_yaml(text, str(path))


def _is_spec(document: Any, source: str) -> bool:
    """Returns whether a document is the PipelineSpec; raises where it is a well-known other thing."""
    if not isinstance(document, dict):
        raise ConfigurationError(f"{source}: holds no mapping; a package is written by lockstep compile")
    if "pipelineSpec" in document:
        raise ConfigurationError(
            f"{source}: is a PipelineJob, which open-source Kubeflow refuses; it takes the bare pipeline: write it by"
            " lockstep compile"
        )
    if str(document.get("apiVersion", "")).startswith("argoproj.io/"):
        raise ConfigurationError(f"{source}: is an Argo workflow (Kubeflow Pipelines 1); write it by lockstep compile")
    if "data" in document and "label" in document:
        raise ConfigurationError(
            f"{source}: is a pipeline's configuration; compile it first: lockstep compile {source}"
        )
    if "pipelineInfo" not in document and "root" not in document:
        if "platforms" in document:
            return False
        raise ConfigurationError(
            f"{source}: is no package: it has no 'pipelineInfo:'; is the file cut off? Write it by lockstep compile"
        )
    version = document.get("schemaVersion")
    if version != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{source}: schemaVersion: {version!r}; Kubeflow Pipelines 2 takes {SCHEMA_VERSION!r} alone"
        )
    for key in ("pipelineInfo", "root", "components", "deploymentSpec"):
        if not isinstance(document.get(key), dict):
            raise ConfigurationError(f"{source}: {key}: is absent or no mapping; is the file cut off?")
    if not isinstance(document["pipelineInfo"].get("name"), str):
        raise ConfigurationError(f"{source}: pipelineInfo.name: is absent or no text")
    return True


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Writes equal parts out, so that each can be edited alone."""
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # Kubeflow reads YAML 1.2, PyYAML writes 1.1: text such as 1e3 or 0o14 would come out as a number there.
    style = None if _PLAIN.fullmatch(value) else '"' if _LINE_BREAK.search(value) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_text)
