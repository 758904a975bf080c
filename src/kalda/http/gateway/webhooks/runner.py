"""Runs webhooks: each subscription is a group, whose members in all processes share the topic's partitions.

The records of a partition are delivered in their order, one after the other. While that goes on the
partition is paused, and the consumer is polled for the others, so that a receiver that is down holds up
nothing else and the member stays in its group. Offsets are committed behind what was taken or became a dead
letter; after a failure of this process, the record under way is sent again with the same id.
"""

import asyncio
import logging
import random
from collections.abc import Collection
from typing import Final

from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.types import TopicPartition
from kalda.http.callers import Caller
from kalda.http.gateway.streams.recent_records import BytesRecord
from kalda.http.gateway.webhooks.sender import Attempt, Sender
from kalda.http.gateway.webhooks.subscription import Subscription

logger: Final = logging.getLogger(__name__)

CHUNK_RECORDS: Final = 100
"""Records of one poll: what waits in memory for a receiver that is down."""
COMMIT_RECORDS: Final = 20


class WebhookRunner(ConsumerRebalanceListener):
    """This process's member of a subscription's group."""

    def __init__(self, process: Caller, sender: Sender, subscription: Subscription) -> None:
        self.subscription: Final = subscription
        self.delivered = 0
        self.failed_attempts = 0
        self.dead_letters = 0
        self.last_error = ""
        self._process: Final = process
        self._sender: Final = sender
        self._conditions: Final = subscription.conditions
        self._tasks: Final[dict[TopicPartition, asyncio.Task[None]]] = {}
        self._done: Final[dict[TopicPartition, int]] = {}
        """By partition, the offset behind what was delivered and is not committed yet."""
        self._consumer: AsyncConsumer[bytes, bytes] | None = None
        self._backoff: Final = ExponentialBackoff(1_000, 60_000, random.uniform)

    async def run(self) -> None:
        """Deliver until the task is cancelled; begins again after a failure."""
        failures = 0
        while True:
            try:
                await self._run()
            except ClientError as error:
                failures += 1
                self.last_error = str(error)
                logger.warning("Webhook %s failed and begins again: %s", self.subscription.name, error)
            except Exception:
                failures += 1
                logger.exception("webhook %s failed and begins again", self.subscription.name)
            await asyncio.sleep(self._backoff.seconds(failures))

    async def _run(self) -> None:
        subscription = self.subscription
        consumer = self._process.consumer(
            group_id=subscription.group,
            auto_offset_reset="earliest" if subscription.begin == "beginning" else "latest",
            isolation_level="read_committed",
            enable_auto_commit="false",
            allow_auto_create_topics="false",
            partition_assignment_strategy="cooperative-sticky",
            max_poll_records=str(CHUNK_RECORDS),
            client_id=f"kalda-http-webhook-{subscription.name}",
        )
        self._consumer = consumer
        try:
            await consumer.start()
            await consumer.subscribe([subscription.topic], self)
            while True:
                by_partition: dict[TopicPartition, list[BytesRecord]] = {}
                for record in await consumer.poll(1.0):
                    by_partition.setdefault(record.topic_partition, []).append(record)
                for partition, records in by_partition.items():
                    await consumer.pause([partition])
                    self._tasks[partition] = asyncio.create_task(
                        self._deliver_all(partition, records), name=f"webhook {subscription.name} {partition}"
                    )
                for partition, task in list(self._tasks.items()):
                    if task.done():
                        del self._tasks[partition]
                        task.result()
        finally:
            await self._stop(list(self._tasks))
            await consumer.close(5.0)

    @override
    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._stop(partitions)

    @override
    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._done.pop(partition, None)
        await self._stop(partitions)

    async def _stop(self, partitions: Collection[TopicPartition]) -> None:
        """End deliveries, and commit the delivered records."""
        tasks = [task for each in partitions if (task := self._tasks.pop(each, None)) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for partition in partitions:
            await self._commit(partition)

    async def _deliver_all(self, partition: TopicPartition, records: list[BytesRecord]) -> None:
        assert self._consumer is not None, "records come from a consumer"
        for number, record in enumerate(records, 1):
            if self._conditions.match(record.key, record.value, record.headers):
                await self._deliver(record)
            self._done[partition] = record.offset + 1
            if number % COMMIT_RECORDS == 0:
                await self._commit(partition)
        await self._commit(partition)
        await self._consumer.resume([partition])

    async def _deliver(self, record: BytesRecord) -> None:
        """Send a record until it is taken, or make it a dead letter."""
        attempts = 0
        while True:
            attempts += 1
            attempt = await self._sender.send(self.subscription, record)
            if attempt.is_taken:
                self.delivered += 1
                return
            self.failed_attempts += 1
            self.last_error = attempt.error
            if attempt.is_final or attempts >= self.subscription.attempts_max:
                await self._bury(record, attempt, attempts)
                return
            await asyncio.sleep(max(self._backoff.seconds(attempts), attempt.retry_after_s))

    async def _bury(self, record: BytesRecord, attempt: Attempt, attempts: int) -> None:
        """Write a record to the dead-letter topic, with headers that describe the failure."""
        topic = self.subscription.dead_letter_topic
        headers = [
            *record.headers,
            ("dlq.error.class", b"webhook"),
            ("dlq.error.message", attempt.error.encode()),
            ("dlq.topic", record.topic.encode()),
            ("dlq.partition", str(record.partition).encode()),
            ("dlq.offset", str(record.offset).encode()),
            ("dlq.webhook", self.subscription.name.encode()),
            ("dlq.retries", str(attempts - 1).encode()),
        ]
        failures = 0
        while True:
            try:
                await self._create(topic)
                producer = await self._process.producer()
                await (await producer.send(topic, record.value, record.key, headers))
                self.dead_letters += 1
                logger.warning(
                    "Webhook %s gave up %s/%d/%d after %d attempts: %s",
                    self.subscription.name,
                    record.topic,
                    record.partition,
                    record.offset,
                    attempts,
                    attempt.error,
                )
                return
            except ClientError as error:
                # The record is not passed before it is kept somewhere.
                failures += 1
                self.last_error = f"the dead letter could not be written: {error}"
                await asyncio.sleep(self._backoff.seconds(failures))

    async def _create(self, topic: str) -> None:
        admin = await self._process.admin()
        if topic in await admin.list_topics():
            return
        try:
            await admin.create_topics([NewTopic(topic, 1)])
        except BrokerResponseError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def _commit(self, partition: TopicPartition) -> None:
        offset = self._done.pop(partition, None)
        if offset is None or self._consumer is None:
            return
        try:
            await self._consumer.commit({partition: offset}, 10.0)
        except ClientError as error:
            logger.info("Webhook %s did not commit %s: %s", self.subscription.name, partition, error)
