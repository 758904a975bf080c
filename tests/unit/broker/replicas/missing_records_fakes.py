"""A broker whose log has gaps, and replicas that answer fetches from logs in memory: no sockets, no waits."""

import os
import uuid
from collections.abc import Callable

from kalda.broker.replicas.missing_records import MissingRecords
from kalda.broker.replicas.partition import DEBUGGING_REPLICA_ID, Partition
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kalda.protocol.schema import Message
from kalda.runtime.filesystem import TEMPORARY_SUFFIX
from kalda.storage.errors import OffsetOutOfRangeError, RecordsMissingError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.unified_log import UnifiedLog
from tests.runtimes import rules_without_followers
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import DIRECTORY, PARTITION, Broker, QueueExecutor, append, read_all

HERE = 1
TOPIC_ID = uuid.UUID(int=7)
RECORDS = 20
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0)
"""Five records a segment: of 20 records, segments begin at 0, 5, 10 and 15."""
ALL = [(number, b"%d" % number) for number in range(RECORDS)]

Answer = Callable[[int, PartitionData], PartitionData]


def whole(count: int = RECORDS, epoch: int = 0) -> Broker:
    """Return a replica with all records below `count`, one in a batch."""
    broker = Broker(SMALL)
    for number in range(count):
        append(broker.log, b"%d" % number, leader_epoch=epoch)
    return broker


def damaged(*bases: int, executor: QueueExecutor | None = None) -> Broker:
    """Return a replica that lacks the records of the segments that begin at `bases`."""
    broker = whole()
    assert [0, 5, 10, 15] == [segment.base_offset for segment in broker.log.segments]
    broker.manager.close()
    files = broker.file_system.crash()
    for base in bases:
        del files.nodes[f"{DIRECTORY}/orders-0/{base:020d}.log"].content[:]
    broker = Broker(SMALL, files, executor=executor)
    assert broker.log.missing.count == 5 * len(bases)
    return broker


class Peer:
    """One other replica."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.is_alive = True
        self.error = ErrorCode.NONE
        self.change: Answer = lambda _, data: data
        """What is done to an answer before it is sent; gets the offset, too."""
        self.asked: list[int] = []
        self.epochs: list[tuple[int, int]] = []
        """The leader's epoch and the last fetched one of each request."""

    def diverging(self, wanted: FetchPartition) -> PartitionData | None:
        """Answer as a broker whose log does not continue the records before what is wanted."""
        if wanted.last_fetched_epoch < 0:
            return None
        epoch, end = self.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
            return None
        return PartitionData(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end), records=b"")

    def read(self, offset: int, max_bytes: int) -> PartitionData:
        """Answer as a broker answers replica id -2."""
        self.asked.append(offset)
        code, records = self.error, b""
        try:
            if not code:
                records = self.log.read(offset, max_bytes, FetchIsolation.HIGH_WATERMARK).records.read()
        except OffsetOutOfRangeError:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        except RecordsMissingError:
            code = ErrorCode.OFFSET_NOT_AVAILABLE
        return PartitionData(
            partition_index=0, error_code=code, high_watermark=self.log.high_watermark, records=records
        )


class Connection:
    """A connection to one replica."""

    def __init__(self, peer: Peer, fetch_bytes: int) -> None:
        self._peer = peer
        self._fetch_bytes = fetch_bytes
        self.is_closed = False

    async def request(
        self, request: Message, *, timeout_seconds: float, version: int | None = None
    ) -> Message:
        assert isinstance(request, FetchRequest)
        assert DEBUGGING_REPLICA_ID == request.replica_state.replica_id
        if not self._peer.is_alive:
            raise ConnectionError("the replica went away")
        [topic] = request.topics
        [wanted] = topic.partitions
        self._peer.epochs.append((wanted.current_leader_epoch, wanted.last_fetched_epoch))
        data = self._peer.diverging(wanted) or self._peer.read(wanted.fetch_offset, self._fetch_bytes)
        data = self._peer.change(wanted.fetch_offset, data)
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=[data])])

    async def request_raw(
        self, api_key: ApiKey, version: int, body: bytes | list[bytes], *, timeout_seconds: float
    ) -> memoryview:
        raise AssertionError("not used")

    def version_of(self, api_key: ApiKey) -> int:
        return 16

    def close(self) -> None:
        self.is_closed = True


class Damaged:
    """A broker with a log that lacks records, its search, and the other replicas 2, 3, …"""

    def __init__(self, broker: Broker, *peers: Broker, fetch_bytes: int = 10_000) -> None:
        self.broker = broker
        self.log = broker.log
        self.files = broker.file_system
        self.fetch_bytes = fetch_bytes
        self.peers = {number: Peer(peer.log) for number, peer in enumerate(peers, HERE + 1)}
        self.dialled: list[int] = []
        self.dial_seconds = 0.0
        """How long it takes until a replica that is not alive is known not to be reached."""
        self.connections: list[Connection] = []
        self.settled: list[Partition] = []
        self.partition = Partition(PARTITION, TOPIC_ID, HERE, self.log, rules_without_followers())
        self.partition.replicas = self.partition.isr = (HERE, *self.peers)
        self.missing = MissingRecords(
            HERE,
            broker.manager.resources,
            self,
            lambda number: BrokerEndpoint(number, str(number), 9092),
            broker.clock,
        )
        self.missing.listen(self.settled.append)

    async def dial(self, host: str, port: int, options: DialOptions) -> Connection:
        self.dialled.append(int(host))
        peer = self.peers[int(host)]
        if not peer.is_alive:
            self.broker.clock.advance(self.dial_seconds)
            raise ConnectionError("refused")
        self.connections.append(Connection(peer, self.fetch_bytes))
        return self.connections[-1]

    def lead(self) -> bool:
        """Take the leadership; tell whether the partition is held."""
        self.partition.leader_id, self.partition.is_leader = HERE, True
        return self.missing.take(self.partition)

    def follow(self, leader: int = HERE + 1) -> bool:
        """Take the role of a follower; tell whether the partition is held."""
        self.partition.leader_id, self.partition.is_leader = leader, False
        return self.missing.take(self.partition)

    async def search(self, seconds: float = 0.0) -> float | None:
        """Let time pass and do what is due; return the seconds until the next round."""
        self.broker.clock.advance(seconds)
        return await self.missing.search_due()

    def records(self) -> list[tuple[int, bytes | None]]:
        """Read the log as if nobody waited for missing records."""
        missing = self.log.missing
        is_withheld, missing.is_withheld = missing.is_withheld, False
        try:
            return read_all(self.log)
        finally:
            missing.is_withheld = is_withheld

    def leftovers(self) -> list[str]:
        """Files of segments that were begun and are not part of the log."""
        return [name for name in self.broker.file_names() if name.endswith(TEMPORARY_SUFFIX)]


def fail_with(files: FaultyFileSystem, code: int, *operations: str, path: str = "") -> None:
    """Have operations on paths that contain `path` fail from now on."""

    def fault(operation: str, name: str) -> None:
        if operation in operations and path in name:
            raise OSError(code, os.strerror(code), name)

    files.fault = fault
