"""A compacted log in memory, its cleaner, and short ways to fill and read it."""

import asyncio
from collections.abc import Sequence

from kalda.records.batch import iter_headers
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType
from kalda.records.record import Record, RecordBatchBuilder, iter_records
from kalda.runtime.clock import ManualClock
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.log_cleaner import LogCleaner
from kalda.storage.cleaner.runner import CleaningRunner, InlineRunner
from kalda.storage.log_config import CleanupPolicy, LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.producer_state_manager import AppendOrigin
from kalda.storage.unified_log import UnifiedLog
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import NOW_MS, PARTITION, Broker, marker

COMPACT = frozenset({CleanupPolicy.COMPACT})
COMPACT_AND_DELETE = frozenset({CleanupPolicy.COMPACT, CleanupPolicy.DELETE})

Pair = tuple[bytes | None, bytes | None]


def compacted(**settings: object) -> LogConfig:
    """Settings of a compacted topic that is cleaned as soon as anything is dirty."""
    defaults: dict[str, object] = {
        "cleanup_policy": COMPACT,
        "min_cleanable_dirty_ratio": 0.0,
        "segment_bytes": 400,
        "index_interval_bytes": 100,
        "delete_retention_ms": 1000,
        "retention_ms": -1,
    }
    return LogConfig(**{**defaults, **settings})  # type: ignore[arg-type]


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


class CompactedBroker(Broker):
    """A broker in memory with one compacted log and a cleaner."""

    def __init__(
        self,
        config: LogConfig | None = None,
        file_system: FaultyFileSystem | None = None,
        clock: ManualClock | None = None,
        cleaner_config: CleanerConfig | None = None,
    ) -> None:
        super().__init__(config or compacted(), file_system, clock)
        self.cleaner_config = cleaner_config or CleanerConfig()
        self.cleaner = LogCleaner(
            self.manager, lambda: self.cleaner_config, lambda: self.runner, pause=no_pause
        )
        self.runner: CleaningRunner = InlineRunner(self.file_system)

    def clean(self) -> bool:
        """Clean the dirtiest log that is due."""
        return asyncio.run(self.cleaner.clean_filthiest(self.runner))

    def put(self, *pairs: Pair, timestamp: int = NOW_MS, **fields: object) -> int:
        """Append one batch and make it visible; returns its first offset."""
        return put(self.log, *pairs, timestamp=timestamp, **fields)

    def mark(self, control_type: ControlRecordType, producer_id: int, epoch: int = 0) -> int:
        """End the producer's transaction; returns the marker's offset."""
        records = marker(control_type, producer_id, epoch)
        offset = self.log.append_as_leader(records, 0, origin=AppendOrigin.COORDINATOR).first_offset
        self.log.advance_high_watermark(self.log.log_end_offset)
        return offset

    def roll(self) -> None:
        """Close the active segment, so that all that is there may be cleaned."""
        self.log.roll()

    def restarted(self) -> "CompactedBroker":
        """Be killed and start again."""
        return CompactedBroker(self.config, self.file_system.crash(), self.clock, self.cleaner_config)


def keyed_batch(
    *pairs: Pair,
    timestamp: int = NOW_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytearray:
    builder = RecordBatchBuilder(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        compression=compression,
    )
    for key, value in pairs:
        builder.append(key, value, timestamp)
    return builder.build()


def put(log: UnifiedLog, *pairs: Pair, **fields: object) -> int:
    info = log.append_as_leader(keyed_batch(*pairs, **fields), 0)  # type: ignore[arg-type]
    log.advance_high_watermark(log.log_end_offset)
    return info.first_offset


def records_of(
    log: UnifiedLog, offset: int | None = None, isolation: FetchIsolation = FetchIsolation.LOG_END
) -> list[Record]:
    """Read to the end as a consumer does: small fetches, control batches and aborted records left out."""
    found: list[Record] = []
    at = log.log_start_offset if offset is None else offset
    while True:
        fetched = log.read(at, 300, isolation)
        data = fetched.records.read()
        headers = list(iter_headers(data))
        if not headers:
            return found
        aborted = sorted(fetched.aborted_transactions or [], key=lambda each: each.first_offset)
        # Clients are told where a transaction began, and that it is over by its marker only.
        ongoing: set[int] = set()
        for position, header in headers:
            while aborted and aborted[0].first_offset <= header.last_offset:
                ongoing.add(aborted.pop(0).producer_id)
            if header.is_control:
                if header.record_count:
                    ongoing.discard(header.producer_id)
            elif not (header.producer_id in ongoing and header.is_transactional):
                found += [each for each in iter_records(data, position, header) if each.offset >= at]
        at = headers[-1][1].next_offset


def contents(records: Sequence[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records]


__all__ = ["PARTITION", "CompactedBroker", "compacted", "contents", "keyed_batch", "put", "records_of"]
