"""The runner over TFX's launcher, with a component that takes no time."""

import pathlib
from typing import Any, ClassVar

import pytest
from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.types import component_spec, standard_artifacts

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.pipelines import local


class CountingExecutor(base_executor.BaseExecutor):
    """Writes how often it has run; fails on demand."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:  # noqa: N802 - TFX's name
        """Runs."""
        counter = pathlib.Path(exec_properties["counter"])
        count = int(counter.read_text()) + 1
        counter.write_text(str(count))
        (pathlib.Path(output_dict["schema"][0].uri) / "schema.pbtxt").write_text("")
        if (counter.parent / "fail").exists():
            raise ArithmeticError("as told")


class CountingSpec(types.ComponentSpec):
    """One output, one parameter."""

    PARAMETERS: ClassVar = {"counter": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar = {}
    OUTPUTS: ClassVar = {"schema": component_spec.ChannelParameter(type=standard_artifacts.Schema)}


class Counting(base_component.BaseComponent):
    """The component."""

    SPEC_CLASS = CountingSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(CountingExecutor)

    def __init__(self, counter: pathlib.Path) -> None:
        super().__init__(CountingSpec(counter=str(counter), schema=types.Channel(type=standard_artifacts.Schema)))


class Runs:
    """Runs a pipeline of one component again and again on one SQLite file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "counter").write_text("0")
        self.config = metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite"))

    @property
    def count(self) -> int:
        """How often the executor ran."""
        return int((self.folder / "counter").read_text())

    def run(self, *fingerprints: str, force: tuple[str, ...] = (), pipeline: str = "p") -> local.StepFinished:
        """Runs once; the fingerprint is asked before and after the step."""
        asked = iter(fingerprints)
        compiled = tfx_pipeline.Pipeline(
            pipeline_name=pipeline,
            pipeline_root=str(self.folder / "artifacts"),
            components=[Counting(self.folder / "counter")],
            enable_cache=True,
            metadata_connection_config=self.config,
        )
        [finished] = [
            event
            for event in local.run_steps(
                local.compile_pipeline(compiled),
                metadata.Metadata(self.config),
                fingerprint=lambda _: next(asked),
                force=force,
            )
            if isinstance(event, local.StepFinished)
        ]
        return finished


@pytest.fixture
def runs(tmp_path: pathlib.Path) -> Runs:
    """A folder in which nothing has run yet."""
    return Runs(tmp_path)


def test_an_unchanged_step_comes_from_the_cache_and_changed_code_runs_again(runs: Runs) -> None:
    """The fingerprint is part of the key; going back to an earlier one finds the earlier outputs."""
    first = runs.run("a", "a")
    assert not first.cached
    second = runs.run("a")
    assert second.cached
    assert second.outputs["schema"][0].uri == first.outputs["schema"][0].uri
    assert not runs.run("b", "b").cached
    assert runs.run("a").cached
    assert runs.count == 2


def test_a_forced_step_runs_and_its_outputs_are_the_ones_found_later(runs: Runs) -> None:
    """Once: the next run takes the new outputs from the cache. A step that is not there is named, and nothing runs."""
    first = runs.run("a", "a")
    forced = runs.run("a", "a", force=("Counting",))
    assert not forced.cached
    assert runs.count == 2
    later = runs.run("a")
    assert later.cached
    assert later.outputs["schema"][0].uri == forced.outputs["schema"][0].uri != first.outputs["schema"][0].uri
    with pytest.raises(ConfigurationError, match="--force Countin: no such step; did you mean Counting"):
        runs.run("a", "a", force=("Countin",))
    assert runs.count == 2


def test_code_edited_while_a_step_runs_fails_it_and_poisons_no_cache(runs: Runs) -> None:
    """Nobody knows which code ran, so the outputs are used neither for the old nor for the new code."""
    with pytest.raises(StepFailed, match="Counting: the code that it runs was edited while it ran; run again"):
        runs.run("a", "b")
    assert not runs.run("a", "a").cached
    assert not runs.run("b", "b").cached
    assert runs.count == 3


def test_an_executors_error_comes_as_it_was_raised_and_is_not_cached(runs: Runs) -> None:
    """The next run does the step."""
    (runs.folder / "fail").touch()
    with pytest.raises(ArithmeticError, match="as told"):
        runs.run("a")
    (runs.folder / "fail").unlink()
    assert not runs.run("a", "a").cached
