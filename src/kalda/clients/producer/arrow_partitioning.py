"""Chooses the partitions of an Arrow column of keys with numpy.

It gives each key the partition that `murmur2.partition_for_key` gives it; a property test compares the two.
All rows are hashed at the same time, word by word: the rows are ordered by length, so that those which
still have a word are the first ones.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kalda.common.murmur2 import MULTIPLIER, POSITIVE_MASK, SEED

UNASSIGNED: Final = -1
"""The partition of a row that goes to the topic's sticky partition."""

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_M: Final = np.uint32(MULTIPLIER)


def partitions_of(keys: pa.Array, partition_count: int) -> Integers:
    """Return the partition of each key of a ``binary`` column, `UNASSIGNED` for nulls."""
    chosen = (murmur2_of(keys) & np.uint32(POSITIVE_MASK)).astype(np.int64) % partition_count
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = UNASSIGNED
    return chosen


def murmur2_of(keys: pa.Array) -> Words:
    """Return the murmur2 hash of each value of a ``binary`` column; ignore the hash of a null."""
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(ends)
    # Padding, so that the last words of the last keys can be read without a test for the end.
    contents = np.zeros(int(ends[-1]) + 4, np.uint8)
    if data is not None and ends[-1]:
        contents[: ends[-1]] = np.frombuffer(data, np.uint8, count=int(ends[-1]))
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = ends[:-1][order], lengths[order]
    values = np.uint32(SEED) ^ sizes.astype(np.uint32)
    word_counts = sizes >> 2
    for index in range(int(word_counts[0]) if len(sizes) else 0):
        active = int(np.searchsorted(-word_counts, -index, side="left"))
        word = _words_at(contents, starts[:active] + 4 * index) * _M
        word = (word ^ (word >> np.uint32(24))) * _M
        values[:active] = (values[:active] * _M) ^ word
    rest = sizes & 3
    tail = _words_at(contents, starts + (word_counts << 2)) & ((1 << (8 * rest)) - 1).astype(np.uint32)
    values = np.where(rest > 0, (values ^ tail) * _M, values)
    values = (values ^ (values >> np.uint32(13))) * _M
    values ^= values >> np.uint32(15)
    hashes = np.empty_like(values)
    hashes[order] = values
    return hashes


def _words_at(contents: npt.NDArray[np.uint8], positions: Integers) -> Words:
    """Read a little-endian word at each position."""
    word = contents[positions].astype(np.uint32)
    for shift in (1, 2, 3):
        word |= contents[positions + shift].astype(np.uint32) << np.uint32(8 * shift)
    return word
