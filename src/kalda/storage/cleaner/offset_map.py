"""The table of a cleaning: the last offset of each key in the dirty part of a log, within a memory bound.

Keys stand for themselves; long ones are replaced by a 128-bit digest. A collision would lose a record, so
nothing shorter will do: Kafka's table takes MD5, of the same size, for the same reason.
"""

from bisect import bisect_right
from collections.abc import KeysView, Sequence
from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 192
"""What an entry costs at most: key object 64, offset object 32, its share of a dict that grows 88, and 8
in the sorted list of survivors. Measured with CPython 3.11 on 64 bits; a test holds it to that."""

_KEY_BYTES_MAX: Final = 30
_DIGEST_BYTES: Final = 16


def shorten(key: bytes) -> bytes:
    """Return what stands for a key. Digests have a length that no short key gets, so they never meet one."""
    if len(key) <= _KEY_BYTES_MAX:
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).digest() + b"\0" * (_KEY_BYTES_MAX + 1 - _DIGEST_BYTES)


def is_long(keys: Sequence[bytes | None]) -> bool:
    """Tell whether a key among these must be shortened."""
    try:
        return max(map(len, keys), default=0) > _KEY_BYTES_MAX  # type: ignore[arg-type] # see below
    except TypeError:
        # There is a None among them, which is rare enough to look twice.
        return any(key is not None and len(key) > _KEY_BYTES_MAX for key in keys)


class OffsetMap:
    """Filled batch by batch with `add`, then asked which records survive."""

    __slots__ = ("_capacity", "_offsets", "_survivors", "_tombstone_batches", "latest_offset")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max >= ENTRY_BYTES, f"a table of {bytes_max} bytes holds no key"
        self._capacity: Final = bytes_max // ENTRY_BYTES
        self._offsets: dict[bytes, int] = {}
        # Base offsets of batches in which a key was deleted, ascending.
        self._tombstone_batches: list[int] = []
        self._survivors: list[int] = []
        self.latest_offset = -1
        """Everything from the first dirty offset up to here is in the table."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """How full the table is, 0 to 1."""
        return min(1.0, (len(self._offsets) + len(self._tombstone_batches)) / self._capacity)

    def add(
        self, keys: Sequence[bytes], offsets: Sequence[int], base_offset: int, has_tombstones: bool
    ) -> bool:
        """Take in the keyed records of one batch, or return False: the table is full.

        The first batch is taken in any case, or a log with one that is too large would never be cleaned.
        """
        table = self._offsets
        if len(table) + len(self._tombstone_batches) + len(keys) >= self._capacity and table:
            new = len(set(keys) - table.keys())
            if len(table) + len(self._tombstone_batches) + new >= self._capacity:
                return False
        table.update(zip(keys, offsets, strict=True))
        if has_tombstones:
            self._tombstone_batches.append(base_offset)
        return True

    def finish(self) -> None:
        """Sort what survives; nothing is added after this."""
        self._survivors = sorted(self._offsets.values())

    @property
    def keys(self) -> KeysView[bytes]:
        """The keys of the dirty part; any record below the dirty part that has one of them is superseded."""
        return self._offsets.keys()

    def survivors(self) -> "Survivors":
        """Return a view on the surviving offsets for a walk through the dirty part in order."""
        return Survivors(self._survivors, frozenset(self._tombstone_batches))


class Survivors:
    """Walks through surviving offsets with the batches; each batch starts where the last one ended."""

    __slots__ = ("_at", "_offsets", "_tombstone_batches")

    def __init__(self, offsets: list[int], tombstone_batches: frozenset[int]) -> None:
        self._offsets = offsets
        self._at = 0
        self._tombstone_batches = tombstone_batches

    def has_tombstones(self, base_offset: int) -> bool:
        """Tell whether the batch deletes a key."""
        return base_offset in self._tombstone_batches

    def take(self, last_offset: int) -> list[int]:
        """Return the surviving offsets up to `last_offset` that were not taken before."""
        at = self._at
        end = self._at = bisect_right(self._offsets, last_offset, at)
        return self._offsets[at:end]
