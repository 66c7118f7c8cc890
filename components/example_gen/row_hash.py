"""A hash of each row's values that is the same in every process, version, batch size and order of rows and columns.

Of a cell: its bytes as little-endian 64-bit words (the last one padded with zeros), mixed one after another as
splitmix64 does into a state that begins with its length and a hash of the column's name; of a cell over 256 bytes only
the BLAKE2b digest is mixed in. Of a list: the sum of its values' hashes, each mixed with its place, mixed with the
length. Of a row: the sum of its cells modulo 2**64, mixed once more. A missing cell adds nothing, so neither a new
column without values nor another order of columns moves a row. CSV is hashed as written, not as converted: a type that
changes because of one new row leaves all other rows where they are.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.components.example_gen.arrow_buffers import binary_buffers, is_valid
from lockstep.components.example_gen.arrow_casts import as_large_lists, is_any_list

Hashes = npt.NDArray[np.uint64]

_LONG_CELL_BYTES = 256
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)


def hash_rows(columns: Iterable[tuple[str, pa.Array]], num_rows: int) -> Hashes:
    """Returns ``uint64 [num_rows]``.

    Args:
      columns: Name and values; strings or bytes are hashed as bytes, int64 and float64 by value (2 and 2.0 are equal),
        or lists of such.
      num_rows: Length of each array.
    """
    total = np.zeros(num_rows, np.uint64)
    for name, values in columns:
        if values.null_count == num_rows:
            continue
        cells = _hash_lists(values, name) if is_any_list(values.type) else _hash_cells(values, name)
        if values.null_count:
            cells = np.where(is_valid(values), cells, np.uint64(0))
        total += cells
    return _mix(total)


def _hash_cells(values: pa.Array, name: str) -> Hashes:
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return _mix(_number_words(values) ^ _seed(name))
    return _hash_bytes(values, _seed(name))


def _hash_lists(lists: pa.Array, name: str) -> Hashes:
    """Returns the sums of the hashes of the values, each mixed with its place in its list, and of the lengths."""
    lists = as_large_lists(lists)
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(counts)
    flat = lists.flatten()
    if pa.types.is_boolean(flat.type) or pa.types.is_null(flat.type):
        flat = flat.cast(pa.int64())
    places = np.arange(len(flat)) - np.repeat(ends - counts, counts)
    cells = np.where(is_valid(flat), _hash_cells(flat, name), np.uint64(0)) + places.astype(np.uint64) * _STEP
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(cells), dtype=np.uint64)])
    return _mix((sums[ends] - sums[ends - counts]) ^ _mix(counts.astype(np.uint64) + _seed(name)))


def random_words(first: int, count: int, seed: int) -> Hashes:
    """Returns a random-looking ``uint64`` for each number from ``first`` on: the same everywhere for the same seed."""
    start = np.uint64((first + (seed << 32)) % 2**64)
    return _mix(_mix(start + np.arange(count, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15))


def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def _mix(words: Hashes) -> Hashes:
    """splitmix64's finaliser (Steele, Lea and Flood, 2014)."""
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _number_words(values: pa.Array) -> Hashes:
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind != "f":
        whole_words: Hashes = numbers.astype(np.int64).view(np.uint64)
        return whole_words
    numbers = numbers.astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = numbers.astype(np.int64)
    is_whole = (np.abs(numbers) < 2.0**53) & (whole == numbers)
    words: Hashes = np.where(is_whole, whole.view(np.uint64), numbers.view(np.uint64))
    return words


def _hash_bytes(values: pa.Array, seed: np.uint64) -> Hashes:
    data, offsets = binary_buffers(values)
    padded = np.zeros(len(data) + 8, np.uint8)
    padded[: len(data)] = data
    # Every position of the data as a word of its own: reads are not aligned, which costs less than shifting.
    words = np.lib.stride_tricks.as_strided(padded[:8].view("<u8"), shape=(len(data) + 1,), strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    state = np.full(len(values), seed, np.uint64) + lengths.astype(np.uint64) * _STEP
    longest = int(lengths.max(initial=0))
    rows = np.arange(len(values)) if longest <= _LONG_CELL_BYTES else np.flatnonzero(lengths <= _LONG_CELL_BYTES)
    for at in range(0, min(longest, _LONG_CELL_BYTES), 8):
        left = lengths[rows] - at
        if at:
            rows, left = rows[left > 0], left[left > 0]
        mask = _ALL_BITS >> (np.uint64(64) - np.uint64(8) * np.clip(left, 1, 8).astype(np.uint64))
        mask[left <= 0] = 0
        state[rows] = _mix(state[rows] ^ (words[starts[rows] + at] & mask))
    for row in np.flatnonzero(lengths > _LONG_CELL_BYTES):
        digest = hashlib.blake2b(data[starts[row] : offsets[row + 1]].tobytes(), digest_size=8).digest()
        state[row] ^= np.uint64(int.from_bytes(digest, "little"))
    return _mix(state)
