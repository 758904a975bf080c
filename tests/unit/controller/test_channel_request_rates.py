"""How often a channel of the controller asks a broker that cannot be reached, in virtual time."""

import asyncio

from kalda.cluster.schema import BrokerInfo
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.channel_manager import ControllerChannelManager
from kalda.controller.effects import BrokerRequest, StopReplica
from tests.runtimes import seeded
from tests.virtual_time import run_virtual


class Port:
    """Reaches no broker."""

    def __init__(self) -> None:
        self.count = 0

    async def send(self, broker: BrokerInfo, request: BrokerRequest) -> dict[TopicPartition, ErrorCode]:
        self.count += 1
        await asyncio.sleep(0.001)
        raise ConnectionError("refused")


def test_a_broker_that_cannot_be_reached_is_asked_with_growing_pauses() -> None:
    """It is about to start, and has enough to do; all controllers of a rolling restart ask it."""
    port = Port()

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            manager = ControllerChannelManager(port, group, lambda *_: None, lambda _: None, seeded())
            manager.set_brokers({1: BrokerInfo(1, (), epoch=5)})
            for _ in range(100):
                manager.send(1, StopReplica(1, 1, [TopicPartition("a", 0)], False, {}))
            await asyncio.sleep(10.0)
            manager.close()

    run_virtual(scenario())
    assert 10 <= port.count <= 15
