"""Reads the topics of mapped subjects while clients of this broker are subscribed to them.

Records come from the leaders, wherever they are, by requests as a consumer sends them: one fetch at a time
from each leader, of committed records only. A topic is read from its end at the time when the first client
subscribes; a partition that appears later is read from its beginning. Nothing is read without a subscriber.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.log_limiter import LogLimiter
from kalda.common.types import UUID, ZERO_UUID, TopicPartition, by_topic
from kalda.nats.exchange import Exchange
from kalda.nats.operations import Publish
from kalda.nats.record_headers import message_headers
from kalda.nats.subject_rules import SubjectRules
from kalda.net.connection import TURN_S
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kalda.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kalda.records.aborted_transactions import AbortedTransactions
from kalda.records.batch import BatchHeader, iter_headers, validate_bytes
from kalda.records.errors import RecordsError
from kalda.records.format_conversion import iter_any_records
from kalda.runtime.background import Background
from kalda.runtime.random import Random

logger: Final = logging.getLogger(__name__)

LOCATE_SECONDS_MAX: Final = 5.0
"""How long a client that subscribes waits until its topics are found; leaders may be away for longer."""

FETCH_BYTES_MAX: Final = 4 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 1024 * 1024
FETCH_WAIT_MS: Final = 500

INLINE_BYTES: Final = 32 * 1024
"""Up to this size an uncompressed batch is decoded on the event loop."""

_RECORDS_PER_LOOK: Final = 16
_BACKOFF_MS: Final = (50, 1_000)
_CONSUMER: Final = -1
_READ_COMMITTED: Final = 1
_WITH_IDS: Final = 13
"""The first version of Fetch that names topics by their ids."""


@dataclass(slots=True, eq=False)
class _Reading:
    """The reading position of a partition."""

    name: TopicPartition
    topic_id: UUID
    start: int
    """The special timestamp where reading begins."""
    begun_at: float
    offset: int = -1
    """-1 while it is not known."""
    is_asked: bool = False
    """Whether the leader is asked for the offset."""


@dataclass(slots=True)
class ReadCounts:
    """The counters of this broker since its start."""

    delivered: int = 0
    """Records of topics that went to subscribers."""
    skipped: int = 0
    """Records that no message can carry."""


class TopicReader:
    """Delivers the records of topics to the clients of this broker while `run` is running."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        exchange: Exchange,
        rules: SubjectRules,
        takes_queue: Callable[[bytes, bytes, TopicPartition], bool],
        dialer: Dialer,
        background: Background,
        random: Random,
        *,
        listener: str,
        timeout_ms: int,
        payload_bytes_max: int,
    ) -> None:
        """`takes_queue` returns whether records of a subject go to a queue group here, by their partition."""
        self._cache: Final = cache
        self._exchange: Final = exchange
        self._rules: Final = rules
        self._takes_queue: Final = takes_queue
        self._dialer: Final = dialer
        self._background: Final = background
        self._listener: Final = listener
        self._timeout_seconds: Final = timeout_ms / 1000
        self._payload_bytes_max: Final = payload_bytes_max
        self._options: Final = DialOptions(client_id=str(broker_id), timeout_seconds=timeout_ms / 1000)
        self._backoff: Final = ExponentialBackoff(*_BACKOFF_MS, random.uniform)
        self._patterns: Final[dict[bytes, int]] = {}
        """The subscriptions that are for mapped subjects, with the number of queue groups."""
        self._readings: Final[dict[TopicPartition, _Reading]] = {}
        self._wakers: Final[dict[int, asyncio.Event]] = {}
        """By leader, one for each task that reads."""
        self._waiters: Final[list[Callable[[], None]]] = []
        self._wait_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._knows_cluster = False
        self._tasks: asyncio.TaskGroup | None = None
        self._limiter: Final = LogLimiter(logger)
        self._peers: Final = PeerBatches[_Reading](
            "ends of topics for NATS",
            dialer,
            broker_id,
            cache,
            random,
            listener=listener,
            timeout_ms=timeout_ms,
            request=self._ask_offsets,
            failed=self._offsets_failed,
        )
        self.counts: Final = ReadCounts()
        exchange.observe(self)
        cache.on_change(self._on_metadata)

    # Interest.

    def interest_begins(self, subject: bytes, queue: bytes) -> None:
        """Read the topics of a pattern."""
        if not self._rules.concerns(subject):
            return
        count = self._patterns[subject] = self._patterns.get(subject, 0) + 1
        if count == 1:
            names = [name for name in self._cache.topic_names if self._rules.may_read(name, subject)]
            self._begin(names, LATEST_TIMESTAMP)

    def interest_ends(self, subject: bytes, queue: bytes) -> None:
        """Read the topics of a pattern no more, unless another one is for them."""
        count = self._patterns.get(subject)
        if count is None:
            return
        if count > 1:
            self._patterns[subject] = count - 1
            return
        del self._patterns[subject]
        topics = {each.topic for each in self._readings}
        for name in topics:
            if self._rules.may_read(name, subject) and not self._is_wanted(name):
                self._end(name)

    def cluster_known(self) -> None:
        """Note that the broker has the cluster's metadata: topics that come from now on are new."""
        self._knows_cluster = True

    def _is_wanted(self, topic: str) -> bool:
        return any(self._rules.may_read(topic, pattern) for pattern in self._patterns)

    def _begin(self, topics: Iterable[str], start: int) -> None:
        now = asyncio.get_running_loop().time()
        for name in topics:
            found = self._cache.topic(name)
            if found is None:
                continue
            for number in found.partitions:
                target = TopicPartition(name, number)
                present = self._readings.get(target)
                if present is None or present.topic_id != found.topic_id:
                    self._readings[target] = _Reading(target, found.topic_id, start, now)
        self._locate()

    def _end(self, topic: str) -> None:
        for target in [each for each in self._readings if each.topic == topic]:
            del self._readings[target]

    def _on_metadata(self, topics: object) -> None:
        if not self._patterns or not isinstance(topics, Iterable):
            return
        # What a starting broker gets to know existed before.
        start = EARLIEST_TIMESTAMP if self._knows_cluster else LATEST_TIMESTAMP
        for name in topics:
            if name not in self._cache:
                self._end(name)
            elif self._is_wanted(name):
                self._begin((name,), start)
        self._locate()
        self._wake()

    # Positions.

    @property
    def is_locating(self) -> bool:
        """Whether a topic of a subscription is not read yet, so that records may be missed."""
        # A new partition has no leader for a moment; one that has none for long is not waited for.
        since = asyncio.get_running_loop().time() - LOCATE_SECONDS_MAX
        return any(each.offset < 0 and each.begun_at > since for each in self._readings.values())

    def when_located(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once when all topics are read, or after `LOCATE_SECONDS_MAX`."""
        self._waiters.append(go_on)
        if self._wait_timer is None:
            loop = asyncio.get_running_loop()
            self._wait_timer = loop.call_later(LOCATE_SECONDS_MAX, self._located)

    def _located(self) -> None:
        if self._wait_timer is not None:
            self._wait_timer.cancel()
            self._wait_timer = None
        waiters = self._waiters.copy()
        self._waiters.clear()
        for go_on in waiters:
            go_on()

    def _locate(self) -> None:
        """Ask leaders for the offsets that are not known."""
        retries = False
        for each in self._readings.values():
            if each.offset >= 0 or each.is_asked:
                continue
            led = self._cache.partition(each.name)
            if self._tasks is None or led is None or led.leader < 0:
                retries = True
                continue
            each.is_asked = True
            self._peers.submit(led.leader, each)
        if retries:
            self._retry_soon()
        elif self._waiters and not self.is_locating:
            self._located()

    def _retry_soon(self) -> None:
        if self._retry_timer is None:
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(_BACKOFF_MS[0] / 1000 * 4, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._locate()

    def _offsets_failed(self, readings: Sequence[_Reading]) -> None:
        for each in readings:
            each.is_asked = False
        self._retry_soon()

    async def _ask_offsets(self, connection: PeerConnection, readings: list[_Reading]) -> None:
        asked = {each.name: each for each in readings}
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=_READ_COMMITTED,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=each.partition, timestamp=asked[each].start)
                        for each in group
                    ],
                )
                for topic, group in by_topic(asked).items()
            ],
        )
        response = await connection.request(request, timeout_seconds=self._timeout_seconds)
        if not isinstance(response, ListOffsetsResponse):
            raise ConnectionError(f"a response of class {type(response).__name__}")
        for topic in response.topics:
            for answer in topic.partitions:
                reading = asked.get(TopicPartition(topic.name, answer.partition_index))
                if reading is not None and answer.error_code == ErrorCode.NONE and answer.offset >= 0:
                    reading.offset = answer.offset
        self._offsets_failed([each for each in readings if each.offset < 0])
        for each in readings:
            each.is_asked = False
        self._wake()
        if self._waiters and not self.is_locating:
            self._located()

    # Reading.

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                self._locate()
                await self._peers.run()
            finally:
                self._tasks = None
                for timer in (self._wait_timer, self._retry_timer):
                    if timer is not None:
                        timer.cancel()

    def _wake(self) -> None:
        """Start a task for each leader of a partition that is read, and wake it."""
        if self._tasks is None:
            return
        for each in self._readings.values():
            led = self._cache.partition(each.name)
            if each.offset < 0 or led is None or led.leader < 0:
                continue
            waker = self._wakers.get(led.leader)
            if waker is None:
                self._wakers[led.leader] = waker = asyncio.Event()
                self._tasks.create_task(self._read(led.leader), name=f"NATS reads from {led.leader}")
            waker.set()

    async def _read(self, leader: int) -> None:
        """Read the partitions of a leader, for as long as it leads any that are wanted."""
        connection: PeerConnection | None = None
        failures = 0
        waker = self._wakers[leader]
        try:
            while True:
                waker.clear()
                readings = self._led_by(leader)
                if not readings:
                    return
                try:
                    if connection is None or connection.is_closed:
                        connection = await self._dial(leader)
                    is_good = await self._fetch(connection, readings)
                except ConnectionError as error:
                    logger.info("reading topics for NATS from broker %d failed: %s", leader, error)
                    is_good = False
                except Exception:
                    # What a leader answers must not end the broker.
                    logger.exception("reading topics for NATS from broker %d failed", leader)
                    is_good = False
                failures = 0 if is_good else failures + 1
                if failures:
                    await asyncio.sleep(self._backoff.seconds(failures))
        finally:
            del self._wakers[leader]
            if connection is not None:
                connection.close()
            # Another partition may have come while the connection was closed.
            if waker.is_set():
                self._wake()

    def _led_by(self, leader: int) -> dict[TopicPartition, _Reading]:
        found = {}
        for name, reading in self._readings.items():
            led = self._cache.partition(name)
            if reading.offset >= 0 and led is not None and led.leader == leader:
                found[name] = reading
        return found

    async def _dial(self, leader: int) -> PeerConnection:
        endpoint = self._cache.endpoint(leader, self._listener)
        if endpoint is None:
            raise ConnectionError(f"broker {leader} is not known to be alive")
        return await self._dialer.dial(endpoint.host, endpoint.port, self._options)

    async def _fetch(self, connection: PeerConnection, readings: dict[TopicPartition, _Reading]) -> bool:
        """Fetch once and deliver; return whether all partitions were answered without an error."""
        topics = by_topic(readings)
        version = connection.version_of(ApiKey.FETCH)
        ids = {name: self._cache.topic_id(name) for name in topics}
        if ZERO_UUID in ids.values():
            version = min(version, _WITH_IDS - 1)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=_READ_COMMITTED,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=ids[name],
                    partitions=[
                        FetchPartition(
                            partition=each.partition,
                            fetch_offset=readings[each].offset,
                            partition_max_bytes=PARTITION_BYTES_MAX,
                        )
                        for each in group
                    ],
                )
                for name, group in topics.items()
            ],
        )
        response = await connection.request(request, timeout_seconds=self._timeout_seconds, version=version)
        if not isinstance(response, FetchResponse) or response.error_code != ErrorCode.NONE:
            raise ConnectionError("the fetch is refused")
        names = {topic_id: name for name, topic_id in ids.items()}
        is_good = True
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                reading = readings.get(TopicPartition(name, data.partition_index))
                if reading is not None:
                    is_good = await self._take(reading, data) and is_good
        return is_good

    async def _take(self, reading: _Reading, data: PartitionData) -> bool:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            logger.warning(
                "%s is read for NATS from its end on: offset %d is not there any more",
                reading.name,
                reading.offset,
            )
            reading.offset, reading.start = -1, LATEST_TIMESTAMP
            self._locate()
            return True
        if data.error_code != ErrorCode.NONE:
            return False
        aborted = AbortedTransactions(
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        )
        records = data.records
        if records is None:
            return True
        assert isinstance(records, bytes | bytearray | memoryview), "a decoded response has bytes"
        for position, header in iter_headers(records):
            # Every batch, so that the ends of transactions are seen.
            is_dropped = aborted.drops(records, position, header)
            if header.last_offset < reading.offset:
                continue
            if not is_dropped and not header.is_control:
                batch = bytes(records[position : position + header.size])
                await self._deliver(reading, batch, header)
            if self._readings.get(reading.name) is not reading:
                return True
            reading.offset = header.next_offset
        return True

    def _takes_queue_of(self, name: TopicPartition, subject: bytes, queue: bytes) -> bool:
        return self._takes_queue(subject, queue, name)

    async def _deliver(self, reading: _Reading, batch: bytes, header: BatchHeader) -> None:
        read = partial(
            read_messages, batch, header, reading.name, reading.offset, self._rules, self._payload_bytes_max
        )
        if len(batch) <= INLINE_BYTES and not header.compression:
            messages, problem = read()
        else:
            messages, problem = await self._background.call(read)
        if problem is not None:
            text, count = problem
            self.counts.skipped += count
            self._limiter.log(
                logging.WARNING,
                "records of %s from offset %d on cannot be messages of NATS: %s",
                reading.name,
                header.base_offset,
                text,
                source=reading.name.topic,
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TURN_S

        for number, message in enumerate(messages, 1):
            takes_queue = partial(self._takes_queue_of, reading.name, message.subject)
            self.counts.delivered += self._exchange.deliver_here(message, self, takes_queue)
            if not number % _RECORDS_PER_LOOK and loop.time() >= deadline:
                await asyncio.sleep(0)
                deadline = loop.time() + TURN_S


def read_messages(
    batch: bytes,
    header: BatchHeader,
    name: TopicPartition,
    first_offset: int,
    rules: SubjectRules,
    payload_bytes_max: int,
) -> tuple[list[Publish], tuple[str, int] | None]:
    """Return the messages of a batch's records, and why some have none, with their number."""
    found: list[Publish] = []
    problem = ""
    skipped = 0
    try:
        validate_bytes(batch, 0, header)
        for record in iter_any_records(batch, 0, header):
            if record.offset < first_offset:
                continue
            subject = rules.to_subject(name.topic, record.key)
            headers = message_headers(
                record.key,
                record.headers,
                is_tombstone=record.value is None,
                partition=name.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp,
            )
            value = record.value or b""
            if subject is None:
                problem = problem or f"the key {(record.key or b'')[:80]!r} fits into no subject"
                skipped += 1
            elif len(headers) + len(value) > payload_bytes_max:
                size = len(headers) + len(value)
                problem = problem or (
                    f"the record at offset {record.offset} takes {size} bytes, "
                    f"kalda.nats.max.payload allows {payload_bytes_max}"
                )
                skipped += 1
            else:
                found.append(Publish(subject, b"", headers, value))
    except RecordsError as error:
        problem, skipped = f"the batch cannot be read: {error}", skipped + 1
    return found, (problem, skipped) if skipped else None
