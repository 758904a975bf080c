"""One broker's data path over real logs in a temporary directory: no sockets, a clock that tests move."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kalda.broker.fetching.fetch_session import FetchSessionCache
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.follower.ports import FollowerFetching
from kalda.broker.replicas.isr_changes import IsrChanges
from kalda.broker.replicas.missing_records import MissingRecords
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.replicas.replica_selector import RackAwareReplicaSelector
from kalda.broker.replicas.replication_quota import LEADER_REPLICAS, ReplicationQuota
from kalda.broker.requests.api import Pending, RequestContext
from kalda.broker.requests.handlers.fetch import FetchParts, handle_fetch
from kalda.broker.requests.handlers.produce import handle_produce
from kalda.broker.requests.produce_results import ProduceParts
from kalda.broker.requests.refused_batches import RefusedBatches
from kalda.broker.security.authorizer import Authorizer
from kalda.broker.transactions.marker_appends import MarkerAppends
from kalda.broker.transactions.produce_gate import ProduceGate
from kalda.cluster.isr_store import IsrStore
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.errors import ErrorCode
from kalda.common.purgatory import DelayedOperation, DelayedOperationPurgatory
from kalda.common.timing_wheel import TimingWheel
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, UpdateMetadata
from kalda.net.reply import PieceSource
from kalda.protocol import codec
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.clock import Clock, ManualClock
from kalda.runtime.filesystem import FileSystem
from kalda.security.principal import KafkaPrincipal
from kalda.storage.conversions import ConversionOwner, ConversionWork, Done, InlineConversions
from kalda.storage.file_records import FileSlice
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from tests.runtimes import seeded
from tests.unit.broker.handler_parts import no_quotas

BROKER_ID = 1
LAG_SECONDS = 30.0
TOPIC = "orders"
TOPIC_ID = uuid.UUID(int=7)


class FakeConnection:
    """Takes note of being closed."""

    def __init__(self) -> None:
        self.listener = "PLAINTEXT"
        self.peer = "test"
        self.peer_address = "192.0.2.1"
        self.principal = KafkaPrincipal("User", "alice")
        self.closed: list[str] = []
        self.holds = 0
        self.is_closed = False

    def hold_frames(self) -> None:
        self.holds += 1

    def close(self, reason: str) -> None:
        self.closed.append(reason)


class NoFetching:
    """Follows nothing."""

    def follow(self, partitions: Sequence[Partition]) -> None:
        pass

    def unfollow(self, partitions: Iterable[TopicPartition]) -> None:
        pass


class HeldConversions(InlineConversions):
    """Runs the work when the test says so."""

    def __init__(self) -> None:
        self.submitted: list[tuple[ConversionOwner, int, ConversionWork, Done]] = []

    def submit(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        self.submitted.append((owner, size, work, done))

    def run(self) -> None:
        submitted, self.submitted = self.submitted, []
        for each in submitted:
            super().submit(*each)


class CountedErrors:
    """The error codes and conversions that a handler counted."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.conversions: list[int] = []
        """Bytes of memory."""

    def observe_conversion(self, seconds: float, memory_bytes: int) -> None:
        assert seconds > 0
        self.conversions.append(memory_bytes)

    def count_error(self, code: int) -> None:
        self.codes.append(code)


def leadership(
    partition: int = 0,
    *,
    topic: str = TOPIC,
    topic_id: uuid.UUID = TOPIC_ID,
    leader: int = BROKER_ID,
    leader_epoch: int = 3,
    replicas: Sequence[int] = (BROKER_ID,),
    isr: Sequence[int] | None = None,
    is_new: bool = False,
) -> PartitionLeadership:
    return PartitionLeadership(
        topic,
        topic_id,
        partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=tuple(replicas if isr is None else isr),
        partition_epoch=0,
        replicas=tuple(replicas),
        is_new=is_new,
    )


def batch(*values: bytes, **settings: Any) -> bytes:
    """Build a batch with a record for each value."""
    builder = RecordBatchBuilder(**settings)
    for value in values or (b"value",):
        builder.append(timestamp=1_700_000_000_000, key=b"key", value=value)
    return bytes(builder.build())


class DataPath:
    """A broker's data path, and short words for what tests do to it."""

    def __init__(
        self,
        *directories: Path,
        config: LogConfig | None = None,
        file_system: FileSystem | None = None,
        isr_changes: Callable[[Clock], IsrChanges] | None = None,
        fetching: FollowerFetching | None = None,
        selector: RackAwareReplicaSelector | None = None,
        leader_quota: ReplicationQuota | None = None,
    ) -> None:
        """Without `isr_changes` no change of in-sync replicas is written."""
        self.clock = ManualClock()
        self.config = config or LogConfig()
        self.wheel: TimingWheel[DelayedOperation] = TimingWheel(self.clock)
        self.logs = LogManager(
            [str(each) for each in directories], lambda _: self.config, self.clock, file_system
        )
        self.logs.load()
        self.errors = CountedErrors()
        self.connection = FakeConnection()
        self.purgatories = {
            name: DelayedOperationPurgatory(name, self.wheel)
            for name in ("fetch", "produce", "delete_records")
        }
        cache = self.cache = MetadataCache()
        ids = iter(range(1000, 2000))
        changes = isr_changes or partial(IsrChanges, IsrStore(cast("Any", None)), random=seeded())
        self.replicas = ReplicaManager(
            BROKER_ID,
            self.logs,
            self.clock,
            self.purgatories["fetch"],
            self.purgatories["produce"],
            lambda partition: cache.partition(partition) is not None,
            lambda topic_id: cache.topic_name(uuid.UUID(bytes=topic_id)),
            fetching or NoFetching(),
            isr_changes=changes(self.clock),
            delete_purgatory=self.purgatories["delete_records"],
            is_alive=lambda broker: broker in cache.brokers,
            lag_seconds=LAG_SECONDS,
            selector=selector,
            leader_quota=leader_quota or self._no_quota(),
            missing=MissingRecords(
                BROKER_ID, self.logs.resources, cast("Any", None), lambda _: None, self.clock
            ),
            on_hosted=lambda _: None,
        )
        self.authorizer: Authorizer | None = None
        self.throttle = no_quotas(self.clock)
        self.settings: Any = SimpleNamespace(fetch_max_bytes=55 * 1024 * 1024)
        self.refused_batches = RefusedBatches(self.clock)
        self.sessions = FetchSessionCache(10, self.clock, lambda: next(ids))
        self.gate = ProduceGate(
            self.replicas, cast("Any", None), is_verifying=lambda: False, later=lambda seconds, call: None
        )

    def close(self) -> None:
        self.logs.close()

    def _no_quota(self) -> ReplicationQuota:
        return ReplicationQuota(
            LEADER_REPLICAS, BROKER_ID, lambda _: {}, self.clock, sample_count=2, sample_seconds=1
        )

    @property
    def produce_parts(self) -> ProduceParts:
        return ProduceParts(
            authorizer=self.authorizer,
            throttle=self.throttle,
            cache=self.cache,
            clock=self.clock,
            gate=self.gate,
            purgatory=self.purgatories["produce"],
            refused_batches=self.refused_batches,
            replicas=self.replicas,
            resources=self.logs.resources,
        )

    @property
    def fetch_parts(self) -> FetchParts:
        return FetchParts(
            authorizer=self.authorizer,
            throttle=self.throttle,
            cache=self.cache,
            clock=self.clock,
            config=self.settings,
            purgatory=self.purgatories["fetch"],
            replicas=self.replicas,
            resources=self.logs.resources,
            sessions=self.sessions,
        )

    def marker_appends(self) -> MarkerAppends:
        """Return what appends the markers of transactions, without a group coordinator."""
        internal_topics = cast("Any", SimpleNamespace(complete_transaction=lambda *_: None))
        return MarkerAppends(
            self.replicas, internal_topics, self.purgatories["produce"], self.clock, timeout_ms=1000
        )

    def host(
        self, *partitions: PartitionLeadership, is_full: bool = False
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Do what the controller does: leadership to this broker, metadata to all."""
        errors = self.replicas.roles.apply_leader_and_isr(LeaderAndIsr(1, 1, list(partitions), is_full))
        brokers = [
            BrokerInfo(broker, (ListenerEndpoint("PLAINTEXT", f"host{broker}", 9092),), None)
            for broker in (1, 2, 3)
        ]
        # A controller sends no metadata with an older epoch, whatever role a test makes up.
        known = {each: self.cache.partition(each.topic_partition) for each in partitions}
        current = [
            each for each, old in known.items() if old is None or old.leader_epoch <= each.leader_epoch
        ]
        self.cache.apply(UpdateMetadata(1, 1, current, brokers))
        return errors

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        return self.replicas.partition(TopicPartition(topic, index))

    def configure(self, **changes: Any) -> None:
        """Change the settings of every log."""
        self.config = replace(self.config, **changes)
        for topic in {each.topic for each in self.logs.logs()}:
            self.logs.update_topic_config(topic, self.config)

    def advance(self, milliseconds: int) -> None:
        """Let time pass and expire what is due."""
        self.clock.advance(milliseconds / 1000)
        for operation in self.wheel.advance():
            operation.expire()

    def context(self, version: int, client_id: str = "test") -> RequestContext:
        api = cast("Any", SimpleNamespace(metrics=self.errors, title="Test"))
        return RequestContext(cast("Any", self.connection), api, version, 77, client_id, 0.0)

    # Requests, through the handlers and the wire's bytes.

    def produce_request(
        self,
        records: Mapping[int, bytes | None] | bytes,
        *,
        acks: int = 1,
        version: int = 9,
        topic: str = TOPIC,
        topic_id: uuid.UUID = TOPIC_ID,
        client_id: str = "test",
        timeout_ms: int = 1000,
    ) -> Any:
        """Send a produce request and return what the handler returned."""
        by_partition = {0: records} if isinstance(records, bytes) else records
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id,
                    partition_data=[
                        PartitionProduceData(index=index, records=each)
                        for index, each in by_partition.items()
                    ],
                )
            ],
        )
        frame = memoryview(bytearray(codec.encode(request, version)))
        return handle_produce(self.produce_parts, self.context(version, client_id), frame, 0)

    def produce(
        self, records: Mapping[int, bytes | None] | bytes, **options: Any
    ) -> PartitionProduceResponse:
        """Produce and return the first partition's answer."""
        response = self.produce_response(self.produce_request(records, **options), options.get("version", 9))
        return response.responses[0].partition_responses[0]

    def produce_response(self, reply: object, version: int = 9) -> ProduceResponse:
        return codec.decode(ProduceResponse, version, _body(reply, version >= 9))

    def fetch_request(
        self,
        offsets: Mapping[int, int] | None = None,
        *,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        topic_id: uuid.UUID = TOPIC_ID,
        topic: str = TOPIC,
        forgotten: Iterable[Any] = (),
        **fields: Any,
    ) -> Any:
        """Send a fetch request and return what the handler returned."""
        epoch = fields.pop("current_leader_epoch", -1)
        last_epoch = fields.pop("last_fetched_epoch", -1)
        start_offset = fields.pop("log_start_offset", 0)
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
                log_start_offset=start_offset,
            )
            for index, offset in ({0: 0} if offsets is None else offsets).items()
        ]
        name: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[FetchTopic(**name, partitions=partitions)] if partitions else [],
            forgotten_topics_data=list(forgotten),
            **fields,
        )
        frame = memoryview(bytearray(codec.encode(request, version)))
        return handle_fetch(self.fetch_parts, self.context(version), frame, 0)

    def fetch(self, offsets: Mapping[int, int] | None = None, **options: Any) -> FetchResponse:
        """Fetch what is there and return the response."""
        return self.fetch_response(self.fetch_request(offsets, **options), options.get("version", 11))

    def fetch_response(self, reply: object, version: int = 11) -> FetchResponse:
        return codec.decode(FetchResponse, version, _body(reply, version >= 12))


def records_of(partition: PartitionData) -> bytes:
    """Return the records of a decoded answer."""
    records = partition.records
    assert isinstance(records, bytes | memoryview)
    return bytes(records)


def _body(reply: object, flexible: bool) -> bytes:
    """Join a reply's chunks, check its frame and return the body."""
    if isinstance(reply, Pending):
        reply = reply.value
    chunks = [reply] if isinstance(reply, bytes) else cast("list[bytes | FileSlice | PieceSource]", reply)
    frame = b"".join(map(_bytes_of, chunks))
    assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
    assert 77 == int.from_bytes(frame[4:8], "big")
    return frame[9:] if flexible else frame[8:]


def _bytes_of(chunk: bytes | FileSlice | PieceSource) -> bytes:
    if isinstance(chunk, FileSlice):
        return chunk.read()
    if not isinstance(chunk, PieceSource):
        return chunk
    sent = b""
    while len(sent) < chunk.size:
        piece = chunk.take()
        assert piece, "the executor of these tests works at once"
        sent += piece
    return sent
