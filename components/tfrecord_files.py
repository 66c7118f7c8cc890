"""Gzip TFRecord files, without TensorFlow: whether one is whole, and how many records it holds."""

import gzip
import io
import os
import struct
import zlib
from pathlib import Path

from lockstep.components.errors import DataError

FRAME_BYTES = 16
"""What stands around each record in a TFRecord file: its length, and two checksums."""


def count_records(path: str) -> int:
    """Returns the number of records in a gzip TFRecord; reads it to its end.

    Not by TensorFlow: it takes a file that was cut for a shorter one.

    Raises:
      DataError: The file is absent, cut or something else.
    """
    count = 0
    try:
        with gzip.open(path) as compressed, io.BufferedReader(compressed, 2**20) as file:
            while header := file.read(12):
                # https://www.tensorflow.org/tutorials/load_data/tfrecord: length, its checksum, content, its checksum
                (length,) = struct.unpack("<Q4x", header)
                if len(file.read(length + 4)) < length + 4:
                    raise EOFError("the last record is cut")
                count += 1
    except (OSError, EOFError, zlib.error, struct.error, OverflowError, MemoryError) as e:
        raise DataError(f"{path}: not a whole gzip TFRecord ({e}); run the step that wrote it again") from e
    return count


def check_whole(path: str, num_records: int, num_bytes: int) -> None:
    """Checks that a reader saw all of a gzip TFRecord, since TensorFlow's takes a file that was cut for a shorter one.

    Costs nothing where the file is one gzip stream; reads a file of several once more.

    Args:
      path: The file.
      num_records: Records that the reader saw.
      num_bytes: Their bytes, with ``FRAME_BYTES`` for each.

    Raises:
      DataError: The file is cut.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - 4))
        # A gzip stream ends with the length of what was compressed: https://www.rfc-editor.org/rfc/rfc1952
        if file.read(4) == struct.pack("<L", num_bytes % 2**32):
            return
    whole = count_records(path)
    if whole != num_records:
        raise DataError(f"{path}: {num_records} records were read of {whole}; run the step that wrote it again")
