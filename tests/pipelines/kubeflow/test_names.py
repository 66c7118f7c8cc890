"""Any name that TFX takes becomes one that Kubeflow, Argo and Kubernetes take."""

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.pipelines.kubeflow import names

_CONFIG_NAMES = st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=63).filter(
    lambda name: name[0].isalnum()
)
_IDS = st.lists(st.text(min_size=1, max_size=200) | st.sampled_from(sorted(names.RESERVED)), unique=True, max_size=8)


@settings(deadline=None)
@given(_CONFIG_NAMES)
def test_every_pipeline_name_can_begin_a_workflows_name(name: str) -> None:
    """Kubernetes takes lower case letters, digits and '-', and appends a '-' and five characters to 57."""
    made = names.pipeline_name(name)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= 57
    assert names.pipeline_name(made) == made


@settings(deadline=None)
@given(_IDS)
def test_every_node_id_has_a_task_name_of_its_own(ids: list[str]) -> None:
    """Argo's pattern holds with what Kubeflow and Lockstep append, and no two tasks meet."""
    made = names.step_names(ids)
    assert len(set(made.values())) == len(ids)
    tasks = [name + suffix for name in made.values() for suffix in ("", names.PROBE)]
    drivers = [task + names.KUBEFLOW_DRIVER for task in tasks]
    assert len({*tasks, *drivers}) == 4 * len(ids)
    for task in (*tasks, *drivers):
        assert re.fullmatch(r"[a-zA-Z][-a-zA-Z0-9]*", task)
        assert len(task) <= 128
        assert task not in names.RESERVED


@pytest.mark.parametrize("node_id", ["ExampleGen", "StatisticsGen", "my-step", "Trainer2"])
def test_names_that_can_stay_do(node_id: str) -> None:
    """A person finds the node by its name."""
    assert names.step_names([node_id]) == {node_id: node_id}


@pytest.mark.parametrize("node_id", ["a_b", "a.b", "2nd", "X-driver", "X-probe", "root", "not", "", "ü", "a" * 200])
def test_names_that_cannot_stay_are_made(node_id: str) -> None:
    """Each of these is refused by Argo or taken by Kubeflow."""
    assert names.step_names([node_id])[node_id] != node_id


def test_names_that_look_alike_stay_apart() -> None:
    """Two ids that differ in what Argo does not take become two names."""
    assert len(set(names.step_names(["a_b", "a.b", "a-b"]).values())) == 3


def test_a_name_is_the_same_beside_any_others() -> None:
    """Adding a step does not rename another, whose results would leave the cache."""
    assert names.step_names(["a_b"])["a_b"] == names.step_names(["a.b", "a_b", "c"])["a_b"]


def test_a_usual_pipeline_name_is_recognised() -> None:
    """Only what Kubernetes does not take is changed."""
    assert names.pipeline_name("taxi") == "taxi"
    assert names.pipeline_name("Taxi_v2.1") == "taxi-v2-1"
