"""What kfp's own messages and loader say of packages; skipped where ``make verify-kfp`` has not run."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.pipelines.kubeflow import schema
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.validation import validate
from tests.kfp_releases import verify
from tests.pipelines.kubeflow import golden

pytestmark = pytest.mark.slow
# Taken by no parser, for the reason that the case of the validator's tests names.
_BROKEN: dict[str, Any] = {
    "unknown field of a task": ("root", "dag", "tasks", "Transform", "retries", 3),
    "number for text": ("pipelineInfo", "name", 3),
    "text for a mapping": ("root", "dag", "tasks", "x"),
    "duration without a unit": ("root", "dag", "tasks", "Transform", "retryPolicy", "backoffDuration", "30"),
    "unknown field of a container": ("deploymentSpec", "executors", "exec-Transform", "container", "arguments", []),
    "no such type": ("root", "inputDefinitions", "parameters", "train_steps", "parameterType", "INTEGER"),
}


@pytest.fixture(params=verify.RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """A release that is installed."""
    if not (verify.environment(request.param) / "complete").exists():
        pytest.skip(f"kfp {request.param} is not installed: make verify-kfp")
    return str(request.param)


def test_golden_packages_are_taken(release: str) -> None:
    """The newest releases parse and load what lockstep compile writes."""
    paths = sorted(golden.GOLDEN_DIR.glob("*.yaml"))
    assert len(paths) == 2
    assert set(verify.ask(release, paths)["refused"].values()) == {""}


def test_broken_packages_are_refused_by_both(release: str, tmp_path: pathlib.Path) -> None:
    """What kfp's messages refuse, our validator does."""
    package = Package.read(golden.GOLDEN_DIR / "taxi.yaml")
    paths = []
    for number, (*place, key, value) in enumerate(_BROKEN.values()):
        spec = json.loads(json.dumps(package.spec))
        target = spec
        for part in place:
            target = target[part]
        target[key] = value
        broken = Package(spec=spec, platform=package.platform)
        assert validate(broken) != []
        paths.append(tmp_path / f"{number}.yaml")
        broken.write(paths[-1])
    answers = verify.ask(release, paths)["refused"]
    assert all(answers.values()), dict(zip(_BROKEN, answers.values(), strict=True))


def test_the_validators_tables_are_the_messages(release: str) -> None:
    """Every field that the tables name is one of kfp's newest, and every one of kfp's is in the tables."""
    theirs = verify.ask(release, [])["fields"]
    for name in ("PIPELINE_SPEC", "DEPLOYMENT", "EXECUTOR_CONFIG"):
        ours = set(_places(getattr(schema, name)))
        if release == verify.RELEASES[-1]:
            assert ours - {"@type"} <= set(theirs[name])
        shallow = {place for place in theirs[name] if not _is_free(getattr(schema, name), place)}
        assert shallow - ours == set()


def _places(kind: Any, path: str = "") -> Iterator[str]:
    if isinstance(kind, tuple):
        yield from _places(kind[1], path)
    elif isinstance(kind, dict):
        for key, inner in kind.items():
            place = f"{path}.{key}" if path else key
            yield place
            yield from _places(inner, place)


def _is_free(kind: Any, place: str) -> bool:
    """Returns whether the tables leave open what is at a place: a mapping of any fields."""
    for part in place.split("."):
        while isinstance(kind, tuple):
            kind = kind[1]
        if not isinstance(kind, dict):
            return True
        if part not in kind:
            return False
        kind = kind[part]
    return False
