"""Short ways to a log in memory and to batches for it."""

from collections.abc import Sequence

from kalda.common.types import TopicPartition
from kalda.records.batch import iter_headers
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.records.record import RecordBatchBuilder, iter_records
from kalda.runtime.background import Done, InlineExecutor, Work
from kalda.runtime.clock import ManualClock
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from kalda.storage.log_types import FetchIsolation
from kalda.storage.unified_log import UnifiedLog
from tests.unit.storage.faulty_file_system import FaultyFileSystem

PARTITION = TopicPartition("orders", 0)
DIRECTORY = "/data"
NOW_MS = 1_700_000_000_000


class QueueExecutor(InlineExecutor):
    """Keeps background work until told to run it."""

    def __init__(self) -> None:
        self.queue: list[tuple[Work, Done | None]] = []

    def submit(self, work: Work, done: Done | None = None) -> None:
        self.queue.append((work, done))

    def run_all(self, works: Sequence[Work]) -> list[BaseException | None]:
        return InlineExecutor().run_all(works)

    def run(self) -> None:
        while self.queue:
            work, done = self.queue.pop(0)
            error: BaseException | None = None
            try:
                work()
            except OSError as raised:
                error = raised
            if done is not None:
                done(error)


class Broker:
    """A log manager over a file system in memory, with one partition."""

    def __init__(
        self,
        config: LogConfig | None = None,
        file_system: FaultyFileSystem | None = None,
        clock: ManualClock | None = None,
        executor: QueueExecutor | None = None,
    ) -> None:
        self.config = config or LogConfig()
        self.file_system = file_system or FaultyFileSystem()
        self.clock = clock or ManualClock(NOW_MS)
        self.executor = executor
        self.manager = LogManager([DIRECTORY], lambda _: self.config, self.clock, self.file_system, executor)
        self.manager.load()
        self.log: UnifiedLog = self.manager.get_or_create(PARTITION)

    def stop(self) -> "Broker":
        """Stop cleanly and start again."""
        self.manager.close()
        return Broker(self.config, self.file_system.crash(), self.clock)

    def kill(self) -> "Broker":
        """Be killed and start again."""
        return Broker(self.config, self.file_system.crash(), self.clock)

    def cut_power(self) -> "Broker":
        """Lose what was not synced and start again."""
        return Broker(self.config, self.file_system.cut_power(), self.clock)

    def file_names(self) -> list[str]:
        """The partition's files."""
        prefix = f"{self.log.directory}/"
        return sorted(path.removeprefix(prefix) for path in self.file_system.nodes if path.startswith(prefix))


def batch(
    *values: bytes,
    timestamp: int = NOW_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    key: bytes | None = None,
) -> bytearray:
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
    )
    for value in values or (b"value",):
        builder.append(key, value, timestamp)
    return builder.build()


def marker(
    control_type: ControlRecordType, producer_id: int, epoch: int = 0, coordinator_epoch: int = 0
) -> bytearray:
    return build_end_transaction_marker(
        EndTransactionMarker(control_type, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=NOW_MS,
    )


def append(log: UnifiedLog, *values: bytes, leader_epoch: int = 0, timestamp: int = NOW_MS) -> int:
    """Append a batch, make it visible, return its first offset."""
    info = log.append_as_leader(batch(*values, timestamp=timestamp), leader_epoch)
    log.advance_high_watermark(log.log_end_offset)
    return info.first_offset


def read_all(
    log: UnifiedLog,
    offset: int | None = None,
    isolation: FetchIsolation = FetchIsolation.LOG_END,
    max_bytes: int = 900,
) -> list[tuple[int, bytes | None]]:
    """Read as a consumer does, from `offset` on: (offset, value) pairs, control batches left out."""
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start_offset if offset is None else offset
    while True:
        data = log.read(at, max_bytes, isolation).records.read()
        headers = list(iter_headers(data))
        if not headers:
            return found
        for position, header in headers:
            if not header.is_control:
                found += [
                    (record.offset, record.value)
                    for record in iter_records(data, position, header)
                    if record.offset >= at
                ]
        at = headers[-1][1].next_offset


def values_of(records: Sequence[tuple[int, bytes | None]]) -> list[bytes | None]:
    return [value for _, value in records]
