"""Writes the records of a request and its idempotency key in one transaction.

The keys are records of the topic ``_kalda_http_keys``. Each of its partitions has a transactional id. An
instance that gets a request with a key of the partition becomes its owner: it opens a producer with that id,
which fences the owner before and ends what it left open, and then reads the partition to its end. From then
on its table has every key that was ever committed there, and nobody else can commit another one without
fencing this instance. So a key that is not in the table was not written, and a transaction that commits was
the first.

Whatever fails, the instance gives the partition up, and takes it again the same way before it tries again.
What is open about a transaction whose end nobody saw is known after that.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.clients.admin.created_topics import describe_created
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import (
    BrokerResponseError,
    ClientError,
    FatalTransactionError,
    RecordTooLargeError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.http.callers import Caller
from kalda.http.errors import HttpError
from kalda.http.gateway.streams.feed import Consumer
from kalda.http.gateway.writes.idempotency_keys import (
    Answer,
    KeyTable,
    decode_answer,
    encode_answer,
    key_digest,
    partition_of,
)
from kalda.http.gateway.writes.outgoing import OutgoingRecord

logger: Final = logging.getLogger(__name__)

QUEUED_MAX: Final = 1_000
"""Requests that wait for one partition of keys."""
BATCH_MAX: Final = 50
"""Requests that share a transaction."""
DEADLINE_SECONDS: Final = 40.0
"""How long a request is tried, longer than an election of leaders takes."""


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """How keys are kept."""

    topic: str = "_kalda_http_keys"
    partitions: int = 16
    """Of the topic, when it is created."""
    replication_factor: int = 3
    ttl_ms: int = 24 * 3600 * 1000
    bytes_max: int = 128 * 1024 * 1024
    """Of all tables."""


@dataclass(slots=True, eq=False)
class _Request:
    """A request that waits for its answer."""

    topic: str
    digest: bytes
    fingerprint: bytes
    records: Sequence[OutgoingRecord]
    deadline: float
    answer: "asyncio.Future[Answer]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def resolve(self, answer: Answer) -> None:
        if self.answer.done():
            return
        if answer.fingerprint != self.fingerprint:
            self.fail(HttpError(422, "the Idempotency-Key was used for another request to this topic"))
        else:
            self.answer.set_result(answer)


class Ledger:
    """The idempotency keys, as one process sees them.

    Args:
        process: The process itself; it writes the records of these requests, after the caller's right was
            checked, because a transaction has one writer.
        settings: How keys are kept.
    """

    def __init__(self, process: Caller, settings: LedgerSettings) -> None:
        self._process: Final = process
        self._settings: Final = settings
        self._partitions: list[_Partition] = []
        self._opening = asyncio.Lock()
        self._reading: Final = asyncio.Lock()
        self._consumer: Consumer | None = None
        self._is_closed = False

    async def write(
        self, principal: str, topic: str, key: str, fingerprint: bytes, records: Sequence[OutgoingRecord]
    ) -> Answer:
        """Write the records of a request unless the key's request was written; return the first answer.

        Raises:
            HttpError: the key is another request's (422), a record is not accepted (with the status of the
                reason), there is no room or no cluster (503).
            ClientError: the topic of keys cannot be used.
        """
        await self._open()
        digest = key_digest(principal, topic, key)
        partition = self._partitions[partition_of(digest, len(self._partitions))]
        deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        request = _Request(topic, digest, fingerprint, records, deadline)
        partition.submit(request)
        return await request.answer

    async def close(self) -> None:
        """Fail the requests that wait, and close the connections."""
        self._is_closed = True
        await asyncio.gather(*(each.close() for each in self._partitions))
        if self._consumer is not None:
            await self._consumer.close()

    async def read(self, table: KeyTable, partition: int, position: int) -> int:
        """Read keys into a table, from a position to the end; return the end."""
        place = TopicPartition(self._settings.topic, partition)
        async with self._reading:
            if self._consumer is None:
                self._consumer = self._process.consumer(
                    isolation_level="read_committed",
                    auto_offset_reset="earliest",
                    enable_auto_commit="false",
                    allow_auto_create_topics="false",
                    exclude_internal_topics="false",
                )
            consumer = self._consumer
            await consumer.start()
            await consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            await consumer.seek(place, position)
            while (reached := await consumer.position(place)) < end:
                for record in await consumer.poll(1.0, 5_000):
                    answer = decode_answer(record.value or b"", record.timestamp_ms)
                    if answer is not None:
                        table.put(record.key, answer)
                table.expire(_now_ms())
            return reached

    async def producer(self, partition: int) -> "AsyncProducer[bytes, bytes]":
        """Return a producer that owns a partition of keys: it has fenced the one before."""
        producer = self._process.new_producer(
            transactional_id=f"{self._settings.topic}-{partition}", transaction_timeout_ms="30000"
        )
        try:
            await producer.init_transactions()
        except BaseException:
            await producer.close(0.0)
            raise
        return producer

    async def _open(self) -> None:
        """Find out how many partitions the topic of keys has; create it if it does not exist."""
        if self._is_closed:
            raise HttpError(503, "the server is shutting down")
        async with self._opening:
            if self._partitions:
                return
            settings = self._settings
            admin = await self._process.admin()
            if settings.topic not in await admin.list_topics():
                await self._create()
            count = await self._count_partitions()
            share = settings.bytes_max // count
            self._partitions = [
                _Partition(self, settings.topic, number, KeyTable(settings.ttl_ms, share))
                for number in range(count)
            ]

    async def _count_partitions(self) -> int:
        """Return how many partitions the topic has; brokers that were not reached by its creation wait."""
        try:
            found = await describe_created(await self._process.admin(), self._settings.topic)
        except UnknownTopicOrPartitionError as error:
            raise HttpError(503, f"the topic of keys does not appear: {error}") from None
        return len(found.partitions)

    async def _create(self) -> None:
        settings = self._settings
        admin = await self._process.admin()
        brokers = len((await admin.describe_cluster()).nodes)
        topic = NewTopic(
            settings.topic,
            settings.partitions,
            min(settings.replication_factor, brokers),
            config={
                # A key is written once, so that time alone removes it; a second record would be a fault.
                "cleanup.policy": "compact,delete",
                "retention.ms": str(settings.ttl_ms),
                "segment.ms": str(max(settings.ttl_ms // 4, 60_000)),
                "message.timestamp.type": "LogAppendTime",
            },
        )
        try:
            await admin.create_topics([topic])
        except BrokerResponseError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


class _Partition:
    """One partition of keys: the waiting requests, and the keys that this instance has read."""

    def __init__(self, ledger: Ledger, topic: str, number: int, table: KeyTable) -> None:
        self._ledger: Final = ledger
        self._topic: Final = topic
        self._number: Final = number
        self._table: Final = table
        self._position = 0
        self._producer: AsyncProducer[bytes, bytes] | None = None
        self._queue: Final[asyncio.Queue[_Request]] = asyncio.Queue(QUEUED_MAX)
        self._task: asyncio.Task[None] | None = None
        self._backoff: Final = ExponentialBackoff(50, 2_000, random.uniform)

    def submit(self, request: _Request) -> None:
        try:
            self._queue.put_nowait(request)
        except asyncio.QueueFull:
            raise HttpError(
                503, f"{QUEUED_MAX} requests with keys wait; try again later", headers={"Retry-After": "1"}
            ) from None
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"keys of partition {self._number}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while not self._queue.empty():
            self._queue.get_nowait().fail(HttpError(503, "the server is shutting down"))
        await self._give_up()

    async def _run(self) -> None:
        waiting: list[_Request] = []
        failures = 0
        try:
            while True:
                if not waiting:
                    waiting.append(await self._queue.get())
                while len(waiting) < BATCH_MAX and not self._queue.empty():
                    waiting.append(self._queue.get_nowait())
                try:
                    await self._own()
                    waiting = await self._serve(waiting)
                    failures = 0
                except Exception as error:
                    if not isinstance(error, ClientError):
                        logger.exception("the keys of partition %d could not be served", self._number)
                    failures += 1
                    await self._give_up()
                    waiting = _those_in_time(waiting, error)
                    await asyncio.sleep(self._backoff.seconds(failures))
        finally:
            for request in waiting:
                request.fail(HttpError(503, "the server is shutting down; try again with the same key"))

    async def _own(self) -> None:
        if self._producer is None:
            self._producer = await self._ledger.producer(self._number)
            self._position = await self._ledger.read(self._table, self._number, self._position)

    async def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                await producer.close(0.0)
            except ClientError as error:
                logger.debug("a producer of keys ended with %s", error)

    async def _serve(self, requests: list[_Request]) -> list[_Request]:
        """Answer requests; return those that have to wait for others of the same key."""
        new: dict[bytes, _Request] = {}
        later: list[_Request] = []
        for request in requests:
            known = self._table.get(request.digest, _now_ms())
            if known is not None:
                request.resolve(known)
            elif request.digest in new:
                later.append(request)
            elif self._table.has_room():
                new[request.digest] = request
            else:
                request.fail(
                    HttpError(
                        503,
                        f"{len(self._table)} idempotency keys live, and there is no room for another: raise "
                        "`http.idempotency.bytes.max`, or lower `http.idempotency.ttl.ms`",
                    )
                )
        if new and not await self._write(list(new.values())):
            # One of them is not accepted: alone, each gets its own answer.
            for request in new.values():
                await self._write([request])
        return later

    async def _write(self, requests: list[_Request]) -> bool:
        """Write requests in one transaction; return False if one of several is not accepted."""
        producer = self._producer
        assert producer is not None, f"partition {self._number} of the keys is owned"
        await producer.begin_transaction()
        try:
            bodies = [await _send(producer, request) for request in requests]
            for request, body in zip(requests, bodies, strict=True):
                value = encode_answer(Answer(request.fingerprint, body, 0))
                await producer.send(self._topic, value, request.digest, partition=self._number)
            await producer.commit_transaction()
        except FatalTransactionError:
            raise
        except (BrokerResponseError, TransactionAbortableError, ValueError, HttpError) as error:
            # If this fails too, the producer is given up and the transaction's end is read.
            await producer.abort_transaction()
            if len(requests) > 1:
                return False
            if _is_refusal(error):
                requests[0].fail(_refusal(error))
                return True
            raise
        now_ms = _now_ms()
        for request, body in zip(requests, bodies, strict=True):
            answer = Answer(request.fingerprint, body, now_ms)
            self._table.put(request.digest, answer)
            request.resolve(answer)
        return True


async def _send(producer: "AsyncProducer[bytes, bytes]", request: _Request) -> bytes:
    """Send the records of a request; return the body of its answer."""
    futures = [
        await producer.send(
            request.topic, each.value, each.key, each.headers, each.partition, each.timestamp_ms
        )
        for each in request.records
    ]
    await producer.flush()
    written = [await future for future in futures]
    return json.dumps(
        {
            "records": [
                {"partition": each.partition, "offset": each.offset, "timestamp": each.timestamp_ms}
                for each in written
            ]
        },
        separators=(",", ":"),
    ).encode()


def _is_refusal(error: Exception) -> bool:
    """Return whether the same records would be refused again."""
    if isinstance(error, BrokerResponseError):
        return not error.is_retriable
    cause = error.__cause__
    if isinstance(error, TransactionAbortableError):
        return isinstance(cause, BrokerResponseError) and not cause.is_retriable
    return True


def _refusal(error: Exception) -> Exception:
    cause = error.__cause__
    if isinstance(error, TransactionAbortableError) and isinstance(cause, BrokerResponseError):
        return cause
    if isinstance(error, RecordTooLargeError | BrokerResponseError | HttpError):
        return error
    return HttpError(422, str(error))


def _those_in_time(requests: list[_Request], error: Exception) -> list[_Request]:
    now = asyncio.get_running_loop().time()
    for request in requests:
        if request.deadline <= now:
            request.fail(
                HttpError(
                    503,
                    f"the cluster did not take the request in time: {error}; try again with the same key",
                    headers={"Retry-After": "1"},
                )
            )
    # A caller that left needs no answer, but what is tried is tried to its end: a retry may be on its way.
    return [each for each in requests if not each.answer.done()]


def _now_ms() -> int:
    return int(time.time() * 1000)
