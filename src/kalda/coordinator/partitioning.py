"""Maps a group id or a transactional id to its partition of the internal topic, with Kafka's own hash.

All brokers, and all tools that read the topics, must agree on the partition.
"""

from functools import lru_cache
from typing import Final

_INT32_MIN: Final = -(2**31)


@lru_cache(maxsize=256)
def java_hash(text: str) -> int:
    """Return ``String.hashCode`` of Java: over UTF-16 code units, with the overflow of 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(key: str, partition_count: int) -> int:
    """Return the partition of a group id or a transactional id."""
    value = java_hash(key)
    # The least integer has no absolute value in 32 bits; Kafka takes 0.
    return 0 if value == _INT32_MIN else abs(value) % partition_count
