"""Keeps the latest records of a topic, so that readers near its end need no fetches of their own.

Invariant: every record of a partition from `first` up to, not including, `next` was appended and is still
here. Offsets in between without a record (markers of transactions, compacted records) hold none.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from kalda.clients.values import ConsumerRecord

BytesRecord = ConsumerRecord[bytes, bytes]
"""A record as it was read. A missing key and a tombstone's value are None, whatever the type says."""

_OVERHEAD_BYTES: Final = 200
"""About what a record takes beyond its key, value and headers."""


class RecentRecords:
    """The records of one topic, in the order in which they were read; the oldest leave first."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self.first: Final[dict[int, int]] = {}
        """By partition, the offset from which on every record is here."""
        self.next: Final[dict[int, int]] = {}
        """By partition, the offset behind the newest record that was read."""
        self._records: Final[deque[tuple[BytesRecord, int]]] = deque()
        self._records_max: Final = records_max
        self._bytes_max: Final = bytes_max
        self._bytes = 0

    def __iter__(self) -> Iterator[BytesRecord]:
        return (record for record, _ in self._records)

    def __len__(self) -> int:
        return len(self._records)

    def add_partition(self, partition: int, offset: int) -> None:
        """Begin to keep a partition's records, from an offset on."""
        assert partition not in self.next, f"partition {partition} is kept already"
        self.first[partition] = self.next[partition] = offset

    def append(self, record: BytesRecord) -> None:
        """Add a record behind the others of its partition."""
        partition = record.partition
        assert record.offset >= self.next[partition], f"{record.offset} is before {self.next[partition]}"
        size = _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        self._records.append((record, size))
        self._bytes += size
        self.next[partition] = record.offset + 1
        while len(self._records) > self._records_max or self._bytes > self._bytes_max:
            oldest, its_size = self._records.popleft()
            self._bytes -= its_size
            self.first[oldest.partition] = oldest.offset + 1

    def advance(self, partition: int, offset: int) -> None:
        """Note that the reader has passed offsets without a record."""
        self.next[partition] = max(self.next[partition], offset)

    def covers(self, position: Mapping[int, int]) -> bool:
        """Return whether no record of a position's partitions is missing from the position on."""
        first = self.first
        return all(partition in first and first[partition] <= at for partition, at in position.items())

    def is_behind(self, position: Mapping[int, int]) -> bool:
        """Return whether a position has offsets that were not read here yet, or that do not exist."""
        return any(at > self.next.get(partition, 0) for partition, at in position.items())

    def since(self, position: Mapping[int, int]) -> Iterator[BytesRecord]:
        """Yield the records of a position's partitions from the position on."""
        for record, _ in self._records:
            at = position.get(record.partition)
            if at is not None and record.offset >= at:
                yield record
