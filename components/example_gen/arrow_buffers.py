"""Arrow arrays as NumPy arrays over the same memory, and back."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


def binary_buffers(values: pa.Array) -> tuple[Bytes, Offsets]:
    """Returns the bytes of a string or binary array, and where each cell begins: ``offsets[len(values)]`` is the end.

    A missing cell has no bytes. The offsets count from the start of the bytes returned.
    """
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    if len(values) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    _, offset_buffer, data_buffer = values.buffers()
    raw: npt.NDArray[Any] = np.frombuffer(offset_buffer, np.int64 if large else np.int32)
    offsets = raw[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def binary_array(data: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> pa.Array:
    """Returns the binary array of which ``binary_buffers`` gives these two; at most 2 GB of bytes."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def is_valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns ``bool [len(values)]``: True where there is a value."""
    valid: npt.NDArray[np.bool_] = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return valid
