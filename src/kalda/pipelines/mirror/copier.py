"""Copies records between clusters in transactions that hold records and progress together.

A transaction has records of several partitions, which source offsets became which target offsets, and where
the mirror goes on, as offsets of a group in the target. So after a crash the copy goes on with the first
record that is not committed. All three are in the same transaction. Where the target has no transactions,
`delivery` commits the progress after the records, never before.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kalda.clients.errors import OffsetOutOfRangeError
from kalda.clients.producer.arrow_future import ArrowFuture
from kalda.clients.producer.producer import Producer
from kalda.clients.range_reader.log_reader import LogReader, PartitionFetcher
from kalda.clients.range_reader.partition_fetch import FetchedRecords
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.pipelines.mirror.delivery import Delivery
from kalda.pipelines.mirror.offset_syncs import Run, Sync, runs_of, sync_key, sync_value
from kalda.pipelines.mirror.policy import SYNCS_TOPIC
from kalda.pipelines.mirror.progress import id_text
from kalda.records.columnar import decode_batches

logger: Final = logging.getLogger(__name__)

TRANSACTION_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes that one transaction copies at most, plus one fetch: readers of the copy wait for its end."""
TRANSACTION_SECONDS_MAX: Final = 2.0
"""After this time a transaction is committed with what it has."""
_EMPTY_FETCHES_AT_END: Final = 2
"""A log that twice returns nothing before an offset holds nothing there: markers, or compacted records."""
_DELIVERY_TIMEOUT_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Copied:
    """What one transaction copied."""

    records: int
    read_bytes: int
    lost: int
    """Offsets that the source's retention deleted before they were copied."""
    positions: Mapping[TopicPartition, int]
    """Where each partition of the source goes on."""
    runs: Mapping[TopicPartition, list[Run]]


@dataclass(slots=True)
class _Part:
    """The records of one partition in a transaction."""

    target: TopicPartition
    offsets: list[npt.NDArray[np.int64]] = field(default_factory=list)
    futures: list[ArrowFuture] = field(default_factory=list)
    lost: int = 0


class Copier:
    """Copies one transaction after the other."""

    def __init__(
        self,
        mirror: str,
        reader: LogReader,
        producer: Producer,
        delivery: Delivery,
        topic_id: Callable[[str], UUID | None],
        metadata: Callable[[TopicPartition], str],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take clients that the caller closes; the delivery uses the same producer.

        Args:
            topic_id: the id of a topic in the source. A topic that was created again since is not copied: its
                records are not those that follow the position.
            metadata: the text that is committed with the progress of a source partition.
        """
        self._mirror: Final = mirror
        self._reader: Final = reader
        self._producer: Final = producer
        self._delivery: Final = delivery
        self._topic_id: Final = topic_id
        self._metadata: Final = metadata
        self._monotonic: Final = monotonic

    def copy(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        targets: Mapping[TopicPartition, TopicPartition],
    ) -> Copied:
        """Copy the beginning of the ranges in one transaction, of as many as it can hold.

        Args:
            ranges: where each source partition goes on and where it ends now.
            targets: the partition that each is copied to.

        Raises:
            ClientError: reading or writing failed; the transaction was aborted, and nothing is copied.
            RecordsError: a batch of the source is corrupt; nothing is copied.
        """
        with self._delivery.unit():
            deadline = self._monotonic() + TRANSACTION_SECONDS_MAX
            read_bytes = 0
            positions: dict[TopicPartition, int] = {}
            parts: dict[TopicPartition, _Part] = {}
            for source, (start, end) in ranges.items():
                if read_bytes >= TRANSACTION_BYTES_MAX or self._monotonic() >= deadline:
                    break
                parts[source] = part = _Part(targets[source])
                budget = TRANSACTION_BYTES_MAX - read_bytes
                positions[source], size = self._copy_range(source, part, start, end, budget, deadline)
                assert start <= positions[source] <= max(start, end), f"{source}: {positions[source]}"
                read_bytes += size
            self._producer.flush(_DELIVERY_TIMEOUT_S)
            runs = {source: self._runs(part) for source, part in parts.items()}
            self._send_progress(parts, positions, runs)
        return Copied(
            records=sum(len(each) for part in parts.values() for each in part.offsets),
            read_bytes=read_bytes,
            lost=sum(part.lost for part in parts.values()),
            positions=positions,
            runs=runs,
        )

    def _send_progress(
        self,
        parts: Mapping[TopicPartition, _Part],
        positions: Mapping[TopicPartition, int],
        runs: Mapping[TopicPartition, list[Run]],
    ) -> None:
        assert parts.keys() == positions.keys() == runs.keys(), "each partition has progress and runs"
        for source, found in runs.items():
            sync = Sync(id_text(self._topic_id(source.topic)), positions[source], found)
            self._producer.send(SYNCS_TOPIC, sync_value(sync), key=sync_key(self._mirror, source))
        offsets = {
            part.target: OffsetAndMetadata(positions[source], self._metadata(source))
            for source, part in parts.items()
        }
        self._delivery.commit(offsets)

    def _copy_range(
        self, source: TopicPartition, part: _Part, start: int, end: int, bytes_max: int, deadline: float
    ) -> tuple[int, int]:
        """Send the records of a range; return where it goes on and how many bytes were read."""
        size = 0
        empty_count = 0
        topic_id = self._topic_id(source.topic) or ZERO_UUID
        with self._reader.fetcher(source, start=start, end=end, topic_id=topic_id) as fetcher:
            position = start
            while position < end and size < bytes_max and self._monotonic() < deadline:
                try:
                    fetched = fetcher.next()
                except OffsetOutOfRangeError:
                    position = self._skip_deleted(source, part, fetcher, position, end)
                    continue
                if not fetched.records:
                    empty_count += 1
                    if fetched.last_stable_offset >= end and empty_count >= _EMPTY_FETCHES_AT_END:
                        return end, size
                    continue
                empty_count = 0
                size += len(fetched.records)
                reached = self._send(part, fetched, position, end)
                position = min(fetched.next_offset, end)
                if reached < position:
                    # More than one decode takes. The rest needs the aborted transactions of its own fetch.
                    position = reached
                    fetcher.seek(reached)
        return position, size

    def _send(self, part: _Part, fetched: FetchedRecords, position: int, end: int) -> int:
        """Send the records of a fetch; return the offset that decoding reached."""
        decoded = decode_batches(
            memoryview(fetched.records),
            start_offset=position,
            end_offset=end,
            aborted=fetched.aborted_transactions,
            want_headers=True,
        )
        count = len(decoded)
        if count:
            batch = pa.RecordBatch.from_pydict(
                {
                    "key": decoded.keys,
                    "value": decoded.values,
                    "headers": decoded.headers,
                    "partition": pa.array(np.full(count, part.target.partition, np.int32)),
                    "timestamp": _times(decoded.timestamps_ms),
                }
            )
            part.offsets.append(decoded.offsets.to_numpy())
            part.futures.append(self._producer.send_arrow(part.target.topic, batch))
        assert decoded.next_offset > position, f"no progress at offset {position}"
        return decoded.next_offset

    def _skip_deleted(
        self, source: TopicPartition, part: _Part, fetcher: PartitionFetcher, position: int, end: int
    ) -> int:
        beginning = self._reader.beginning_offsets([source])[source]
        if beginning <= position:
            # A new leader may not have caught up; the next fetch asks again.
            fetcher.seek(position)
            return position
        skipped = min(beginning, end)
        part.lost += skipped - position
        logger.warning(
            "mirror %s: offsets %d to %d of %s were deleted before they were copied; raise retention.ms of "
            "the topic, or run the mirror more often",
            self._mirror,
            position,
            skipped - 1,
            source,
        )
        fetcher.seek(skipped)
        return skipped

    @staticmethod
    def _runs(part: _Part) -> list[Run]:
        written = [
            (each.base_offset, each.record_count)
            for future in part.futures
            for each in future.result(_DELIVERY_TIMEOUT_S).ranges
        ]
        return runs_of(part.offsets, written)


def _times(timestamps_ms: pa.Array) -> pa.Array:
    """Return null, which means now, for a record without a timestamp, as MirrorMaker does.

    Such records have -1; producers refuse that, and 0 would make retention delete the copy.
    """
    return pc.if_else(pc.less(timestamps_ms, 0), None, timestamps_ms)
