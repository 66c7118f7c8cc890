"""The devices of one process, set up before TensorFlow runs anything."""

import os

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.task import Task


def limit_threads(task: Task) -> int:
    """Gives this process its share of the machine's cores; call it before TensorFlow runs anything.

    Without it every worker starts a thread for each core, and they wait for one another at each step.

    Returns:
      Threads of each pool, 1 or more.
    """
    import tensorflow as tf

    num_threads = max(1, len(os.sched_getaffinity(0)) // task.num_neighbours)
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)
    return num_threads


def choose_devices(count: int) -> tuple[str, ...]:
    """Returns the names of ``count`` devices for this process; call it before TensorFlow runs anything.

    GPUs if the process sees any, their memory taken as needed and not all at the start; else the CPU, split into
    logical ones if several are asked for.

    Raises:
      ConfigurationError: There are GPUs, but not so many.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if len(gpus) < count:
            raise ConfigurationError(
                f"devices_per_worker: this process sees {len(gpus)} GPUs, {count} are needed; give a smaller number, "
                "or hide the GPUs (CUDA_VISIBLE_DEVICES=-1) to train on the CPU"
            )
        tf.config.set_visible_devices(gpus[:count], "GPU")
        for gpu in gpus[:count]:
            tf.config.experimental.set_memory_growth(gpu, True)
        return tuple(f"GPU:{index}" for index in range(count))
    if count > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return tuple(f"CPU:{index}" for index in range(count))
