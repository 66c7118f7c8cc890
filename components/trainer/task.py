"""Which process of a group this is."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Literal

from lockstep.components.trainer.spec import TrainOptions

Role = Literal["chief", "worker", "ps"]
_WORKERS_ALONE: Mapping[Role, tuple[str, ...]] = {"worker": ("localhost:0",)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One process' place in its group.

    Args:
      role: ``worker``; under ``parameter_server`` also ``chief``, the coordinator, and ``ps``.
      index: Among the processes of its role.
      cluster: ``host:port`` of each process, by role and index.
    """

    role: Role = "worker"
    index: int = 0
    cluster: Mapping[Role, tuple[str, ...]] = dataclasses.field(default_factory=lambda: _WORKERS_ALONE)

    @classmethod
    def from_tf_config(cls, text: str | None, options: TrainOptions) -> "Task":
        """Reads ``TF_CONFIG``.

        Args:
          text: The variable's value; None or empty means a single process.
          options: What processes the group has.

        Raises:
          ValueError: It is malformed, or describes another group.
        """
        if not text:
            task = cls()
        else:
            try:
                config = json.loads(text)
                cluster = {role: tuple(addresses) for role, addresses in config["cluster"].items()}
                place = config["task"]
                task = cls(role=place["type"], index=int(place["index"]), cluster=cluster)
            except (AttributeError, KeyError, TypeError, ValueError) as e:
                raise ValueError(
                    f"TF_CONFIG: {text!r} is not allowed; give cluster and task, with type and index"
                ) from e
        given = {role: len(addresses) for role, addresses in task.cluster.items()}
        size = given.get("worker", 0)
        wanted = options.with_workers(size).processes if size in options.sizes else options.processes
        if given != wanted or not 0 <= task.index < wanted.get(task.role, 0):
            raise ValueError(
                f"TF_CONFIG: {task.role} {task.index} of {given} is not allowed; the specification asks for {wanted}"
            )
        return task

    @property
    def number(self) -> int:
        """Place among all processes of the group, in the order of the cluster's roles; 0 is the chief."""
        roles = list(self.cluster)
        return sum(len(self.cluster[role]) for role in roles[: roles.index(self.role)]) + self.index

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints, events and the model."""
        return self.number == 0

    @property
    def is_server(self) -> bool:
        """Whether this process only does what a coordinator asks."""
        return "chief" in self.cluster and not self.is_chief

    @property
    def num_workers(self) -> int:
        """Processes that train."""
        return len(self.cluster["worker"])

    @property
    def num_neighbours(self) -> int:
        """Processes of the group on this one's machine, itself included."""
        host = self.cluster[self.role][self.index].rpartition(":")[0]
        addresses = [address for role in self.cluster.values() for address in role]
        return sum(address.rpartition(":")[0] == host for address in addresses)
