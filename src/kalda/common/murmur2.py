"""Hashes record keys with murmur2, the hash of Java's producer (`Utils.murmur2`).

The vectorised form for Arrow columns is in `arrow_partitioning`; a property test compares the two.

Every bit of the hash counts. A producer with another hash sends a key to another partition than the Java
producers of the same topic, and the order of that key's records is lost.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
SHIFT: Final = 24
POSITIVE_MASK: Final = 0x7FFFFFFF
_MASK: Final = 0xFFFFFFFF

_CACHED_KEYS: Final = 8192
"""Programs send few keys often; 8,192 short keys with their hashes take about 1 MB."""
_CACHED_KEY_SIZE_MAX: Final = 64
"""Longer keys would let the cache's memory grow with the size of the keys."""


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned 32-bit number; Java's is the same number with a sign.

    >>> murmur2(b"foobar") - 2**32
    -790332482
    """
    size = len(data)
    words = size >> 2
    value = SEED ^ size
    for word in _words(words).unpack_from(data):
        word = word * MULTIPLIER & _MASK
        word = (word ^ word >> SHIFT) * MULTIPLIER & _MASK
        value = (value * MULTIPLIER & _MASK) ^ word
    if size & 3:
        value = (value ^ int.from_bytes(data[words << 2 :], "little")) * MULTIPLIER & _MASK
    value = (value ^ value >> 13) * MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a serialised key, as every Kafka producer with the default partitioner does."""
    found = _positive_hash(key) if len(key) <= _CACHED_KEY_SIZE_MAX else murmur2(key) & POSITIVE_MASK
    return found % partition_count


@lru_cache(maxsize=256)
def _words(count: int) -> Struct:
    return Struct(f"<{count}I")


@lru_cache(maxsize=_CACHED_KEYS)
def _positive_hash(key: bytes) -> int:
    return murmur2(key) & POSITIVE_MASK
