"""Writes records that a share group has given up to the dead-letter topic that the group names.

Letters go to the leader of the topic's partition as produce requests with acks=all, even if this broker leads
it, so they are checked like other records. A letter has headers with origin and reason, and a copy of the
record if the group wants it (KIP-1191). Each leader has a queue, so that one that does not answer delays only
its own letters.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from kalda.broker.config import ConfigStore
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.share.stored_share_settings import StoredShareSettings
from kalda.broker.topics.auto_created_topics import BROKER_DEFAULT
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.cluster.cluster_store import ClusterStore
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.coordinator.group.share.share_group_config import ShareGroupConfig
from kalda.coordinator.share.in_flight_records import DeadRange
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import PeerConnection
from kalda.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.records.batch import HEADER_SIZE, BatchHeader, read_header
from kalda.records.errors import RecordsError
from kalda.records.format_conversion import iter_any_records
from kalda.records.record import Header, Record, RecordBatchBuilder
from kalda.runtime.background import Background
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.settings import BrokerConfig
from kalda.storage.errors import LOG_ERRORS
from kalda.storage.file_records import FileSlice
from kalda.storage.unified_log import UnifiedLog
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

COPIED_BYTES_MAX: Final = 4 * 1024 * 1024
"""What is read of a log for one batch of letters, unless one batch of records is larger."""

_WRITERS: Final = 2
"""Batches of letters for one leader that are made or on their way at a time: each is in memory, with the
records that it copies."""

_NO_LEADER: Final = -1

_REJECTED: Final = b"Offset rejected by client."
_EXCEEDED: Final = b"Offset delivery count exceeded the threshold."
_TOO_LARGE: Final = b" The record is too large for a copy."


class Origin(NamedTuple):
    """The origin of dead letters: group, topic and partition."""

    topic: str
    partition: int
    group_id: str

    def without(self, prefix: str) -> "Origin":
        """Return the origin as the clients of a namespace know it."""
        return Origin(self.topic.removeprefix(prefix), self.partition, self.group_id.removeprefix(prefix))


@dataclass(slots=True)
class DeadLetterCounts:
    """The counters of this broker since its start."""

    written: int = 0
    failures: int = 0
    """Attempts that failed; each is repeated."""


class DeadLetters:
    """Writes the dead letters of the share partitions that this broker leads."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        config_store: ConfigStore,
        cluster: ClusterStore,
        cache: MetadataCache,
        topic_admin: TopicAdmin,
        settings: StoredShareSettings,
        dialer: Dialer,
        clock: Clock,
        random: Random,
        background: Background,
        namespace_of: Callable[[str], str],
    ) -> None:
        """`background` reads the records that are copied; `namespace_of` returns the prefix of a group."""
        self._config: Final = config
        self._config_store: Final = config_store
        self._cluster: Final = cluster
        self._cache: Final = cache
        self._topic_admin: Final = topic_admin
        self._settings: Final = settings
        self._clock: Final = clock
        self._background: Final = background
        self._namespace_of: Final = namespace_of
        self._queues: Final[dict[int, asyncio.Queue[_Work]]] = {}
        """By leader. A share partition has one piece of work here at most."""
        self._tasks: asyncio.TaskGroup | None = None
        self._peers: Final = PeerBatches[_Produce](
            "dead letters",
            dialer,
            broker_id,
            cache,
            random,
            listener=config.inter_broker_listener_name,
            timeout_ms=config.request_timeout_ms,
            request=self._request,
            failed=_fail,
        )
        self.counts: Final = DeadLetterCounts()

    def write(
        self, group_id: str, name: TopicPartition, log: UnifiedLog, dead: Sequence[DeadRange]
    ) -> Pending[list[DeadRange]]:
        """Write letters for the first of the records at least; done with those that are written.

        It fails with `ApiError` while they cannot be written. A record of the topic for letters itself stays
        there, and is done without one: its letter would come back to the group, and so on for ever.
        """
        topic = self._namespace_of(group_id) + self._settings.dead_letter_topic(group_id)
        if name.topic == topic:
            return Pending.of(list(dead))
        work = _Work(Origin(name.topic, name.partition, group_id), log, dead)
        self._enqueue(self._leader(self._target(topic, name.partition)), work)
        return work.done

    def _enqueue(self, leader_id: int, work: "_Work") -> None:
        queue = self._queues.get(leader_id)
        if queue is None:
            queue = self._queues[leader_id] = asyncio.Queue()
            if self._tasks is not None:
                self._start(self._tasks, leader_id)
        queue.put_nowait(work)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._peers.run(), name="dead letter requests")
            for leader_id in self._queues:
                self._start(tasks, leader_id)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                # Letters that come while the broker shuts down wait for its end.
                self._tasks = None

    def _start(self, tasks: asyncio.TaskGroup, leader_id: int) -> None:
        for number in range(_WRITERS):
            tasks.create_task(self._serve(leader_id), name=f"dead letters for {leader_id}, {number}")

    def _target(self, topic: str, partition: int) -> TopicPartition:
        """Return the partition that has the letters of a partition; topics may not be known yet."""
        return TopicPartition(topic, partition % max(self._cache.partition_count(topic), 1))

    def _leader(self, target: TopicPartition) -> int:
        led = self._cache.partition(target)
        return _NO_LEADER if led is None else led.leader

    async def _serve(self, leader_id: int) -> None:
        queue = self._queues[leader_id]
        while True:
            work = await queue.get()
            try:
                written = await self._write(leader_id, work)
            except ApiError as error:
                self.counts.failures += 1
                work.done.fail(error)
            except ZooKeeperError as error:
                self.counts.failures += 1
                work.done.fail(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
            except Exception as error:
                # What is in one record must not end the broker.
                logger.exception("letters for records of %s-%d failed", *work.origin[:2])
                self.counts.failures += 1
                work.done.fail(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            else:
                if written is None:
                    continue
                self.counts.written += sum(each.last - each.first + 1 for each in written)
                work.done.complete(written)

    async def _write(self, queued_for: int, work: "_Work") -> list[DeadRange] | None:
        """Write letters for the first of the records at least; None if their leader is another one by now."""
        group_id = work.origin.group_id
        prefix = self._namespace_of(group_id)
        topic = prefix + self._settings.dead_letter_topic(group_id)
        await self._prepare(group_id.removeprefix(prefix), topic.removeprefix(prefix), topic)
        # This broker may not know a topic yet that has just been created.
        target = self._target(topic, work.origin.partition)
        leader_id = self._leader(target)
        if leader_id < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{target} has no leader.")
        if leader_id != queued_for:
            self._enqueue(leader_id, work)
            return None
        dead, records = work.dead, dict[int, Record]()
        if self._settings.copies_dead_letters(group_id):
            try:
                with work.log.disk_errors.raised("read"):
                    found = find_batches(work.log, dead)
                    dead = upto(dead, found[-1][0].last_offset)
                    records, dead = await self._background.call(partial(read_records, found, dead))
            except LOG_ERRORS as error:
                raise ApiError(error.code, f"The records cannot be read: {error}") from error
        batch, written = build_letters(
            work.origin.without(prefix),
            dead,
            records,
            self._config_store.log_config(topic).max_message_bytes,
            self._clock.time_ms(),
        )
        produce = _Produce(target, batch)
        self._peers.submit(leader_id, produce)
        await produce.answer
        return written

    async def _prepare(self, group_id: str, name: str, topic: str) -> None:
        """Check that letters may go to the topic, and create it if it is missing and that is allowed.

        `name` is what the group's clients call the topic.

        Raises:
            ApiError: they may not, or the topic cannot be created.
        """
        config = self._config.part(ShareGroupConfig)
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not name:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Group {group_id} has no dead-letter topic any more.")
        if name.startswith("__") or not name.startswith(prefix):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Topic {name} is not for dead letters: its name must begin with "
                f"errors.deadletterqueue.topic.name.prefix='{prefix}'.",
            )
        if topic not in self._cache:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"Topic {topic} does not exist; create it, or set "
                    "errors.deadletterqueue.auto.create.topics.enable=true.",
                )
            await self._create(topic)
        # A broker without a replica of a topic may not know its settings.
        await self._config_store.load_topics(self._cluster, [topic])
        if not self._config_store.log_config(topic).errors_deadletterqueue_group_enable:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Topic {topic} is not for dead letters; set errors.deadletterqueue.group.enable=true.",
            )

    async def _create(self, topic: str) -> None:
        # Retention goes by the time of the letter, not of its record, whatever the broker's default is.
        settings = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
        wanted = CreatableTopic(
            name=topic,
            num_partitions=BROKER_DEFAULT,
            replication_factor=BROKER_DEFAULT,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        outcomes = await self._topic_admin.create_topics([wanted], self._config.request_timeout_ms)
        outcome = outcomes[topic]
        if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome
        logger.info("topic %s for dead letters is created", topic)

    async def _request(self, connection: PeerConnection, works: "list[_Produce]") -> None:
        timeout_ms = self._config.request_timeout_ms
        for number, work in enumerate(works):
            if work.answer.done():
                continue
            target = work.target
            request = ProduceRequest(
                acks=-1,
                timeout_ms=timeout_ms,
                topic_data=[
                    TopicProduceData(
                        name=target.topic,
                        topic_id=self._cache.topic_id(target.topic),
                        partition_data=[PartitionProduceData(index=target.partition, records=work.batch)],
                    )
                ],
            )
            try:
                response = await connection.request(request, timeout_seconds=2 * timeout_ms / 1000)
            except ConnectionError:
                _fail(works[number:])
                raise
            assert isinstance(response, ProduceResponse)
            work.answered(response)


@dataclass(slots=True)
class _Work:
    """Letters to be written for records of one share partition."""

    origin: Origin
    log: UnifiedLog
    dead: Sequence[DeadRange]
    done: Pending[list[DeadRange]] = field(default_factory=Pending)


class _Produce:
    """A batch of letters on its way to a leader."""

    __slots__ = ("answer", "batch", "target")

    def __init__(self, target: TopicPartition, batch: bytearray) -> None:
        self.target: Final = target
        self.batch: Final = batch
        self.answer: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def answered(self, response: ProduceResponse) -> None:
        results = [each for topic in response.responses for each in topic.partition_responses]
        code = ErrorCode.of(results[0].error_code) if results else ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.NONE:
            self.settle(None)
        else:
            message = results[0].error_message if results else None
            self.settle(ApiError(code, f"{self.target} refuses letters: {message or code.name}"))

    def settle(self, error: ApiError | None) -> None:
        """Complete or fail; not if the broker is being stopped."""
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(error)


def _fail(works: Iterable[_Produce]) -> None:
    for work in works:
        work.settle(ApiError(ErrorCode.NETWORK_EXCEPTION, f"The leader of {work.target} cannot be reached."))


def find_batches(log: UnifiedLog, dead: Sequence[DeadRange]) -> list[tuple[BatchHeader, FileSlice]]:
    """Return the batches of the first of the records at least, in order.

    Raises:
        StorageError, RecordsError: the log cannot be read.
    """
    found: list[tuple[BatchHeader, FileSlice]] = []
    size = 0
    for first, last, _, _, _ in dead:
        offset = max(first, found[-1][0].next_offset) if found else first
        while offset <= last:
            records = log.read(offset, 1).records
            header = read_header(records.read_part(0, HEADER_SIZE))
            size += header.size
            if found and size > COPIED_BYTES_MAX:
                return found
            found.append((header, records))
            offset = header.next_offset
    return found


def upto(dead: Sequence[DeadRange], last: int) -> list[DeadRange]:
    """Return the ranges up to an offset, which is included."""
    return [each._replace(last=min(each.last, last)) for each in dead if each.first <= last]


def read_records(
    batches: Sequence[tuple[BatchHeader, FileSlice]], dead: Sequence[DeadRange]
) -> tuple[dict[int, Record], Sequence[DeadRange]]:
    """Return the records of the first of some offsets at least, and which offsets those are.

    Records of a batch that cannot be decoded are left out. Those have `COPIED_BYTES_MAX` at most, unless
    one record is larger.

    Raises:
        OSError: the disk failed.
    """
    wanted = {offset for each in dead for offset in range(each.first, each.last + 1)}
    last = max(wanted)
    found: dict[int, Record] = {}
    size = 0
    for header, records in batches:
        try:
            data = records.read_part(0, header.size)
            for record in iter_any_records(data, 0, header):
                if record.offset > last:
                    break
                if record.offset not in wanted:
                    continue
                size += len(record.key or b"") + len(record.value or b"")
                size += sum(len(name) + len(value or b"") for name, value in record.headers)
                if found and size > COPIED_BYTES_MAX:
                    return found, upto(dead, max(found))
                found[record.offset] = record
        except RecordsError as error:
            logger.warning("records from offset %d on are not copied: %s", header.base_offset, error)
    return found, dead


def build_letters(
    origin: Origin,
    dead: Sequence[DeadRange],
    records: Mapping[int, Record],
    bytes_max: int,
    now_ms: int,
) -> tuple[bytearray, list[DeadRange]]:
    """Return a batch with letters for the first of the records at least, and which those are.

    A letter that is larger than `bytes_max` has the general reason in place of a member's, if that helps;
    else its record is not copied, and the letter says so.
    """
    builder = RecordBatchBuilder()
    last_written = -1
    offsets = [(offset, each) for each in dead for offset in range(each.first, each.last + 1)]
    for offset, dead_range in offsets:
        record = records.get(offset)
        for key, value, headers in _contents(origin, offset, dead_range, record):
            fits = builder.size + builder.size_of_next(key, value, now_ms, headers) <= bytes_max
            if fits or builder.record_count:
                # What does not fit behind other letters begins the next batch.
                break
        if builder.record_count and not fits:
            break
        builder.append_next(key, value, now_ms, headers)
        last_written = offset
    return builder.build(), upto(dead, last_written)


def _contents(
    origin: Origin, offset: int, dead: DeadRange, record: Record | None
) -> Iterator[tuple[bytes | None, bytes | None, list[Header]]]:
    """Yield the possible contents of a letter (key, value, headers), in order of preference."""
    reasons = [dead, dead._replace(reason=b"")] if dead.reason else [dead]
    for each in reasons:
        yield _content(record, _headers(origin, offset, each))
    if record is not None:
        for each in reasons:
            yield _content(None, _headers(origin, offset, each, _TOO_LARGE))


def _content(record: Record | None, context: list[Header]) -> tuple[bytes | None, bytes | None, list[Header]]:
    if record is None:
        return None, None, context
    return record.key, record.value, [*record.headers, *context]


def _headers(origin: Origin, offset: int, dead: DeadRange, note: bytes = b"") -> list[Header]:
    reason = dead.reason or (_REJECTED if dead.is_rejected else _EXCEEDED)
    return [
        ("__dlq.errors.topic", origin.topic.encode()),
        ("__dlq.errors.partition", b"%d" % origin.partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", origin.group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % dead.deliveries),
        ("__dlq.errors.message", reason + note),
    ]
