"""Checkpoints that are complete or do not count, and from which a training goes on as if nothing had happened."""

import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.components.durable_files import sync

if TYPE_CHECKING:
    import tensorflow as tf

_log = logging.getLogger(__name__)

_PREFIX = "step-"
_STEP_KEY = "step/.ATTRIBUTES/VARIABLE_VALUE"


class Checkpoints:
    """Saves and restores variables under their position in a list, together with the global step.

    Each checkpoint is a folder ``step-00000300`` that appears by renaming, after its files are on the disk; the newest
    ``keep`` stay. One that cannot be read to its end (the disk lost a part of it) is passed over for the one before.

    Args:
      checkpoint_dir: Shared by all workers; created by the chief's first save.
      variables: What is saved, in an order that depends on the program only.
      is_chief: Whether this worker's copy is kept. The others write theirs to a temporary folder and drop it, since
        reading a variable may be a collective that needs all workers.
      keep: How many are kept, 1 or more.
    """

    def __init__(
        self, checkpoint_dir: Path, variables: "Sequence[tf.Variable]", *, is_chief: bool, keep: int = 2
    ) -> None:
        import tensorflow as tf

        self._dir = checkpoint_dir
        self._variables = list(variables)
        self._is_chief = is_chief
        self._keep = keep
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self._checkpoint = tf.train.Checkpoint(step=self._step, variables=self._variables)

    def save(self, step: int) -> None:
        """Saves as ``step``; every worker must call it. When the chief returns the checkpoint is complete.

        Raises:
          OSError, tf.errors.OpError: It could not be written (a full disk); nothing of it counts then.
        """
        self._step.assign(step)
        if not self._is_chief:
            with tempfile.TemporaryDirectory(prefix="lockstep-checkpoint-") as folder:
                self._checkpoint.write(str(Path(folder) / "checkpoint"))
            return
        self._dir.mkdir(parents=True, exist_ok=True)
        final_dir = self._dir / f"{_PREFIX}{step:08d}"
        temporary_dir = self._dir / f".writing-{final_dir.name}"
        for leftover_dir in self._dir.glob(".writing-*"):  # of an attempt that was killed while it saved
            shutil.rmtree(leftover_dir)
        temporary_dir.mkdir()
        try:
            self._checkpoint.write(str(temporary_dir / "checkpoint"))
            for path in temporary_dir.iterdir():
                sync(path)
            if final_dir.exists():  # passed over as unreadable by this attempt
                shutil.rmtree(final_dir)
            temporary_dir.rename(final_dir)
        except BaseException:
            shutil.rmtree(temporary_dir, ignore_errors=True)
            raise
        sync(self._dir)
        for old_dir in self._complete_dirs()[: -self._keep]:
            shutil.rmtree(old_dir)

    def restore(self) -> int:
        """Sets the variables to the newest readable checkpoint; leaves them alone where there is none.

        Returns:
          The checkpoint's step, 0 without one.
        """
        import tensorflow as tf

        for folder in reversed(self._complete_dirs()):
            try:
                reader = tf.train.load_checkpoint(str(folder / "checkpoint"))
                # All are read, and their checksums compared, before one is set: half a restored model is none.
                values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
            except (tf.errors.OpError, ValueError, IndexError, RuntimeError, OSError) as e:  # IndexError: a short file
                _log.warning("Checkpoint %s cannot be read (%s); falling back to the one before", folder, e)
                continue
            for index, variable in enumerate(self._variables):
                variable.assign(values[f"variables/{index}/.ATTRIBUTES/VARIABLE_VALUE"])
            return int(values[_STEP_KEY])
        return 0

    def _complete_dirs(self) -> list[Path]:
        return sorted(self._dir.glob(f"{_PREFIX}*"))
