"""Packages are written the same each time, read back equal, and other files are told apart."""

import errno
import os
import pathlib
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.components import durable_files
from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.package import MAX_BYTES, Package

_SPEC: dict[str, Any] = {
    "schemaVersion": "2.1.0",
    "pipelineInfo": {"name": "taxi"},
    "root": {"dag": {"tasks": {}}},
    "components": {},
    "deploymentSpec": {"executors": {}},
}
_PLATFORM = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {}}}}}
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)  # PyYAML takes its time, the more beside other work
@example({"a\x85b": "c\u2028d\re\nf"}, True)
@given(st.dictionaries(st.text(min_size=1), _VALUES), st.booleans())
def test_what_is_written_is_read_back(components: dict[str, Any], with_platform: bool) -> None:
    """Any package comes back equal, whatever its texts look like, and is written the same again."""
    package = Package(spec={**_SPEC, "components": components}, platform=_PLATFORM if with_platform else None)
    text = package.to_yaml()
    again = Package.from_yaml(text)
    assert again == package
    assert again.to_yaml() == text


@pytest.mark.parametrize(
    "text", ["1e3", "0o14", "1_000", "no", "~", "null", "2026-01-01", "1:30", "0x1f", ".5", "y", "+1"]
)
def test_text_that_looks_like_something_else_is_quoted(text: str) -> None:
    """YAML 1.1 and 1.2 differ in what is a number; text in quotes is text in both."""
    written = Package(spec={**_SPEC, "components": {text: text}}).to_yaml()
    assert f"'{text}': '{text}'" in written


def test_text_is_wide_and_mappings_are_sorted() -> None:
    """The bytes depend neither on the order of keys nor on the width of lines."""
    spec = {**_SPEC, "components": {"b": "x " * 500, "a": "y"}}
    turned = dict(reversed(list(spec.items())))
    assert Package(spec=spec).to_yaml() == Package(spec=turned).to_yaml()
    assert "x " * 499 in Package(spec=spec).to_yaml()


def test_a_file_appears_whole(tmp_path: pathlib.Path) -> None:
    """A package replaces the one before, follows a link, and leaves nothing else behind."""
    target = tmp_path / "real.yaml"
    target.write_text("old")
    link = tmp_path / "link.yaml"
    link.symlink_to(target)
    package = Package(spec=_SPEC, platform=_PLATFORM)
    package.write(link)
    assert link.is_symlink()
    assert Package.read(target) == package
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("a: [1, 2", "not valid YAML"),
        ("a: 1\na: 2", "stands twice"),
        ("just text", "holds no mapping"),
        (yaml.safe_dump({"pipelineSpec": _SPEC}), "PipelineJob"),
        (yaml.safe_dump({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}), "Argo workflow"),
        ("name: taxi\ndata: {path: x}\nlabel: {column: y}\n", "compile it first"),
        (yaml.safe_dump({**_SPEC, "schemaVersion": "2.0.0"}), "schemaVersion: '2.0.0'"),
        (yaml.safe_dump({key: value for key, value in _SPEC.items() if key != "root"}), "root: is absent"),
        (yaml.safe_dump({**_SPEC, "pipelineInfo": {}}), r"pipelineInfo\.name"),
        (yaml.safe_dump_all([_SPEC, _SPEC]), "2 pipelines"),
        (yaml.safe_dump(_PLATFORM), "0 pipelines"),
        (yaml.safe_dump_all([_SPEC, {"a": 1}]), "has no 'pipelineInfo:'"),
        (yaml.safe_dump_all([_SPEC, {"platforms": 1}]), "no 'platforms:'"),
    ],
)
def test_another_file_is_told_apart(text: str, problem: str) -> None:
    """The message says what the file is, and that lockstep compile writes packages."""
    with pytest.raises(ConfigurationError, match=problem):
        Package.from_yaml(text, "file.yaml")


def test_files_that_kubeflow_would_not_read_are_refused(tmp_path: pathlib.Path) -> None:
    """Absent, too large, or no text: a message that names the file."""
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: No such file"):
        Package.read(tmp_path / "absent.yaml")
    (tmp_path / "large.yaml").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(ConfigurationError, match=r"larger than 33554432 bytes"):
        Package.read(tmp_path / "large.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(ConfigurationError, match="is no text"):
        Package.read(tmp_path / "binary.yaml")


def test_a_file_that_cannot_be_written_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk's error has no name of its own."""

    def fail(path: pathlib.Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable_files, "sync", fail)
    with pytest.raises(OSError, match="No space left") as raised:
        Package(spec=_SPEC).write(tmp_path / "x.yaml")
    assert raised.value.filename == str(tmp_path / "x.yaml")
    assert list(tmp_path.iterdir()) == []
