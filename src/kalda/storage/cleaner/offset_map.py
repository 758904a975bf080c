"""Maps each key of a log's dirty part to the place of its last record, within a memory bound.

A place is one ascending number made of a record's offset and its position in the batch. The second walk
through the log therefore finds the surviving records without reading those in between.

Short keys are stored as they are, and long ones as a 128-bit digest. A collision would lose a record, so a
shorter digest is not safe; Kafka's map uses MD5, of the same size, for the same reason.
"""

from array import array
from bisect import bisect_right
from collections.abc import KeysView, Sequence
from hashlib import blake2b
from typing import Final

from kalda.records.implementation import is_built, is_compiled

if is_built:
    from kalda.records import _records

Places = Sequence[int]
"""Ascending places: an array where compiled code reads them, else a list."""

ENTRY_BYTES: Final = 208
"""The most bytes per entry: key object 64, place object 48, share of a growing dict 88, and 8 in the sorted
list of survivors. Measured with 64-bit CPython 3.11; a test checks it."""

PLACES_PER_OFFSET: Final = 1 << 31
"""A place is ``offset * PLACES_PER_OFFSET + start``; no batch has that many bytes, compressed or not."""

KEY_BYTES_MAX: Final = 30
"""Longer keys are shortened."""

_DIGEST_BYTES: Final = 16


def shorten(key: bytes) -> bytes:
    """Return the digest of a long key. Its length is one that no short key has, so they never collide."""
    if len(key) <= KEY_BYTES_MAX:
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).digest() + b"\0" * (KEY_BYTES_MAX + 1 - _DIGEST_BYTES)


def is_long(keys: Sequence[bytes | None]) -> bool:
    """Return whether one of these keys must be shortened."""
    try:
        return max(map(len, keys), default=0) > KEY_BYTES_MAX  # type: ignore[arg-type] # see below
    except TypeError:
        # A None among the keys, which is rare enough for a second pass.
        return any(key is not None and len(key) > KEY_BYTES_MAX for key in keys)


class OffsetMap:
    """Filled batch by batch; then it returns which records survive."""

    __slots__ = ("_capacity", "_survivors", "latest_offset", "places", "tombstone_batches")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max >= ENTRY_BYTES, f"a table of {bytes_max} bytes holds no key"
        self._capacity: Final = bytes_max // ENTRY_BYTES
        self.places: Final[dict[bytes, int]] = {}
        """The last place of each key; written by `add` and by callers that checked `room`."""
        self.tombstone_batches: Final[list[int]] = []
        """Base offsets of batches with tombstones, ascending; written as `places` is."""
        self._survivors: Places = []
        self.latest_offset = -1
        """The map covers everything from the first dirty offset up to here."""

    def __len__(self) -> int:
        return len(self.places)

    @property
    def room(self) -> int:
        """How many more new keys fit."""
        return self._capacity - 1 - len(self.places) - len(self.tombstone_batches)

    @property
    def utilization(self) -> float:
        """How full the map is, 0 to 1."""
        return min(1.0, (len(self.places) + len(self.tombstone_batches)) / self._capacity)

    def add(
        self, keys: Sequence[bytes], places: Sequence[int], base_offset: int, has_tombstones: bool
    ) -> bool:
        """Add the keyed records of one batch, or return False if the map is full.

        The first batch always fits; otherwise a log with a batch that is too large would never be cleaned.
        """
        table = self.places
        if self.room < len(keys) and table and self.room < len(set(keys) - table.keys()):
            return False
        table.update(zip(keys, places, strict=True))
        if has_tombstones:
            self.note_tombstones(base_offset)
        return True

    def note_tombstones(self, base_offset: int) -> None:
        """Record that the batch has tombstones; batches ascend."""
        self.tombstone_batches.append(base_offset)

    def finish(self) -> None:
        """Sort the survivors; no batch may be added afterwards."""
        if is_compiled():
            numbers = array("q", [0]) * len(self.places)
            if _records.sort_values(self.places, numbers):
                self._survivors = numbers
                return
        self._survivors = sorted(self.places.values())

    @property
    def keys(self) -> KeysView[bytes]:
        """The keys of the dirty part; they supersede every record below it with the same key."""
        return self.places.keys()

    def survivors(self) -> "Survivors":
        """Return the surviving places for an ordered walk through the dirty part."""
        return Survivors(self._survivors, frozenset(self.tombstone_batches))


class Survivors:
    """Returns the surviving places batch by batch; each batch starts where the last one ended."""

    __slots__ = ("at", "places", "tombstone_batches")

    def __init__(self, places: Places, tombstone_batches: frozenset[int]) -> None:
        self.places: Final[Places] = places
        self.at = 0
        """Index of the first place that was not returned."""
        self.tombstone_batches: Final = tombstone_batches

    def has_tombstones(self, base_offset: int) -> bool:
        """Return whether the batch has tombstones."""
        return base_offset in self.tombstone_batches

    def take(self, last_place: int) -> Places:
        """Return the surviving places up to `last_place` that were not returned before."""
        at = self.at
        end = self.at = bisect_right(self.places, last_place, at)
        return self.places[at:end]
