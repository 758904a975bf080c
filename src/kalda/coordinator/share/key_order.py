"""Keeps the order of records with the same key in a share partition: `KeyOrder`.

Of the records in flight that are not done, only the first of each key may be acquired; others are blocked::

    offset  4  5  6  7  8
    key     a  b  a  -  a     6 and 8 are blocked; when 4 is done, 6 is free

Keys are numbers here: hashes of the bytes in the records.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final


class KeyOrder:
    """The records of one share partition that have a key and are in flight and not done."""

    def __init__(self) -> None:
        self._keys: Final[dict[int, int]] = {}
        """The key of each offset."""
        self._offsets: Final[dict[int, deque[int]]] = {}
        """The same offsets by key, in order: all but the first are blocked."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, offset: int, key: int | None) -> bool:
        """Note the key of a record, None for none; return whether the record is blocked."""
        if key is None:
            return False
        self._keys[offset] = key
        offsets = self._offsets.setdefault(key, deque())
        offsets.append(offset)
        return len(offsets) > 1

    def remove(self, first: int, last: int) -> Iterator[int]:
        """Forget the records between two offsets, which are done; yield those that are free by that."""
        keys = self._keys
        if last - first < len(keys):
            done = [offset for offset in range(first, last + 1) if offset in keys]
        else:
            done = sorted(offset for offset in keys if first <= offset <= last)
        for offset in done:
            key = keys.pop(offset)
            offsets = self._offsets[key]
            is_first = offsets[0] == offset
            offsets.remove(offset)
            if not offsets:
                del self._offsets[key]
            elif is_first and not first <= offsets[0] <= last:
                # It may be before them, where the order of keys was switched on meanwhile.
                yield offsets[0]

    def is_blocked(self, offset: int) -> bool:
        """Return whether a record before that at the offset has the same key."""
        key = self._keys.get(offset)
        return key is not None and self._offsets[key][0] != offset

    def clear(self) -> None:
        """Forget all records."""
        self._keys.clear()
        self._offsets.clear()
