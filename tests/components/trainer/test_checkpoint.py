"""Checkpoints are complete, or do not count."""

from pathlib import Path

import pytest
import tensorflow as tf

from lockstep.components.trainer.checkpoint import Checkpoints


def variables(value: float) -> list[tf.Variable]:
    """Two variables, the first large enough to fill a file that can be cut."""
    return [tf.Variable(tf.fill([1000], value)), tf.Variable(int(value), dtype=tf.int64)]


def checkpoints(folder: Path, values: list[tf.Variable], *, is_chief: bool = True) -> Checkpoints:
    """Checkpoints in a folder that need not exist."""
    return Checkpoints(folder, values, is_chief=is_chief)


def save(folder: Path, *steps: int) -> None:
    """Saves at each step variables whose value is the step."""
    values = variables(0.0)
    store = checkpoints(folder, values)
    for step in steps:
        values[0].assign(tf.fill([1000], float(step)))
        values[1].assign(step)
        store.save(step)


def restored(folder: Path) -> tuple[int, float, int]:
    """Step and values that a new process would go on from."""
    values = variables(-1.0)
    step = checkpoints(folder, values).restore()
    return step, float(values[0][999]), int(values[1])


def test_the_newest_checkpoint_is_restored(tmp_path: Path) -> None:
    """Step and every variable are those of the last save, and two checkpoints stay."""
    save(tmp_path / "checkpoints", 10, 20, 100)
    assert restored(tmp_path / "checkpoints") == (100, 100.0, 100)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000020", "step-00000100"]


def test_without_a_checkpoint_variables_stay(tmp_path: Path) -> None:
    """A first attempt starts from its own initial values at step 0."""
    assert restored(tmp_path / "absent") == (0, -1.0, -1)


@pytest.mark.parametrize("name", ["checkpoint.data-00000-of-00001", "checkpoint.index"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_checkpoint_is_passed_over(tmp_path: Path, name: str, share: float) -> None:
    """The one before is used, and no variable keeps a value of the broken one."""
    save(tmp_path, 10, 20)
    path = tmp_path / "step-00000020" / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert restored(tmp_path) == (10, 10.0, 10)


def test_a_checkpoint_with_a_changed_byte_is_passed_over(tmp_path: Path) -> None:
    """Checksums find what a length cannot."""
    save(tmp_path, 10, 20)
    path = tmp_path / "step-00000020" / "checkpoint.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(bytes(content))
    assert restored(tmp_path) == (10, 10.0, 10)


def test_the_step_of_a_cut_checkpoint_can_be_saved_again(tmp_path: Path) -> None:
    """The attempt that fell back reaches the same step, and its checkpoint replaces the broken one."""
    save(tmp_path, 10, 20)
    (tmp_path / "step-00000020" / "checkpoint.index").write_bytes(b"")
    save(tmp_path, 20)
    assert restored(tmp_path) == (20, 20.0, 20)


def test_what_a_killed_save_left_is_not_a_checkpoint(tmp_path: Path) -> None:
    """A folder that was not renamed is ignored, and removed by the next save."""
    save(tmp_path, 10)
    (tmp_path / "step-00000010").rename(tmp_path / ".writing-step-00000020")
    assert restored(tmp_path) == (0, -1.0, -1)
    save(tmp_path, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000020"]


def test_other_workers_leave_nothing(tmp_path: Path) -> None:
    """Only the chief's copy is kept; the others restore it."""
    save(tmp_path, 10)
    checkpoints(tmp_path, variables(5.0), is_chief=False).save(20)
    assert restored(tmp_path) == (10, 10.0, 10)
