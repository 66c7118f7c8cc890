"""An embedding whose table is dealt over several parameter servers."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="lockstep")
class SplitEmbedding(keras.layers.Layer):
    """Turns indices into rows of a table that is made of several variables, so that it may be larger than one machine.

    Under ``strategy: parameter_server`` each part lies on the next parameter server, and only the rows of a batch
    travel. Keras' own Embedding keeps its table in one place. Numbers, gradients and the saved model are those of one
    table: the parts are consecutive rows, as many in each, the first ones one more where it does not come out even.

    Args:
      num_values: Rows of the table, 1 or more; indices are from 0 to under it.
      dim: Values of each row, 1 or more.
      num_parts: Variables that the table is made of, 1 or more; ``ModelInputs.table_parts`` fits the training.
      embeddings_initializer: Of the rows.
    """

    def __init__(
        self,
        num_values: int,
        dim: int,
        *,
        num_parts: int = 1,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_values, self.dim = num_values, dim
        self.num_parts = min(num_parts, num_values)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Any) -> None:
        """Makes the parts."""
        share, rest = divmod(self.num_values, self.num_parts)
        # Built from a configuration they may share one initializer, which gives the same values to the same shape.
        copies = [self.embeddings_initializer.clone() for _ in range(self.num_parts)]
        self.parts = [
            self.add_weight(
                shape=(share + (number < rest), self.dim),
                initializer=initializer,
                name=f"part_{number}",
                autocast=False,  # casting would read the whole table
            )
            for number, initializer in enumerate(copies)
        ]

    def call(self, inputs: Any) -> Any:
        """Returns the rows, [..., dim], of indices of any shape."""
        rows = tf.nn.embedding_lookup([part.value for part in self.parts], tf.cast(inputs, tf.int64))
        return tf.cast(rows, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the inputs' shape with one more dimension."""
        return (*input_shape, self.dim)

    def get_config(self) -> dict[str, Any]:
        """Returns what makes the same layer."""
        return {
            **super().get_config(),
            "num_values": self.num_values,
            "dim": self.dim,
            "num_parts": self.num_parts,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }
