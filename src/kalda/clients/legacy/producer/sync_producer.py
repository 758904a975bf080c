"""Sends message sets to one broker: the low-level producer of the documents, one for each broker of the pool.

It chooses no partition and repeats nothing. A message set goes out in the newest of the three old requests
that the broker takes: Produce 2 carries timestamps (magic 1), Produce 0 and 1 do not (magic 0).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BrokerConnectionError, error_for
from kalda.clients.legacy.message_set import Message
from kalda.clients.legacy.producer.producer_config import ProducerConfig
from kalda.clients.loop_thread import LoopThread
from kalda.clients.node_connection import NodeConnection
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.public import public_in
from kalda.common.types import BrokerEndpoint, TopicPartition, by_topic
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.protocol.schema import Message as WireMessage
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.runtime.clock import Clock

_PRODUCE_MAX: Final = 2
"""The last version of Produce that carries message sets."""
_TIMESTAMPS: Final = 2
"""The first version of Produce that carries messages of magic 1."""


@public_in("kalda.clients.legacy")
class ProducerRequest(NamedTuple):
    """Messages for one partition."""

    topic: str
    partition: int
    messages: Sequence[Message]


@public_in("kalda.clients.legacy")
class SyncProducer:
    """The connection to one broker.

    Args:
        endpoint: The broker.
        config: The producer's settings.
        connections: The settings of connections.
        thread: The loop that owns the connection.
        clock: The time of messages without a timestamp.
        on_failure: Called when the connection is lost: leaders may have changed.
    """

    def __init__(
        self,
        endpoint: BrokerEndpoint,
        config: ProducerConfig,
        connections: CommonClientConfig,
        thread: LoopThread,
        clock: Clock,
        on_failure: Callable[[], object],
    ) -> None:
        self.endpoint: Final = endpoint
        self._config: Final = config
        self._connections: Final = connections
        self._thread: Final = thread
        self._clock: Final = clock
        self._on_failure: Final = on_failure
        self._node = self._new_node()
        self._opened_at = clock.monotonic()
        self._sent_count = 0
        """Requests over the present connection."""

    def send(self, topic: str, partition: int, messages: Sequence[Message]) -> None:
        """Send messages to one partition; raises as `multi_send`."""
        self.multi_send([ProducerRequest(topic, partition, messages)])

    def multi_send(self, requests: Sequence[ProducerRequest]) -> None:
        """Send messages to several partitions in one request, and wait for the broker's acknowledgement.

        Not for the producer's own loop: it blocks.

        Raises:
            BrokerResponseError: a partition refused its messages.
            BrokerConnectionError, RequestTimedOutError: there was no response.
            UnsupportedApiError: the broker takes no message sets.
        """
        sets: dict[TopicPartition, list[Message]] = {}
        for request in requests:
            sets.setdefault(TopicPartition(request.topic, request.partition), []).extend(request.messages)
        for each, code in self._thread.call(self.produce(sets)).items():
            if code is not ErrorCode.NONE:
                raise error_for(code, f"produce to {each}")

    async def produce(
        self, sets: Mapping[TopicPartition, Sequence[Message]]
    ) -> dict[TopicPartition, ErrorCode]:
        """Send messages; return the broker's error code for each partition, with 0 acks always NONE.

        Raises:
            ClientError: as `multi_send`, but for the codes of partitions.
        """
        self._maybe_reconnect()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.response_timeout_ms / 1000
        node = self._node
        versions = await node.ready(deadline)
        version = versions.latest(ApiKey.PRODUCE, _PRODUCE_MAX)
        request = self._request(sets, magic=1 if version >= _TIMESTAMPS else 0)
        self._sent_count += 1
        answer = await node.send(request, version, max(deadline - loop.time(), 0.001))
        if self._config.request_required_acks == 0:
            return dict.fromkeys(sets, ErrorCode.NONE)
        assert isinstance(answer, ProduceResponse), f"a {type(answer).__name__}"
        codes = {
            TopicPartition(topic.name, each.index): ErrorCode.of(each.error_code)
            for topic in answer.responses
            for each in topic.partition_responses
        }
        if codes.keys() != sets.keys():
            raise BrokerConnectionError(
                f"broker {node.peer} answered for {sorted(codes)}, asked for {sorted(sets)}"
            )
        return codes

    async def ask(self, request: WireMessage, api_key: ApiKey) -> WireMessage:
        """Send another request to the broker; return its response. Raises as `produce`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.response_timeout_ms / 1000
        versions = await self._node.ready(deadline)
        return await self._node.send(request, versions.latest(api_key), max(deadline - loop.time(), 0.001))

    def close(self) -> None:
        """Close the connection; on the loop."""
        self._node.close()

    def _request(self, sets: Mapping[TopicPartition, Sequence[Message]], magic: int) -> ProduceRequest:
        config = self._config
        return ProduceRequest(
            acks=config.request_required_acks,
            timeout_ms=min(config.request_timeout_ms, config.response_timeout_ms),
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[
                        PartitionProduceData(
                            index=each.partition, records=self._message_set(topic, sets[each], magic)
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in by_topic(sets).items()
            ],
        )

    def _message_set(self, topic: str, messages: Sequence[Message], magic: int) -> bytearray:
        builder = MessageSetBuilder(magic, compression=self._config.codec(topic))
        now = self._clock.time_ms()
        for each in messages:
            builder.append(each.key, each.payload, now if each.timestamp < 0 else each.timestamp)
        return builder.build()

    def _maybe_reconnect(self) -> None:
        """Replace the connection when it is due, unless responses are outstanding.

        Behind a load balancer, a new connection may lead to a broker with less load.
        """
        config = self._config
        age_ms = (self._clock.monotonic() - self._opened_at) * 1000
        is_due = self._sent_count >= config.reconnect_interval or (
            0 <= config.reconnect_time_interval_ms <= age_ms
        )
        if is_due and not self._node.in_flight_count:
            self._node.close()
            self._node = self._new_node()
            self._opened_at = self._clock.monotonic()
            self._sent_count = 0

    def _new_node(self) -> NodeConnection:
        return NodeConnection(self.endpoint.host, self.endpoint.port, self._connections, self._on_failure)


class ProducerPool:
    """The sync producers, one for each broker that got messages; owned by the loop."""

    def __init__(self, make: Callable[[BrokerEndpoint], SyncProducer]) -> None:
        self._make: Final = make
        self._producers: Final[dict[int, SyncProducer]] = {}

    def producer(self, endpoint: BrokerEndpoint) -> SyncProducer:
        """Return the producer of a broker, made for its present address."""
        found = self._producers.get(endpoint.id)
        if found is not None and found.endpoint == endpoint:
            return found
        if found is not None:
            found.close()
        made = self._producers[endpoint.id] = self._make(endpoint)
        return made

    def retain(self, broker_ids: AbstractSet[int]) -> None:
        """Close the connections to brokers that are gone."""
        for broker_id in self._producers.keys() - broker_ids:
            self._producers.pop(broker_id).close()

    def close(self) -> None:
        """Close all connections."""
        self.retain(set())
