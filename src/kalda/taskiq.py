"""Kalda as the broker of taskiq: tasks are the records of a topic, and workers its share group.

Needs the extra ``[taskiq]``.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Unpack

from kalda.common.extras import missing_package

try:
    from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage
except ModuleNotFoundError as error:
    raise missing_package("kalda.taskiq", "taskiq", error) from error

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.argument_checks import check_topic_name
from kalda.clients.config.client_options import CommonClientOptions
from kalda.clients.errors import ClientConfigError, IllegalStateError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.share.acknowledgements import AcknowledgeType
from kalda.clients.share.held_share_consumer import HeldShareConsumer, ShareIntake
from kalda.clients.share.share_record import ShareRecord
from kalda.clients.share.task_topics import DELAYED, DELIVERY_AT, TaskTopics
from kalda.common.overriding import override

DELAY_LABEL: Final = "delay"
"""The label of a task that waits, in seconds; that of taskiq's other brokers and of its retries."""
AHEAD: Final = 16
"""Tasks that wait in a worker until it has room for them."""


class KaldaBroker(AsyncBroker):
    """A broker of taskiq on a topic and its share group.

    A task whose worker dies is delivered to another one. The label ``delay`` is the seconds that a task waits
    before its delivery.

    Args:
        topic: The topic of the tasks; it and ``<topic>.delayed``, for tasks with a delay, are created.
        group: The share group of the workers; the topic's name unless given.
        partitions: Partitions of topics that are created; what brokers create by default unless given.
        replication_factor: Replicas of topics that are created, likewise.
        group_config: Settings of the group when it is created, besides those of `TaskTopics`.
        result_backend: Where taskiq stores results; Kalda has none.
        task_id_generator: Makes the ids of tasks.
        options: The settings that all clients share, such as `bootstrap_servers`.

    Raises:
        ClientConfigError: a setting is unknown or not allowed.
    """

    def __init__(
        self,
        *,
        topic: str = "taskiq",
        group: str | None = None,
        partitions: int | None = None,
        replication_factor: int | None = None,
        group_config: dict[str, str] | None = None,
        result_backend: AsyncResultBackend[Any] | None = None,
        task_id_generator: Callable[[], str] | None = None,
        **options: Unpack[CommonClientOptions],
    ) -> None:
        super().__init__(result_backend, task_id_generator)
        check_topic_name(topic)
        self._topic: Final = topic
        self._group: Final = topic if group is None else group
        self._options: Final[Any] = options
        self._topics: Final = TaskTopics(partitions, replication_factor, {}, group_config or {})
        self._producer: AsyncProducer[Any, Any] | None = None
        self._consumer: HeldShareConsumer | None = None
        self._taking: asyncio.Task[None] | None = None
        """Takes tasks while a worker listens; afterwards it keeps the locks of those under way."""

    @override
    async def startup(self) -> None:
        await super().startup()
        async with AsyncAdmin(**self._options) as admin:
            await self._topics.create_queue(admin, self._topic, self._group)
        # A task is sent by itself, and the program waits for it.
        self._producer = AsyncProducer(linger_ms=0, **self._options)
        await self._producer.start()

    @override
    async def shutdown(self) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.give_back()
            await consumer.close()
        if self._producer is not None:
            await self._producer.close()
        await super().shutdown()

    @override
    async def kick(self, message: BrokerMessage) -> None:
        if self._producer is None:
            raise IllegalStateError("this broker is not started; await startup() first")
        delay_s = seconds_of(message.labels.get(DELAY_LABEL))
        if delay_s is None:
            sent = await self._producer.send(self._topic, message.message)
        else:
            at_ms = round((time.time() + delay_s) * 1000)
            headers = [(DELIVERY_AT, b"%d" % at_ms)]
            sent = await self._producer.send(f"{self._topic}{DELAYED}", message.message, headers=headers)
        await sent

    @override
    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        if self._consumer is not None:
            raise IllegalStateError("this broker is listened to already")
        consumer = self._consumer = HeldShareConsumer(
            self._topic,
            f"{self._topic}{DELAYED}",
            **self._options,
            group_id=self._group,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
        )
        await consumer.start()
        # Bounded: the intake takes what there is room for.
        arrived: asyncio.Queue[tuple[int, ShareRecord[Any, Any]]] = asyncio.Queue()
        intake = ShareIntake(
            consumer, lambda: AHEAD - arrived.qsize(), lambda *each: arrived.put_nowait(each)
        )
        taking = self._taking = asyncio.create_task(intake.run(), name=f"tasks of {self._topic}")
        try:
            while True:
                number, record = await _next(arrived, taking)
                intake.look()
                if record.value is None:
                    intake.settle(number, AcknowledgeType.REJECT, reason="no task: the record has no value")
                    continue
                yield AckableMessage(data=record.value, ack=_accept(intake, number))
        finally:
            intake.stop()
            # Those that are under way keep their locks until `shutdown`.
            if taking.done() and not taking.cancelled():
                taking.exception()


async def _next(
    arrived: "asyncio.Queue[tuple[int, ShareRecord[Any, Any]]]", taking: "asyncio.Task[None]"
) -> tuple[int, ShareRecord[Any, Any]]:
    """Return the next record; raises what ends the intake."""
    getting = asyncio.ensure_future(arrived.get())
    try:
        await asyncio.wait((getting, taking), return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
    finally:
        getting.cancel()
    if not taking.cancelled():
        await taking
    raise IllegalStateError("the broker is shut down")


def _accept(intake: ShareIntake, number: int) -> Callable[[], None]:
    return lambda: intake.settle(number, AcknowledgeType.ACCEPT)


def seconds_of(label: object) -> float | None:
    """Return the delay that a label names; None without one.

    Raises:
        ClientConfigError: it is no number of seconds.
    """
    if label is None:
        return None
    try:
        seconds = float(label) if isinstance(label, str | int | float) else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ClientConfigError(f"label delay={label!r} is not allowed: it takes seconds, at least 0")
    return seconds if seconds else None
