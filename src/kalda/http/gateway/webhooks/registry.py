"""Keeps the subscriptions of webhooks in a compacted topic, and runs those that are there.

Every process follows the topic, so that a subscription that one of them writes runs in all of them.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import BrokerResponseError, ClientError, UnknownTopicOrPartitionError
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.http.callers import Caller
from kalda.http.errors import HttpError
from kalda.http.gateway.webhooks.runner import WebhookRunner
from kalda.http.gateway.webhooks.sender import Sender
from kalda.http.gateway.webhooks.subscription import Subscription, decode_subscription

logger: Final = logging.getLogger(__name__)

SUBSCRIPTIONS_MAX: Final = 1_000
"""Each is a consumer in each process."""
LOOK_SECONDS: Final = 10.0
"""How often a process looks whether the topic exists, before the first subscription."""
READ_BACK_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How webhooks are kept."""

    topic: str
    replication_factor: int


class Webhooks:
    """The subscriptions, as one process sees and runs them."""

    def __init__(self, process: Caller, settings: WebhookSettings, sender: Sender) -> None:
        """`sender` is closed with the webhooks."""
        self._process: Final = process
        self._settings: Final = settings
        self._sender: Final = sender
        self._runners: Final[dict[str, WebhookRunner]] = {}
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self._read = 0
        """The offset behind the last record that was applied."""
        self._has_read: Final = asyncio.Condition()
        self._look: Final = asyncio.Event()
        self._task: Final = asyncio.create_task(self._follow(), name="webhooks")

    @property
    def runners(self) -> Mapping[str, WebhookRunner]:
        """The running webhooks by name of the subscription."""
        return self._runners

    async def put(self, subscription: Subscription) -> None:
        """Store a subscription, in place of one of the same name; return when this process runs it.

        Raises:
            HttpError: there are too many (503).
            ClientError: it could not be written.
        """
        if len(self._runners) >= SUBSCRIPTIONS_MAX and subscription.name not in self._runners:
            raise HttpError(
                503, f"there are {len(self._runners)} webhooks; at most {SUBSCRIPTIONS_MAX} can be"
            )
        await self._write(subscription.name, subscription.encode())

    async def delete(self, name: str) -> None:
        """Remove a subscription; return when this process has stopped it.

        Raises:
            ClientError: it could not be written.
        """
        await self._write(name, None)

    async def close(self) -> None:
        """Stop all webhooks; other processes take over their partitions."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(self._stop(name) for name in list(self._tasks)))
        await self._sender.close()

    async def _write(self, name: str, value: bytes | None) -> None:
        await self._create()
        producer = await self._process.producer()
        written = await (await producer.send(self._settings.topic, value, name.encode(), partition=0))
        self._look.set()
        try:
            async with asyncio.timeout(READ_BACK_SECONDS), self._has_read:
                await self._has_read.wait_for(lambda: self._read > written.offset)
        except TimeoutError:
            raise HttpError(504, "the change is written, and was not read back in time") from None

    async def _create(self) -> None:
        settings = self._settings
        admin = await self._process.admin()
        if settings.topic in await admin.list_topics():
            return
        brokers = len((await admin.describe_cluster()).nodes)
        topic = NewTopic(
            settings.topic,
            1,
            min(settings.replication_factor, brokers),
            config={"cleanup.policy": "compact"},
        )
        try:
            await admin.create_topics([topic])
        except BrokerResponseError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def _follow(self) -> None:
        backoff = ExponentialBackoff(500, 30_000, random.uniform)
        failures = 0
        while True:
            try:
                await self._wait_topic()
                await self._read_topic()
            except (ClientError, HttpError) as error:
                failures += 1
                logger.info("The webhooks cannot be read: %s; retrying", error)
            except Exception:
                failures += 1
                logger.exception("the webhooks cannot be read; retrying")
            await asyncio.sleep(backoff.seconds(max(failures, 1)))

    async def _wait_topic(self) -> None:
        while True:
            self._look.clear()
            admin = await self._process.admin()
            try:
                await admin.describe_topics([self._settings.topic])
                return
            except UnknownTopicOrPartitionError:
                try:
                    async with asyncio.timeout(LOOK_SECONDS * random.uniform(0.8, 1.2)):
                        await self._look.wait()
                except TimeoutError:
                    continue

    async def _read_topic(self) -> None:
        place = TopicPartition(self._settings.topic, 0)
        consumer = self._process.consumer(
            auto_offset_reset="earliest",
            enable_auto_commit="false",
            allow_auto_create_topics="false",
            exclude_internal_topics="false",
            isolation_level="read_committed",
        )
        async with consumer:
            await consumer.assign([place])
            await consumer.seek(place, self._read)
            while True:
                records = await consumer.poll(5.0)
                # Of each name only the last record counts; a webhook that is gone again never starts.
                latest = {record.key: record for record in records if record.key}
                for key, record in latest.items():
                    await self._apply(key.decode("utf-8", "replace"), record.value)
                if records:
                    async with self._has_read:
                        self._read = records[-1].offset + 1
                        self._has_read.notify_all()

    async def _apply(self, name: str, value: bytes | None) -> None:
        subscription = None if value is None else decode_subscription(name, value)
        if value is not None and subscription is None:
            logger.warning("Webhook %r cannot be read and does not run here", name)
        runner = self._runners.get(name)
        if runner is not None and runner.subscription == subscription:
            return
        await self._stop(name)
        if subscription is not None:
            runner = WebhookRunner(self._process, self._sender, subscription)
            self._runners[name] = runner
            self._tasks[name] = asyncio.create_task(runner.run(), name=f"webhook {name}")

    async def _stop(self, name: str) -> None:
        self._runners.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
