"""Reads a topic with ``read_committed`` and finds out whether a reader ever saw a part of a batch."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.types import TopicPartition
from kalda.records.columnar import decode_batches


class Row(NamedTuple):
    """A row of the topic: where it comes from, and its number."""

    partition: int
    offset: int
    number: int


class SnapshotReader(threading.Thread):
    """Reads the topic in a thread, and notes the last stable offsets whenever they change."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, parse: Callable[[bytes], Row]) -> None:
        super().__init__(name="reader", daemon=True)
        config = {
            "bootstrap.servers": bootstrap,
            "isolation.level": "read_committed",
            "default.api.timeout.ms": "5000",
            "request.timeout.ms": "3000",
        }
        self.ids: Final[Counter[int]] = Counter()
        """How often each number came."""
        self.snapshots: Final[list[tuple[int, ...]]] = []
        """The last stable offset of each partition."""
        self.failure: Exception | None = None
        self._reader: Final = LogReader(LogReaderConfig.from_properties(config))
        self._partitions: Final = [TopicPartition(topic, number) for number in range(partitions)]
        self._parse: Final = parse
        self._rows: Final[list[list[tuple[int, Row]]]] = [[] for _ in self._partitions]
        """By partition: offset and row."""
        self._ended: Final = threading.Event()
        self._positions: Final = [0] * partitions

    def run(self) -> None:
        """Read until `finish`."""
        while not self._ended.is_set():
            try:
                self._turn()
            except Exception as error:
                # A leader was killed; the next turn asks again.
                self.failure = error
                time.sleep(0.05)

    def finish(self) -> None:
        """Read what is there, then end."""
        self._ended.set()
        self.join(30)
        self._turn()
        self._reader.close()

    def partial_snapshots(self, batch_of: Mapping[tuple[int, int], int]) -> tuple[int, int]:
        """Return how many snapshots show a part of a batch: inside a partition, and across partitions.

        Args:
            batch_of: the batch of each source partition and offset.
        """
        totals: Counter[int] = Counter()
        in_partition: Counter[tuple[int, int]] = Counter()
        rows = [
            [(offset, batch_of[(row.partition, row.offset)]) for offset, row in sorted(each)]
            for each in self._rows
        ]
        for number, each in enumerate(rows):
            for _, batch in each:
                totals[batch] += 1
                in_partition[(number, batch)] += 1
        seen: Counter[int] = Counter()
        here: Counter[tuple[int, int]] = Counter()
        cursors = [0] * len(rows)
        inside = across = 0
        for snapshot in self.snapshots:
            touched = set()
            for number, end in enumerate(snapshot):
                while cursors[number] < len(rows[number]) and rows[number][cursors[number]][0] < end:
                    batch = rows[number][cursors[number]][1]
                    seen[batch] += 1
                    here[(number, batch)] += 1
                    touched.add((number, batch))
                    cursors[number] += 1
            inside += any(here[each] != in_partition[each] for each in touched)
            across += any(0 < seen[batch] < totals[batch] for batch in totals)
        return inside, across

    def _turn(self) -> None:
        ends = self._reader.end_offsets(self._partitions)
        snapshot = tuple(ends[each] for each in self._partitions)
        if self.snapshots and snapshot == self.snapshots[-1]:
            time.sleep(0.002)
            return
        self.snapshots.append(snapshot)
        for number, end in enumerate(snapshot):
            self._read(number, end)

    def _read(self, number: int, end: int) -> None:
        start = self._positions[number]
        if start >= end:
            return
        with self._reader.fetcher(self._partitions[number], start=start, end=end) as fetcher:
            while self._positions[number] < end:
                fetched = fetcher.next()
                if not fetched.records:
                    return
                decoded = decode_batches(
                    memoryview(fetched.records),
                    start_offset=self._positions[number],
                    end_offset=end,
                    aborted=fetched.aborted_transactions,
                )
                for offset, value in zip(
                    decoded.offsets.to_pylist(), decoded.values.to_pylist(), strict=True
                ):
                    row = self._parse(value)
                    self.ids[row.number] += 1
                    self._rows[number].append((offset, row))
                self._positions[number] = min(end, decoded.next_offset)
