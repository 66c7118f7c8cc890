"""A table in several parts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer.embeddings import SplitEmbedding
from lockstep.components.trainer.models import FeatureInput, ModelInputs, factorization_machine

INDICES = np.array([[0, 3], [6, 6], [2, 4]])


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7, 9])
def test_parts_are_the_rows_of_one_table(num_parts: int) -> None:
    """Values and gradients are those of Keras' own embedding, for any number of parts, even where it is uneven."""
    whole, split = keras.layers.Embedding(7, 2), SplitEmbedding(7, 2, num_parts=num_parts)
    for layer in (whole, split):
        layer.build((None, 2))
    assert len(split.weights) == min(num_parts, 7)
    split.set_weights(np.array_split(whole.get_weights()[0], min(num_parts, 7)))
    with tf.GradientTape(persistent=True) as tape:
        ours, theirs = split(INDICES), whole(INDICES)
        sums = [tf.reduce_sum(rows**2) for rows in (ours, theirs)]
    np.testing.assert_array_equal(ours, theirs)
    parts = [tf.convert_to_tensor(tape.gradient(sums[0], part.value)) for part in split.parts]
    np.testing.assert_array_equal(
        np.concatenate(parts), tf.convert_to_tensor(tape.gradient(sums[1], whole.embeddings.value))
    )
    assert isinstance(tape.gradient(sums[0], split.parts[0].value), tf.IndexedSlices)


def test_parts_start_with_values_of_their_own() -> None:
    """One initializer for all would make equal rows of parts of equal size."""
    layer = SplitEmbedding(8, 3, num_parts=2)
    layer.build((None,))
    first, second = layer.get_weights()
    assert not np.array_equal(first, second)


def test_a_split_table_survives_its_configuration() -> None:
    """As any layer of Keras'; in a functional model too."""
    ids = keras.Input((2,), dtype="int64")
    model = keras.Model(ids, SplitEmbedding(7, 2, num_parts=2, embeddings_initializer="ones")(ids))
    assert model.output_shape == (None, 2, 2)
    again = keras.Model.from_config(model.get_config())
    assert [weight.shape for weight in again.weights] == [(4, 2), (3, 2)]
    np.testing.assert_array_equal(again(INDICES), np.ones([3, 2, 2]))


def test_a_factorization_machine_adds_the_products_of_all_pairs() -> None:
    """Against the sum over pairs written out; indices that start at -1, and quantities, take part."""
    features = {
        "item": FeatureInput(dtype="int64", num_values=4, first_value=-1),
        "price": FeatureInput(dtype="float32"),
        "shop": FeatureInput(dtype="int64", num_values=2),
        "user": FeatureInput(dtype="int64", num_values=3),
    }
    inputs = ModelInputs(features=features, label_kind="regression", parameters={"dim": 3}, table_parts=2)
    model = factorization_machine(inputs)
    random = np.random.default_rng(3)
    model.set_weights([random.normal(size=weight.shape) for weight in model.weights])
    table = np.concatenate(model.get_layer("vectors").get_weights())
    single = np.concatenate(model.get_layer("weights").get_weights())
    kernel, bias = model.get_layer("prediction").get_weights()
    rows = [-1 + 1, 4 + 1, 6 + 2]  # of the joined table: item -1, shop 1, user 2
    pairs = sum(table[a] @ table[b] for a, b in ((rows[0], rows[1]), (rows[0], rows[2]), (rows[1], rows[2])))
    expected = kernel[0] * (pairs + single[rows].sum()) + kernel[1] * 0.25 + bias
    columns = {"item": [[-1]], "shop": [[1]], "user": [[2]], "price": [[0.25]]}
    got = model({name: np.array(column) for name, column in columns.items()})
    np.testing.assert_allclose(got, [expected], rtol=1e-5)


@pytest.mark.parametrize(
    ("features", "parameters", "message"),
    [
        ({"price": FeatureInput(dtype="float32")}, {}, "features: factorization_machine needs one of kind vocabulary"),
        ({"name": FeatureInput(dtype="string")}, {}, "feature 'name': the built-in models take numbers"),
        ({"user": FeatureInput(dtype="int64", num_values=3)}, {"dim": 0}, "model.parameters.dim: 0 is not allowed"),
        ({"user": FeatureInput(dtype="int64", num_values=3)}, {"dims": 2}, "no such parameter .did you mean 'dim'"),
    ],
)
def test_what_a_factorization_machine_cannot_take_is_named(
    features: dict[str, FeatureInput], parameters: dict[str, int], message: str
) -> None:
    """Feature or parameter, and what to give."""
    with pytest.raises(ConfigurationError, match=message):
        factorization_machine(ModelInputs(features=features, label_kind="binary", parameters=parameters))
