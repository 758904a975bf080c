"""A fetcher core over logs in memory, and answers as a leader writes them."""

import uuid

from kalda.broker.replicas.follower.fetch_state import FetchState
from kalda.broker.replicas.follower.fetcher_core import FetcherCore
from kalda.broker.replicas.follower.follower_fetch_session import FollowerFetchSession
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replication_quota import FOLLOWER_REPLICAS, ReplicationQuota
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.fast.fetch import FetchRequestFields, parse_fetch_request
from kalda.protocol.fast.fetch_response import FetchedPartition, FetchResponseFields
from kalda.records.batch import set_base_offset_and_leader_epoch
from kalda.runtime.clock import ManualClock
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from tests.runtimes import rules_without_followers
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import DIRECTORY, NOW_MS, batch

FOLLOWER, LEADER, EPOCH = 2, 1, 5
TOPIC_ID = uuid.UUID(int=7)
VERSION = 17
BACKOFF_SECONDS = 1.0


class Follower:
    """One core that follows leader 1, and short words for what tests do to it."""

    def __init__(self, config: LogConfig | None = None, throttled: str = "") -> None:
        self.clock = ManualClock(NOW_MS)
        self.files = FaultyFileSystem()
        self.config = config or LogConfig()
        self.logs = LogManager([DIRECTORY], lambda _: self.config, self.clock, self.files, None)
        self.logs.load()
        self.quota = ReplicationQuota(
            FOLLOWER_REPLICAS,
            FOLLOWER,
            lambda _: {FOLLOWER_REPLICAS: throttled} if throttled else {},
            self.clock,
            sample_count=11,
            sample_seconds=1,
        )
        session = FollowerFetchSession(
            FOLLOWER, max_wait_ms=500, min_bytes=1, max_bytes=10_000, partition_max_bytes=1_000
        )
        self.core = FetcherCore(LEADER, session, self.quota, BACKOFF_SECONDS)

    def replica(self, index: int = 0, epoch: int = EPOCH) -> Partition:
        name = TopicPartition("orders", index)
        partition = Partition(
            name, TOPIC_ID, FOLLOWER, self.logs.get_or_create(name, TOPIC_ID), rules_without_followers()
        )
        partition.leader_id, partition.leader_epoch = LEADER, epoch
        return partition

    def follow(self, index: int = 0, epoch: int = EPOCH) -> FetchState:
        partition = self.replica(index, epoch)
        self.core.follow(partition)
        return self.core.states[partition.topic_partition]

    def request(self) -> FetchRequestFields | None:
        body = self.core.request(VERSION, 40, self.clock.monotonic())
        return None if body is None else parse_fetch_request(memoryview(body), 0, VERSION)

    def asked(self) -> list[tuple[int, int]]:
        """Send the next request; return what it names: (partition, fetch offset)."""
        fields = self.request()
        assert fields is not None
        return [(part.partition, part.fetch_offset) for _, parts in fields.topics for part in parts]

    def answer(self, *partitions: FetchedPartition, session_id: int = 77, error: int = 0) -> list[Partition]:
        answer = FetchResponseFields(0, error, session_id, list(partitions))
        return list(self.core.on_answer(answer, self.clock.monotonic()))


def fetched(
    index: int = 0,
    records: bytes | bytearray | None = None,
    *,
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = 0,
    log_start_offset: int = 0,
    diverging: tuple[int, int] | None = None,
    topic_id: uuid.UUID = TOPIC_ID,
) -> FetchedPartition:
    data = None if records is None else memoryview(bytearray(records))
    return FetchedPartition(
        topic_id.bytes, index, int(error), high_watermark, log_start_offset, diverging, data
    )


def at(offset: int, *values: bytes, epoch: int = EPOCH) -> bytearray:
    """A batch as the leader has it in its log."""
    records = batch(*values)
    set_base_offset_and_leader_epoch(records, 0, offset, epoch)
    return records
