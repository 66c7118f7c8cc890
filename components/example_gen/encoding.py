"""Columns to serialised tf.Examples in TFRecord framing, a whole batch at a time.

Arrow joins the pieces of a row: constant bytes with the name of the column and the lengths, then the value. That is
quicker than an encoder that builds one record after another, and the bytes are those that protobuf itself writes for
each feature, sorted by the bytes of the name. Wire format: https://protobuf.dev/programming-guides/encoding/, messages:
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

_TABLE_SIZE = 1 << 20
# What is before the value of a list: no kind, a kind and no value, or from here on the number of bytes.
_NO_KIND, _NO_VALUE, _SOME_LENGTH = range(3)
_CRC_MASK_DELTA = np.uint32(0xA282EAD8)


def encode_examples(columns: Mapping[str, pa.Array], num_rows: int, *, named_missing_lists: bool = False) -> pa.Array:
    """Returns one serialised tf.Example a row (binary); a missing cell's feature is absent.

    Args:
      columns: int64, float32 or binary arrays of ``num_rows`` values, or large lists of such. An empty list is a
        feature with a kind and no value.
      num_rows: Rows, which no column need tell.
      named_missing_lists: Whether a missing list is a feature without a kind, as tfx-bsl's encoder has it.
    """
    pieces: list[pa.Array] = []
    lengths = np.zeros(num_rows, np.int64)
    for name in sorted(columns, key=str.encode):
        values = columns[name]
        if values.null_count == num_rows and not (named_missing_lists and pa.types.is_large_list(values.type)):
            continue
        if pa.types.is_large_list(values.type):
            entry = _list_entry(name.encode(), values, is_named=named_missing_lists)
        else:
            entry = _feature_entry(name.encode(), values)
        pieces += entry
        for piece in entry:
            lengths += _lengths(piece)
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


def _feature_entry(name: bytes, values: pa.Array) -> list[pa.Array]:
    """Returns each row's entry in ``Features.feature`` in one piece or two: all before the value, and the value."""
    key = b"\x0a" + _varint(len(name)) + name
    if pa.types.is_float32(values.type):
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype("<f4", copy=False)
        pieces = [_fixed(_entry_head(key, b"\x12", 4), numbers.view(np.uint8).reshape(-1, 4))]
    elif pa.types.is_int64(values.type):
        groups, used = _varints(values.fill_null(0).to_numpy(zero_copy_only=False))
        if used is None:
            pieces = [_fixed(_entry_head(key, b"\x1a", groups.shape[1]), groups)]
        else:
            lengths = used.sum(axis=1)
            body = binary_array(groups[used], np.concatenate([[0], np.cumsum(lengths)]))
            pieces = [_by_length(lengths, lambda length: _entry_head(key, b"\x1a", length)), body]
    else:
        body = values.cast(pa.binary())
        pieces = [_by_length(_lengths(body), lambda length: _entry_head(key, b"\x0a", length)), body]
    if values.null_count:
        present = pa.array(is_valid(values))
        pieces = [pc.if_else(present, piece, pa.scalar(b"", pa.binary())) for piece in pieces]
    return pieces


def _list_entry(name: bytes, lists: pa.Array, *, is_named: bool) -> list[pa.Array]:
    """Returns each row's entry of a column of large lists; see ``_feature_entry``."""
    values = lists.flatten()
    valid = is_valid(lists)
    counts = np.where(valid, pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), 0)
    if not lists.null_count and (counts == 1).all():
        return _feature_entry(name, values)
    starts = np.concatenate([[0], np.cumsum(counts)])
    key = b"\x0a" + _varint(len(name)) + name
    if pa.types.is_float32(values.type):
        tag, is_packed = b"\x12", True
        body = binary_array(values.to_numpy().astype("<f4", copy=False).view(np.uint8), starts * 4)
    elif pa.types.is_int64(values.type):
        tag, is_packed = b"\x1a", True
        groups, used = _varints(values.to_numpy())
        kept = np.ones(groups.shape, np.bool_) if used is None else used
        body = binary_array(groups[kept], np.concatenate([[0], np.cumsum(kept.sum(axis=1))])[starts])
    else:
        tag, is_packed = b"\x0a", False
        cells = values.cast(pa.binary())
        heads = _by_length(_lengths(cells), lambda length: b"\x0a" + _varint(length))
        data, ends = binary_buffers(_join([heads, cells]))
        body = binary_array(data, ends[starts])

    def head(code: int) -> bytes:
        if code == _NO_KIND and not is_named:
            return b""
        if code < _SOME_LENGTH:
            feature = tag + b"\x00" if code == _NO_VALUE else b""
            entry = key + b"\x12" + _varint(len(feature)) + feature
            return b"\x0a" + _varint(len(entry)) + entry
        return _entry_head(key, tag, code - _SOME_LENGTH, is_packed=is_packed)

    sizes = _lengths(body)
    codes = np.where(valid, np.where(counts > 0, sizes + _SOME_LENGTH, _NO_VALUE), _NO_KIND)
    return [_by_length(codes, head), body]


def _fixed(head: bytes, values: npt.NDArray[np.uint8]) -> pa.Array:
    """Returns the same head before each row of ``values``."""
    entries = np.empty((len(values), len(head) + values.shape[1]), np.uint8)
    entries[:, : len(head)] = np.frombuffer(head, np.uint8)
    entries[:, len(head) :] = values
    return binary_array(entries.reshape(-1), np.arange(len(values) + 1) * entries.shape[1])


def _entry_head(key: bytes, list_tag: bytes, length: int, *, is_packed: bool = True) -> bytes:
    # Field 1 of FloatList and Int64List (packed), and of a BytesList of one value; otherwise each value has its own.
    value = b"\x0a" + _varint(length) if is_packed else b""
    feature = list_tag + _varint(len(value) + length) + value
    entry = key + b"\x12" + _varint(len(feature) + length) + feature
    return b"\x0a" + _varint(len(entry) + length) + entry


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(groups) + bytes([number])


def _varints(numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_] | None]:
    """Returns each number's varint as a row of bytes, and which of them count (None: all); negative ones take ten."""
    left = numbers.view(np.uint64)
    longest = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    groups = np.empty((len(numbers), longest), np.uint8)
    used = np.ones((len(numbers), longest), np.bool_)
    for i in range(longest):
        rest = left >> np.uint64(7)
        more = rest > 0
        groups[:, i] = (left & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        left = rest
        if i + 1 < longest:
            used[:, i + 1] = more
    return groups, None if used[:, -1].all() else used


def _by_length(lengths: npt.NDArray[np.int64], make: Callable[[int], bytes]) -> pa.Array:
    """Returns ``make(length)`` for each of ``lengths``, calling it once for each that occurs."""
    longest = int(lengths.max(initial=0))
    if longest < _TABLE_SIZE:  # a table is several times quicker than sorting
        distinct = np.flatnonzero(np.bincount(lengths))
        place = np.zeros(longest + 1, np.int32)
        place[distinct] = np.arange(len(distinct))
        index = place[lengths]
    else:
        distinct, index = np.unique(lengths, return_inverse=True)
    return pa.array([make(int(length)) for length in distinct], pa.binary()).take(pa.array(index))


def _lengths(values: pa.Array) -> Offsets:
    return np.diff(binary_buffers(values)[1])


def _join(pieces: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
