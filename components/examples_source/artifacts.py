"""Which Examples artifacts the source reads, and what is said where it cannot."""

import contextlib
import re
from collections.abc import Iterator, Sequence

from tfx import types
from tfx.components.util import examples_utils, tfxio_utils
from tfx.proto import example_gen_pb2

from lockstep.components.errors import ConfigurationError, DataError

# An error that a worker raised comes through Beam with the step's name behind the message, or as another exception with
# the traceback in its text.
_ADDED = re.compile(r" \[while running .*", re.DOTALL)
_OWN_ERROR = re.compile(
    r"lockstep\.components\.errors\.DataError: (?P<message>.*?)(?: \[while running|$)", re.MULTILINE
)
_GZIP_TFRECORDS = ("tfrecords_gzip", "FORMAT_TFRECORDS_GZIP")


def check_formats(examples: Sequence[types.Artifact], component: str) -> None:
    """Raises for examples that the source does not read.

    Args:
      examples: Artifacts of Examples.
      component: That asks, as the message names it.

    Raises:
      ConfigurationError: They are other than tf.Examples in gzip TFRecords.
    """
    payload, _ = tfxio_utils.resolve_payload_format_and_data_view_uri(list(examples))
    if payload != example_gen_pb2.FORMAT_TF_EXAMPLE:
        raise ConfigurationError(
            f"examples: payload format {example_gen_pb2.PayloadFormat.Name(payload)} is not allowed; this {component} "
            f"reads tf.Examples (FORMAT_TF_EXAMPLE); take TFX's own {component} for others"
        )
    for artifact in examples:
        file_format = examples_utils.get_file_format(artifact)
        if file_format not in _GZIP_TFRECORDS:
            raise ConfigurationError(
                f"examples: file format {file_format} of {artifact.uri} is not allowed; this {component} reads gzip "
                f"TFRecords; take TFX's own {component} for others"
            )


def data_error(error: Exception) -> DataError | None:
    """Returns the DataError that a worker raised, out of what came through Beam; None where it was none."""
    text = str(error)
    own = _OWN_ERROR.search(text)
    if own is not None:
        return DataError(own["message"])
    return DataError(_ADDED.sub("", text)) if isinstance(error, DataError) else None


@contextlib.contextmanager
def plain_data_errors() -> Iterator[None]:
    """Raises what a worker said of the data, out of what came through Beam; every other error as it is.

    Raises:
      DataError: A worker raised it.
    """
    try:
        yield
    except Exception as e:
        own = data_error(e)
        if own is None:
            raise
        raise own from e
