"""Sends the controller's requests to brokers: one ordered queue and one sending task per live broker.

A request that cannot be delivered is retried with back-off until the broker is gone, because requests are
idempotent and a broker must get all of them in order. When the broker is gone, or registers again under a new
epoch, its queue is dropped: a new broker is sent the full state.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from kalda.cluster.schema import BrokerInfo
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import BrokerRequest, StopReplica
from kalda.controller.ports import BrokerChannel
from kalda.runtime.random import Random

_BACKOFF_MS: Final = (100, 1_000)
"""The first pause between attempts to reach a broker, and the longest; Kafka's are 100 ms each."""

_BACKLOG_MAX: Final = 10_000
"""Requests that may wait for one broker. A broker that is this far behind is sent the full state instead."""

Answer = Callable[[BrokerInfo, BrokerRequest, Mapping[TopicPartition, ErrorCode]], None]

logger: Final = logging.getLogger(__name__)


class _Channel:
    """The queue of one broker."""

    def __init__(self, info: BrokerInfo) -> None:
        self.info = info
        """The broker as last registered; its endpoints may change under one epoch."""
        self.waiting: deque[BrokerRequest] = deque()
        self.wake: Final = asyncio.Event()
        self.idle: Final = asyncio.Event()
        self.idle.set()
        self.task: asyncio.Task[None] | None = None


class ControllerChannelManager:
    """The channels of a controller's term. The task group given owns their tasks."""

    def __init__(
        self,
        port: BrokerChannel,
        group: asyncio.TaskGroup,
        on_answer: Answer,
        on_overflow: Callable[[int], None],
        random: Random,
    ) -> None:
        self._port = port
        self._group = group
        self._on_answer = on_answer
        self._on_overflow = on_overflow
        self._backoff = ExponentialBackoff(*_BACKOFF_MS, random.uniform)
        self._channels: dict[int, _Channel] = {}

    def set_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Open channels to new brokers, and close the channels to brokers that are gone or restarted."""
        for broker_id, channel in list(self._channels.items()):
            info = brokers.get(broker_id)
            if info is None or info.epoch != channel.info.epoch:
                self._close(broker_id)
        for broker_id, info in brokers.items():
            if broker_id in self._channels:
                self._channels[broker_id].info = info
            else:
                channel = _Channel(info)
                channel.task = self._group.create_task(
                    self._empty(channel), name=f"controller-to-{broker_id}"
                )
                self._channels[broker_id] = channel

    def send(self, broker_id: int, request: BrokerRequest) -> None:
        """Queue a request; a request to a broker without a channel is dropped, because the broker is gone."""
        channel = self._channels.get(broker_id)
        if channel is None:
            return
        if len(channel.waiting) >= _BACKLOG_MAX:
            logger.warning(
                "broker %d is %d requests behind; sending the full state", broker_id, len(channel.waiting)
            )
            channel.waiting.clear()
            self._on_overflow(broker_id)
            return
        channel.waiting.append(request)
        channel.idle.clear()
        channel.wake.set()

    async def wait_idle(self, broker_id: int) -> None:
        """Return when a broker has responded to all queued requests, or is gone."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            await channel.idle.wait()

    def close(self) -> None:
        """Close all channels and drop their queues."""
        for broker_id in list(self._channels):
            self._close(broker_id)

    def _close(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id)
        channel.waiting.clear()
        channel.idle.set()
        if channel.task is not None:
            channel.task.cancel()

    async def _empty(self, channel: _Channel) -> None:
        while True:
            await channel.wake.wait()
            channel.wake.clear()
            while channel.waiting:
                request = channel.waiting.popleft()
                errors = await self._deliver(channel, request)
                self._on_answer(channel.info, request, errors)
            channel.idle.set()

    async def _deliver(self, channel: _Channel, request: BrokerRequest) -> Mapping[TopicPartition, ErrorCode]:
        failures = 0
        while True:
            try:
                return await self._port.send(channel.info, request)
            except ConnectionError as error:
                failures += 1
                if failures == 1:
                    logger.warning("broker %d cannot be reached, retrying: %s", channel.info.id, error)
                await asyncio.sleep(self._backoff.seconds(failures))
            except Exception:
                # The same request would fail the same way again; the broker gets the next one.
                logger.exception("%s to broker %d failed", type(request).__name__, channel.info.id)
                failed = request.partitions if isinstance(request, StopReplica) else ()
                return dict.fromkeys(failed, ErrorCode.UNKNOWN_SERVER_ERROR)
