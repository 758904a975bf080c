"""Messages and queues of one connection of kombu's, as topics and share groups; on a loop thread of its own.

A durable queue is a topic with a share group of the same name. A second topic, ``<queue>.delayed``, has the
messages with a time, so that those that wait hold up no other. What an exchange sends to several queues
(events, remote control, replies) is a topic that each temporary queue reads from its declaration on, without
a group: a temporary queue is nothing but a place in such topics.
"""

import asyncio
import contextlib
import json
import os
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.created_topics import describe_created
from kalda.clients.admin.partitions import OffsetSpec
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.errors import BrokerResponseError, ClientConfigError
from kalda.clients.loop_thread import LoopThread
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.share.acknowledgements import AcknowledgeType
from kalda.clients.share.held_share_consumer import HeldShareConsumer, ShareIntake
from kalda.clients.share.share_record import ShareRecord
from kalda.clients.share.task_topics import DELAYED, DELIVERY_AT, TaskTopics
from kalda.clients.values import ConsumerRecord
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.types import TopicPartition

T = TypeVar("T")

ROUTING_KEY: Final = "kalda.routing.key"
REPLIES: Final = "kalda.replies"
"""The topic of messages to temporary queues that no exchange names."""
BROADCAST_CONFIG: Final = {"retention.ms": "3600000"}
"""Nobody reads what was sent an hour ago: a temporary queue begins at its declaration."""
WAITING_MAX: Final = 1000
"""Messages that wait for the program, and that one without a prefetch count holds."""
_CLOSE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 1.0
_OTHER_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9._-]")


def topic_name(name: str) -> str:
    """Return the name of a queue or an exchange as a topic may have it, another one for each.

    >>> topic_name("mails"), topic_name("mails@eu")
    ('mails', 'mails-eu-29728d35')
    """
    found = _OTHER_CHARACTERS.sub("-", name)
    if found == name:
        return name
    # Without it, names of other alphabets would share a topic, and so their tasks.
    return f"{found}-{sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"


@dataclass(slots=True)
class Arrived:
    """A message for the program."""

    queue: str
    message: dict[str, Any]
    source: "ShareQueue | None"
    """Where it is settled; None for one of a temporary queue."""
    number: int = 0


class ShareQueue:
    """A queue that is read; on the loop."""

    def __init__(self, name: str, consumer: HeldShareConsumer, room: Callable[[], int], arrived: "Arrivals"):
        self.name: Final = name
        self._consumer: Final = consumer
        self._arrived: Final = arrived
        self.intake: Final = ShareIntake(consumer, room, self._on_record)
        self._task = asyncio.create_task(arrived.guard(self.intake.run()), name=f"queue {name}")

    async def close(self) -> None:
        """Give back what is not settled."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._consumer.give_back()
        await self._consumer.close(_CLOSE_SECONDS)

    def _on_record(self, number: int, record: ShareRecord[Any, Any]) -> None:
        message = message_of(record.value)
        if message is None:
            self.intake.settle(number, AcknowledgeType.REJECT, reason="no message of kombu")
            return
        properties = message["properties"]
        properties["delivery_info"]["redelivered"] = record.delivery_count > 1
        # Of a message that comes twice, each delivery is settled alone.
        properties["delivery_tag"] = f"{record.topic}-{record.partition}-{record.offset}-{number}"
        self._arrived.add(Arrived(self.name, message, self, number))


@dataclass(slots=True, weakref_slot=True)
class TemporaryQueue:
    """Where a queue begins to read the topics that it is bound to, and which messages are its own.

    All connections of a process that declare the queue have the same one: Celery declares the queue of
    results on the connection that sends the task, and reads it on another, maybe later than the result.
    """

    name: str
    filters: dict[str, dict[str, Callable[[str], bool]]] = field(default_factory=dict)
    """By topic and routing key of a binding, which routing keys are taken; one filter is enough."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """By partition, the first offset that was not read."""
    got: deque[dict[str, Any]] = field(default_factory=deque)
    """What was read to get one message, and is not taken yet. Bounded: by one read of `_catch_up`."""
    reader_count: int = 0
    """How many consumers take the messages."""

    def own(self, records: Iterable[ConsumerRecord[Any, Any]]) -> Iterator[dict[str, Any]]:
        """Pass records; return the messages among them that are of this queue."""
        for record in records:
            self.starts[record.topic_partition] = record.offset + 1
            key = (dict(record.headers).get(ROUTING_KEY) or b"").decode(errors="replace")
            message = message_of(record.value)
            if message is not None and any(takes(key) for takes in self.filters[record.topic].values()):
                yield message


_TEMPORARY: Final[WeakValueDictionary[tuple[int, str, str], TemporaryQueue]] = WeakValueDictionary()
"""The temporary queues of this process, by its id, which a fork changes, the cluster and the name."""


class Arrivals:
    """Messages, and errors, for the thread that drains them."""

    def __init__(self) -> None:
        # Bounded: queues take what they have room for, and temporary ones wait while there is much.
        self._queue: Final[SimpleQueue[Arrived | Exception]] = SimpleQueue()

    def add(self, arrived: Arrived) -> None:
        """Leave a message."""
        self._queue.put(arrived)

    @property
    def is_full(self) -> bool:
        """Whether the program has enough to do."""
        return self._queue.qsize() >= WAITING_MAX

    def next(self, timeout_s: float | None) -> Arrived:
        """Return the next message.

        Raises:
            Empty: none has come in time.
            ClientError: the cluster refuses a queue.
            Exception: a reader failed.
        """
        arrived = self._queue.get(timeout_s != 0, timeout_s)
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def guard(self, reader: Coroutine[Any, Any, None]) -> None:
        """Run a reader, and leave its error."""
        try:
            await reader
        except Exception as error:
            # A fault, too: the program would wait for messages that nobody reads.
            self._queue.put(error)


class SingleArrivals(Arrivals):
    """Lets in one message for each call of `get`."""

    def __init__(self) -> None:
        super().__init__()
        self._is_wanted = False

    @property
    def room(self) -> int:
        """How many messages may be taken; on the loop."""
        return int(self._is_wanted)

    @override
    def add(self, arrived: Arrived) -> None:
        if self._is_wanted:
            self._is_wanted = False
            super().add(arrived)
        elif arrived.source is not None:
            # Too late.
            arrived.source.intake.settle(arrived.number, AcknowledgeType.RELEASE)

    def get(self, look: Callable[[], object], timeout_s: float) -> Arrived | None:
        """Return a message; None if none comes in time. `look` has the room asked for."""
        self._is_wanted = True
        look()
        try:
            return self.next(timeout_s)
        except Empty:
            return None
        finally:
            self._is_wanted = False


class Exchange:
    """One connection to a cluster.

    Args:
        space: Names the cluster and the prefix of queues: where temporary queues of a name are the same.
        options: Settings of all clients.
        producer_options: Settings of the producer only.
        topics: Creates topics.
    """

    def __init__(
        self,
        space: str,
        options: dict[str, Any],
        producer_options: dict[str, Any],
        topics: TaskTopics,
    ) -> None:
        self._space: Final = space
        self._options: Final = options
        self._producer_options: Final = producer_options
        self._topics: Final = topics
        self.thread: Final = LoopThread("kalda-celery")
        self.arrived: Final = Arrivals()
        self._admin: AsyncAdmin | None = None
        self._producer: AsyncProducer | None = None
        self._known: Final[set[str]] = set()
        """Topics that exist. Bounded: by the queues that the program names."""
        self._queues: Final[set[ShareQueue]] = set()
        self._temporary: Final[dict[str, TemporaryQueue]] = {}
        self._readers: Final[dict[str, asyncio.Task[None]]] = {}
        """The tasks that read temporary queues, by the queue's name."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one of the coroutines below."""
        return self.thread.call(coroutine)

    # Coroutines on the loop

    async def start(self) -> None:
        """Connect.

        Raises:
            ClientError: no broker answers, or it refuses this client.
        """
        admin = AsyncAdmin(**self._options)
        try:
            await admin.describe_cluster()
        except BaseException:
            await admin.close()
            raise
        self._admin = admin

    async def close(self) -> None:
        """Give back what is not settled, and end all connections."""
        tasks = list(self._readers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(queue.close() for queue in self._queues), return_exceptions=True)
        self._queues.clear()
        self._readers.clear()
        self._temporary.clear()
        if self._producer is not None:
            await self._producer.close(_CLOSE_SECONDS)
        if self._admin is not None:
            await self._admin.close()

    async def declare_queue(self, queue: str) -> None:
        """Create the topics of a queue, and set up its group, if this connection has not done so yet."""
        name = topic_name(queue)
        if name in self._known:
            return
        if name.endswith(DELAYED):
            raise ClientConfigError(
                f"the queue {queue!r} cannot be declared: a name with {DELAYED!r} at its end is that of the "
                "topic for another queue's tasks with a time"
            )
        await self._topics.create_queue(self.admin, name, name)
        self._known.add(name)

    async def declare_broadcast(self, exchange: str) -> None:
        """Create the topic of an exchange, if this connection has not done so yet."""
        name = topic_name(exchange)
        if name not in self._known:
            await self._topics.create(self.admin, [name], BROADCAST_CONFIG)
            self._known.add(name)

    async def declare_temporary(self, queue: str) -> None:
        """Have a temporary queue begin now, unless a connection of this process has it already."""
        if queue not in self._temporary:
            key = os.getpid(), self._space, queue
            self._temporary[queue] = _TEMPORARY.setdefault(key, TemporaryQueue(queue))
            await self.bind_temporary(queue, REPLIES, queue, lambda key: key == queue)

    async def bind_temporary(
        self, queue: str, exchange: str, routing_key: str, takes: Callable[[str], bool]
    ) -> None:
        """Have a temporary queue get what an exchange gets from now on, if it `takes` the routing key."""
        await self.declare_broadcast(exchange)
        topic = topic_name(exchange)
        temporary = self._temporary[queue]
        if topic not in temporary.filters:
            # Another process may have created it a moment ago.
            description = await describe_created(self.admin, topic)
            partitions = [TopicPartition(topic, each.partition) for each in description.partitions]
            ends = await self.admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
            for partition, result in ends.items():
                temporary.starts.setdefault(partition, result.offset)
        temporary.filters.setdefault(topic, {})[routing_key] = takes

    async def publish(
        self, topic: str, message: dict[str, Any], routing_key: str = "", at_ms: int | None = None
    ) -> None:
        """Store a message; return when all in-sync replicas have it."""
        if self._producer is None:
            # The program waits for each message: others to share its batch do not come.
            self._producer = AsyncProducer(**{"linger_ms": 0, **self._options, **self._producer_options})
            await self._producer.start()
        headers = [(ROUTING_KEY, routing_key.encode())] if routing_key else []
        if at_ms is not None:
            headers.append((DELIVERY_AT, b"%d" % at_ms))
        sent = await self._producer.send(topic, json.dumps(message).encode(), headers=headers)
        await sent

    async def read_queue(self, queue: str, room: Callable[[], int], arrivals: Arrivals) -> ShareQueue:
        """Begin to take messages of a queue as there is room."""
        await self.declare_queue(queue)
        name = topic_name(queue)
        consumer = HeldShareConsumer(
            name,
            f"{name}{DELAYED}",
            **self._options,
            group_id=name,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
        )
        await consumer.start()
        found = ShareQueue(queue, consumer, room, arrivals)
        self._queues.add(found)
        return found

    async def close_queue(self, queue: ShareQueue) -> None:
        """Give back what is not settled."""
        self._queues.discard(queue)
        await queue.close()

    async def read_temporary(self, queue: str) -> None:
        """Begin to take messages of a temporary queue."""
        temporary = self._temporary[queue]
        if queue not in self._readers:
            self._readers[queue] = asyncio.create_task(
                self.arrived.guard(self._read_temporary(temporary)), name=f"temporary queue {queue}"
            )

    async def get_temporary(self, queue: str) -> Arrived | None:
        """Return the next message of a temporary queue; None if there is none, or a consumer takes them."""
        temporary = self._temporary[queue]
        if not temporary.got and not temporary.reader_count:
            await self._catch_up(temporary)
        return Arrived(queue, temporary.got.popleft(), None) if temporary.got else None

    async def delete_temporary(self, queue: str) -> None:
        """Forget a temporary queue."""
        await self.stop_temporary(queue)
        self._temporary.pop(queue, None)

    async def stop_temporary(self, queue: str) -> None:
        """Take no more messages of a temporary queue, until it is read again from there."""
        task = self._readers.pop(queue, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def is_temporary(self, queue: str) -> bool:
        """Whether this connection has declared a temporary queue of this name."""
        return queue in self._temporary

    async def has_queue(self, queue: str) -> bool:
        """Return whether a durable queue exists.

        Raises:
            ClientError: that cannot be found out.
        """
        name = topic_name(queue)
        if name in self._known:
            return True
        outcomes = await self.admin.describe_topics([name], outcomes=True)
        error = outcomes.errors.get(name)
        if error is None:
            return True
        if isinstance(error, BrokerResponseError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        # A message for it would go to the temporary queues, where nobody reads it.
        raise error

    async def size(self, queue: str) -> int:
        """Return how many messages of a queue are not settled, whether they are under way or not."""
        name = topic_name(queue)
        topics = (name, f"{name}{DELAYED}")
        ends = await self._offsets(topics, OffsetSpec.latest())
        if not ends:
            return 0
        begins = await self._offsets(topics, OffsetSpec.earliest())
        outcomes = await self.admin.list_share_group_offsets([name], outcomes=True)
        groups = outcomes.results.get(name, {})
        total = 0
        for partition, end in ends.items():
            group = groups.get(partition)
            if group is None:
                total += end - begins[partition]
            elif group.lag is None:
                total += max(end - max(group.start_offset, begins[partition]), 0)
            else:
                total += group.lag
        return total

    async def purge(self, queue: str) -> int:
        """Delete the messages of a queue, also those under way; return how many there were."""
        name = topic_name(queue)
        count = await self.size(queue)
        ends = await self._offsets((name, f"{name}{DELAYED}"), OffsetSpec.latest())
        await self.admin.delete_records(ends)
        return count

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue's topics."""
        name = topic_name(queue)
        self._known.discard(name)
        await self.admin.delete_topics([name, f"{name}{DELAYED}"], outcomes=True)

    # Internals

    @property
    def admin(self) -> AsyncAdmin:
        """The admin client."""
        assert self._admin is not None, "a connection that is used is started"
        return self._admin

    async def _offsets(self, topics: tuple[str, ...], spec: OffsetSpec) -> dict[TopicPartition, int]:
        described = await self.admin.describe_topics(topics, outcomes=True)
        partitions = [
            TopicPartition(topic, each.partition)
            for topic in topics
            if topic in described.results
            for each in described.results[topic].partitions
        ]
        if not partitions:
            return {}
        found = await self.admin.list_offsets(dict.fromkeys(partitions, spec))
        return {partition: result.offset for partition, result in found.items()}

    async def _read_temporary(self, queue: TemporaryQueue) -> None:
        queue.reader_count += 1
        try:
            while queue.got:
                self.arrived.add(Arrived(queue.name, queue.got.popleft(), None))
            async with AsyncConsumer(**self._options, auto_offset_reset="earliest") as consumer:
                assigned: set[TopicPartition] = set()
                while True:
                    if queue.starts.keys() != assigned:
                        new = queue.starts.keys() - assigned
                        await consumer.assign(queue.starts)
                        for partition in new:
                            await consumer.seek(partition, queue.starts[partition])
                        assigned |= new
                    if self.arrived.is_full:
                        await asyncio.sleep(_POLL_SECONDS)
                        continue
                    for message in queue.own(await consumer.poll(_POLL_SECONDS)):
                        self.arrived.add(Arrived(queue.name, message, None))
        finally:
            queue.reader_count -= 1

    async def _catch_up(self, queue: TemporaryQueue) -> None:
        """Read until something of the queue is found, or what has come until now has no more."""
        ends = await self.admin.list_offsets(dict.fromkeys(queue.starts, OffsetSpec.latest()))
        if all(queue.starts[each] >= end.offset for each, end in ends.items()):
            return
        async with AsyncConsumer(**self._options, auto_offset_reset="earliest") as consumer:
            await consumer.assign(queue.starts)
            for partition, start in list(queue.starts.items()):
                await consumer.seek(partition, start)
            while not queue.got and any(queue.starts[each] < end.offset for each, end in ends.items()):
                records = await consumer.poll(_POLL_SECONDS)
                if not records:
                    # The partition has no leader for now; the program asks again.
                    return
                queue.got.extend(queue.own(records))


def message_of(value: bytes | None) -> dict[str, Any] | None:
    """Return the message of a record; None for a record that another program has sent, which has none."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        message = json.loads(value or b"")
        if isinstance(message, dict) and isinstance(message.get("properties"), dict):
            properties = message["properties"]
            if isinstance(properties.get("delivery_info"), dict) and isinstance(message.get("body"), str):
                return message
    return None
