"""Share sessions and the share partitions that they name: what clients repeat, forget, and leave behind."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kalda.broker.requests.request_slices import SLICE
from kalda.broker.requests.share import write_share_group_state
from kalda.broker.requests.share_requests import acknowledgements_of
from kalda.broker.share import share_fetch
from kalda.broker.share.record_facts import WAIT_MAX_MS
from kalda.broker.share.share_fetch import (
    BATCHES_MAX,
    DelayedShareFetch,
    ShareFetchParams,
    fetched_batches,
    read_headers,
)
from kalda.broker.share.share_partitions import SESSION_PARTITIONS_MAX, SharePartitions
from kalda.broker.share.share_sessions import PartitionName, SessionKey, ShareSession
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.purgatory import DelayedOperation, DelayedOperationPurgatory
from kalda.common.types import TopicPartition
from kalda.coordinator.share.acknowledgement import Acknowledgement
from kalda.coordinator.share.delivery_state import AcknowledgeType, PartitionState, RecordState
from kalda.coordinator.share.fetched_batch import FetchedBatch
from kalda.coordinator.share.in_flight_records import DeadRange
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.share_partition import AcquiredRange, SharePartition
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.coordinator.share.share_shard import StateChange
from kalda.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
)
from kalda.protocol.messages.write_share_group_state import (
    PartitionData,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from kalda.records.batch import MAGIC, MAGIC_POSITION, BatchHeader
from kalda.records.compression import Compression
from kalda.records.errors import RecordsError
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from kalda.storage.log_config import LogConfig
from tests.unit.broker.admin_fakes import context
from tests.unit.broker.data_path_fakes import FakeConnection
from tests.unit.storage import log_fixtures as storage

TOPIC_ID = UUID(int=7)
NAME: PartitionName = (TOPIC_ID, 0)
MEMBER = SessionKey("g", "a")
KEY = SharePartitionKey("g", TOPIC_ID, 0)
ACCEPT = [int(AcknowledgeType.ACCEPT)]
RELEASE = [int(AcknowledgeType.RELEASE)]
REJECT = [int(AcknowledgeType.REJECT)]


class States:
    """The share coordinator: writes are done when the test says so."""

    def __init__(self) -> None:
        self.reads = 0
        self.start_offset = 0
        self.writes: list[tuple[StateChange, Pending[None]]] = []

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Pending[PartitionState]:
        self.reads += 1
        return Pending.of(PartitionState(1, self.start_offset))

    def write(self, key: SharePartitionKey, change: StateChange) -> Pending[None]:
        done: Pending[None] = Pending()
        self.writes.append((change, done))
        return done

    def stored(self) -> None:
        self.writes.pop(0)[1].complete(None)


class Letters:
    """The dead-letter topic: letters are written when the test says so."""

    def __init__(self) -> None:
        self.writes: list[tuple[list[DeadRange], Pending[list[DeadRange]]]] = []

    def write(
        self, group_id: str, name: TopicPartition, log: object, dead: Sequence[DeadRange]
    ) -> Pending[list[DeadRange]]:
        done: Pending[list[DeadRange]] = Pending()
        self.writes.append((list(dead), done))
        return done

    def written(self) -> None:
        dead, done = self.writes.pop(0)
        done.complete(dead)

    def failed(self) -> None:
        self.writes.pop(0)[1].fail(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


class Led:
    """The partition, as its leader has it."""

    def __init__(self) -> None:
        self.is_leader, self.is_gone, self.leader_epoch = True, False, 3
        self.topic_partition = TopicPartition("t", 0)
        self.log = SimpleNamespace(log_start_offset=0, high_watermark=0)


class Client(FakeConnection):
    """A connection with what share sessions use of it."""

    def __init__(self) -> None:
        super().__init__()
        self.id = 1
        self.on_close: Callable[[], None] | None = None


class Broker:
    """The leader of one partition, for clients on some connections."""

    def __init__(self) -> None:
        self.states, self.letters = States(), Letters()
        self.clock = ManualClock()
        self.limits = PartitionLimits()
        self.partition = Led()
        self.loads: list[Pending[None]] = []
        """Settings of groups that are being read."""
        self.offset_reset = "earliest"
        self.timers: list[SimpleNamespace] = []
        timers = SimpleNamespace(add=self._add_timer)
        settings = SimpleNamespace(
            limits=lambda group_id: self.limits,
            offset_reset=lambda group_id: self.offset_reset,
            reads_committed=lambda group_id: False,
        )
        replicas = SimpleNamespace(
            find_by_id=lambda topic_id, index: (
                self.partition if (UUID(bytes=topic_id), index) == NAME else None
            )
        )
        self.purgatory = DelayedOperationPurgatory("fetch", cast(Any, timers))
        self.partitions = SharePartitions(
            cast(Any, replicas),
            self.states,
            self.letters,
            cast(Any, settings),
            self._load_settings,
            self.clock,
            cast(Any, timers),
            self.purgatory,
            InlineExecutor(),
            lambda: 3,
        )
        self.connection = Client()

    def _load_settings(self, group_id: str) -> Pending[None]:
        self.loads.append(Pending())
        return self.loads[-1]

    def _add_timer(self, callback: Callable[[], None], delay_ms: int) -> SimpleNamespace:
        timer = SimpleNamespace(is_waiting=True, callback=callback, delay_ms=delay_ms)
        timer.cancel = lambda: setattr(timer, "is_waiting", False)
        self.timers.append(timer)
        return timer

    def tick(self) -> int:
        """Let the last timer end; return how long it was."""
        timer = self.timers[-1]
        assert timer.is_waiting
        timer.is_waiting = False
        timer.callback()
        return int(timer.delay_ms)

    @property
    def waiting_timers(self) -> int:
        return sum(each.is_waiting for each in self.timers)

    def open(self, *names: PartitionName, key: SessionKey = MEMBER) -> ShareSession:
        return self.session(0, *names, key=key)

    def session(self, epoch: int, *names: PartitionName, key: SessionKey = MEMBER) -> ShareSession:
        return self.partitions.session(cast(Any, self.connection), key, epoch, names)

    def acquire(self, last: int, member_id: str = "a") -> None:
        led = self.partitions.led(KEY, cast(Any, self.partition))
        assert led.core is not None
        led.core.acquire(member_id, 0, [FetchedBatch(0, last)], 0, records_max=100)
        led.arm()

    def acknowledge(self, offset: int, types: Sequence[int] = ACCEPT) -> Pending[None]:
        return self.partitions.acknowledge(KEY, "a", [Acknowledgement(offset, offset, types)])

    def fetch(
        self,
        session: ShareSession,
        *,
        records_max: int = 10,
        max_bytes: int = 1000,
        is_strict: bool = False,
    ) -> tuple[DelayedShareFetch, list[Any]]:
        found: list[Any] = []
        params = ShareFetchParams(
            group_id="g",
            member_id=session.key.member_id,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=max_bytes,
            records_max=records_max,
            batch_size=10,
            is_strict=is_strict,
        )
        operation = DelayedShareFetch(
            self.partitions, params, session, list(session.partitions), found.append
        )
        self.purgatory.try_complete_else_watch(operation, operation.keys)
        return operation, found

    @property
    def led_count(self) -> int:
        return len(list(self.partitions))


def test_a_partition_that_was_never_read_begins_where_the_stored_settings_say() -> None:
    """The broker may not have heard of them yet."""
    broker = Broker()
    broker.states.start_offset = -1
    broker.offset_reset = "latest"
    broker.partition.log.high_watermark = 7
    broker.open(NAME)
    led = broker.partitions.led(KEY, cast(Any, broker.partition))
    assert [None] == [led.core]
    broker.offset_reset = "earliest"
    broker.loads.pop().complete(None)
    assert led.core is not None
    assert 0 == led.core.start_offset


def test_settings_that_cannot_be_read_are_read_again_for_the_next_fetch() -> None:
    broker = Broker()
    broker.states.start_offset = -1
    broker.open(NAME)
    first = broker.partitions.led(KEY, cast(Any, broker.partition))
    broker.loads.pop().fail(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == cast(ApiError, first.error).code
    second = broker.partitions.led(KEY, cast(Any, broker.partition))
    broker.loads.pop().complete(None)
    assert second is not first
    assert second.core is not None


def test_a_share_partition_that_ends_before_its_settings_are_read_stays_ended() -> None:
    broker = Broker()
    broker.states.start_offset = -1
    session = broker.open(NAME)
    led = broker.partitions.led(KEY, cast(Any, broker.partition))
    broker.partitions.close(session)
    broker.loads.pop().complete(None)
    assert (None, 0) == (led.core, broker.led_count)


def test_where_a_group_has_begun_its_settings_are_not_read() -> None:
    broker = Broker()
    broker.open(NAME)
    broker.acquire(4)
    assert [] == broker.loads


def test_a_partition_that_a_request_names_twice_counts_once() -> None:
    """Else the share partition, its timer and its memory outlive the session."""
    broker = Broker()
    broker.open()
    session = broker.session(1, NAME, NAME)
    broker.acquire(4)
    assert (1, 1) == (broker.led_count, broker.waiting_timers)
    broker.partitions.close(session)
    broker.states.stored()
    assert (0, 0) == (broker.led_count, broker.waiting_timers)


def test_a_partition_may_be_forgotten_twice() -> None:
    broker = Broker()
    session = broker.open(NAME)
    broker.acquire(0)
    broker.acknowledge(0)
    broker.states.stored()
    assert 1 == broker.led_count
    broker.partitions.forget(session, [NAME, NAME, (TOPIC_ID, 9)])
    assert (0, 0) == (broker.led_count, broker.waiting_timers)


def test_a_forgotten_partition_stores_what_was_acknowledged_before_it_ends() -> None:
    broker = Broker()
    session = broker.open(NAME)
    broker.acquire(1)
    first, second = broker.acknowledge(0), broker.acknowledge(1)
    broker.partitions.forget(session, [NAME])
    assert 1 == broker.led_count
    broker.states.stored()
    assert (True, False, 1) == (first.is_done, second.is_done, len(broker.states.writes))
    broker.states.stored()
    assert (True, 0) == (second.is_done, broker.led_count)


def test_records_of_a_forgotten_partition_stay_with_the_member_that_processes_them() -> None:
    """A rebalance took the partition away; others would process the records, too."""
    broker = Broker()
    session = broker.open(NAME)
    broker.acquire(1)
    broker.partitions.forget(session, [NAME])
    assert 1 == broker.led_count
    acknowledged = [broker.acknowledge(0), broker.acknowledge(1)]
    broker.states.stored()
    broker.states.stored()
    assert [None, None] == [each.error for each in acknowledged]
    assert 0 == broker.led_count


def test_the_end_of_a_session_gives_back_records_of_forgotten_partitions() -> None:
    broker = Broker()
    session = broker.open(NAME)
    broker.acquire(1)
    broker.partitions.forget(session, [NAME])
    closed = broker.partitions.close(session, is_lost=True)
    broker.states.stored()
    assert (True, 0) == (closed.is_done, broker.led_count)


def test_a_partition_that_is_named_again_meanwhile_goes_on() -> None:
    broker = Broker()
    session = broker.open(NAME)
    broker.acquire(4)
    broker.acknowledge(0)
    broker.partitions.forget(session, [NAME])
    broker.session(1, NAME)
    broker.states.stored()
    assert (1, 1) == (broker.led_count, broker.states.reads)


def test_an_acknowledgement_that_is_not_stored_any_more_fails() -> None:
    """The leader has changed while another one was being stored."""
    broker = Broker()
    broker.open(NAME)
    broker.acquire(4)
    first, second = broker.acknowledge(0), broker.acknowledge(1)
    broker.partition.leader_epoch = 4
    broker.partitions.led(KEY, cast(Any, broker.partition))
    broker.states.stored()
    assert first.error is None
    error = second.error
    assert isinstance(error, ApiError)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == error.code
    assert [] == broker.states.writes


def test_a_fetch_that_waits_acquires_nothing_after_its_session() -> None:
    """What a member without a session acquires is locked until its time is up."""
    broker = Broker()
    session = broker.open(NAME)
    operation, found = broker.fetch(session)
    assert 1 == broker.led_count
    broker.partitions.close(session)
    broker.purgatory.check_and_complete(broker.partition)
    assert 0 == broker.led_count
    operation.force_complete()
    assert ([[]], 0, 1) == (found, broker.led_count, broker.states.reads)


def test_a_closed_connection_opens_no_session() -> None:
    """A request may be handled in turns, and nothing would end the session."""
    broker = Broker()
    broker.connection.is_closed = True
    with pytest.raises(ApiError) as caught:
        broker.open(NAME)
    assert (ErrorCode.SHARE_SESSION_NOT_FOUND, 0) == (caught.value.code, len(broker.partitions.sessions))


def test_sessions_and_their_partitions_are_limited() -> None:
    broker = Broker()
    many = [(TOPIC_ID, number) for number in range(SESSION_PARTITIONS_MAX)]
    session = broker.open(*many)
    with pytest.raises(ApiError) as caught:
        broker.session(1, (TOPIC_ID, SESSION_PARTITIONS_MAX))
    assert ErrorCode.INVALID_REQUEST == caught.value.code
    assert SESSION_PARTITIONS_MAX == len(session.partitions)
    with pytest.raises(ApiError) as caught:
        broker.open(*many, (TOPIC_ID, -1), key=SessionKey("g", "b"))
    assert ErrorCode.INVALID_REQUEST == caught.value.code
    for member_id in "bc":
        broker.open(key=SessionKey("g", member_id))
    with pytest.raises(ApiError) as caught:
        broker.open(key=SessionKey("g", "d"))
    assert ErrorCode.SHARE_SESSION_LIMIT_REACHED == caught.value.code


@pytest.mark.parametrize("epoch", [2, 7, -2, 2**31 - 1])
def test_a_session_epoch_that_is_skipped_or_impossible_is_refused(epoch: int) -> None:
    broker = Broker()
    broker.open(NAME)
    with pytest.raises(ApiError) as caught:
        broker.session(epoch)
    assert ErrorCode.INVALID_SHARE_SESSION_EPOCH == caught.value.code


def test_a_session_that_replaces_another_keeps_what_the_member_has_acquired() -> None:
    """As in Apache Kafka: the member may acknowledge it in the new session, on another connection, too."""
    broker = Broker()
    broker.open(NAME)
    broker.acquire(4)
    before, broker.connection = broker.connection, Client()
    broker.connection.id = 2
    session = broker.open(NAME)
    assert before.on_close is not None
    before.on_close()
    assert [] == broker.states.writes, "the connection of the session before has no session any more"
    acknowledged = broker.acknowledge(0)
    broker.states.stored()
    assert (True, None) == (acknowledged.is_done, acknowledged.error)
    broker.partitions.close(session)
    assert [RecordState.AVAILABLE] == [each.state for each in broker.states.writes[0][0].ranges]


def test_what_a_session_has_left_behind_returns_when_its_locks_end() -> None:
    broker = Broker()
    broker.open(NAME)
    broker.acquire(4)
    broker.open(NAME)
    assert broker.limits.lock_ms == broker.timers[-1].delay_ms
    broker.clock.advance(broker.limits.lock_ms / 1000)
    broker.tick()
    broker.states.stored()
    led = broker.partitions.led(KEY, cast(Any, broker.partition))
    assert led.core is not None
    now_ms = broker.partitions.monotonic_ms()
    (acquired,) = led.core.acquire("b", 0, [FetchedBatch(0, 4)], now_ms, records_max=100)
    assert AcquiredRange(0, 4, 2) == acquired


def test_nothing_is_left_of_a_connection_that_closes() -> None:
    broker = Broker()
    session = broker.open(NAME)
    broker.acquire(4)
    _, found = broker.fetch(session)
    assert broker.connection.on_close is not None
    broker.connection.on_close()
    broker.states.stored()
    assert (0, 0, 1) == (len(broker.partitions.sessions), broker.led_count, broker.states.reads)
    assert [] == found


def deliveries_after(broker: Broker, end: Callable[[ShareSession], object]) -> int:
    """Return which delivery of a record follows that to a member whose session ends."""
    session = broker.open(NAME)
    broker.open(NAME, key=SessionKey("g", "b"))
    broker.acquire(4)
    end(session)
    broker.states.stored()
    led = broker.partitions.led(KEY, cast(Any, broker.partition))
    assert led.core is not None
    (acquired,) = led.core.acquire("b", 0, [FetchedBatch(0, 4)], 0, records_max=100)
    return acquired.deliveries


def test_what_was_sent_to_a_member_that_is_gone_counts_as_delivered() -> None:
    broker = Broker()
    assert 2 == deliveries_after(broker, lambda each: broker.partitions.close(each, is_lost=True))
    broker = Broker()
    assert 1 == deliveries_after(broker, broker.partitions.close)


def test_what_was_not_sent_to_a_member_that_is_gone_does_not_count() -> None:
    broker = Broker()

    def end(session: ShareSession) -> None:
        session.unsent[NAME] = [AcquiredRange(0, 4, 1)]
        broker.partitions.close(session, is_lost=True)

    assert 1 == deliveries_after(broker, end)


def test_batches_that_compaction_has_emptied_are_skipped() -> None:
    """Their headers stay for the sake of the producer; no member could acknowledge them."""
    headers: Any = [
        BatchHeader(offset, 61, 0, MAGIC, 0, 0, 0, 0, 0, -1, -1, -1, count)
        for offset, count in ((0, 3), (5, 0), (9, 1))
    ]
    data: Any = SimpleNamespace(aborted_transactions=None)
    assert [5] == [each.first for each in fetched_batches(0, data, headers) if each.is_skipped]


def test_records_inside_a_message_that_wraps_others_are_acquired_one_by_one() -> None:
    """Such a message has the offset of the last record: it was not found for the others, which were lost."""
    builder = MessageSetBuilder(1, compression=Compression.GZIP)
    for number in range(3):
        builder.append(None, b"%d" % number, timestamp=1)
    log = storage.Broker(LogConfig(message_magic=1)).log
    log.append_as_leader(memoryview(builder.build()), 0)
    log.advance_high_watermark(3)
    broker = Broker()
    broker.partition.log = cast(Any, log)
    session = broker.open(NAME)
    size = len(log.read(0, 1).records.read())
    for offset in range(3):
        (fetched,) = broker.fetch(session, records_max=1, is_strict=True)[1][0]
        assert [(offset, offset, 1)] == list(fetched.acquired)
        assert size == fetched.records.size


def test_a_fetch_reads_one_header_behind_what_it_acquires() -> None:
    log = storage.Broker().log
    for _ in range(9):
        builder = RecordBatchBuilder()
        for _ in range(2):
            builder.append(None, b"v", timestamp=1)
        log.append_as_leader(memoryview(builder.build()), 0)
    log.advance_high_watermark(log.log_end_offset)
    batches: list[tuple[BatchHeader, int]] = []
    core = SharePartition(PartitionState(0, 0), PartitionLimits())
    headers = read_headers(log.read(0, 1 << 20).records, batches)
    fetched = fetched_batches(0, log.read(0, 1 << 20), headers)
    assert [(0, 1, 1), (2, 3, 1)] == core.acquire("a", 0, fetched, 0, records_max=3)
    assert [0, 2, 4] == [header.base_offset for header, _ in batches]


def test_what_is_before_a_damaged_batch_is_acquired_first() -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"v", timestamp=1)
    whole = bytes(builder.build())
    damaged = whole[:MAGIC_POSITION] + b"\x09" + whole[MAGIC_POSITION + 1 :]

    def read(data: bytes) -> list[BatchHeader]:
        records: Any = SimpleNamespace(
            size=len(data), read_part=lambda start, size: data[start : start + size]
        )
        return list(read_headers(records, []))

    assert [0, 0] == [header.base_offset for header in read(whole + whole + damaged + whole)]
    with pytest.raises(RecordsError):
        read(damaged + whole)


def test_a_fetch_looks_at_a_bounded_number_of_batches() -> None:
    """A fetch of one record looked at a megabyte of batches with a record each: 15,000 headers, 50 ms."""
    builder = RecordBatchBuilder()
    builder.append(None, b"v", timestamp=1)
    batch = bytes(builder.build())
    log = storage.Broker().log
    for _ in range(BATCHES_MAX + 10):
        log.append_as_leader(memoryview(bytearray(batch)), 0)
    log.advance_high_watermark(log.log_end_offset)
    records = log.read(0, 1 << 20).records
    assert len(batch) * (BATCHES_MAX + 10) == records.size
    batches: list[tuple[BatchHeader, int]] = []
    assert BATCHES_MAX == len(list(read_headers(records, batches))) == len(batches)
    broker = Broker()
    broker.partition.log = cast(Any, log)
    session = broker.open(NAME)
    acquired = []
    for _ in range(2):
        (fetched,) = broker.fetch(session, records_max=1000, max_bytes=1 << 20)[1][0]
        acquired.append((fetched.acquired[0].first, fetched.acquired[-1].last, fetched.records.size))
    assert [
        (0, BATCHES_MAX - 1, len(batch) * BATCHES_MAX),
        (BATCHES_MAX, BATCHES_MAX + 9, len(batch) * 10),
    ] == acquired


def test_a_timestamp_in_a_far_future_holds_up_nothing() -> None:
    """The delay of a group counts from the timestamp, which a producer chooses."""
    log = storage.Broker().log
    broker = Broker()
    now_ms = broker.clock.time_ms()
    for timestamp in (now_ms + 2 * WAIT_MAX_MS, now_ms):
        builder = RecordBatchBuilder()
        builder.append(None, b"v", timestamp=timestamp)
        log.append_as_leader(memoryview(builder.build()), 0)
    log.advance_high_watermark(2)
    broker.partition.log = cast(Any, log)
    broker.limits = PartitionLimits(delay_ms=1000)
    session = broker.open(NAME)
    (fetched,) = broker.fetch(session)[1][0]
    assert [(0, 0, 1)] == list(fetched.acquired)
    _, responses = broker.fetch(session)
    assert [] == responses
    (timer,) = [each for each in broker.timers if each.is_waiting and callable(each.callback)]
    assert 1000 == timer.delay_ms
    broker.clock.advance(1.0)
    timer.callback()
    assert [(1, 1, 1)] == list(responses[0][0].acquired)


def test_what_is_not_for_consumers_is_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_fetch, "BATCHES_MAX", 1)
    log = storage.Broker().log
    broker = Broker()
    soon = b"%d" % (broker.clock.time_ms() + 60_000)
    for headers in ([("kalda.delivery.at", soon)],) * 3 + ([],):
        builder = RecordBatchBuilder()
        builder.append(None, b"v", timestamp=broker.clock.time_ms(), headers=headers)
        log.append_as_leader(memoryview(builder.build()), 0)
    log.advance_high_watermark(4)
    broker.partition.log = cast(Any, log)
    broker.limits = PartitionLimits(has_times=True)
    (fetched,) = broker.fetch(broker.open(NAME))[1][0]
    assert [(3, 3, 1)] == list(fetched.acquired)


def test_a_write_of_very_many_share_partitions_takes_several_turns() -> None:
    asked: list[int] = []

    def write(key: SharePartitionKey, change: StateChange) -> Pending[None]:
        asked.append(key.partition)
        return Pending.of(None)

    topic = WriteStateData(
        topic_id=TOPIC_ID,
        partitions=[
            PartitionData(partition=number, state_epoch=1, leader_epoch=0, start_offset=0)
            for number in range(3 * SLICE)
        ],
    )
    request = WriteShareGroupStateRequest(group_id="g", topics=[topic])
    coordinator: Any = SimpleNamespace(write=write)

    async def run() -> tuple[int, Any]:
        found: Any = write_share_group_state.handle(coordinator, request, context(1))
        task = asyncio.ensure_future(found)
        await asyncio.sleep(0)
        return len(asked), await task

    first, response = asyncio.run(run())
    assert SLICE == first
    assert list(range(3 * SLICE)) == [each.partition for each in response.results[0].partitions]


def rejecting(*offsets: int) -> Broker:
    """Return a broker where a member has rejected some of five records, which is stored."""
    broker = Broker()
    broker.limits = PartitionLimits(has_dead_letters=True)
    broker.open(NAME)
    broker.acquire(4)
    for offset in offsets:
        broker.acknowledge(offset, REJECT)
        broker.states.stored()
    return broker


def test_a_rejected_record_is_archived_after_its_dead_letter() -> None:
    broker = rejecting(0)
    assert [DeadRange(0, 0, 1, True)] == broker.letters.writes[0][0]
    assert [] == broker.states.writes
    broker.letters.written()
    change = broker.states.writes[0][0]
    assert (1, ()) == (change.start_offset, change.ranges)
    broker.states.stored()
    assert ([], []) == (broker.letters.writes, broker.states.writes)


def test_the_reason_of_a_request_is_that_of_the_dead_letter() -> None:
    broker = rejecting()
    batch = AcknowledgementBatch(
        first_offset=0, last_offset=1, acknowledge_types=REJECT, reject_reason="too late"
    )
    partition = AcknowledgePartition(acknowledgement_batches=[batch])
    topics = [AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[partition])]
    broker.partitions.acknowledge(KEY, "a", acknowledgements_of(topics, renews=False)[NAME])
    broker.states.stored()
    assert [DeadRange(0, 1, 1, True, b"too late")] == broker.letters.writes[0][0]


def test_records_that_are_rejected_meanwhile_get_their_letters_afterwards() -> None:
    """One batch of letters of a share partition is under way at a time."""
    broker = rejecting(0, 2, 3)
    assert 1 == len(broker.letters.writes)
    broker.letters.written()
    broker.states.stored()
    assert [DeadRange(2, 3, 1, True)] == broker.letters.writes[0][0]
    broker.letters.writes.pop(0)[1].complete([DeadRange(2, 2, 1, True)])
    broker.states.stored()
    assert [[DeadRange(3, 3, 1, True)]] == [dead for dead, _ in broker.letters.writes]


def test_letters_that_cannot_be_written_are_tried_again_and_no_record_is_archived() -> None:
    broker = rejecting(0)
    pauses = []
    for _ in range(7):
        broker.letters.failed()
        assert [] == broker.states.writes
        pauses.append(broker.tick())
    assert [1000, 2000, 4000, 8000, 16000, 30000, 30000] == pauses
    broker.letters.written()
    assert (1, ()) == (broker.states.writes[0][0].start_offset, broker.states.writes[0][0].ranges)


def test_a_letter_is_not_written_again_because_the_archiving_could_not_be_stored() -> None:
    broker = rejecting(0)
    broker.letters.written()
    broker.states.writes.pop(0)[1].fail(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    broker.tick()
    assert ([], 1) == (broker.letters.writes, len(broker.states.writes))


def test_records_are_archived_without_letters_when_the_group_does_not_want_them_any_more() -> None:
    broker = rejecting(0)
    broker.letters.failed()
    broker.limits = PartitionLimits()
    broker.tick()
    assert ([], 1) == (broker.letters.writes, broker.states.writes[0][0].start_offset)


def test_a_share_partition_ends_after_its_letters_or_when_they_cannot_be_written() -> None:
    """A session that ends does not keep it; the next session goes on with the letters."""
    for fails in (False, True):
        broker = rejecting(4)
        session = broker.partitions.sessions.of_connection(1)[0]
        broker.partitions.close(session)
        broker.states.stored()
        assert 1 == broker.led_count
        if fails:
            broker.letters.failed()
        else:
            broker.letters.written()
            (archived,) = broker.states.writes[0][0].ranges
            assert (4, RecordState.ARCHIVED) == (archived.first, archived.state)
            broker.states.stored()
        assert (0, 0) == (broker.led_count, broker.waiting_timers)


class Waiting(DelayedOperation):
    """A fetch that waits for one share partition, and counts how often it is called."""

    calls = 0

    def try_complete(self) -> bool:
        self.calls += 1
        return False

    def on_complete(self) -> None:
        raise AssertionError


def test_a_fetch_that_waits_is_woken_when_a_released_record_is_due() -> None:
    """By the one timer of the share partition, which a lock that ends later had before."""
    broker = Broker()
    broker.limits = PartitionLimits(backoff_ms=200)
    broker.open(NAME)
    broker.acquire(4)
    assert 1 == broker.waiting_timers
    broker.acknowledge(2, RELEASE)
    waiting = Waiting(500)
    broker.purgatory.try_complete_else_watch(waiting, list(broker.partitions))
    broker.states.stored()
    before, core = waiting.calls, next(iter(broker.partitions)).core
    assert core is not None
    assert (5, 200) == (core.next_fetch_offset(199), broker.timers[-1].delay_ms)
    broker.clock.advance(0.2)
    broker.tick()
    assert (2, before + 1) == (core.next_fetch_offset(), waiting.calls)


def test_a_release_waits_as_long_as_the_request_says() -> None:
    """The timer of the share partition ends the wait, in a group without a back-off of its own."""
    broker = Broker()
    broker.open(NAME)
    broker.acquire(4)
    batch = AcknowledgementBatch(
        first_offset=2, last_offset=2, acknowledge_types=RELEASE, release_delay_ms=300
    )
    partition = AcknowledgePartition(acknowledgement_batches=[batch])
    topics = [AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[partition])]
    broker.partitions.acknowledge(KEY, "a", acknowledgements_of(topics, renews=False)[NAME])
    broker.states.stored()
    core = next(iter(broker.partitions)).core
    assert core is not None
    assert (1, 5, 300) == (core.waiting_count, core.next_fetch_offset(299), broker.timers[-1].delay_ms)
    broker.clock.advance(0.3)
    broker.tick()
    assert (0, 2) == (core.waiting_count, core.next_fetch_offset())


def test_a_fetch_of_many_partitions_looks_at_the_one_that_has_changed() -> None:
    """Else each record wakes each waiting fetch for all its partitions."""
    broker = Broker()
    looked: list[PartitionName] = []
    partitions = {(TOPIC_ID, number): Led() for number in range(50)}
    replicas: Any = broker.partitions._replicas

    def find_by_id(topic_id: bytes, index: int) -> Led:
        looked.append((UUID(bytes=topic_id), index))
        return partitions[UUID(bytes=topic_id), index]

    replicas.find_by_id = find_by_id
    operation, found = broker.fetch(broker.open(*partitions))
    looked.clear()
    broker.purgatory.check_and_complete(partitions[TOPIC_ID, 30])
    assert [(TOPIC_ID, 30)] == looked
    assert [] == found
    partitions[TOPIC_ID, 30].is_leader = False
    partitions[TOPIC_ID, 30].not_leader = lambda: ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # type: ignore[attr-defined]  # a fake
    broker.purgatory.check_and_complete(partitions[TOPIC_ID, 30])
    assert [[(TOPIC_ID, 30)]] == [[each.name for each in fetched] for fetched in found]
    assert operation.is_completed
