"""Writes messages of NATS to topics: one batch at a time to each partition, with acks=all.

Batches carry a producer id and sequence numbers, so that one that is sent again is not stored twice. What is
published to one partition stays in order. A batch that cannot be written within `WRITE_SECONDS_MAX` fails.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.common.backoff import jittered
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.log_limiter import LogLimiter
from kalda.common.murmur2 import POSITIVE_MASK, murmur2, partition_for_key
from kalda.common.types import TopicPartition
from kalda.nats.record_headers import RecordHeaders
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import PeerConnection
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of messages that are not written yet; beyond, clients that publish to topics are not read from."""

BATCH_BYTES_MAX: Final = 512 * 1024
"""Of a batch with more than one message: brokers accept 1 MiB by default."""

REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of the batches of one request, unless one is larger."""

WRITE_SECONDS_MAX: Final = 30.0

_RETRY_SECONDS: Final = 0.1
_SEQUENCES: Final = 2**31
_MESSAGE_OVERHEAD: Final = 200
"""Bytes of memory that a message takes besides what it carries, about."""

_SPLIT: Final = frozenset(
    (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    )
)
"""One message may be refused for these; its neighbours are not."""

_LOST_STATE: Final = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )
)
"""The leader does not know what this producer wrote before."""


class ProducerIdSource(Protocol):
    """Gives ids that no other producer has."""

    async def take(self) -> int:
        """Return an unused id."""
        ...


Written = Callable[[TopicPartition, int, ApiError | None], None]
"""Called with the partition and the offset of a message, or with the error that it got."""


@dataclass(slots=True)
class _Message:
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    timestamp_ms: int
    size: int
    written: Written


@dataclass(slots=True)
class _Queue:
    """The messages that wait to be written to one partition."""

    target: TopicPartition
    messages: deque[_Message] = field(default_factory=deque)
    producer_id: int = -1
    sequence: int = 0


@dataclass(slots=True)
class StoreCounts:
    """The counters of this broker since its start."""

    written: int = 0
    failures: int = 0


class TopicWriter:
    """Writes messages to the leaders of partitions while `run` is running."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        producer_ids: ProducerIdSource,
        dialer: Dialer,
        clock: Clock,
        random: Random,
        *,
        listener: str,
        timeout_ms: int,
    ) -> None:
        self._cache: Final = cache
        self._producer_ids: Final = producer_ids
        self._clock: Final = clock
        self._random: Final = random
        self._timeout_ms: Final = timeout_ms
        self._queues: Final[dict[TopicPartition, _Queue]] = {}
        """Those with messages that are not written."""
        self._idle: Final[dict[TopicPartition, _Queue]] = {}
        """Those whose producer ids are kept for what comes next."""
        self._is_idle: Final = asyncio.Event()
        """Set while nothing waits."""
        self._waiting_bytes = 0
        self._waiters: Final[list[Callable[[], None]]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._limiter: Final = LogLimiter(logger)
        self._peers: Final = PeerBatches[_Produce](
            "messages of NATS",
            dialer,
            broker_id,
            cache,
            random,
            listener=listener,
            timeout_ms=timeout_ms,
            request=self._request,
            failed=_fail,
        )
        self.counts: Final = StoreCounts()

    @property
    def is_full(self) -> bool:
        """Whether publishers should wait."""
        return self._waiting_bytes > WAITING_BYTES_MAX

    def when_free(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once when there is room for messages again."""
        self._waiters.append(go_on)

    def add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: RecordHeaders,
        spread: bytes,
        written: Written,
    ) -> None:
        """Write a message; without a key, messages with the same `spread` go to the same partition."""
        count = self._cache.partition_count(topic)
        if not count or self._tasks is None:
            text = f"Topic {topic} does not exist." if self._tasks else "The broker is being stopped."
            error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            self._failed(TopicPartition(topic, 0), written, error)
            return
        if key is None:
            partition = (murmur2(spread) & POSITIVE_MASK) % count
        else:
            partition = partition_for_key(key, count)
        target = TopicPartition(topic, partition)
        size = len(key or b"") + len(value or b"") + _MESSAGE_OVERHEAD
        size += sum(len(name) + len(data or b"") for name, data in headers)
        message = _Message(key, value, headers, self._clock.time_ms(), size, written)
        self._waiting_bytes += size
        queue = self._queues.get(target)
        if queue is None:
            queue = self._idle.pop(target) if target in self._idle else _Queue(target)
            self._queues[target] = queue
            self._is_idle.clear()
            self._tasks.create_task(self._drive(queue), name=f"messages of NATS for {target}")
        queue.messages.append(message)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await self._peers.run()
            finally:
                self._tasks = None

    async def drain(self, seconds_max: float) -> None:
        """Wait until all is written, for some time at most."""
        if self._queues:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds_max):
                    await self._is_idle.wait()

    async def _drive(self, queue: _Queue) -> None:
        while queue.messages:
            batch = [queue.messages.popleft()]
            size = batch[0].size
            while queue.messages and size + queue.messages[0].size <= BATCH_BYTES_MAX:
                batch.append(queue.messages.popleft())
                size += batch[-1].size
            await self._write(queue, batch)
            self._waiting_bytes -= size
            if self._waiters and not self.is_full:
                waiters = self._waiters.copy()
                self._waiters.clear()
                for go_on in waiters:
                    go_on()
        del self._queues[queue.target]
        if not self._queues:
            self._is_idle.set()
        while len(self._idle) >= 1_000:
            del self._idle[next(iter(self._idle))]
        self._idle[queue.target] = queue

    async def _write(self, queue: _Queue, batch: Sequence[_Message]) -> None:
        try:
            offset = await self._append(queue, batch)
        except ApiError as error:
            # What is stored of it is not known, so that its numbers cannot be used again.
            queue.producer_id = -1
            if len(batch) > 1 and error.code in _SPLIT:
                middle = len(batch) // 2
                await self._write(queue, batch[:middle])
                await self._write(queue, batch[middle:])
                return
            for each in batch:
                self._failed(queue.target, each.written, error)
            return
        except Exception as error:
            # What is in one message must not end the broker.
            logger.exception("messages of NATS for %s could not be written", queue.target)
            queue.producer_id = -1
            for each in batch:
                self._failed(
                    queue.target, each.written, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
                )
            return
        self.counts.written += len(batch)
        for position, each in enumerate(batch):
            each.written(queue.target, offset + position, None)

    def _failed(self, target: TopicPartition, written: Written, error: ApiError) -> None:
        self.counts.failures += 1
        self._limiter.log(
            logging.WARNING,
            "a message of NATS could not be written to %s: %s",
            target,
            error,
            source=target.topic,
        )
        written(target, -1, error)

    async def _append(self, queue: _Queue, batch: Sequence[_Message]) -> int:
        """Append a batch; return the offset of its first message.

        Raises:
            ApiError: it was refused, or the time is up.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + WRITE_SECONDS_MAX
        target = queue.target
        may_be_stored = False
        data: bytearray | None = None
        while True:
            if queue.producer_id < 0:
                data = None
                try:
                    queue.producer_id, queue.sequence = await self._producer_ids.take(), 0
                except ZooKeeperError as error:
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            if data is None:
                data = _build(batch, queue)
            led = self._cache.partition(target)
            if led is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{target} does not exist.")
            if led.leader < 0:
                answer = _Answer(ErrorCode.LEADER_NOT_AVAILABLE, -1, f"{target} has no leader.", False)
            else:
                produce = _Produce(target, data)
                self._peers.submit(led.leader, produce)
                answer = await produce.answer
            if answer.code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                queue.sequence = (queue.sequence + len(batch)) % _SEQUENCES
                return answer.offset
            may_be_stored = may_be_stored or answer.may_be_stored
            if answer.code in _LOST_STATE and not may_be_stored and loop.time() < until:
                queue.producer_id = -1
                continue
            if not answer.code.retriable or loop.time() >= until:
                raise ApiError(answer.code, answer.text)
            await asyncio.sleep(jittered(_RETRY_SECONDS, self._random))

    async def _request(self, connection: PeerConnection, works: "list[_Produce]") -> None:
        waiting = deque(each for each in works if not each.answer.done())
        while waiting:
            some = [waiting.popleft()]
            size = len(some[0].batch)
            while waiting and size + len(waiting[0].batch) <= REQUEST_BYTES_MAX:
                some.append(waiting.popleft())
                size += len(some[-1].batch)
            await self._send(connection, some)

    async def _send(self, connection: PeerConnection, works: "list[_Produce]") -> None:
        topics: dict[str, TopicProduceData] = {}
        for work in works:
            name = work.target.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicProduceData(name=name, topic_id=self._cache.topic_id(name))
            topic.partition_data.append(PartitionProduceData(index=work.target.partition, records=work.batch))
        for work in works:
            work.is_sent = True
        request = ProduceRequest(acks=-1, timeout_ms=self._timeout_ms, topic_data=list(topics.values()))
        response = await connection.request(request, timeout_seconds=2 * self._timeout_ms / 1000)
        if not isinstance(response, ProduceResponse):
            raise ConnectionError(f"a response of class {type(response).__name__}")
        waiting = {work.target: work for work in works}
        for found in response.responses:
            name = found.name or self._cache.topic_name(found.topic_id) or ""
            for result in found.partition_responses:
                answered = waiting.pop(TopicPartition(name, result.index), None)
                if answered is not None:
                    code = ErrorCode.of(result.error_code)
                    text = result.error_message or code.name
                    answered.settle(
                        _Answer(code, result.base_offset, text, code is ErrorCode.REQUEST_TIMED_OUT)
                    )
        _fail(list(waiting.values()))


@dataclass(frozen=True, slots=True)
class _Answer:
    code: ErrorCode
    offset: int
    text: str
    may_be_stored: bool
    """Whether the batch may be in the log although there is an error."""


class _Produce:
    """A batch on its way to a leader."""

    __slots__ = ("answer", "batch", "is_sent", "target")

    def __init__(self, target: TopicPartition, batch: bytearray) -> None:
        self.target: Final = target
        self.batch: Final = batch
        self.is_sent = False
        self.answer: Final[asyncio.Future[_Answer]] = asyncio.get_running_loop().create_future()

    def settle(self, answer: _Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def _fail(works: "list[_Produce]") -> None:
    for each in works:
        text = f"The leader of {each.target} cannot be reached."
        each.settle(_Answer(ErrorCode.NETWORK_EXCEPTION, -1, text, each.is_sent))


def _build(batch: Sequence[_Message], queue: _Queue) -> bytearray:
    builder = RecordBatchBuilder(
        producer_id=queue.producer_id, producer_epoch=0, base_sequence=queue.sequence
    )
    for each in batch:
        builder.append_next(each.key, each.value, each.timestamp_ms, each.headers)
    return builder.build()
