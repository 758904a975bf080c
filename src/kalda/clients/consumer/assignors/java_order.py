"""Reproduces Java's order of strings and of hash tables, on which the results of its assignors depend.

Java's assignors iterate over ``HashMap`` and ``HashSet``: which member keeps one partition more depends on
the hashes of member ids. A group may hold members of both languages and any of them may lead; the same input
must therefore give the same result here. The one case that is not modelled is a bucket with eight ids, which
Java turns into a tree.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from kalda.common.types import TopicPartition

K = TypeVar("K")

_CAPACITY_MIN: Final = 16
_UINT32: Final = 0xFFFFFFFF


def sort_key(text: str) -> bytes:
    """Return a key that sorts as ``String.compareTo``: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def string_hash(text: str) -> int:
    """Return ``String.hashCode`` as an unsigned number of 32 bits."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * 31 + unit) & _UINT32
        return value
    units = sort_key(text)
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8 | units[index + 1])) & _UINT32
    return value


def partition_hash(partition: TopicPartition) -> int:
    """Return ``TopicPartition.hashCode`` as an unsigned number of 32 bits."""
    return ((31 + partition.partition) * 31 + string_hash(partition.topic)) & _UINT32


def hash_order(names: Iterable[str]) -> list[str]:
    """Return the names, each once, in the order of a ``HashMap`` into which they were put in this order."""
    unique = list(dict.fromkeys(names))
    capacity = _CAPACITY_MIN
    while len(unique) > capacity * 3 // 4:
        capacity *= 2
    return sorted(unique, key=lambda name: _bucket(string_hash(name), capacity))


class HashOrderedSet(Generic[K]):
    """A set that iterates in the order of Java's ``HashSet``; the table grows and never shrinks."""

    __slots__ = ("_capacity", "_hash_of", "_hashes")

    def __init__(self, hash_of: Callable[[K], int]) -> None:
        self._hash_of = hash_of
        self._hashes: dict[K, int] = {}
        self._capacity = _CAPACITY_MIN

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Iterator[K]:
        capacity = self._capacity
        return iter(sorted(self._hashes, key=lambda key: _bucket(self._hashes[key], capacity)))

    def add(self, key: K) -> None:
        """Add the key, at the end of its bucket unless it is present."""
        if key not in self._hashes:
            self._hashes[key] = self._hash_of(key)
            if len(self._hashes) > self._capacity * 3 // 4:
                self._capacity *= 2

    def discard(self, key: K) -> None:
        """Remove the key if it is present."""
        self._hashes.pop(key, None)

    def first(self) -> K:
        """Return the key that iteration yields first.

        Raises:
            ValueError: the set is empty.
        """
        capacity = self._capacity
        return min(self._hashes, key=lambda key: _bucket(self._hashes[key], capacity))


def _bucket(value: int, capacity: int) -> int:
    return (value ^ value >> 16) & (capacity - 1)
