"""Fetches the partitions that a connector owns, and puts their messages into the queues of its streams.

One `AsyncConsumer` without subscriptions does the work: it finds leaders, keeps fetch sessions, decompresses
and knows every message format. Partitions whose stream has a full queue are paused.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.errors import ClientError, IllegalStateError
from kalda.clients.legacy.consumer.consumer_config import LARGEST, SMALLEST, ConsumerConfig
from kalda.clients.legacy.consumer.kafka_stream import KafkaStream
from kalda.clients.values import ConsumerRecord
from kalda.common.backoff import jittered
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = loop_logger(__name__)

_POLL_S: Final = 1.0
_FAILED_POLL_S: Final = 0.5
"""The wait after a poll that failed, so that a lasting failure does not take a core."""
_CLOSE_S: Final = 5.0

_RESET: Final = {SMALLEST: "earliest", LARGEST: "latest", "none": "none"}

Stream = KafkaStream[Any, Any]


class StreamFeeder:
    """The fetching half of a connector; on the loop, but for `on_room`. Also the group's offsets in Kafka."""

    def __init__(self, config: ConsumerConfig, bootstrap: Sequence[str]) -> None:
        """`bootstrap` are brokers as host:port."""
        self._config: Final = config
        self._consumer: Final = AsyncConsumer.from_config(
            {
                "bootstrap.servers": ",".join(bootstrap),
                "group.id": config.group,
                "client.id": config.client_id or config.group,
                "enable.auto.commit": "false",
                # The topics are those in ZooKeeper: one that was deleted is not wanted back.
                "allow.auto.create.topics": "false",
                "auto.offset.reset": _RESET[config.auto_offset_reset],
                "max.partition.fetch.bytes": str(config.fetch_message_max_bytes),
                "fetch.min.bytes": str(config.fetch_min_bytes),
                "fetch.max.wait.ms": str(config.fetch_wait_max_ms),
                "receive.buffer.bytes": str(config.socket_receive_buffer_bytes),
                "request.timeout.ms": str(config.socket_timeout_ms),
                "default.api.timeout.ms": str(max(config.socket_timeout_ms, 60_000)),
                "retry.backoff.ms": str(config.refresh_leader_backoff_ms),
                "retry.backoff.max.ms": str(max(config.refresh_leader_backoff_ms, 1_000)),
            }
        )
        self._streams: dict[TopicPartition, Stream] = {}
        self._paused: Final[set[TopicPartition]] = set()
        self._has_partitions: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._resumes: Final[set[asyncio.Task[None]]] = set()

    async def start(self) -> None:
        """Start to fetch what will be assigned."""
        await self._consumer.start()
        self._task = asyncio.create_task(self._run(), name=f"stream feeder of {self._config.group}")

    async def assign(
        self, streams: Mapping[TopicPartition, Stream], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Fetch these partitions, instead of those before.

        Args:
            streams: By partition: the stream that gets its messages.
            offsets: Where to begin; a partition that has none begins as `auto.offset.reset` says.

        Raises:
            ClientError: a partition has no offset, and `auto.offset.reset` is none.
        """
        self.stop()
        if not streams:
            return
        new = [each for each in streams if each not in offsets]
        if new and self._config.auto_offset_reset not in (SMALLEST, LARGEST):
            raise ClientError(
                f"group {self._config.group} has no offset of {new[0]}, and `auto.offset.reset` is none"
            )
        await self._consumer.assign(streams)
        # Partitions that stay keep their pause, for a stream whose queue is empty now.
        await self._consumer.resume(streams)
        for each in streams:
            if each in offsets:
                await self._consumer.seek(each, offsets[each])
        if new and self._config.auto_offset_reset == SMALLEST:
            await self._consumer.seek_to_beginning(new)
        elif new:
            await self._consumer.seek_to_end(new)
        self._streams = dict(streams)
        self._has_partitions.set()

    def stop(self) -> None:
        """Put no more messages into any stream; what is fetched already is dropped."""
        self._has_partitions.clear()
        self._streams = {}
        self._paused.clear()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to Kafka."""
        await self._consumer.commit(offsets, timeout_s=self._config.offsets_channel_socket_timeout_ms / 1000)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that the group has committed to Kafka."""
        found = await self._consumer.committed(partitions)
        return {each: offset.offset for each, offset in found.items() if offset is not None}

    async def close(self) -> None:
        """Close the connections."""
        self.stop()
        tasks = [each for each in (self._task, *self._resumes) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._consumer.close(_CLOSE_S)

    def on_room(self, stream: Stream) -> None:
        """Fetch the partitions of a stream again whose program took a chunk."""
        paused = [each for each in self._paused if self._streams.get(each) is stream]
        if paused:
            self._paused.difference_update(paused)
            task = asyncio.create_task(self._consumer.resume(paused))
            self._resumes.add(task)
            task.add_done_callback(self._resumes.discard)

    async def _run(self) -> None:
        while True:
            await self._has_partitions.wait()
            try:
                records = await self._consumer.poll(_POLL_S)
            except IllegalStateError:
                # The assignment ended meanwhile.
                await asyncio.sleep(0)
            except Exception as error:
                logger.warning("Group %s: fetching failed: %s", self._config.group, error)
                for stream in set(self._streams.values()):
                    stream.fail(error)
                await asyncio.sleep(jittered(_FAILED_POLL_S, SYSTEM_RANDOM))
            else:
                await self._deliver(records)

    async def _deliver(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        for key, group in groupby(records, lambda each: (each.topic, each.partition)):
            stream = self._streams.get(TopicPartition(*key))
            if stream is not None:
                stream.put(list(group))
        for stream in {*self._streams.values()}:
            if stream.is_full:
                full = [each for each, own in self._streams.items() if own is stream]
                self._paused.update(full)
                await self._consumer.pause(full)
