"""A worker or parameter server of ``parameter_server``: does what the coordinator asks, until it is killed."""

import signal
import time
from typing import NoReturn

from lockstep.components.loading import collector_off
from lockstep.components.trainer.devices import choose_devices, limit_threads
from lockstep.components.trainer.heartbeat import Reporter
from lockstep.components.trainer.task import Task

_BEAT_S = 1.0


def serve(task: Task, reporter: Reporter) -> NoReturn:
    """Serves; its heartbeats say that the process lives, they know no step. Never returns.

    Raises:
      tf.errors.OpError: The address is taken.
    """
    with collector_off():
        import tensorflow as tf

    limit_threads(task)
    if task.role == "worker":
        choose_devices(1)
    cluster = tf.train.ClusterSpec({role: list(addresses) for role, addresses in task.cluster.items()})
    # Kept in a name: it stops serving when nothing holds it.
    _server = tf.distribute.Server(cluster, job_name=task.role, task_index=task.index, protocol="grpc", start=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        reporter.say("heartbeat", step=0)
        time.sleep(_BEAT_S)
