"""Reading in place against the handlers of a broker and real logs in a directory, without a socket."""

from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from kalda.broker.leases.lease_grants import LeaseGrants
from kalda.broker.leases.read_leases import LeaseLimits
from kalda.broker.requests.handlers import acquire_read_lease, release_read_lease
from kalda.clients.errors import BrokerConnectionError, ClientError
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.partition_fetch import FetchedRecords, offset_behind
from kalda.clients.range_reader.read_lease import ReadLease, ReadLeaseCalls
from kalda.common.types import TopicPartition
from kalda.protocol import codec
from kalda.protocol.messages.acquire_read_lease import AcquireReadLeaseRequest
from kalda.protocol.schema import Message
from kalda.records.columnar import decode_batches
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.spark.source.options import SourceOptions, parse_batch_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.read_counters import ReadCounters
from kalda.spark.source.segment_reader import read_in_place
from kalda.storage.log_types import FetchIsolation
from tests.runtimes import seeded
from tests.unit.broker.data_path_fakes import TOPIC_ID, DataPath, leadership

T = TypeVar("T")
ORDERS = TopicPartition("orders", 0)


class InPlaceBroker(DataPath):
    """A broker's data path with one partition that grants leases, and a client next to it."""

    def __init__(self, directory: Path, **limits: int) -> None:
        super().__init__(directory)
        bounds = {"leases_max": 100, "lease_ms": 60_000, "lifetime_ms": 600_000} | limits
        self.grants = LeaseGrants(self.replicas, OsFileSystem(), self.clock, seeded(), LeaseLimits(**bounds))
        self.logs.resources.read_leases = self.grants
        self.host(leadership(0))
        self.configure(segment_bytes=2000, retention_ms=-1)
        self.is_down = False
        self.requests: list[str] = []
        self.failure: ClientError | None = None
        """What the next requests for a lease fail with."""

    @property
    def log(self) -> Any:
        return self.partition().log

    def leases(self) -> int:
        """Return how many leases hold."""
        return self.grants._count()

    # The part of a network client that lease calls use.

    @property
    def metadata(self) -> Any:
        leader = SimpleNamespace(id=1)
        return SimpleNamespace(snapshot=SimpleNamespace(leader=lambda _: leader, topic_id=lambda _: TOPIC_ID))

    async def send(self, node_id: int, request: Message, response_class: type[Any], **_: Any) -> Any:
        """Pass the request to its handler through the bytes of the wire."""
        self.requests.append(type(request).__name__)
        if self.is_down:
            raise BrokerConnectionError("broker 1 is down")
        is_acquire = isinstance(request, AcquireReadLeaseRequest)
        if is_acquire and self.failure is not None:
            raise self.failure
        handler = acquire_read_lease if is_acquire else release_read_lease
        received = codec.decode(type(request), 0, codec.encode(request, 0))
        response = handler.handle(self.grants, self.replicas, cast("Any", received), self.context(0))
        return codec.decode(response_class, 0, codec.encode(response, 0))


class InPlaceReader:
    """The log reader that `read_in_place` uses, on the broker above."""

    def __init__(self, broker: InPlaceBroker, options: SourceOptions) -> None:
        self.broker = broker
        self._calls = ReadLeaseCalls(cast("Any", broker), options.client)

    def known_leader_id(self, _: TopicPartition) -> int:
        return 1

    def acquire_lease(
        self, topic_partition: TopicPartition, *, start: int, end: int, topic_id: UUID
    ) -> ReadLease:
        return _run(self._calls.acquire(topic_partition, start, end, topic_id))

    def renew_lease(self, lease: ReadLease) -> None:
        _run(self._calls.renew(lease))

    def release_lease(self, lease: ReadLease, *, bytes_read: int, fallback_reason: str) -> bool:
        return _run(self._calls.release(lease, bytes_read, fallback_reason))

    def end_offsets(self, topic_partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(topic_partitions, self.broker.log.high_watermark)


def options(mode: str = "auto", **given: str) -> SourceOptions:
    fixed = {"kafka.bootstrap.servers": "b:1", "subscribe": "orders", "readMode": mode}
    return parse_batch_options(fixed | given)


class InPlaceRead:
    """One range that is read in place, part by part."""

    def __init__(
        self, broker: InPlaceBroker, start: int, end: int, given: SourceOptions | None = None
    ) -> None:
        self.counters = ReadCounters()
        self.rows: list[tuple[int, bytes]] = []
        self.position = -1
        """Where the reading ended; -1 before."""
        self._end = end
        chosen = given or options()
        reader = cast("LogReader", InPlaceReader(broker, chosen))
        self.parts = read_in_place(
            reader, chosen, OffsetRange(ORDERS, start, end), self.counters, broker.clock.monotonic
        )

    def next(self) -> bool:
        """Read and decode a part; return False at the end."""
        try:
            position, part = next(self.parts)
        except StopIteration as stop:
            self.position = stop.value
            return False
        self.rows += rows_of(position, part, self._end)
        return True

    def all(self) -> "InPlaceRead":
        while self.next():
            pass
        return self

    @property
    def reasons(self) -> Mapping[str, int]:
        return dict(self.counters.fallbacks)


def rows_of(position: int, part: FetchedRecords, end: int) -> list[tuple[int, bytes]]:
    """Decode a part to offsets and values."""
    found: list[tuple[int, bytes]] = []
    data = memoryview(part.records)
    decoded = decode_batches(data, start_offset=position, end_offset=end, aborted=part.aborted_transactions)
    found += zip(decoded.offsets.to_pylist(), decoded.values.to_pylist(), strict=True)
    assert decoded.next_offset >= min(part.next_offset, end)
    return found


def fetched_rows(broker: InPlaceBroker, start: int, end: int, *, committed: bool) -> list[tuple[int, bytes]]:
    """Read the range as fetches do."""
    isolation = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
    found: list[tuple[int, bytes]] = []
    while start < end:
        fetched = broker.log.read(start, 700, isolation)
        records = fetched.records.read()
        if not records:
            break
        aborted = tuple((each.producer_id, each.first_offset) for each in fetched.aborted_transactions or ())
        behind = offset_behind(records, start)
        found += rows_of(start, FetchedRecords(records, behind, 0, 0, 0, aborted), end)
        start = behind
    return found


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waited")
