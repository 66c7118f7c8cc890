"""A process' place in its group."""

import json
from typing import Any

import pytest

from lockstep.components.trainer.spec import TrainOptions
from lockstep.components.trainer.task import Task
from lockstep.components.trainer.worker_range import WorkerRange


def tf_config(index: Any, *addresses: str) -> str:
    """The variable as the launcher sets it."""
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def test_a_task_knows_its_place() -> None:
    """Index, number of workers, and how many of them share its machine."""
    task = Task.from_tf_config(tf_config(1, "a:1", "b:1", "b:2"), TrainOptions(workers=3))
    assert (task.index, task.num_workers, task.num_neighbours, task.is_chief) == (1, 3, 2, False)
    assert Task.from_tf_config(None, TrainOptions(workers=1)) == Task()


@pytest.mark.parametrize(
    ("text", "workers"),
    [(None, 2), ("{}", 1), ("not JSON", 1), (tf_config(2, "a:1", "a:2"), 2), (tf_config(0, "a:1", "a:2"), 3)],
)
def test_a_group_that_is_not_the_specified_one_is_refused(text: str | None, workers: int) -> None:
    """The message names the variable."""
    with pytest.raises(ValueError, match="TF_CONFIG"):
        Task.from_tf_config(text, TrainOptions(workers=workers))


def test_a_group_may_have_each_size_of_its_range() -> None:
    """And no other."""
    options = TrainOptions(workers=WorkerRange(min=2, max=4), batch_size=64, num_virtual_shards=4)
    for addresses in (("a:1", "a:2"), ("a:1", "a:2", "a:3", "a:4")):
        assert Task.from_tf_config(tf_config(1, *addresses), options).num_workers == len(addresses)
    for addresses in (("a:1",), ("a:1", "a:2", "a:3")):
        with pytest.raises(ValueError, match="TF_CONFIG"):
            Task.from_tf_config(tf_config(0, *addresses), options)


def test_a_task_of_a_group_with_parameter_servers_knows_its_number() -> None:
    """Processes count in the order of the roles; all but the chief serve it."""
    cluster = {"chief": ["a:1"], "worker": ["a:2", "a:3"], "ps": ["a:4"]}
    options = TrainOptions(strategy="parameter_server", workers=2)
    places = [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2), ("ps", 0, 3)]
    for role, index, number in places:
        task = Task.from_tf_config(json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}), options)
        assert (task.number, task.is_chief, task.is_server) == (number, number == 0, number > 0)
        assert (task.num_workers, task.num_neighbours) == (2, 4)
