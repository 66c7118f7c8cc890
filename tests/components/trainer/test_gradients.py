"""Gradients between the tape and the optimizer."""

import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.trainer import gradients
from lockstep.components.trainer.gradients import Clip


@pytest.mark.parametrize(
    ("rows", "dense"), [(gradients.DENSE_ELEMENTS // 2, True), (gradients.DENSE_ELEMENTS // 2 + 1, False)]
)
def test_a_tables_gradient_is_exchanged_densely_up_to_a_size(rows: int, dense: bool) -> None:
    """Small tables share one collective with all other gradients; a large one exchanges only the rows it touched."""
    gradient = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 1]), tf.constant([rows, 2]))
    exchanged = gradients.exchanged(gradient)
    assert isinstance(exchanged, tf.Tensor) == dense
    if dense:
        assert exchanged[:3].numpy().tolist() == [[0, 0], [2, 2], [0, 0]]


def dense(gradient: "tf.Tensor | tf.IndexedSlices") -> np.ndarray:
    """The whole gradient."""
    return tf.convert_to_tensor(gradient).numpy()


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_clipping_bounds_all_gradients_together(scale: float) -> None:
    """A row that a batch has twice counts once; what has no gradient stays without; a loss scale scales the bounds."""
    matrix = tf.constant([[3.0, 0.0], [0.0, 0.0]]) * scale
    rows = tf.IndexedSlices(tf.constant([[1.0], [3.0]]) * scale, tf.constant([2, 2]), tf.constant([4, 1]))
    whole = np.concatenate([dense(matrix).ravel(), dense(rows).ravel()])
    assert np.linalg.norm(whole) == pytest.approx(5 * scale)

    clipped, nothing, table = Clip(norm=2.0).apply([matrix, None, rows], scale)
    assert nothing is None
    np.testing.assert_allclose(np.concatenate([dense(clipped).ravel(), dense(table).ravel()]), whole * 2 / 5)
    clipped, _, table = Clip(norm=6.0).apply([matrix, None, rows], scale)
    np.testing.assert_allclose(np.concatenate([dense(clipped).ravel(), dense(table).ravel()]), whole)
    clipped, nothing, table = Clip(value=2.5).apply([-matrix, None, rows], scale)
    assert nothing is None
    assert dense(clipped).tolist() == [[-2.5 * scale, 0], [0, 0]]
    assert dense(table).tolist() == [[0], [0], [2.5 * scale], [0]]


def test_a_bound_hides_no_overflow_from_an_optimizer_that_leaves_it_out() -> None:
    """What is infinite stays so where a loss is scaled; else it is bounded as any other number."""
    matrix = tf.constant([[3.0, np.inf], [0.0, -np.inf]])
    rows = tf.IndexedSlices(tf.constant([[np.inf], [3.0]]), tf.constant([2, 1]), tf.constant([3, 1]))
    clipped, table = Clip(value=2.5).apply([matrix, rows], keep_overflow=True)
    assert dense(clipped).tolist() == [[2.5, np.inf], [0, -np.inf]]
    assert dense(table).tolist() == [[0], [2.5], [np.inf]]
    clipped, table = Clip(value=2.5).apply([matrix, rows])
    assert dense(clipped).tolist() == [[2.5, 2.5], [0, -2.5]]
    assert dense(table).tolist() == [[0], [2.5], [2.5]]
    for gradient in Clip(norm=1.0).apply([matrix, rows], keep_overflow=True):
        assert not np.isfinite(dense(gradient)).all()
