"""Sends batches with missing sequence numbers, as if one had been lost: `SkippingProducer`.

It speaks the protocol itself, since the producer of `kalda.clients` never does that.
"""

import asyncio
import contextlib
from random import Random as SeededRandom
from typing import Final, TypeAlias

from kalda.common.errors import ErrorCode
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.client_errors import ClientError
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.system.runtime import client_runtime
from kalda.simulation.world import World

_INIT_VERSION: Final = 4
_PRODUCE_VERSION: Final = 9
_TIMEOUT_SECONDS: Final = 4.0
_BATCHES: Final = 6
"""How many batches a producer sends before another one takes its place."""

_Identity: TypeAlias = tuple[int, int]


class SkippingProducer:
    """Sends batches of one record to a topic with one partition; about every third sequence is left out.

    What it checks: the leader that has acknowledged a sequence refuses the one after the next.
    """

    def __init__(self, world: World, topic: str) -> None:
        self._world: Final = world
        self._topic: Final = topic

    async def run(self) -> None:
        """Send records until the workloads stop; the main function of a client."""
        random = self._world.random(f"skipping-{self._world.now}")
        while not self._world.is_stopping:
            address = random.choice(self._world.bootstrap.split(","))
            with contextlib.suppress(ClientError):
                await self._send_to(address, random)
            await asyncio.sleep(random.random() * 2)

    async def _send_to(self, address: str, random: SeededRandom) -> None:
        host, _, port = address.rpartition(":")
        connection = await BrokerConnection.open(
            host,
            int(port),
            client_id="skipping",
            timeout_seconds=_TIMEOUT_SECONDS,
            network=client_runtime().network,
        )
        try:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            answer = await connection.send(request, _INIT_VERSION, _TIMEOUT_SECONDS)
            assert isinstance(answer, InitProducerIdResponse), answer
            if answer.error_code == ErrorCode.NONE:
                await self._send(connection, (answer.producer_id, answer.producer_epoch), random)
        finally:
            connection.close()

    async def _send(self, connection: BrokerConnection, identity: _Identity, random: SeededRandom) -> None:
        sequence = acknowledged = 0
        for number in range(_BATCHES):
            if number and random.random() < 0.3:
                sequence += 1
            code = await self._append(connection, identity, sequence)
            if code != ErrorCode.NONE:
                return
            if number and sequence != acknowledged + 1:
                self._world.history.violate(
                    "a gap in a sequence is refused",
                    f"{connection.peer} acknowledged sequence {sequence} of producer {identity[0]} after "
                    f"{acknowledged}",
                )
            acknowledged = sequence
            sequence += 1
            await asyncio.sleep(random.random() * 0.5)

    async def _append(self, connection: BrokerConnection, identity: _Identity, sequence: int) -> int:
        producer_id, epoch = identity
        builder = RecordBatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=False
        )
        builder.append(None, b"%d" % sequence, client_runtime().clock.time_ms())
        data = PartitionProduceData(index=0, records=bytes(builder.build()))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=3_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )
        answer = await connection.send(request, _PRODUCE_VERSION, _TIMEOUT_SECONDS)
        assert isinstance(answer, ProduceResponse), answer
        return answer.responses[0].partition_responses[0].error_code
