"""Columns to serialised tf.Examples in TFRecord framing, a whole batch at a time.

Arrow joins the pieces of a row: constant bytes with the name of the column and the lengths, then the value. That is
quicker than an encoder that builds one record after another, and the bytes are those that protobuf itself writes with
features sorted by name. Wire format: https://protobuf.dev/programming-guides/encoding/, messages:
tensorflow/core/example/{example,feature}.proto, framing: tensorflow/core/lib/io/record_writer.h.
"""

import itertools
from collections.abc import Callable, Mapping

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.arrow_buffers import Offsets, binary_array, binary_buffers, is_valid

_CRC_MASK_DELTA = np.uint32(0xA282EAD8)


def encode_examples(columns: Mapping[str, pa.Array], num_rows: int) -> pa.Array:
    """Returns one serialised tf.Example a row (binary); a missing cell's feature is absent.

    Args:
      columns: int64, float32 or binary arrays of ``num_rows`` values.
      num_rows: Rows, which no column need tell.
    """
    pieces: list[pa.Array] = []
    lengths = np.zeros(num_rows, np.int64)
    for name in sorted(columns, key=str.encode):
        values = columns[name]
        if values.null_count == num_rows:
            continue
        head, body = _feature_entry(name.encode(), values)
        lengths += _lengths(head) + _lengths(body)
        pieces += [head, body]
    return _join([_by_length(lengths, lambda length: b"\x0a" + _varint(length)), *pieces])


def frame_records(records: pa.Array) -> pa.Array:
    """Returns each record with the length and the checksums that a TFRecord file has around it."""
    data, offsets = binary_buffers(records)
    raw, ends = data.tobytes(), offsets.tolist()
    checksum = google_crc32c.value
    crcs = np.fromiter((checksum(raw[begin:end]) for begin, end in itertools.pairwise(ends)), np.uint32, len(records))
    heads = _by_length(np.diff(offsets), _frame_head)
    tails = binary_array(_masked(crcs).astype("<u4").view(np.uint8), np.arange(len(records) + 1) * 4)
    return _join([heads, records, tails])


def _frame_head(length: int) -> bytes:
    size = length.to_bytes(8, "little")
    return size + _masked(np.array([google_crc32c.value(size)], np.uint32)).astype("<u4").tobytes()


def _masked(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    masked: npt.NDArray[np.uint32] = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _CRC_MASK_DELTA
    return masked


def _feature_entry(name: bytes, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the two pieces of every row's entry in ``Features.feature``: all before the value, and the value."""
    key = b"\x0a" + _varint(len(name)) + name
    if pa.types.is_float32(values.type):
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype("<f4", copy=False)
        body = binary_array(numbers.view(np.uint8), np.arange(len(values) + 1) * 4)
        lengths, list_tag = np.full(len(values), 4, np.int64), b"\x12"
    elif pa.types.is_int64(values.type):
        body = _varints(values.fill_null(0).to_numpy(zero_copy_only=False))
        lengths, list_tag = _lengths(body), b"\x1a"
    else:
        body = values.cast(pa.binary())
        lengths, list_tag = _lengths(body), b"\x0a"
    head = _by_length(lengths, lambda length: _entry_head(key, list_tag, length))
    if values.null_count:
        present = pa.array(is_valid(values))
        head = pc.if_else(present, head, pa.scalar(b"", pa.binary()))
        body = pc.if_else(present, body, pa.scalar(b"", pa.binary()))
    return head, body


def _entry_head(key: bytes, list_tag: bytes, length: int) -> bytes:
    value = b"\x0a" + _varint(length)  # field 1 of BytesList, FloatList (packed) and Int64List (packed)
    feature = list_tag + _varint(len(value) + length) + value
    entry = key + b"\x12" + _varint(len(feature) + length) + feature
    return b"\x0a" + _varint(len(entry) + length) + entry


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(groups) + bytes([number])


def _varints(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Returns each number's varint; a negative one takes ten bytes."""
    left = numbers.view(np.uint64)
    longest = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    groups = np.empty((len(numbers), longest), np.uint8)
    used = np.ones((len(numbers), longest), np.bool_)
    for i in range(longest):
        rest = left >> np.uint64(7)
        groups[:, i] = (left & np.uint64(0x7F)).astype(np.uint8) | ((rest > 0).astype(np.uint8) << 7)
        left = rest
        if i + 1 < longest:
            used[:, i + 1] = rest > 0
    ends = np.cumsum(used.sum(axis=1))
    return binary_array(groups[used], np.concatenate([[0], ends]))


def _by_length(lengths: npt.NDArray[np.int64], make: Callable[[int], bytes]) -> pa.Array:
    """Returns ``make(length)`` for each of ``lengths``, calling it once for each that occurs."""
    distinct, index = np.unique(lengths, return_inverse=True)
    return pa.array([make(int(length)) for length in distinct], pa.binary()).take(pa.array(index))


def _lengths(values: pa.Array) -> Offsets:
    return np.diff(binary_buffers(values)[1])


def _join(pieces: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
