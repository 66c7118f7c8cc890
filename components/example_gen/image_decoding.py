"""Whether TensorFlow decodes an image, asked of the very operation with which Transform decodes it."""

import functools
import re
from collections.abc import Callable

# What the operation says stands in a line before that of its node, behind where it was made.
_REASON = re.compile(r"([^\n]+)\s*\[\[\{\{")


def decoding_problem(content: bytes, channels: int) -> str | None:
    """Returns what TensorFlow says of an image that it does not decode; None if it does.

    Args:
      content: JPEG, PNG, GIF or BMP.
      channels: 1, 3 or 4, as the feature has them: not every format gives each.
    """
    import tensorflow as tf

    try:
        _decoder(channels)(content)
    except tf.errors.OpError as e:
        found = _REASON.search(e.message)
        return (found[1] if found else e.message).strip(" .")
    return None


@functools.cache
def _decoder(channels: int) -> Callable[[bytes], None]:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        content = tf.compat.v1.placeholder(tf.string, [])
        decoded = tf.raw_ops.DecodeImage(contents=content, channels=channels, expand_animations=False)
    # A session of its own, which takes hold of no GPU: there are several processes, and the pipeline trains later.
    config = tf.compat.v1.ConfigProto(
        device_count={"GPU": 0}, intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    session = tf.compat.v1.Session(graph=graph, config=config)
    # Of the operation, not of its result: pixels that nobody looks at are not copied.
    return session.make_callable(decoded.op, [content])  # type: ignore[no-any-return]
