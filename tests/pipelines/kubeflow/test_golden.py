"""Whole packages, compared with what they were; if a change is wanted: make golden."""

import dataclasses
import difflib
import functools
import pathlib
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from lockstep.pipelines.kubeflow import options
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.validation import validate
from tests.pipelines.kubeflow import golden


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pathlib.Path]:
    """Compiles by the command line, from another folder, once for each pipeline and seed of hashes."""

    @functools.cache
    def compile_once(name: str, hash_seed: str = "1") -> pathlib.Path:
        path = tmp_path_factory.mktemp(f"{name}-{hash_seed}") / "package.yaml"
        done = golden.compile_to(path, golden.SOURCES[name], PYTHONHASHSEED=hash_seed)
        assert done.returncode == 0, done.stderr
        return path

    return compile_once


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.SOURCES)
def test_packages_are_as_they_were(name: str, compiled: Callable[..., pathlib.Path]) -> None:
    """Compiled by the command line, from another folder, the package is the golden one on both lines."""
    text = golden.normalised(Package.read(compiled(name))).to_yaml()
    expected = (golden.GOLDEN_DIR / f"{name}.yaml").read_text(encoding="utf-8")
    assert text == expected, "\n".join(
        list(difflib.unified_diff(expected.splitlines(), text.splitlines(), "golden", "compiled", lineterm=""))[:60]
    )


@pytest.mark.slow
def test_the_same_pipeline_gives_the_same_bytes(compiled: Callable[..., pathlib.Path]) -> None:
    """Neither the order of hashes nor the working folder is in a package."""
    written = [compiled("taxi", seed) for seed in ("1", "2")]
    assert written[0].parent != written[1].parent
    assert written[0].read_bytes() == written[1].read_bytes()


@pytest.mark.parametrize("name", golden.SOURCES)
def test_golden_packages_are_valid(name: str) -> None:
    """The validator finds nothing in what lockstep compile writes."""
    assert validate(Package.read(golden.GOLDEN_DIR / f"{name}.yaml")) == []


def test_the_golden_package_uses_every_key() -> None:
    """A key of the kubeflow block that is new has to be in the golden package, too."""
    given = yaml.safe_load(pathlib.Path(golden.SOURCES["every_key"]).read_text(encoding="utf-8"))["kubeflow"]
    assert set(_keys(options.KubeflowOptions)) - set(_given(given, options.KubeflowOptions)) == set()


def _keys(cls: Any) -> Iterator[tuple[str, str]]:
    """Yields class and field of every key."""
    for name, kind in typing.get_type_hints(cls).items():
        yield cls.__name__, name
        for inner in (kind, *typing.get_args(kind)):
            if dataclasses.is_dataclass(inner):
                yield from _keys(inner)


def _given(value: Any, cls: Any) -> Iterator[tuple[str, str]]:
    """Yields class and field of every key that a document gives."""
    for name, item in value.items():
        yield cls.__name__, name
        kind = typing.get_type_hints(cls)[name]
        for inner in (kind, *typing.get_args(kind)):
            if dataclasses.is_dataclass(inner):
                # A mapping of names of the user's to blocks has the block as an argument of its type.
                blocks = item if isinstance(item, list) else item.values() if kind is not inner else [item]
                if inner | None == kind:
                    blocks = [item]
                for block in blocks:
                    yield from _given(block, inner)
